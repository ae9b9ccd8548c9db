"""Decisions, diagnostics and rules as lines of text."""

from __future__ import annotations

import linecache
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dspark.contract import Finding
from dspark.decision import Decision
from dspark.diagnostics import Diagnostic, Place
from dspark.explain import near_misses
from dspark.messages import plain, quoted
from dspark.output import Line
from dspark.rule import Rule
from dspark.verdict import Verdict

if TYPE_CHECKING:
    from dspark.check import Report
    from dspark.compare import Difference
    from dspark.contract_check import ContractReport
    from dspark.load_plan import Warned

LANE, REFUSED, DIM, NAME, WARNING = "bold green", "bold red", "dim", "bold", "yellow"
_WIDTH = 96
_MOST_FINDINGS = 20  # written out; the wrong file for a config can have thousands


def decision_lines(decision: Decision) -> Iterator[Line]:
    """One line for a lane; messages and help as well for a refusal; then the warnings."""
    source = plain(decision.source, 200)
    findings = decision.findings if isinstance(decision, Verdict) else ()
    if decision.refusal is None:
        label = f"[{decision.rule_id} {decision.name}]"
        yield [(source, NAME), ": ", (f"lane {decision.lane}", LANE), f"  {label}"]
    elif len(findings) < 2:
        label = f"[{decision.rule_id} {decision.name}]"
        yield [(source, NAME), ": ", ("refused", REFUSED), f"  {label}"]
        yield ["    ", decision.refusal.message]
        if decision.refusal.help:
            yield ["    help: ", decision.refusal.help]
    else:
        yield [(source, NAME), ": ", ("refused", REFUSED), f"  {len(findings)} findings"]
        yield from _finding_lines(findings)
    yield from warning_lines(decision.warnings)


def _finding_lines(findings: Sequence[Finding]) -> Iterator[Line]:
    """Each finding with its help, which is said once where the next has the same."""
    for number, finding in enumerate(findings[:_MOST_FINDINGS]):
        yield ["    ", finding.message, f"  [{finding.rule_id} {finding.name}]"]
        following = findings[number + 1 : number + 2]
        if not following or following[0].help != finding.help:
            yield ["    help: ", finding.help]
    yield from _hidden(findings, "")


def warning_lines(warnings: Sequence[Finding | Warned]) -> Iterator[Line]:
    """One line for each thing that does not stop a load."""
    for warning in warnings[:_MOST_FINDINGS]:
        label = f"[{warning.rule_id} {warning.name}]"
        yield ["    ", ("warning", WARNING), f": {warning.message}  {label}"]
    yield from _hidden(warnings, " warnings")


def _hidden(found: Sequence[object], what: str) -> Iterator[Line]:
    if len(found) > _MOST_FINDINGS:
        yield [f"    ... and {len(found) - _MOST_FINDINGS} more{what}, all of them with --json"]


def explain_lines(decision: Decision) -> Iterator[Line]:
    """The decision with its evidence, its path through the graph and the nearest other rules."""
    yield from decision_lines(decision)
    yield [(f"  decided by {_at(decision.rule.place)}, table {decision.table_version}", DIM)]
    evidence = decision.evidence
    if evidence:
        yield ["  evidence"]
    for item in evidence:
        yield ["    ", str(item)]
    path = decision.path
    if path:
        yield ["  path"]
    for step in path:
        note = "" if step.named else "  (no rule names it)"
        yield ["    ", f"{step.fact} is {quoted(step.value)}{note}"]
    misses = near_misses(decision)
    if misses:
        yield ["  nearest other rules"]
    for miss in misses:
        rule = miss.rule
        yield ["    ", f"{rule.id} {rule.name}  ({_outcome(rule)})"]
        for failed in miss.failed:
            yield ["      ", f"{failed.fact} is {quoted(failed.got)}; it asks for {failed.wanted}"]
        if not miss.failed:
            yield ["      ", f"matches too, and {decision.rule_id} goes before it"]


def diagnostic_lines(diagnostic: Diagnostic) -> Iterator[Line]:
    """Headline, the line of the file with a caret, notes, a witness config, and what to do."""
    file, line, column, _ = diagnostic.place
    yield [
        (f"{file}:{line}:{column}", NAME),
        ": ",
        (f"error[{diagnostic.id} {diagnostic.name}]", REFUSED),
        f": {diagnostic.message}",
    ]
    yield from _excerpt(diagnostic.place, "^", "")
    for note in diagnostic.notes:
        yield from _excerpt(note.place, "-", f" {note.text}")
    if diagnostic.witness:
        yield ["   = config: ", diagnostic.witness]
    yield ["   = help: ", diagnostic.help]


def _excerpt(place: Place, mark: str, text: str) -> Iterator[Line]:
    source = linecache.getline(place.file, place.line).rstrip("\n")
    if not source:
        return
    number = f"{place.line:>5} | "
    shown = source.expandtabs(1)
    yield [(number, DIM), plain(shown, 200)]
    length = max(1, min(place.length, len(shown) - place.column + 1))
    yield [(" " * 5 + " | ", DIM), " " * (place.column - 1) + mark * length + text]


def rule_lines(rule: Rule) -> Iterator[Line]:
    """Everything the table says about one rule."""
    yield [(f"{rule.id} {rule.name}", NAME), f"  {_at(rule.place)}"]
    yield ["  ", _outcome(rule)]
    if rule.refuse is not None:
        yield from _wrapped("  message: ", rule.refuse.text)
    if rule.help is not None:
        yield from _wrapped("  help: ", rule.help.text)
    for number, when in enumerate(rule.when):
        yield ["  when" if number == 0 else "  or"]
        for fact, condition in when.items():
            yield from _wrapped(f"    {fact}: ", str(condition))
    if rule.before:
        yield ["  before: ", ", ".join(sorted(rule.before))]
    yield from _wrapped("  why: ", rule.why)
    for ref in rule.refs:
        yield ["  see: ", ref]
    hits = sum(case.kind == "hit" for case in rule.cases)
    yield [f"  tests: {hits} hit, {len(rule.cases) - hits} miss"]


def _wrapped(label: str, text: str) -> Iterator[Line]:
    indent = " " * len(label)
    lines = textwrap.wrap(text, _WIDTH - len(label), break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        yield [label if number == 0 else indent, line]


def check_lines(report: Report) -> Iterator[Line]:
    """What `dspark check` found, worst first, then the figures."""
    for failure in report.failures:
        case = failure.case
        yield [
            (_at(case.place), NAME),
            ": ",
            ("test failed", REFUSED),
            f": a {case.kind} of {case.rule_id}",
        ]
        yield ["    wanted ", failure.wanted]
        yield ["    got    ", failure.decision.summary()]
    for rule_id in report.uncovered:
        yield [("not covered", REFUSED), f": {rule_id} has no passing hit test"]
    score = report.score
    for survivor in score.survivors:
        mutant, change = survivor.mutant, survivor.difference
        yield [
            (_at(mutant.rule.place), NAME),
            ": ",
            ("mutant survived", REFUSED),
            f": {mutant.rule.id}, {mutant.edit}",
        ]
        old, new = (f"{rule.id} ({_outcome(rule)})" for rule in (change.old, change.new))
        yield [f"    no test notices that {old} becomes {new} for"]
        yield ["    ", cells_text(change)]
    for first, second in report.unnoticed_swaps:
        yield [("mutant survived", REFUSED), f": exchange the messages of {first} and {second}"]
    covered = len(report.covered)
    total = covered + len(report.uncovered)
    caught = score.killed + score.rejected + report.swaps
    mutants = caught + len(score.survivors) + len(report.unnoticed_swaps)
    # Never rounded up: 100 % must mean that nothing survived.
    percent = math.floor(1000 * caught / mutants) / 10 if mutants else 100.0
    yield [f"tests     {report.tests - len(report.failures)} of {report.tests} pass"]
    yield [f"coverage  {covered} of {total} rule IDs, the default included"]
    yield [
        f"mutation  {percent:.1f} %: {mutants} mutants, ",
        f"{score.killed + report.swaps} killed by tests, ",
        f"{score.rejected} rejected by the compiler, ",
        f"{len(score.survivors) + len(report.unnoticed_swaps)} survived",
    ]
    if score.idle:
        yield [f"          {len(score.idle)} more change no decision and are not counted"]


def contract_lines(report: ContractReport) -> Iterator[Line]:
    """What the tests and mutants of contracts came to, worst first."""
    for failure in report.failures:
        yield [(_at(failure.case.place), NAME), ": ", ("test failed", REFUSED)]
        yield ["    ", failure.problem]
    for mutant in report.survivors:
        yield [(_at(mutant.place), NAME), ": ", ("mutant survived", REFUSED), f": {mutant.edit}"]
    passing = report.tests - len(report.failures)
    survived = len(report.survivors)
    killed = report.mutants - survived
    percent = 100 * killed / report.mutants if report.mutants else 100.0
    yield [f"contracts {report.contracts}: {passing} of {report.tests} tests pass"]
    if not report.failures:
        yield [
            f"mutation  {percent:.1f} %: {report.mutants} mutants of contracts, ",
            f"{killed} killed by tests, {survived} survived",
        ]


def difference_lines(differences: list[Difference]) -> Iterator[Line]:
    """One entry per kind of change, with a config that shows it."""
    for change in differences:
        old, new = change.old, change.new
        yield [
            (f"{old.id} {old.name}", NAME),
            f" ({_outcome(old)}) -> ",
            (f"{new.id} {new.name}", NAME),
            f" ({_outcome(new)})",
        ]
        yield ["    ", cells_text(change)]


def cells_text(change: Difference) -> str:
    """The witness cells of a change, as a paste-able config where one exists."""
    return change.witness or "no config.json has these cells"


def _outcome(rule: Rule) -> str:
    return f"lane {rule.lane}" if rule.lane is not None else "refusal"


def _at(place: Place) -> str:
    return f"{place.file}:{place.line}"
