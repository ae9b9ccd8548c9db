"""`dspark explain RULE-ID|NAME`: what a rule says, whichever file it stands in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dspark import diagnostics, findings
from dspark.compile import read_messages
from dspark.compiled import Table
from dspark.output import Line
from dspark.render import rule_lines
from dspark.spelling import did_you_mean


class NoSuchRule(Exception):
    """No file has a rule of this ID or name."""


def explain_rule(table: Table, wanted: str) -> Sequence[Line]:
    """Everything that is said of the rule, finding or diagnostic `wanted`, an ID or a name.

    Raises `NoSuchRule`, with the one that was probably meant.
    """
    rules = {**table.rules, **{rule.id: rule for rule in read_messages().values()}}
    for rule in rules.values():
        if wanted in (rule.id, rule.name):
            return list(rule_lines(rule))
    found = findings.catalogue().entries.values()
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
    raise NoSuchRule(f"no rule is called `{wanted}`; {hint}")


def _finding_lines(entry: findings.Entry) -> Iterator[Line]:
    kind = "warning" if entry.warning else "refusal"
    yield [f"{entry.rule_id} {entry.name}  (a {kind} of a checkpoint's contents)"]
    for form in entry.forms:
        yield ["  message: ", form.message.text]
    yield ["  help: ", entry.forms[0].help.text]
    yield ["  why: ", entry.why]
