"""`dspark bench`: what a draft brings on the prompts of a file."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from dspark.cli_plan import count
from dspark.output import progress, write
from dspark.runtime.cli.ending import ended
from dspark.runtime.cli.options import add_model_options, load_models, prepare_models
from dspark.runtime.cli.prompts import read_prompts
from dspark.verb import OK

if TYPE_CHECKING:
    from dspark.runtime.comparison import Comparison, Side
    from dspark.runtime.load import Loaded

_DESCRIPTION = (
    "Decodes every prompt with and without the draft, one at a time and in turns, and compares. "
    "FILE has one JSON object a line with a key `prompt`."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.description = _DESCRIPTION
    add_model_options(parser, draft_required=True)
    parser.add_argument("--prompts", required=True, metavar="FILE", help="- is standard input")
    parser.add_argument("--limit", type=count, metavar="N", help="only the first N prompts")
    parser.add_argument(
        "--max-tokens", type=count, default=128, metavar="N", help="a prompt (default: 128)"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="default: 0, greedy"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--plot", metavar="OUT.png", help="draw it too; needs matplotlib")


def run(arguments: argparse.Namespace) -> int:
    """Runs the verb and returns its exit code."""
    return ended(_bench, arguments)


def _bench(arguments: argparse.Namespace) -> int:
    from dspark.runtime.params import SamplingParams
    from dspark.runtime.request_check import check_request

    if arguments.plot is not None:
        from dspark.runtime.cli.plot import check_plot

        check_plot(arguments.plot)
    texts = read_prompts(arguments.prompts, arguments.limit)
    params = SamplingParams(
        max_tokens=arguments.max_tokens, temperature=arguments.temperature, seed=arguments.seed
    )
    prepared = prepare_models(arguments)
    prompts = [prepared.tokenizer.encode(text).ids for text in texts]
    for prompt in prompts:
        check_request(
            prompt, params, prepared.config, vocab_size=prepared.vocab_size, has_tokenizer=True
        )
    loaded = load_models(prepared, arguments.threads)
    from dspark.runtime.comparison import compare

    # One step a prompt; the bar is drawn where there are many, on a terminal.
    steps = progress(prompts, "decoding")
    compared = compare(loaded.engine, prompts, params, done=lambda: next(steps, None))
    if arguments.json:
        write([[json.dumps(_document(compared, loaded))]])
    else:
        write([[line] for line in _table(compared, loaded, params.temperature)])
    if arguments.plot is not None:
        from dspark.runtime.cli.plot import plot

        plot(compared, arguments.plot)
    return OK


def _document(compared: Comparison, loaded: Loaded) -> dict[str, object]:
    # INVARIANT: the verb asks for a draft, so there is a decision on it.
    assert loaded.decision is not None
    return {
        "prompts": compared.prompts,
        "same": compared.same,
        "speedup": compared.speedup,
        "with_draft": _side(compared.with_draft),
        "without_draft": _side(compared.without_draft),
        "device": loaded.device,
        "dtype": loaded.dtype,
        "decision": loaded.decision.to_json(),
    }


def _side(side: Side) -> dict[str, object]:
    return {
        "tokens": side.tokens,
        "seconds": side.seconds,
        "tokens_per_s": side.tokens_per_s,
        "rounds": side.acceptance.rounds,
        "tokens_per_round": side.acceptance.tokens_per_round,
        "acceptance_per_position": list(side.acceptance.acceptance_per_position),
    }


def _table(compared: Comparison, loaded: Loaded, temperature: float) -> list[str]:
    rows = [("", "tokens", "seconds", "tokens/s", "rounds", "tokens/round")]
    for name, side in (("without", compared.without_draft), ("with", compared.with_draft)):
        numbers = (f"{side.seconds:.2f}", f"{side.tokens_per_s:.1f}")
        rounds = (str(side.acceptance.rounds), f"{side.acceptance.tokens_per_round:.2f}")
        rows.append((f"{name} draft", str(side.tokens), *numbers, *rounds))
    lines = ["".join(f"{cell:>14}" for cell in row) for row in rows]
    shares = compared.with_draft.acceptance.acceptance_per_position
    # Drawn with a draft, a text is as likely as without, and another one (docs/lossless.md).
    sampled = ", which a temperature makes differ" if temperature else ""
    return [
        *lines,
        f"with the draft {compared.speedup:.2f} times as fast ({loaded.dtype} on {loaded.device})",
        f"the same tokens both ways for {compared.same} of {compared.prompts} prompts{sampled}",
        "accepted by position: " + " ".join(f"{share:.2f}" for share in shares),
    ]
