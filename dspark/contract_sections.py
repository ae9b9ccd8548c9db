"""The files of one contract put together, and what two of them declare twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from yaml.nodes import Node

from dspark.contract import Check, Key, Rename, TensorSpec
from dspark.contract_defaults import Routes, check_chain, read_default
from dspark.contract_demands import Known, read_checks
from dspark.contract_keys import Declared, read_keys, texts
from dspark.contract_tensors import read_renames, read_tensors, report_overlaps
from dspark.diagnostics import Place
from dspark.document import Document


class Section(NamedTuple):
    """One file of a contract: a lane's or a target's own, or a part that it includes."""

    document: Document
    top: Mapping[str, Node]
    within: tuple[str, ...]
    """Objects of config.json in which its places are looked for too."""
    dtypes: tuple[str, ...]
    """Those of a tensor that lists none."""


def merge_keys(sections: Sequence[Section], lane: str, routes: Routes | None) -> dict[str, Key]:
    """The keys of all sections, with their defaults."""
    declared: dict[str, Declared] = {}
    for section in sections:
        found = read_keys(section.document, section.top.get("keys"), section.within)
        for name, each in found.items():
            if name in declared:
                first = declared[name].key.place
                _twice(section.document, f"key `{name}`", each.key.place, first)
            else:
                declared[name] = each
    keys = {name: each.key for name, each in declared.items()}
    for name, each in declared.items():
        keys[name] = each.key._replace(default=read_default(each, keys, lane, routes))
    for name, each in declared.items():
        check_chain(each._replace(key=keys[name]), keys)
    return keys


def merge_tensors(sections: Sequence[Section], known: Known) -> tuple[TensorSpec, ...]:
    """The tensors of all sections."""
    found = [
        (spec, section.document)
        for section in sections
        for spec in read_tensors(
            section.document, section.top.get("tensors"), section.dtypes, known
        )
    ]
    report_overlaps(found)
    return tuple(spec for spec, _ in found)


def merge_checks(sections: Sequence[Section], field: str, known: Known) -> tuple[Check, ...]:
    """The checks of all sections, under `checks` or `pairing`."""
    first: dict[str, Place] = {}
    listed = []
    for section in sections:
        document, node = section.document, section.top.get(field)
        pairing = field == "pairing"
        for check in read_checks(document, node, section.within, known, pairing=pairing):
            listed.append(check)
            assert check.place is not None  # INVARIANT: the reader sets it
            same = repr(check._replace(place=None))
            if same in first:
                what = f"check `{check.kind}` of `{check.key or ', '.join(check.paths)}`"
                _twice(document, what, check.place, first[same])
            first.setdefault(same, check.place)
    return tuple(listed)


def merge_renames(sections: Sequence[Section]) -> tuple[Rename, ...]:
    """The renames of all sections, in order."""
    return tuple(
        rename
        for section in sections
        for rename in read_renames(section.document, section.top.get("renames"))
    )


def merge_known(sections: Sequence[Section]) -> frozenset[str]:
    """The keys that mean nothing to the lane, of all sections."""
    return frozenset(
        name
        for section in sections
        for name in texts(section.document, section.top.get("known"), "`known`")
    )


def _twice(document: Document, what: str, at: Place, first: Place) -> None:
    document.report.add("declared-twice", at, what=what, first=f"{first.file}:{first.line}")
