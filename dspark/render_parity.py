"""What the parity packs say, as lines of text and as a table for a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dspark.decision import Decision
from dspark.engines import EngineAnswer
from dspark.messages import plain
from dspark.output import Line, Segment
from dspark.parity import ParityReport
from dspark.parity_check import PackReport
from dspark.parity_pack import REFUSES, RUNS, SWALLOWS, UNKNOWN, Answer
from dspark.render import DIM, LANE, NAME, REFUSED, WARNING

STYLE = {RUNS: LANE, REFUSES: REFUSED, SWALLOWS: WARNING, UNKNOWN: DIM}

Asked = tuple[Decision, tuple[EngineAnswer, ...]]
"""Our decision for a checkpoint, and what each engine does with it."""


def engine_lines(decision: Decision, answers: Sequence[EngineAnswer]) -> Iterator[Line]:
    """One paragraph: our decision, then each engine with the reason and what to type."""
    source = plain(decision.source, 200)
    ours = f"lane {decision.lane}" if decision.lane is not None else "refused"
    style = LANE if decision.lane is not None else REFUSED
    yield [(source, NAME), ": ", (ours, style), f"  [{decision.rule_id} {decision.name}]"]
    for answer in answers:
        best = answer.best
        engine = f"{answer.pack.engine} {answer.pack.version}"
        yield [f"    {engine:<33} ", *_outcome(best.answer)]
        if best.answer.text:
            yield [f"        {plain(best.answer.text, 200)}"]
        if answer.outcome == RUNS:
            yield [f"        {best.typed(source)}"]
        for trap in answer.traps:
            yield ["        not ", trap.typed(source), ": ", *_outcome(trap.answer)]


def _outcome(answer: Answer) -> list[Segment]:
    lane = f" {answer.lane}" if answer.lane else ""
    if answer.outcome == REFUSES and answer.lane:
        lane = f" after {answer.lane}"
    label = f"  [{answer.rule.id} {answer.rule.name}]"
    return [(f"{answer.outcome}{lane}", STYLE[answer.outcome]), label]


def engines_table(asked: Sequence[Asked]) -> Iterator[str]:
    """The lines of a Markdown table: checkpoints down, engines across."""
    engines = [answer.pack for answer in asked[0][1]] if asked else []
    heads = ["Checkpoint", "dspark", *(f"{pack.engine} {pack.version}" for pack in engines)]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for decision, answers in asked:
        lane = decision.lane if decision.lane is not None else "refused"
        cells = [_name(decision.source), f"{lane} {decision.rule_id}"]
        cells += [f"{answer.outcome} {answer.best.answer.rule.id}" for answer in answers]
        yield f"| {' | '.join(cells)} |"


def _name(source: str) -> str:
    folder = plain(source.rstrip("/"), 200).rpartition("/")[2]
    return f"`{folder.replace('|', '/')}`"


def parity_lines(report: ParityReport) -> Iterator[Line]:
    """What is not declared and what is no longer so, then the figures of one pack."""
    pack = report.pack
    for found in report.undeclared:
        ours = f"lane {found.ours.lane}" if found.ours.lane is not None else "refused"
        yield [
            (f"{pack.name}: undeclared divergence", REFUSED),
            f": {found.ours.id} {found.ours.name} ({ours}), ",
            f"{found.theirs.rule.id} {found.theirs.rule.name} ",
            f"({found.theirs.outcome}{f' {found.theirs.lane}' if found.theirs.lane else ''})",
        ]
        yield ["    ", found.witness]
    for stale in report.stale:
        place = stale.divergence.place
        yield [
            (f"{place.file}:{place.line}", NAME),
            ": ",
            ("stale divergence", REFUSED),
            f": no draft shows it for {stale.rule_id}",
        ]
    for divergence in pack.divergences:
        sides = f"{', '.join(divergence.ours)} and its {', '.join(divergence.theirs)}"
        yield [f"{pack.name}: declared, ours {sides}: ", (divergence.why, DIM)]
    stale_ones = len({each.divergence for each in report.stale})
    yield [
        f"{pack.name}: {len(report.differences)} pairs of rules differ, ",
        f"{len(report.undeclared)} of them undeclared; ",
        f"{len(pack.divergences)} divergences declared, {stale_ones} stale",
    ]


def pack_lines(reports: Sequence[PackReport]) -> Iterator[Line]:
    """What the cases and mutants of the packs came to, worst first."""
    for report in reports:
        for failure in report.failures:
            place = failure.case.place
            yield [(f"{place.file}:{place.line}", NAME), ": ", ("case failed", REFUSED)]
            yield ["    wanted ", failure.wanted]
            yield ["    got    ", str(failure.got)]
        for rule_id in report.uncovered:
            label = f": {rule_id} of {report.pack.name} has no recorded case that agrees"
            yield [("not covered", REFUSED), label]
        for survivor in report.score.survivors:
            edit = survivor.edit
            place = edit.rule.place
            yield [
                (f"{place.file}:{place.line}", NAME),
                ": ",
                ("mutant survived", REFUSED),
                f": {edit.rule.id}, {edit.label}",
            ]
            yield ["    no case notices what becomes of ", survivor.witness]
    cases = sum(len(report.pack.cases) for report in reports)
    failed = sum(len(report.failures) for report in reports)
    killed = sum(report.score.killed for report in reports)
    survived = sum(len(report.score.survivors) for report in reports)
    mutants = killed + survived
    # Never rounded up: 100 % must mean that nothing survived.
    percent = math.floor(1000 * killed / mutants) / 10 if mutants else 100.0
    rules = sum(len(report.pack.rules) for report in reports)
    yield [f"packs     {len(reports)}: {rules} rules, {cases - failed} of {cases} cases agree"]
    yield [
        f"mutation  {percent:.1f} %: {mutants} mutants of packs, ",
        f"{killed} killed by cases, {survived} survived",
    ]
