"""Lane, target and part files -> contracts, with every mistake in them reported where it stands.

A lane (`rules/lanes/<lane>.yaml`) or a target family (`rules/targets/<family>.yaml`) includes parts
(`parts/<part>.yaml` beside its folder), and is the sum of what they and it declare.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode

from dspark.canonical import ANCHOR, DRAFTS
from dspark.contract import Contract, Dim, Key, TargetContract
from dspark.contract_defaults import Routes
from dspark.contract_demands import Known
from dspark.contract_keys import texts, unknown
from dspark.contract_sections import (
    Section,
    merge_checks,
    merge_keys,
    merge_known,
    merge_renames,
    merge_tensors,
)
from dspark.contract_tensors import read_dim, read_dtypes
from dspark.diagnostics import Place, Report
from dspark.document import Document
from dspark.errors import TableError
from dspark.files import rules_file
from dspark.findings import catalogue
from dspark.spelling import nearest

_DECLARES = ("dtypes", "keys", "checks", "pairing", "tensors", "renames", "known")
_KEYS = {
    "part": ("part", "within", *_DECLARES),
    "lane": ("lane", "model", "include", "within", *_DECLARES, "drafts", "base", "tests"),
    "target": (
        *("target", "model", "include", "within", *_DECLARES),
        *("accepts", "families", "base", "tests"),
    ),
}
_REQUIRED = {
    "part": ("part",),
    "lane": ("lane", "model", "keys", "drafts", "base", "tests"),
    "target": ("target", "model", "accepts", "families", "base", "tests"),
}
GUIDE = "docs/lane-contracts.md"
TARGETS = ("qwen3",)
"""The target families that are decoded, each with a file in `rules/targets`."""


class Source(NamedTuple):
    """What the files of one contract say."""

    contract: Contract
    target: TargetContract | None
    document: Document
    top: Mapping[str, Node]
    """The file's own top-level keys, of which `base` and `tests` are not read yet."""


@cache
def load_contract(lane: str) -> Contract:
    """The contract of a lane that ships. Raises `TableError`, for an unknown lane too."""
    return _load(lane_file(lane), lane).contract


@cache
def load_target_contract() -> TargetContract:
    """The contract of the targets that are decoded. Raises `TableError`."""
    found = _load(target_file(TARGETS[0]), TARGETS[0]).target
    assert found is not None  # INVARIANT: a file in `targets` that reads without mistakes has one
    return found


def lane_file(lane: str) -> Path:
    """Where a lane's contract lies."""
    return rules_file("lanes") / f"{lane}.yaml"


def target_file(family: str) -> Path:
    """Where a target family's contract lies."""
    return rules_file("targets") / f"{family}.yaml"


def _load(file: Path, name: str) -> Source:
    report = Report()
    if not file.is_file():
        report.add("no-contract", Place(os.fspath(file), 1, 1), lane=name)
        raise TableError(report.diagnostics())
    source = read_contract(Document(file.read_bytes(), os.fspath(file), report, GUIDE))
    if report:
        raise TableError(report.diagnostics())
    return source


def contract_kind(document: Document) -> str:
    """`lane`, `target` or `part` for a file of a contract; empty for any other."""
    if not isinstance(document.root, MappingNode):
        return ""
    names = {key.value for key, _ in document.root.value if isinstance(key, ScalarNode)}
    return next((kind for kind in _KEYS if kind in names), "")


def read_contract(
    document: Document,
    *,
    routes: Routes | None = None,
    target_keys: Mapping[str, Key] | None = None,
) -> Source:
    """The contract in `document`; its report then holds everything that is wrong with it.

    `routes` and `target_keys` are what defaults by rule and pairing checks are held against; left
    out, those names are taken as they are.
    """
    return _Reader(document, routes, target_keys).read()


class _Reader:
    def __init__(
        self, document: Document, routes: Routes | None, target_keys: Mapping[str, Key] | None
    ) -> None:
        self.document = document
        self.report = document.report
        self.routes = routes
        self.target_keys = target_keys
        self.kind = contract_kind(document) or "lane"
        self.sections: list[Section] = []

    def read(self) -> Source:
        own = self._section(self.document, self.kind)
        name = self._text(own.top, self.kind)
        if name and self.kind == "lane" and name not in (self.routes or (name,)):
            unknown(self.document, own.top["lane"], "lane", name, self.routes or ())
            name = nearest(name, frozenset(self.routes or ())) or name
        if "include" in own.top:
            for part in texts(self.document, own.top["include"], "`include`"):
                self._include(part, own.top["include"])
        self.sections.append(own)
        keys = merge_keys(self.sections, name, self.routes)
        contract = Contract(
            name=name,
            model=self._text(own.top, "model"),
            keys=keys,
            checks=(),
            pairing=(),
            tensors=(),
            renames=merge_renames(self.sections),
            known=merge_known(self.sections),
            drafts=self._drafts(own, keys),
            file=self.document.file,
        )
        contract = self._demands(contract)
        target = self._target(own, contract) if self.kind == "target" else None
        return Source(contract, target, self.document, own.top)

    def _section(self, document: Document, kind: str) -> Section:
        what = f"the {kind}"
        start = Place(document.file, 1, 1)
        if document.root is None and not self.report:
            self.report.add(
                "wrong-shape", start, what=what, wanted="a mapping", found="nothing", guide=GUIDE
            )
        top = document.fields(document.root, what, _KEYS[kind], _REQUIRED[kind], start)
        within = tuple(texts(document, top.get("within"), "`within`"))
        return Section(document, top, within, read_dtypes(document, top.get("dtypes")))

    def _text(self, top: Mapping[str, Node], key: str) -> str:
        return (self.document.text(top[key], f"`{key}`") if key in top else "") or ""

    def _include(self, part: str, node: Node) -> None:
        folder = Path(self.document.file).parent.parent / "parts"
        file = folder / f"{part}.yaml"
        if not file.is_file():
            known = sorted(path.stem for path in folder.glob("*.yaml"))
            unknown(self.document, node, "part", part, known)
            # Read as what was meant, or every use of its keys would be reported too.
            meant = nearest(part, frozenset(known))
            if meant is None:
                return
            file = folder / f"{meant}.yaml"
        document = Document(file.read_bytes(), os.fspath(file), self.report, GUIDE)
        self.sections.append(self._section(document, "part"))

    def _drafts(self, own: Section, keys: Mapping[str, Key]) -> dict[bool, Dim] | None:
        if "drafts" not in own.top:
            return None
        fields = self.document.fields(
            own.top["drafts"], "`drafts`", ("true", "false"), ("true", "false")
        )
        if ANCHOR not in keys:
            unknown(self.document, own.top["drafts"], "key", ANCHOR, keys)
        found = {
            word == "true": dim
            for word, node in fields.items()
            if (dim := read_dim(self.document, node, keys)) is not None
        }
        return found if len(found) == 2 else None

    def _demands(self, contract: Contract) -> Contract:
        known = Known(contract.keys, self.target_keys, frozenset(), catalogue())
        tensors = merge_tensors(self.sections, known)
        shared = frozenset(spec.name for spec in tensors if spec.need == "shared")
        keys = dict(contract.keys)
        if self.kind == "lane":
            # A check may ask about the number of drafts, which no file has.
            place = Place(contract.file, 1, 1)
            keys[DRAFTS] = Key(DRAFTS, "integer", None, (), None, place)
        known = known._replace(keys=keys, tensors=shared)
        return contract._replace(
            tensors=tensors,
            checks=merge_checks(self.sections, "checks", known),
            pairing=merge_checks(self.sections, "pairing", known),
        )

    def _target(self, own: Section, contract: Contract) -> TargetContract:
        doc = self.document
        accepts = ("architecture", "model_type")
        fields = doc.fields(own.top.get("accepts"), "`accepts`", accepts, accepts)
        families: dict[str, str] = {}
        nodes = doc.items(own.top["families"], "`families`") if "families" in own.top else ()
        for entry in nodes:
            named = doc.fields(entry, "a family", ("architectures", "family"), ("family",))
            family = self._text(named, "family")
            for architecture in texts(doc, named.get("architectures"), "`architectures`"):
                if architecture in families:
                    place = doc.place(entry)
                    doc.report.add("duplicate-key", place, key=architecture, first_line=1)
                families[architecture] = family
        return TargetContract(
            contract, self._text(fields, "architecture"), self._text(fields, "model_type"), families
        )
