"""What is wrong with a checkpoint, in words that belong to a rule (`rules/findings.yaml`).

The file is read when there is something to report, so that a sound checkpoint does not pay for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from yaml.nodes import MappingNode, Node

from dspark.contract import Finding
from dspark.diagnostics import Place, Report
from dspark.document import Document
from dspark.errors import TableError
from dspark.files import rules_file
from dspark.messages import LONGEST_QUOTE, Template, plain
from dspark.spelling import did_you_mean

FINDINGS = rules_file("findings.yaml")

CHECKABLE = frozenset({"key", "expected", "got"})
"""What a check of a contract knows, and so all that a finding it names may quote."""

_OWN_WORDS = frozenset({"expected", "reason", "remedy", "breakdown", "from_keys", "family"})
"""Placeholders for words of this package, which are never cut; the rest is the checkpoint's."""
_LONG = 10_000

_RULE_KEYS = ("name", "refuse", "warn", "help", "why", "placeholders", "or")
_FORM_KEYS = ("refuse", "warn", "help", "placeholders")
_ID = re.compile(r"[BCPTWX][0-9]{3}")
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Form(NamedTuple):
    """One wording of a finding, for one set of values."""

    placeholders: frozenset[str]
    message: Template
    help: Template


class Entry(NamedTuple):
    """One finding: its ID and its wordings."""

    rule_id: str
    name: str
    warning: bool
    forms: tuple[Form, ...]
    why: str
    place: Place


class Catalogue(NamedTuple):
    """Everything that can be found, and how a demand is worded."""

    entries: Mapping[str, Entry]
    phrases: Mapping[str, Template]


@cache
def catalogue() -> Catalogue:
    """The findings that ship with the package. Raises `TableError`."""
    report = Report()
    found = read_findings(Document(FINDINGS.read_bytes(), os.fspath(FINDINGS), report))
    if report:
        raise TableError(report.diagnostics())
    return found


def finding(name: str, /, **values: object) -> Finding:
    """The finding called `name`, with its message filled.

    Exactly the values of one of its wordings must be given. `source` may be among them and is
    dropped: no message depends on where a checkpoint lies.
    """
    entry = catalogue().entries[name]
    values.pop("source", None)
    form = next((form for form in entry.forms if form.placeholders == values.keys()), None)
    # INVARIANT: a test holds every call against the placeholders in the file.
    assert form is not None, (name, sorted(values))
    quoted = {
        key: plain(value, _LONG if key in _OWN_WORDS else LONGEST_QUOTE)
        for key, value in values.items()
    }
    return Finding(
        entry.rule_id,
        name,
        form.message.render(quoted, _LONG),
        form.help.render(quoted, _LONG),
        values,
        entry.warning,
    )


def phrase(name: str, /, **values: object) -> str:
    """How a demand is worded; long values are cut, and so are never words of this package."""
    template = catalogue().phrases[name]
    return template.render(
        {key: plain(value) if key == "value" else value for key, value in values.items()}, _LONG
    )


def read_findings(document: Document) -> Catalogue:
    """The catalogue in `document`; its report then holds everything that is wrong with it."""
    top = document.fields(
        document.root, "the findings", ("table", "rules", "phrases"), ("table", "rules", "phrases")
    )
    entries: dict[str, Entry] = {}
    for rule_id, (key, value) in document.mapping(top.get("rules"), "`rules`").items():
        place = document.place(key)
        if not _ID.fullmatch(rule_id):
            document.report.add("bad-rule-id", place, id=rule_id)
        entry = _entry(document, rule_id, place, value)
        if entry.name in entries:
            other = entries[entry.name].rule_id
            document.report.add("duplicate-name", place, name=entry.name, other=other)
        elif entry.name:
            entries[entry.name] = entry
    phrases = {
        name: Template.parse(document.text(value, f"the phrase `{name}`") or "")
        for name, (_, value) in document.mapping(top.get("phrases"), "`phrases`").items()
    }
    return Catalogue(entries, phrases)


def _entry(document: Document, rule_id: str, place: Place, node: Node) -> Entry:
    what = f"finding `{rule_id}`"
    required = ("name", "help", "why", "placeholders")
    fields = document.fields(node, what, _RULE_KEYS, required, place)
    name = (document.text(fields["name"], "`name`") if "name" in fields else "") or ""
    if name and not NAME.fullmatch(name):
        document.report.add("bad-rule-name", document.place(fields["name"]), name=name)
    warning = rule_id.startswith("W")
    says = "warn" if warning else "refuse"
    forms = []
    if isinstance(node, MappingNode):
        forms.append(_form(document, what, says, fields, fields.get("help"), place))
    if "or" in fields:
        for other in document.items(fields["or"], "`or`"):
            more = document.fields(other, what, _FORM_KEYS, ("placeholders",))
            at = document.place(other)
            help_node = more.get("help", fields.get("help"))
            forms.append(_form(document, what, says, more, help_node, at))
    why = (document.text(fields["why"], "`why`") if "why" in fields else "") or ""
    return Entry(rule_id, name, warning, tuple(forms), why, place)


def _form(
    document: Document,
    what: str,
    says: str,
    fields: Mapping[str, Node],
    help_node: Node | None,
    place: Place,
) -> Form:
    other = "refuse" if says == "warn" else "warn"
    if other in fields:
        why = f"{what} is a {'warning' if says == 'warn' else 'refusal'} by its ID"
        document.report.add("idle-key", document.place(fields[other]), name=other, why=why)
    elif says not in fields:
        document.report.add("missing-table-key", place, key=says, what=what)
    placeholders = frozenset(
        document.text(entry, "a placeholder") or ""
        for entry in (
            document.items(fields["placeholders"], "`placeholders`")
            if "placeholders" in fields
            else ()
        )
    )
    templates = []
    read = len(document.report)
    for node in (fields.get(says), help_node):
        text = document.text(node, "a message") if node is not None else None
        templates.append(Template.parse(" ".join((text or "").split())))
        if node is not None:
            _check_placeholders(document, node, templates[-1], placeholders)
    # What is quoted is known only where the message can be read.
    if says in fields and "placeholders" in fields and len(document.report) == read:
        for name in sorted(placeholders - {*templates[0].fields, *templates[1].fields}):
            why = "neither message nor help quotes it"
            at = document.place(fields["placeholders"])
            document.report.add("idle-key", at, name=name, why=why)
    return Form(placeholders, templates[0], templates[1])


def _check_placeholders(
    document: Document, node: Node, template: Template, allowed: frozenset[str]
) -> None:
    unknown = [field for field in template.fields if field not in allowed]
    for field in unknown:
        hint = did_you_mean(field, allowed) or f"use one of {', '.join(sorted(allowed)) or 'none'}"
        document.report.add(
            "unknown-placeholder", document.place(node), placeholder=field, hint=hint
        )
    brace = re.search(r"[{}]\S*", template.skeleton())
    if brace is not None:
        hint = "close its braces; a message has no other use for them"
        document.report.add(
            "unknown-placeholder", document.place(node), placeholder=brace[0], hint=hint
        )
