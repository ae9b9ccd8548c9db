"""An edit that no test of a table notices is found and named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dspark.check import check, swap_messages
from dspark.compile import compile_table, compile_text
from dspark.compiled import Table
from dspark.condition import Condition
from dspark.facts import OTHER, Cell
from dspark.messages import Template
from dspark.mutate import Mutant, mutants
from dspark.mutation_score import CONFLICT, Trial, agrees, score
from dspark.observe import Observation
from dspark.rule import Case, Rule, When
from tests.support.tables import (
    NAMES,
    NOWHERE,
    RandomTable,
    every_cell,
    make_rule,
    naive,
    observation,
    tables,
)

STRONG = """
table: small
facts: [architecture, markov]
default: R000
lanes: {block: block drafts}
rules:
  L001:
    name: block
    when: {architecture: BlockModel, markov: positive}
    lane: block
    why: it was published
    tests:
      - hit: {architectures: [BlockModel], markov_rank: 8}
        lane: block
      - miss: {architectures: [OtherModel], markov_rank: 8}
      - miss: {markov_rank: 8}
      - miss: {architectures: [BlockModel]}
      - miss: {architectures: [BlockModel], markov_rank: -1}
  R001:
    name: headless
    when: {architecture: [BlockModel, BareModel], markov: zero}
    refuse: "a draft without its head"
    why: nothing to refine with
    tests:
      - hit: {architectures: [BlockModel], markov_rank: 0}
        says: without its head
      - hit: {architectures: [BareModel], markov_rank: 0}
      - miss: {architectures: [OtherModel], markov_rank: 0}
      - miss: {markov_rank: 0}
      - miss: {architectures: [BareModel]}
      - miss: {architectures: [BareModel], markov_rank: -1}
  R000:
    name: no-rule
    refuse: "no rule decides"
    why: nothing matched
    tests:
      - hit: {}
        says: no rule decides
"""


def compiled(*removed: str) -> Table:
    text = STRONG
    for line in removed:
        assert 1 == text.count(line), line
        text = text.replace(line, "")
    return compile_text(text.encode(), "table.yaml")


def test_a_strong_table_scores_100() -> None:
    report = check(compiled())

    assert report.passed
    assert ((), ()) == (report.failures, report.uncovered)
    assert 100.0 == report.score.percent
    assert ("L001", "R001", "R000") == report.covered
    assert (12, 1) == (report.tests, report.swaps)


@pytest.mark.parametrize(
    ("removed", "rule_id", "edit"),
    [
        ("      - miss: {architectures: [OtherModel], markov_rank: 8}\n", "L001", OTHER),
        ("      - miss: {markov_rank: 8}\n", "L001", "widen architecture by ABSENT"),
        ("      - miss: {architectures: [BlockModel]}\n", "L001", "widen markov by ABSENT"),
        (
            "      - miss: {architectures: [BlockModel], markov_rank: -1}\n",
            "L001",
            "widen markov by invalid",
        ),
        (
            "      - hit: {architectures: [BareModel], markov_rank: 0}\n",
            "R001",
            "narrow architecture by BareModel",
        ),
        (
            "      - miss: {architectures: [BareModel], markov_rank: -1}\n",
            "R001",
            "widen markov by invalid",
        ),
    ],
)
def test_a_missing_test_lets_the_edit_it_guarded_survive(
    removed: str, rule_id: str, edit: str
) -> None:
    table = compiled(removed)

    report = check(table)

    assert not report.passed
    assert report.score.percent < 100.0
    survivors = {(s.mutant.rule.id, s.mutant.edit): s for s in report.score.survivors}
    named = [key for key in survivors if key[0] == rule_id and edit in key[1]]
    assert named
    for survivor in survivors.values():
        old = table.route(_config(survivor.difference.witness))
        assert survivor.difference.old.id == old.rule_id


def _config(witness: str) -> dict[str, object]:
    config = json.loads(witness)
    assert isinstance(config, dict)
    return config


def test_an_edit_that_changes_no_decision_is_idle_and_not_counted() -> None:
    """L001 takes what the first alternative of L002 would take into the same lane."""
    cells = {"markov": Condition(frozenset({"positive"}))}
    rules = {
        "L001": make_rule("L001", [cells], "one"),
        "L002": make_rule("L002", [cells, {"markov": Condition(frozenset({"zero"}))}], "one"),
    }
    default = make_rule("R000", ())

    found = score(("markov",), {**rules, "R000": default}, default, ())

    assert ("L002", "delete alternative 1") in {(m.rule.id, m.edit) for m in found.idle}
    assert ("L001", "delete the rule") in {
        (s.mutant.rule.id, s.mutant.edit) for s in found.survivors
    }
    assert found.killed == 0
    assert found.percent < 100


def test_a_failing_test_kills_nothing() -> None:
    """Or one wrong test would make every edit near it look noticed."""
    guard = "      - hit: {architectures: [BareModel], markov_rank: 0}\n"
    wrong = STRONG.replace(guard, guard.replace("- hit:", "- miss:") + "        is: L001\n")
    assert wrong != STRONG

    report = check(compile_text(wrong.encode(), "table.yaml"))

    assert [("R001", "L001")] == [(f.case.rule_id, f.wanted) for f in report.failures]
    assert "narrow architecture by BareModel" in {s.mutant.edit for s in report.score.survivors}


def test_two_messages_whose_tests_ask_for_the_same_words_can_be_exchanged() -> None:
    rules = check_rules("a draft without a head", "a draft without a tail", "draft without a")

    assert (0, (("R001", "R002"),)) == swap_messages(rules)
    assert (1, ()) == swap_messages(
        check_rules("a draft without a head", "a draft without a tail", "a head")
    )


def check_rules(first: str, second: str, says: str) -> dict[str, Rule]:
    return {
        rule_id: make_rule(rule_id, ())._replace(
            refuse=Template.parse(text), cases=(make_case(rule_id, says=says),)
        )
        for rule_id, text in (("R001", first), ("R002", second))
    }


def make_case(
    rule_id: str, *, kind: str = "hit", says: str = "", lane: str = "", of: str = ""
) -> Case:
    return Case(rule_id, kind, {}, says, lane, of, NOWHERE)


def test_the_shipped_table_passes_its_own_check() -> None:
    report = check(compile_table())

    assert ((), (), (), ()) == (
        report.failures,
        report.uncovered,
        report.score.survivors,
        report.unnoticed_swaps,
    )
    assert report.passed
    assert 400 < report.tests
    assert 5000 < report.score.killed + report.score.rejected


def test_a_table_of_ones_own_is_not_asked_to_pass_the_tests_of_the_shipped_messages() -> None:
    """They name rules of the shipped table."""
    report = check(compiled())

    assert not {rule_id for rule_id in report.covered if rule_id.startswith("E")}


# -------------------------------------------------------------------- against the definition


class Bench(NamedTuple):
    """A table that compiles, with tests that pass."""

    table: RandomTable
    trials: list[Trial]


@st.composite
def benches(draw: st.DrawFn) -> Bench:
    table = draw(tables())
    cells = list(every_cell(table.facts, table))
    winners = [naive(table, some) for some in cells]
    assume(None not in winners)
    assume(set(table.rules) <= {winner.id for winner in winners if winner})
    trials = []
    for some in draw(st.lists(st.sampled_from(cells), max_size=6)):
        entry = some.get("architecture")
        more = draw(st.lists(st.sampled_from((*NAMES, OTHER)), max_size=1)) if entry else []
        entries = [name for name in (entry, *more) if name is not None]
        seen = observation(some, list(dict.fromkeys(entries)))
        winner = first_of(table, seen, None)
        if winner is CONFLICT:
            continue
        assert winner is not None
        says = "refused" if winner.lane is None else ""
        kind = draw(st.sampled_from(("hit", "miss", "is")))
        if kind == "hit":
            case = make_case(winner.id, says=says, lane=winner.lane or "")
        elif kind == "is":
            case = make_case("X000", kind="miss", of=winner.id)
        else:
            others = sorted({*table.rules, "R000"} - {winner.id})
            case = make_case(draw(st.sampled_from(others)), kind="miss")
        trials.append(Trial(case, seen))
    return Bench(table, trials)


@given(benches())
def test_every_edit_is_judged_as_by_asking_it_of_every_cell(bench: Bench) -> None:
    table, trials = bench
    rules = {**table.rules, "R000": table.default}
    expected: dict[str, list[str]] = {"killed": [], "rejected": [], "idle": [], "survivors": []}
    for mutant in mutants(rules, table.default):
        expected[judged(table, trials, mutant)].append(f"{mutant.rule.id} {mutant.edit}")

    found = score(table.facts, rules, table.default, trials)

    assert expected["survivors"] == [f"{s.mutant.rule.id} {s.mutant.edit}" for s in found.survivors]
    assert expected["idle"] == [f"{mutant.rule.id} {mutant.edit}" for mutant in found.idle]
    assert (len(expected["killed"]), len(expected["rejected"])) == (found.killed, found.rejected)


@given(benches())
def test_a_survivor_shows_cells_that_its_edit_decides_otherwise(bench: Bench) -> None:
    table, trials = bench
    rules = {**table.rules, "R000": table.default}

    for survivor in score(table.facts, rules, table.default, trials).survivors:
        cells = dict(zip(table.facts, survivor.difference.cells, strict=True))
        before, after = naive(table, cells), naive(edited(table, survivor.mutant), cells)
        assert before is survivor.difference.old
        assert after is survivor.difference.new
        assert (before.id, before.lane) != (after.id, after.lane)


def judged(table: RandomTable, trials: Sequence[Trial], mutant: Mutant) -> str:
    after = edited(table, mutant)
    for trial in trials:
        answer = first_of(after, trial.observation, mutant)
        if answer is not None and not agrees(trial.case, answer):
            return "killed"
    cells = list(every_cell(table.facts, table, after))
    winners = [naive(after, some) for some in cells]
    if None in winners or set(after.rules) - {winner.id for winner in winners if winner}:
        return "rejected"
    for some, winner in zip(cells, winners, strict=True):
        before = naive(table, some)
        assert before is not None
        assert winner is not None
        if (before.id, before.lane) != (winner.id, winner.lane):
            return "survivors"
    return "idle"


def edited(table: RandomTable, mutant: Mutant) -> RandomTable:
    if mutant.rule.id == "R000":
        assert mutant.changed is not None
        return table._replace(default=mutant.changed)
    rules = {rule_id: rule for rule_id, rule in table.rules.items() if rule_id != mutant.rule.id}
    if mutant.changed is not None:
        rules[mutant.rule.id] = mutant.changed
    return table._replace(rules=rules)


def first_of(table: RandomTable, seen: Observation, mutant: Mutant | None) -> Rule | None:
    """The rule that decides, None for a clash, CONFLICT for entries that differ."""
    named = {
        cell
        for rule in table.rules.values()
        for when in rule.when
        for cell in (when["architecture"].cells if "architecture" in when else ())
    }
    entries = seen.architectures
    asked: Sequence[Cell] = [entry for entry in entries if entry in named] or entries[:1] or [None]
    answers: dict[str, Rule | None] = {}
    for entry in asked if len(entries) > 1 else entries or [None]:
        cells = {fact: getattr(seen, fact, entry) for fact in table.facts}
        matched = [rule for rule in table.rules.values() if matches(rule, cells, mutant)]
        ids = {rule.id for rule in matched}
        gave_way = {other for rule in matched for other in rule.before}
        first = [r for r in matched if ids <= {r.id} | r.before and r.id not in gave_way]
        answer = (first[0] if first else None) if matched else table.default
        answers[answer.id if answer else ""] = answer
    if None in answers.values():
        return None
    return answers.popitem()[1] if len(answers) == 1 else CONFLICT


def matches(rule: Rule, cells: Mapping[str, Cell], mutant: Mutant | None) -> bool:
    # Names that no rule in question tells apart are one cell to an edit, as to the compiler.
    by_one_cell = mutant is not None and rule is mutant.changed and bool(mutant.fact)
    if mutant and by_one_cell and cells[mutant.fact] not in mutant.told_apart:
        cells = {**cells, mutant.fact: OTHER}
    return rule.matches(cells)


def test_two_rules_may_meet_where_a_third_goes_before_both() -> None:
    """Or every edit of one of the two would count as rejected by the compiler, and none survive."""
    rules = {
        "L001": make_rule("L001", [named("Alpha")], "one", before=["L002", "R003"]),
        "L002": make_rule("L002", [named("Alpha", "Beta")], "two"),
        "R003": make_rule("R003", [named("Alpha", "Gamma")]),
    }
    default = make_rule("R000", ())

    found = score(("architecture",), {**rules, "R000": default}, default, ())

    edits = {f"{each.mutant.rule.id} {each.mutant.edit}" for each in found.survivors}
    assert {"L002 decide one instead", "R003 decide two instead"} <= edits


def named(*cells: str) -> When:
    return {"architecture": Condition(frozenset(cells))}
