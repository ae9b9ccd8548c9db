"""`dspark generate`: one prompt, its continuation on standard output as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from dspark.cli_plan import count
from dspark.output import emit, write
from dspark.runtime.cli.ending import ended
from dspark.runtime.cli.options import add_model_options, load_models, prepare_models
from dspark.runtime.cli.prompts import STDIN, read_prompt
from dspark.verb import OK

if TYPE_CHECKING:
    from dspark.runtime.decode_one import Decoded
    from dspark.runtime.load import Loaded

_DESCRIPTION = (
    "Decodes one prompt. The models are folders on this machine; both are checked as by `dspark "
    "plan` before a weight is read. Greedy unless a temperature is given."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.description = _DESCRIPTION
    add_model_options(parser)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt itself, taken as it is")
    prompt.add_argument("--prompt-file", metavar="FILE", help="UTF-8 text")
    prompt.add_argument(
        "stdin", nargs="?", choices=[STDIN], metavar="-", help="the prompt is on standard input"
    )
    parser.add_argument(
        "--max-tokens", type=count, default=128, metavar="N", help="most new tokens (default: 128)"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="default: 0, greedy"
    )
    parser.add_argument("--top-k", type=int, default=0, metavar="N", help="default: 0, off")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="default: 1, off")
    parser.add_argument("--min-p", type=float, default=0.0, metavar="P", help="default: 0, off")
    parser.add_argument("--seed", type=int, metavar="N", help="default: a new one each time")
    parser.add_argument("--no-draft", action="store_true", help="leave --draft out")
    parser.add_argument("--stats", action="store_true", help="what it took, on standard error")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the text")


def run(arguments: argparse.Namespace) -> int:
    """Runs the verb and returns its exit code."""
    return ended(_generate, arguments)


def _generate(arguments: argparse.Namespace) -> int:
    from dspark.runtime.params import SamplingParams
    from dspark.runtime.request_check import check_request

    text = read_prompt(arguments)
    params = SamplingParams(
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        seed=arguments.seed,
    )
    if arguments.no_draft:
        arguments.draft = None
        arguments.drafts = None
    prepared = prepare_models(arguments)
    prompt = prepared.tokenizer.encode(text).ids
    # The engine checks this too, but only once gigabytes have been read.
    check_request(
        prompt, params, prepared.config, vocab_size=prepared.vocab_size, has_tokenizer=True
    )
    loaded = load_models(prepared, arguments.threads)
    from dspark.render import warning_lines
    from dspark.runtime.decode_one import decode_one

    if not arguments.json:
        write(warning_lines(prepared.plan.warnings), sys.stderr)
    decoded = decode_one(loaded.engine, prompt, params, show=None if arguments.json else emit)
    if arguments.json:
        write([[json.dumps(_document(decoded, loaded))]])
    else:
        emit("\n")
    if arguments.stats:
        write([[line] for line in _statistics(decoded, loaded)], sys.stderr)
    return OK


def _document(decoded: Decoded, loaded: Loaded) -> dict[str, object]:
    acceptance = decoded.statistics.acceptance
    return {
        "text": decoded.text,
        "token_ids": list(decoded.token_ids),
        "finish_reason": decoded.finish_reason,
        "stats": {
            "rounds": acceptance.rounds,
            "tokens": len(decoded.token_ids),
            "tokens_per_round": acceptance.tokens_per_round,
            "acceptance_per_position": list(acceptance.acceptance_per_position),
            "tokens_per_s": len(decoded.token_ids) / decoded.seconds,
        },
        "decision": None if loaded.decision is None else loaded.decision.to_json(),
    }


def _statistics(decoded: Decoded, loaded: Loaded) -> list[str]:
    acceptance, times = decoded.statistics.acceptance, loaded.engine.statistics
    tokens = len(decoded.token_ids)
    lines = [
        f"{tokens} tokens in {decoded.seconds:.2f} s, {tokens / decoded.seconds:.1f} tokens/s",
        f"ended by: {decoded.finish_reason}",
        f"the first after {decoded.first_s:.2f} s ({loaded.dtype} on {loaded.device})",
        f"{acceptance.rounds} rounds, {acceptance.tokens_per_round:.2f} tokens a round",
        f"draft {times.draft_s:.2f} s, verify {times.verify_s:.2f} s, host {times.host_s:.2f} s",
    ]
    if any(acceptance.verified):
        shares = " ".join(f"{share:.2f}" for share in acceptance.acceptance_per_position)
        lines.insert(4, f"accepted by position: {shares}")
    lines += [
        f"rounds without a draft ({reason}): {rounds}"
        for reason, rounds in sorted(acceptance.draft_skipped.items())
    ]
    lines += [f"warning: {found}" for found in loaded.engine.statistics.health]
    return lines
