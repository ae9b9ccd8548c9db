"""Asks vLLM's own code what its parity pack claims: `scripts/parity vllm==0.33.0`.

The wheel's Python files are unpacked into a cache, nothing is installed. The pack's recorded cases
are asked first, then random drafts; what vLLM answers otherwise is printed. Of another version the
newest pack is asked, so that what is printed is what has changed. Exit code 1 if anything has.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from dspark.parity_compile import shipped_packs
from dspark.parity_facts import Question
from dspark.parity_pack import UNKNOWN, Pack
from tests.support.vllm_parity import Observed, ask_vllm, disagreement, random_questions
from tests.support.vllm_wheel import NoWheel, unpacked

ENGINE = "vLLM"
LONGEST = 300  # characters shown of an answer; the list of 400 names would follow


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison and returns its exit code."""
    parser = argparse.ArgumentParser(prog="scripts/parity", description=__doc__)
    parser.add_argument("wheel", metavar="vllm==VERSION")
    parser.add_argument("--random", type=int, default=500, metavar="N", help="drafts to make up")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    name, _, version = arguments.wheel.partition("==")
    if name != "vllm" or not version:
        parser.error("only vLLM's code can be run here: vllm==VERSION")
    try:
        folder = unpacked(version)
    except NoWheel as problem:
        print(f"scripts/parity: {problem}", file=sys.stderr)
        return 2
    pack = newest_pack()
    cases = [case.question for case in pack.cases]
    found = list(random_questions(arguments.seed, arguments.random))
    answers = ask_vllm(folder, [*cases, *found])
    changed = show(pack, cases, answers[: len(cases)], "recorded cases")
    changed += show(pack, found, answers[len(cases) :], "random drafts")
    return 1 if changed else 0


def newest_pack() -> Pack:
    """The pack of vLLM's newest version that ships."""
    packs = [pack for pack in shipped_packs() if pack.engine == ENGINE]
    return max(packs, key=lambda pack: [int(part) for part in pack.version.split(".")])


def show(pack: Pack, questions: Sequence[Question], answers: Sequence[Observed], what: str) -> int:
    """Prints what differs, then the figures; returns how many differ."""
    count = unknown = 0
    for question, observed in zip(questions, answers, strict=True):
        answer = pack.answer(question)
        unknown += answer.outcome == UNKNOWN
        other = " ".join(disagreement(pack, answer, observed).split())
        if other:
            count += 1
            print(f"{answer.rule.id} {answer.rule.name}: {answer.outcome} {answer.lane}".rstrip())
            print(f"    vLLM: {other[:LONGEST]}")
            print(f"    {json.dumps(question._asdict())}")
    total = len(questions)
    print(f"{what}: {count} of {total} differ from {pack.name}; it claims nothing of {unknown}")
    return count


if __name__ == "__main__":
    sys.exit(main())
