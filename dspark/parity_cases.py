"""The recorded answers of an engine: one JSON object a line, each a test of its pack."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dspark.diagnostics import Place, Report
from dspark.parity_facts import Question, flags_read
from dspark.parity_pack import OUTCOMES, REFUSES, RUNS, SWALLOWS, UNKNOWN, Pack, Recorded
from dspark.spelling import did_you_mean

HOW = ("run", "read")
_KEYS = ("rule", "config", "flags", "path", *OUTCOMES, "how", "seen")


def read_recorded(data: bytes, file: str, report: Report) -> Iterator[Recorded]:
    """The cases of a file; a line that is not one is reported."""
    for number, line in enumerate(data.decode("utf-8").splitlines(), 1):
        place = Place(file, number, 1, max(len(line), 1))
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            report.add("bad-recorded-case", place, problem=f"it is not JSON: {error.msg}")
            continue
        problem = _problem(found)
        if problem:
            report.add("bad-recorded-case", place, problem=problem)
            continue
        outcome = next(each for each in OUTCOMES if each in found)
        yield Recorded(
            rule_id=found["rule"],
            question=Question(found["config"], found.get("flags", {}), found.get("path", "")),
            outcome=outcome,
            says=found[outcome],
            how=found["how"],
            seen=found["seen"],
            place=place,
        )


def _problem(found: Any) -> str:
    """Why an object is not a case; empty if it is one."""
    if not isinstance(found, dict):
        return "it is not an object"
    for key in found:
        if key not in _KEYS:
            return f"it has a key `{key}`; {did_you_mean(key, _KEYS) or 'no case has that'}"
    if sum(key in found for key in OUTCOMES) != 1:
        return f"it needs exactly one of {', '.join(OUTCOMES)}"
    for key in ("rule", "seen", *(each for each in OUTCOMES if each in found)):
        if not isinstance(found.get(key), str) or (key != UNKNOWN and not found[key]):
            return f"`{key}` must be text"
    if found.get("how") not in HOW:
        return f"`how` must be one of {', '.join(HOW)}"
    for key in ("config", "flags"):
        if not isinstance(found.get(key, {} if key == "flags" else None), dict):
            return f"`{key}` must be an object"
    return "" if isinstance(found.get("path", ""), str) else "`path` must be text"


def check_references(pack: Pack, report: Report) -> None:
    """Reports rules, lanes and flags that cases name and the pack does not have."""
    read = flags_read(pack.asked)
    for case in pack.cases:
        _known(case.rule_id, pack.rules, "rule of this pack", case.place, report)
        if case.outcome in (RUNS, SWALLOWS):
            _known(case.says, pack.lanes, "lane of this pack", case.place, report)
        for flag in case.question.flags:
            _known(flag, dict.fromkeys(read), "flag that this pack reads", case.place, report)


def _known(word: str, known: Mapping[str, object], what: str, place: Place, report: Report) -> None:
    if word not in known:
        hint = did_you_mean(word, known) or f"name one that is there ({len(known)} are)"
        report.add("unknown-name", place, what=what, name=word, hint=hint)


def wrong(pack: Pack, case: Recorded) -> str:
    """What a case asked for where the pack answers something else; empty if it agrees."""
    answer = pack.answer(case.question)
    agrees = answer.rule.id == case.rule_id and answer.outcome == case.outcome
    if case.outcome in (RUNS, SWALLOWS):
        agrees = agrees and answer.lane == case.says
    elif case.outcome == REFUSES:
        agrees = agrees and case.says in answer.text
    return "" if agrees else f"{case.rule_id}: {case.outcome} {case.says}".rstrip()
