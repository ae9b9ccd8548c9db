"""`dspark verify`: whether a pair's greedy text is the one its target alone would have written."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from dspark.cli_plan import count
from dspark.output import progress, write
from dspark.runtime.cli.ending import ended
from dspark.runtime.cli.options import add_model_options, load_models, prepare_models
from dspark.runtime.cli.prompts import read_prompts
from dspark.verb import FAILED, OK

if TYPE_CHECKING:
    from dspark.runtime.load import Loaded
    from dspark.runtime.losslessness import Losslessness

_DESCRIPTION = (
    "Decodes every prompt greedily with the draft, then asks the target alone, one row at a time, "
    "about each token of that text; and decodes without the draft. A token that is not the "
    "target's own choice diverges. In float32 that is a failure; in bfloat16 it is reported."
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
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the lines")


def run(arguments: argparse.Namespace) -> int:
    """Runs the verb and returns its exit code."""
    return ended(_verify, arguments)


def _verify(arguments: argparse.Namespace) -> int:
    from dspark.runtime.params import SamplingParams
    from dspark.runtime.request_check import check_request

    texts = read_prompts(arguments.prompts, arguments.limit)
    params = SamplingParams(max_tokens=arguments.max_tokens, temperature=0.0)
    prepared = prepare_models(arguments)
    prompts = [prepared.tokenizer.encode(text).ids for text in texts]
    for prompt in prompts:
        check_request(
            prompt, params, prepared.config, vocab_size=prepared.vocab_size, has_tokenizer=True
        )
    loaded = load_models(prepared, arguments.threads)
    from dspark.runtime.losslessness import Losslessness, add_prompt

    found = Losslessness()
    for prompt in progress(prompts, "verifying"):
        add_prompt(found, loaded.engine, loaded.target, prompt, params)
    if arguments.json:
        write([[json.dumps(_document(found, loaded))]])
    else:
        write([[line] for line in _lines(found, loaded)])
    return OK if found.lossless or loaded.dtype != "float32" else FAILED


def _document(found: Losslessness, loaded: Loaded) -> dict[str, object]:
    # INVARIANT: the verb asks for a draft, so there is a decision on it.
    assert loaded.decision is not None
    return {
        "prompts": found.prompts,
        "same": found.same,
        "tokens": found.tokens,
        "divergences": found.divergences,
        "largest_gap": found.largest_gap,
        "gaps": [{"below": below, "count": times} for below, times in found.histogram()],
        "smallest_margin": found.smallest_margin,
        "device": loaded.device,
        "dtype": loaded.dtype,
        "decision": loaded.decision.to_json(),
    }


def _lines(found: Losslessness, loaded: Loaded) -> list[str]:
    share = found.divergences / found.tokens
    lines = [
        f"{found.prompts} prompts, {found.tokens} tokens ({loaded.dtype} on {loaded.device})",
        f"{found.divergences} tokens diverge from the target alone ({share:.4%})",
        f"{found.same} of {found.prompts} texts are the same without the draft",
        f"nearest tie: the second choice was {found.smallest_margin:.3g} below the first",
    ]
    if found.divergences:
        lines.append(f"largest gap of a divergence: {found.largest_gap:.3g}")
        lines += [
            f"  {times} with a gap below {below:g}" for below, times in found.histogram() if times
        ]
    return lines
