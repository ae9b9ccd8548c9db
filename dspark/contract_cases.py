"""The tests that stand in a contract: a base config, edits of it, and what must come of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from yaml.nodes import MappingNode, Node, SequenceNode

from dspark.case_edits import Config, Edits, copied, put, remove
from dspark.contract_keys import texts, unknown
from dspark.contract_reader import Source
from dspark.diagnostics import Place
from dspark.document import Document
from dspark.findings import Catalogue, catalogue
from dspark.headers import DTYPE_BITS

_BASE = ("rule", "config", "target")
_CASE = (
    *("set", "set_each", "unset", "unset_each", "move", "rule", "tensors", "target"),
    *("finds", "warns", "says", "takes"),
)
_TENSORS = ("drop", "drop_each", "add", "rename", "prefix", "shape", "dtype", "all", "values")


class ContractCase(NamedTuple):
    """One test of a contract."""

    config: Config
    rule: str
    tensors: Edits | None
    """None: the weights are not there."""
    target: Mapping[str, object] | None
    """Canonical values of the target to be paired with; None for none."""
    finds: Mapping[str, int]
    """Findings by name, and how often; empty where the checkpoint is taken."""
    warns: Mapping[str, int]
    says: tuple[str, ...]
    """Phrases that the findings or warnings say."""
    takes: Mapping[str, object]
    """Canonical values, and `shared` tensors, that must come out."""
    words: frozenset[str]
    """Every word of the test, to find the ones an edit of the contract should turn red."""
    place: Place


def read_cases(source: Source) -> tuple[ContractCase, ...]:
    """The tests of a contract; mistakes in them go to its document's report."""
    reader = _Reader(source.document, catalogue(), source)
    return tuple(reader.read())


class _Reader:
    def __init__(self, document: Document, findings: Catalogue, source: Source) -> None:
        self.document = document
        self.findings = findings
        self.source = source
        self.rule = ""
        self.config: Config = {}
        self.target: dict[str, object] = {}

    def read(self) -> Iterator[ContractCase]:
        doc = self.document
        required = ("rule", "config") if self.source.target is None else ("config",)
        base = doc.fields(self.source.top.get("base"), "`base`", _BASE, required)
        self.rule = (doc.text(base["rule"], "`rule`") if "rule" in base else "") or ""
        self.config = self._mapping(base.get("config"), "the base config")
        self.target = self._mapping(base.get("target"), "the base target")
        tests = self.source.top.get("tests")
        if tests is not None and not isinstance(tests, SequenceNode):
            doc.wrong(tests, "`tests`", "a list")
        for entry in tests.value if isinstance(tests, SequenceNode) else ():
            yield from self._case(entry)

    def _mapping(self, node: Node | None, what: str) -> dict[str, Any]:
        if node is None:
            return {}
        value = self.document.data(node)
        if not isinstance(value, dict):
            self.document.wrong(node, what, "a mapping")
            return {}
        return value

    def _case(self, entry: Node) -> Iterator[ContractCase]:
        doc = self.document
        fields = doc.fields(entry, "a test", _CASE)
        if not isinstance(entry, MappingNode):
            return
        if ("finds" in fields) == ("takes" in fields):
            both = "one with both" if "finds" in fields else "one with neither"
            if all(key.value in _CASE for key, _ in entry.value):
                doc.wrong(entry, "a test", "a mapping with one of `finds` and `takes`", both)
            return
        place = doc.place(entry.value[0][0])
        takes = self._mapping(fields.get("takes"), "`takes`")
        case = ContractCase(
            config={},
            rule=(doc.text(fields["rule"], "`rule`") if "rule" in fields else "") or self.rule,
            tensors=None,
            target=self._target(fields.get("target")),
            finds=self._names(fields.get("finds"), "finds"),
            warns=self._names(fields.get("warns"), "warns"),
            says=tuple(texts(doc, fields.get("says"), "`says`")),
            takes=takes,
            words=frozenset(w for name, node in fields.items() for w in _words(name, node)),
            place=place,
        )
        weights: list[Edits | None] = [None]
        if "tensors" in fields or case.target is not None:
            weights = [*self._tensors(fields.get("tensors"))]
        for config, alone in self._configs(fields):
            for edits in weights:
                words = case.words | set(alone.split(".")) | set(edits.drop if edits else ())
                yield case._replace(config=config, tensors=edits, words=words)

    def _configs(self, fields: Mapping[str, Node]) -> Iterator[tuple[Config, str]]:
        """The config of a test, or one for each edit that is made alone, with what it edits."""
        config = self._config(fields)
        alone = self._mapping(fields.get("set_each"), "`set_each`")
        if "set_each" not in fields and "unset_each" not in fields:
            yield config, ""
        for path, values in alone.items():
            for value in values if isinstance(values, list) else [values]:
                edited = copied(config)
                put(edited, path.split("."), value)
                yield edited, f"{path}.{value}"
        for name in texts(self.document, fields.get("unset_each"), "`unset_each`"):
            edited = copied(config)
            self._unset(edited, name, fields["unset_each"])
            yield edited, name

    def _unset(self, config: Config, name: str, node: Node) -> None:
        if not remove(config, name.split(".")):
            self.document.wrong(node, f"`{name}`", "a key of the config at hand", "another name")

    def _config(self, fields: Mapping[str, Node]) -> Config:
        doc = self.document
        config: Config = copied(self.config)
        for name in texts(doc, fields.get("unset"), "`unset`"):
            self._unset(config, name, fields["unset"])
        if "move" in fields:
            for holder, (_, node) in doc.mapping(fields["move"], "`move`").items():
                for name in texts(doc, node, "`move`"):
                    if name not in config:
                        doc.wrong(node, f"`{name}`", "a key of the config at hand", "another name")
                        continue
                    put(config, [*holder.split("."), name], config.pop(name))
        for path, value in self._mapping(fields.get("set"), "`set`").items():
            put(config, path.split("."), value)
        return config

    def _target(self, node: Node | None) -> Mapping[str, object] | None:
        if node is None:
            return None
        return {**self.target, **self._mapping(node, "`target`")}

    def _names(self, node: Node | None, what: str) -> dict[str, int]:
        doc = self.document
        if node is None:
            return {}
        if isinstance(node, MappingNode):
            found = {}
            for name, (_, value) in doc.mapping(node, f"`{what}`").items():
                count = doc.data(value)
                found[name] = count if isinstance(count, int) else 1
        else:
            found = dict.fromkeys(texts(doc, node, f"`{what}`"), 1)
        if not found:
            doc.wrong(node, f"`{what}`", "at least one name")
        warnings = what == "warns"
        known = [n for n, entry in self.findings.entries.items() if entry.warning == warnings]
        for name in found:
            if name not in known:
                unknown(doc, node, "warning" if warnings else "finding", name, known)
        return found

    def _tensors(self, node: Node | None) -> Iterator[Edits]:
        if node is None:
            yield Edits()
            return
        doc = self.document
        fields = doc.fields(node, "`tensors`", _TENSORS)
        plain = {key: doc.data(value) for key, value in fields.items()}
        try:
            edits = Edits(
                drop=tuple(plain.get("drop", ())),
                add={
                    name: (dtype, tuple(shape))
                    for name, (dtype, shape) in plain.get("add", {}).items()
                },
                rename=plain.get("rename", {}),
                prefix=plain.get("prefix", ""),
                shape={name: tuple(shape) for name, shape in plain.get("shape", {}).items()},
                dtype=plain.get("dtype", {}),
                all=plain.get("all", ""),
                values={name: tuple(ids) for name, ids in plain.get("values", {}).items()},
            )
            each = tuple(plain.get("drop_each", ()))
            sound = _sound(edits, each)
        except (AttributeError, TypeError, ValueError):
            sound = False
        if not sound:
            doc.wrong(node, "`tensors`", "edits of tensors, each as in docs/lane-contracts.md")
            return
        if "drop_each" not in plain:
            yield edits
        for name in each:
            yield edits._replace(drop=(*edits.drop, name))


def _sound(edits: Edits, drop_each: tuple[object, ...]) -> bool:
    """Whether names are text, dtypes are safetensors' and extents and ids whole numbers."""
    renamed = (*edits.rename, *edits.rename.values())
    named = (*edits.add, *renamed, *edits.shape, *edits.dtype, *edits.values)
    names = (*edits.drop, *drop_each, edits.prefix, *named)
    added = tuple(edits.add.values())
    dtypes = (*(dtype for dtype, _ in added), *edits.dtype.values(), edits.all or "F32")
    numbers = (*(shape for _, shape in added), *edits.shape.values(), *edits.values.values())
    return (
        all(isinstance(name, str) for name in names)
        and all(dtype in DTYPE_BITS for dtype in dtypes)
        and all(type(number) is int for each in numbers for number in each)
    )


_ALONE = ("set_each", "unset_each", "drop_each")


def _words(name: str, node: Node) -> Iterator[str]:
    """The words of a test's field but for edits that each make a test of their own."""
    if name in _ALONE:
        return
    yield from name.split(".")
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _words(str(key.value), value)
    elif isinstance(node, SequenceNode):
        for entry in node.value:
            yield from _words("", entry)
    else:
        yield str(node.value)
