"""Whether a hand-off table answers for every rule and names only what there is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dspark.compiled import Table
from dspark.diagnostics import Place, Report
from dspark.document import Document
from dspark.errors import TableError
from dspark.findings import catalogue
from dspark.handoff_reader import FILES, handoff_document, read_handoff
from dspark.handoff_table import Case, HandoffTable
from dspark.rule import Rule, When
from dspark.spelling import did_you_mean


def prove_handoffs(table: Table) -> None:
    """Holds every hand-off that ships against a routing table. Raises `TableError`."""
    report = Report()
    for name in FILES:
        document = handoff_document(name, report)
        prove_handoff(document, read_handoff(document), table)
    if report:
        raise TableError(report.diagnostics())


def prove_handoff(document: Document, found: HandoffTable, table: Table) -> None:
    """The same for one of them; what is wrong goes to the document's report."""
    report = document.report
    start = Place(document.file, 1, 1)
    for rule_id in table.rules:
        if rule_id not in found.rules:
            report.add("no-handoff", start, id=rule_id, engine=f"{found.engine} {found.version}")
    for rule_id, cases in found.rules.items():
        _known(report, cases[0].place if cases else start, "rule", rule_id, table.rules)
        if rule_id in table.rules:
            _prove_cases(report, table.rules[rule_id], cases)
        for case in cases:
            _known(report, case.place, "recipe", case.recipe, found.recipes)
            _known(report, case.place, "finding", case.finding, catalogue().entries)
    for rule_id in sorted(found.not_block):
        _known(report, start, "rule", rule_id, table.rules)
    served = {case.recipe for cases in found.rules.values() for case in cases}
    for name, recipe in found.recipes.items():
        if name not in served:
            report.add("idle-key", start, name=name, why="no rule is served by this recipe")
        for demand in recipe.demands:
            _known(report, start, "finding", demand.finding, catalogue().entries)


def named_findings(found: HandoffTable) -> Iterator[str]:
    """The findings that a hand-off table can lead to."""
    for cases in found.rules.values():
        yield from (case.finding for case in cases)
    for recipe in found.recipes.values():
        yield from (demand.finding for demand in recipe.demands)


def _prove_cases(report: Report, rule: Rule, cases: Sequence[Case]) -> None:
    left = rule.when
    for number, case in enumerate(cases):
        last = number == len(cases) - 1
        if bool(case.when) == last:
            why = "nothing takes what it leaves" if last else "what follows it is never reached"
            report.add("handoff-cases", case.place, id=rule.id, why=why)
        for fact, cells in case.when.items():
            for cell in cells:
                # The default has no alternatives, and takes whatever is left.
                if rule.when and not any(fact not in w or w[fact].accepts(cell) for w in left):
                    why = f"`{rule.id}` decides no config with this {fact}"
                    report.add("idle-key", case.place, name=cell or "ABSENT", why=why)
        if len(case.when) == 1:
            left = tuple(when for when in left if not _taken(when, case))


def _taken(when: When, case: Case) -> bool:
    """Whether a case takes everything that an alternative of the rule matches."""
    ((fact, cells),) = case.when.items()
    return fact in when and not when[fact].negated and when[fact].cells <= set(cells)


def _known(report: Report, place: Place, what: str, name: str, known: Collection[str]) -> None:
    if name and name not in known:
        hint = did_you_mean(name, known) or f"use one of {', '.join(sorted(known))}"
        report.add("unknown-name", place, what=what, name=name, hint=hint)
