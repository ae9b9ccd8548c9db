"""`dspark explain RULE-ID|NAME`: what a rule says, whichever file it stands in."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dspark import diagnostics
from dspark.compile import read_messages
from dspark.compiled import Table
from dspark.output import Line, write
from dspark.spelling import did_you_mean
from dspark.verb import OK, Usage, add_rules_option, open_table

if TYPE_CHECKING:
    from dspark.findings import Entry


def add_explain(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "explain", help="what a rule says, by ID or name"
    )
    parser.add_argument("rule", metavar="RULE-ID|NAME")
    add_rules_option(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    write(explain_rule(open_table(arguments.rules), arguments.rule))
    return OK


def explain_rule(table: Table, wanted: str) -> Sequence[Line]:
    """Everything that is said of the rule, finding or diagnostic `wanted`, an ID or a name.

    Raises `Usage`, with the one that was probably meant.
    """
    from dspark.findings import catalogue
    from dspark.render import rule_lines

    rules = {**table.rules, **{rule.id: rule for rule in read_messages().values()}}
    for rule in rules.values():
        if wanted in (rule.id, rule.name):
            return list(rule_lines(rule))
    found = catalogue().entries.values()
    for entry in found:
        if wanted in (entry.rule_id, entry.name):
            return list(_finding_lines(entry))
    for name, (rule_id, message, help_text) in diagnostics.catalogue().items():
        if wanted in (rule_id, name):
            return [
                [f"{rule_id} {name}  (a mistake in a rules file)"],
                ["  message: ", message.text],
                ["  help: ", help_text.text],
            ]
    for tomb in table.retired.values():
        if wanted in (tomb.id, tomb.name):
            successor = f"; use {tomb.use}" if tomb.use else ""
            return [[f"{tomb.id} {tomb.name}  (retired in {tomb.since}{successor})"]]
    known = [*rules, *(rule.name for rule in rules.values()), *(entry.name for entry in found)]
    known += diagnostics.catalogue()
    hint = did_you_mean(wanted, known) or "`dspark rules` lists them"
    raise Usage(f"no rule is called `{wanted}`; {hint}")


def _finding_lines(entry: Entry) -> Iterator[Line]:
    kind = "warning" if entry.warning else "refusal"
    yield [f"{entry.rule_id} {entry.name}  (a {kind} of a checkpoint's contents)"]
    for form in entry.forms:
        yield ["  message: ", form.message.text]
    for text in dict.fromkeys(form.help.text for form in entry.forms):
        yield ["  help: ", text]
    yield ["  why: ", entry.why]
