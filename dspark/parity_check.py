"""Holds every parity pack against its recorded cases, and breaks the pack to see them fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dspark.parity_cases import wrong
from dspark.parity_pack import Answer, Pack, Recorded
from dspark.parity_score import Score, Trial, score


class CaseFailure(NamedTuple):
    """A recorded case that the pack answers otherwise."""

    case: Recorded
    wanted: str
    got: Answer


class PackReport(NamedTuple):
    """What the cases and mutants of one pack came to."""

    pack: Pack
    failures: tuple[CaseFailure, ...]
    uncovered: tuple[str, ...]
    score: Score

    @property
    def passed(self) -> bool:
        return not (self.failures or self.uncovered or self.score.survivors)

    def to_json(self) -> dict[str, object]:
        return {
            "pack": self.pack.name,
            "rules": len(self.pack.rules),
            "cases": len(self.pack.cases),
            "failures": [
                {
                    "file": failure.case.place.file,
                    "line": failure.case.place.line,
                    "wanted": failure.wanted,
                    "got": str(failure.got),
                }
                for failure in self.failures
            ],
            "uncovered": list(self.uncovered),
            "mutants": {
                "killed": self.score.killed,
                "idle": self.score.idle,
                "survived": [
                    {"rule_id": each.edit.rule.id, "edit": each.edit.label, "witness": each.witness}
                    for each in self.score.survivors
                ],
            },
        }


def check_packs(packs: Sequence[Pack]) -> tuple[PackReport, ...]:
    """The report of each pack: cases, coverage of rules, mutants."""
    return tuple(check_pack(pack) for pack in packs)


def check_pack(pack: Pack) -> PackReport:
    """Runs the cases of `pack`, then every mutant of its rules until a case is wrong."""
    failures = []
    trials = []
    covered = set()
    for case in pack.cases:
        wanted = wrong(pack, case)
        if wanted:
            # A case that fails already would count every mutant it looks at as noticed.
            failures.append(CaseFailure(case, wanted, pack.answer(case.question)))
            continue
        covered.add(case.rule_id)
        cells = dict(zip(pack.facts, pack.cells(case.question), strict=True))
        trials.append(Trial(cells, case.rule_id))
    return PackReport(
        pack=pack,
        failures=tuple(failures),
        uncovered=tuple(
            rule_id
            for rule_id in pack.rules
            if rule_id not in covered and not _left_over(pack, rule_id)
        ),
        score=score(pack, trials),
    )


def _left_over(pack: Pack, rule_id: str) -> bool:
    """Whether this is a default that no question can reach, so that no case can ask for it."""
    if rule_id != pack.default.id:
        return False
    cells = pack.built.winners.get(rule_id)
    if cells is None:
        return True
    question = pack.realise(dict(zip(pack.facts, cells, strict=False)))
    return pack.answer(question).rule.id != rule_id
