"""The tensors of a contract as its author wrote them: names, shapes, dtypes and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from yaml.nodes import Node, SequenceNode

from dspark.contract import Dim, Key, Rename, TensorSpec, Value
from dspark.contract_demands import Known, read_when
from dspark.contract_keys import texts, unknown
from dspark.dimensions import counted, parse_dim
from dspark.document import Document
from dspark.headers import DTYPE_BITS
from dspark.typed import LISTS

NEEDS = ("required", "optional", "shared", "ignored")
LAYER = "{layer}"

_FIELDS = ("name", "repeat", "shape", "dtypes", "need", "when")


def read_tensors(
    document: Document, node: Node | None, dtypes: tuple[str, ...], known: Known
) -> Iterator[TensorSpec]:
    """The tensors under `node`; `dtypes` are those of a tensor that lists none."""
    for entry in document.items(node, "`tensors`") if node is not None else ():
        fields = document.fields(entry, "a tensor", _FIELDS, ("name",))
        if "name" not in fields:
            continue
        name = document.text(fields["name"], "`name`") or ""
        need = document.text(fields["need"], "`need`") if "need" in fields else "required"
        if need not in NEEDS:
            unknown(document, fields["need"], "need", need or "", NEEDS)
        own = read_dtypes(document, fields.get("dtypes"))
        if need != "ignored":
            _check_complete(document, entry, name, fields, bool(own or dtypes))
        for key in ("shape", "dtypes") if need == "ignored" else ():
            if key in fields:
                why = "an ignored tensor is not looked at"
                document.report.add("idle-key", document.place(fields[key]), name=key, why=why)
        repeat = document.text(fields["repeat"], "`repeat`") if "repeat" in fields else ""
        if (LAYER in name) != bool(repeat):
            document.wrong(
                entry, f"tensor `{name}`", f"given `repeat` if it holds `{LAYER}`", "not"
            )
        if repeat and (repeat not in known.keys or known.keys[repeat].type != "integer"):
            unknown(document, fields["repeat"], "integer key", repeat, known.keys)
            continue
        shape = fields.get("shape")
        yield TensorSpec(
            name,
            repeat or "",
            tuple(read_shape(document, shape, known.keys)) if shape is not None else (),
            own or dtypes,
            need or "",
            read_when(document, fields.get("when"), known),
            document.place(fields["name"]),
        )


def _check_complete(
    document: Document, entry: Node, name: str, fields: Mapping[str, Node], has_dtypes: bool
) -> None:
    what = f"tensor `{name}`"
    if "shape" not in fields:
        place = document.place(entry)
        document.report.add("missing-table-key", place, key="shape", what=what)
    if not has_dtypes:
        document.wrong(entry, what, "given `dtypes`, here or for the file", "not")


def read_dtypes(document: Document, node: Node | None) -> tuple[str, ...]:
    """The names of tensor types under `node`."""
    found = texts(document, node, "`dtypes`")
    for name in found:
        if name not in DTYPE_BITS:
            assert node is not None  # INVARIANT: without a node nothing was found
            unknown(document, node, "dtype", name, DTYPE_BITS)
    return tuple(found)


def read_shape(document: Document, node: Node, keys: Mapping[str, Key]) -> Iterator[Dim]:
    """The dimensions under `node`, those that are none reported."""
    if not isinstance(node, SequenceNode):
        document.wrong(node, "`shape`", "a list of dimensions")
        return
    for entry in node.value:
        dim = read_dim(document, entry, keys)
        if dim is not None:
            yield dim


def read_dim(document: Document, node: Node, keys: Mapping[str, Key]) -> Dim | None:
    """One dimension, or None (reported): every key in it must have a number, or be counted."""
    text = document.text(node, "a dimension")
    dim = parse_dim(text) if text is not None else None
    sound = dim is not None
    for factor in [factor for term in dim.terms for factor in term] if dim is not None else ():
        listed = counted(factor)
        name = listed or factor
        if name.lstrip("-").isdigit():
            continue
        if name not in keys:
            unknown(document, node, "key", name, keys)
            return None
        kinds = LISTS if listed else ("integer",)
        # An unknown type has been reported.
        sound &= (not keys[name].type or keys[name].type in kinds) and _has_value(keys[name])
    if text is not None and not sound:
        document.report.add("bad-dimension", document.place(node), text=text)
        return None
    return dim


def _has_value(key: Key) -> bool:
    default = key.default
    if default is None or default.key or default.quotient or default.fill or default.by_rule:
        return True
    return default.value is not None


def report_overlaps(tensors: Sequence[tuple[TensorSpec, Document]]) -> None:
    """Reports tensors that are declared twice for one config."""
    for number, (spec, document) in enumerate(tensors):
        for first, _ in tensors[:number]:
            if first.name == spec.name and not exclude(first.when, spec.when):
                document.report.add(
                    "declared-twice",
                    spec.place,
                    what=f"tensor `{spec.name}`",
                    first=f"{first.place.file}:{first.place.line}",
                )
                break


def exclude(first: Mapping[str, Value] | None, second: Mapping[str, Value] | None) -> bool:
    """Whether no config meets both conditions."""
    one, two = first or {}, second or {}
    return any(key in two and one[key] != two[key] for key in one)


def read_renames(document: Document, node: Node | None) -> Iterator[Rename]:
    """The prefixes under `node` and what they stand for."""
    for entry in document.items(node, "`renames`") if node is not None else ():
        fields = document.fields(
            entry, "a rename", ("prefix", "stands_for"), ("prefix", "stands_for")
        )
        if len(fields) == 2:
            prefix = document.text(fields["prefix"], "`prefix`")
            stands_for = document.data(fields["stands_for"])
            if prefix and isinstance(stands_for, str):
                yield Rename(prefix, stands_for)
            elif prefix:
                document.wrong(fields["stands_for"], "`stands_for`", "text in quotes")
