"""Runs a table's own tests, counts what they cover, and breaks the table to see them fail."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from dspark.cases import source_kind
from dspark.compile import DRAFTS
from dspark.compiled import Table
from dspark.decision import Decision
from dspark.mutation_score import Score, Trial, agrees, score
from dspark.routing import decide_source
from dspark.rule import Case, Rule


class Failure(NamedTuple):
    """An in-table test that did not get what it asks for."""

    case: Case
    decision: Decision
    wanted: str


class Report(NamedTuple):
    """What `dspark check` found."""

    tests: int
    failures: tuple[Failure, ...]
    covered: tuple[str, ...]
    """IDs of rules that at least one passing hit test reached, default and `E` rules included."""
    uncovered: tuple[str, ...]
    score: Score
    swaps: int
    """Pairs of refusals whose messages were exchanged and noticed."""
    unnoticed_swaps: tuple[tuple[str, str], ...]

    @property
    def passed(self) -> bool:
        return not (self.failures or self.uncovered or self.score.survivors or self.unnoticed_swaps)

    def to_json(self) -> dict[str, object]:
        return {
            "tests": self.tests,
            "failures": [
                {
                    "rule_id": failure.case.rule_id,
                    "line": failure.case.place.line,
                    "wanted": failure.wanted,
                    "got": failure.decision.summary(),
                }
                for failure in self.failures
            ],
            "covered": list(self.covered),
            "uncovered": list(self.uncovered),
            "mutants": {
                "killed": self.score.killed + self.swaps,
                "rejected": self.score.rejected,
                "idle": len(self.score.idle),
                "survived": [
                    {
                        "rule_id": s.mutant.rule.id,
                        "edit": s.mutant.edit,
                        "witness": s.difference.witness or None,
                    }
                    for s in self.score.survivors
                ],
                "unnoticed_swaps": [list(pair) for pair in self.unnoticed_swaps],
            },
        }


def check(table: Table) -> Report:
    """Tests, coverage by rule ID, and mutation score of a compiled table.

    The messages for unreadable input are checked with the table they ship with: their tests name
    its rules.
    """
    messages = table.messages().values() if is_shipped(table) else ()
    rules = {**table.rules, **{rule.id: rule for rule in messages}}
    cases = [case for rule in rules.values() for case in rule.cases]
    failures = []
    covered: set[str] = set()
    trials = []
    for case, decision, wanted in _decided(table, cases):
        if wanted:
            # A test that fails already would count every mutant it looks at as noticed.
            failures.append(Failure(case, decision, wanted))
            continue
        if case.kind == "hit":
            covered.add(case.rule_id)
        if decision.observation is not None and case.rule_id in table.rules:
            trials.append(Trial(case, decision.observation))
    uncovered = tuple(rule_id for rule_id in rules if rule_id not in covered)
    swaps, unnoticed = swap_messages(rules)
    return Report(
        tests=len(cases),
        failures=tuple(failures),
        covered=tuple(rule_id for rule_id in rules if rule_id in covered),
        uncovered=uncovered,
        score=score(table.facts, table.rules, table.default, trials),
        swaps=swaps,
        unnoticed_swaps=unnoticed,
    )


def failing_tests(table: Table) -> tuple[Failure, ...]:
    """The tests inside a table that do not get what they ask for; a moment's work."""
    cases = [case for rule in table.rules.values() for case in rule.cases]
    return tuple(Failure(*found) for found in _decided(table, cases) if found[2])


def _decided(table: Table, cases: Sequence[Case]) -> Iterator[tuple[Case, Decision, str]]:
    """Each test with its decision, and with what it asked for where that is something else."""
    with tempfile.TemporaryDirectory(prefix="dspark-check-") as folder:
        for case in cases:
            decision = decide_case(table, case, Path(folder))
            yield case, decision, _wanted(case, decision)


def is_shipped(table: Table) -> bool:
    """Whether `table` is the one that comes with the package."""
    return Path(table.file).resolve() == DRAFTS.resolve()


def decide_case(table: Table, case: Case, folder: Path) -> Decision:
    """The decision for a test's input, through the same door a user's input takes."""
    given = case.given
    kind = source_kind(given)
    if not kind:
        return table.route(given)
    value = given[kind]
    if kind == "path":
        # A test decides alike everywhere: it neither asks the hub nor waits for input.
        return decide_source(table, str(value), stdin=BytesIO(), download=_no_hub)
    if kind == "hub":
        from dspark.hub import replay

        assert isinstance(value, Mapping)  # INVARIANT: `read_cases` accepts nothing else
        return decide_source(table, "owner/name", download=replay(**value))
    place = Path(tempfile.mkdtemp(dir=folder))
    if kind == "folder":
        assert isinstance(value, Mapping)  # INVARIANT: `read_cases` accepts nothing else
        for name, text in value.items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(text), encoding="utf-8")
        return decide_source(table, place)
    file = place / "config.json"
    file.write_bytes(_content(kind, value))
    return decide_source(table, file)


def _no_hub(*arguments: object, **options: object) -> str:
    from dspark.hub import replay

    return replay(None, None)(*arguments, **options)


def _content(kind: str, value: object) -> bytes:
    if kind == "hex":
        return bytes.fromhex(str(value))
    if kind == "repeat":
        assert isinstance(value, list)  # INVARIANT: `read_cases` accepts nothing else
        text, times = value
        return str(text).encode() * int(times)
    return (json.dumps(value) if kind == "config" else str(value)).encode()


def _wanted(case: Case, decision: Decision) -> str:
    if not agrees(case, decision.rule):
        if case.kind == "miss":
            return case.expected or f"anything but {case.rule_id}"
        return f"{case.rule_id}{f' in lane {case.lane}' if case.lane else ''}"
    if case.says and (decision.refusal is None or case.says not in decision.refusal.message):
        return f'{case.rule_id} saying "{case.says}"'
    return ""


def swap_messages(rules: Mapping[str, Rule]) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Exchanges the messages of every two refusals; returns how many were noticed, and which not.

    A swap is noticed when a phrase that a hit test of either rule asks for is not in the other's
    message.
    """
    refusals = [(rule, rule.refuse.skeleton()) for rule in rules.values() if rule.refuse]
    noticed = 0
    unnoticed = []
    for number, (rule, words) in enumerate(refusals):
        phrases = _phrases(rule, words)
        for other, other_words in refusals[number + 1 :]:
            if _misses(phrases, other_words) or _misses(_phrases(other, other_words), words):
                noticed += 1
            else:
                unnoticed.append((rule.id, other.id))
    return noticed, tuple(unnoticed)


def _phrases(rule: Rule, words: str) -> list[str]:
    """What the rule's tests ask of its fixed words: a quoted value may turn up in any message."""
    return [case.says for case in rule.cases if case.says and case.says in words]


def _misses(phrases: Sequence[str], words: str) -> bool:
    return any(phrase not in words for phrase in phrases)
