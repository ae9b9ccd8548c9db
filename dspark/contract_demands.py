"""The checks of a contract as its author wrote them, each held against the keys it asks about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dspark.contract import Check, Key, Value
from dspark.contract_keys import paths, texts, unknown
from dspark.demands import TARGET
from dspark.document import Document
from dspark.findings import CHECKABLE, Catalogue
from dspark.typed import LISTS, has_type

SHARED = "shared"
"""What the `when` of a pairing check may ask besides keys: which tensors are the target's."""


class Kind(NamedTuple):
    """One kind of check: what it is asked of, and the field that completes it."""

    asked_of: tuple[str, ...]
    """Types of key it can be asked of; empty for kinds that name several keys or paths."""
    field: str = ""
    """The field for `other`, `values` or further paths."""


NUMERIC = ("integer", "number")

KINDS: dict[str, Kind] = {
    "one-of": Kind(("integer", "number", "boolean", "text", "integers", "texts"), "values"),
    "length": Kind(("integers", "texts"), "of"),
    "increasing": Kind(("integers",)),
    "multiple": Kind(("integer",), "of"),
    "below": Kind((*NUMERIC, "integers"), "than"),
    "at-most": Kind(NUMERIC, "limit"),
    "equals": Kind((*NUMERIC, "boolean", "text", "integers", "texts"), "to"),
    "requires": Kind(()),
    "absent": Kind(()),
    "inert": Kind((), "values"),
    "differs": Kind(("integer",), "from"),
}

_NUMBER_NEEDED = {"length", "multiple", "below", "at-most"}


class Known(NamedTuple):
    """What a check may name."""

    keys: Mapping[str, Key]
    target_keys: Mapping[str, Key] | None
    """Keys of the target; None where they are not to be held against anything."""
    tensors: frozenset[str]
    """Names of tensors that may be the target's."""
    findings: Catalogue


def read_checks(
    document: Document, node: Node | None, within: tuple[str, ...], known: Known, *, pairing: bool
) -> Iterator[Check]:
    """The checks under `node`; `pairing` allows the keys of a target."""
    for entry in document.items(node, "`checks`") if node is not None else ():
        check = _Reader(document, within, known, pairing).read(entry)
        if check is not None:
            yield check


class _Reader:
    def __init__(
        self, document: Document, within: tuple[str, ...], known: Known, pairing: bool
    ) -> None:
        self.document = document
        self.within = within
        self.known = known
        self.pairing = pairing

    def read(self, node: Node) -> Check | None:
        doc = self.document
        if not isinstance(node, MappingNode):
            doc.wrong(node, "a check", "a mapping")
            return None
        named = [key.value for key, _ in node.value if isinstance(key, ScalarNode)]
        kinds = [name for name in named if name in KINDS]
        if len(kinds) != 1:
            first = node.value[0][0] if node.value else node
            name = first.value if isinstance(first.value, str) else ""
            if kinds:
                doc.wrong(node, "a check", f"of one kind, not {' and '.join(kinds)}", "both")
            else:
                unknown(doc, first, "check", name, KINDS)
            return None
        kind = kinds[0]
        field = KINDS[kind].field
        allowed = (kind, *((field,) if field else ()), "finding", "when")
        # An unknown field is probably the one that is missing.
        required = allowed[:-1] if all(key.value in allowed for key, _ in node.value) else ()
        fields = doc.fields(node, f"a check `{kind}`", allowed, required)
        if any(name not in fields for name in allowed[:-1]):
            return None
        check = Check(
            kind,
            self._finding(fields["finding"], kind),
            when=read_when(doc, fields.get("when"), self.known, pairing=self.pairing),
            place=doc.place(node.value[0][0]),
        )
        if kind == "inert":
            return self._inert(check, fields["inert"], fields["values"])
        if kind in ("requires", "absent"):
            return check._replace(keys=tuple(self._keys(fields[kind], kind)))
        return self._of_key(check, fields[kind], fields.get(field))

    def _finding(self, node: Node, kind: str) -> str:
        name = self.document.text(node, "`finding`") or ""
        entries = self.known.findings.entries
        if not name:
            return ""
        if name not in entries:
            unknown(self.document, node, "finding", name, entries)
            return name
        wanted = CHECKABLE - {"got"} if kind == "requires" else CHECKABLE
        forms = [form.placeholders for form in entries[name].forms]
        if wanted not in forms:
            quotes = ", ".join(sorted(forms[0] if forms else ()))
            self.document.report.add(
                "unusable-finding", self.document.place(node), finding=name, placeholders=quotes
            )
        return name

    def _inert(self, check: Check, node: Node, values: Node) -> Check:
        found = [
            ".".join(path)
            for entry in self.document.items(node, "`inert`")
            for path in paths(self.document, entry, "`inert`", self.within)
        ]
        allowed = self.document.data(values)
        if not isinstance(allowed, list):
            self.document.wrong(values, "`values`", "a list")
            allowed = []
        return check._replace(paths=tuple(found), values=tuple(allowed))

    def _keys(self, node: Node, kind: str) -> Iterator[str]:
        for name in texts(self.document, node, f"`{kind}`"):
            if name in self.known.keys:
                yield name
            else:
                unknown(self.document, node, "key", name, self.known.keys)

    def _of_key(self, check: Check, node: Node, more: Node | None) -> Check | None:
        name = self.document.text(node, f"`{check.kind}`") or ""
        key = self.known.keys.get(name)
        if key is None:
            if name:
                unknown(self.document, node, "key", name, self.known.keys)
            return None
        if key.type and key.type not in KINDS[check.kind].asked_of:
            self._bad(check.kind, node, name, f"it is of type `{key.type}`")
            return None
        check = check._replace(key=name)
        if more is None:
            return check
        if check.kind == "one-of":
            return check._replace(values=self._values(check.kind, key, more))
        if check.kind == "differs":
            found = [
                path
                for entry in self.document.items(more, "`from`")
                for path in paths(self.document, entry, "`from`", ())
            ]
            return check._replace(paths=tuple(".".join(path) for path in found))
        return check._replace(other=self._other(check.kind, key, more))

    def _values(self, kind: str, key: Key, node: Node) -> tuple[Value, ...]:
        values = self.document.data(node)
        if not isinstance(values, list) or not values:
            self.document.wrong(node, "`values`", "a list of values")
            return ()
        wanted = LISTS.get(key.type, key.type)
        for entry, value in zip(node.value, values, strict=True):
            if wanted and not has_type(value, wanted):
                self._bad(kind, entry, key.name, f"`{value}` is not of type `{wanted}`")
        return tuple(values)

    def _other(self, kind: str, key: Key, node: Node) -> str:
        name = self.document.text(node, f"`{KINDS[kind].field}`") or ""
        if name.isdigit():
            if kind in ("equals", "length"):
                self._bad(kind, node, key.name, "it is compared with another key")
            return name
        keys: Mapping[str, Key] | None = self.known.keys
        if name.startswith(TARGET) and self.pairing:
            keys = self.known.target_keys
            keys = keys and {TARGET + key: value for key, value in keys.items()}
        if keys is None:
            return name
        other = keys.get(name)
        if other is None:
            if name:
                unknown(self.document, node, "key", name, keys)
        elif other.type and key.type:
            numeric = other.type in NUMERIC
            if numeric if kind in _NUMBER_NEEDED else other.type == key.type:
                return name
            self._bad(kind, node, key.name, f"`{name}` is of type `{other.type}`")
        return name

    def _bad(self, kind: str, node: Node, key: str, why: str) -> None:
        place = self.document.place(node)
        self.document.report.add("bad-check", place, check=kind, key=key, why=why)


def read_when(
    document: Document, node: Node | None, known: Known, *, pairing: bool = False
) -> dict[str, Value] | None:
    """The conditions under which something applies; None for always."""
    if node is None:
        return None
    if not isinstance(node, MappingNode) or not node.value:
        document.wrong(node, "`when`", "a mapping of keys to values")
        return None
    found: dict[str, Value] = {}
    for name, (key_node, value_node) in document.mapping(node, "`when`").items():
        value = document.data(value_node)
        if name == SHARED and pairing:
            if value not in known.tensors:
                unknown(document, value_node, "shared tensor", str(value), sorted(known.tensors))
        elif name not in known.keys:
            unknown(document, key_node, "key", name, known.keys)
        else:
            kind = known.keys[name].type
            wanted = LISTS.get(kind, kind)
            if isinstance(value_node, SequenceNode) or (wanted and not has_type(value, wanted)):
                document.wrong(value_node, f"the value of `{name}`", f"of type `{wanted}`", "not")
        found[name] = value
    return found
