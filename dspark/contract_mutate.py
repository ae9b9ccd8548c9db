"""Every small way to break a contract: one edit each, of one thing that its author wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dspark.contract import Check, Contract, Default, Dim, Key, KeyPlace, TensorSpec, Value
from dspark.contract_tensors import NEEDS, exclude
from dspark.diagnostics import Place
from dspark.dimensions import counted, keys_of

_NOWHERE = KeyPlace(("nowhere",))
_OTHER_TYPE = {
    "integer": "number",
    "number": "integer",
    "boolean": "text",
    "text": "boolean",
    "integers": "texts",
    "texts": "text",
}
_WORD = re.compile(r"[A-Za-z0-9_]+")


class Mutant(NamedTuple):
    """One edit: what stands in a field of the contract, and what is put there instead."""

    place: Place
    field: str
    edit: str
    old: object
    new: object
    """None: it is deleted."""
    words: frozenset[str]
    """Words that a test which notices the edit is likely to have."""

    def edited(self, contract: Contract) -> Contract | None:
        """`contract` with the edit; None if it has not what is edited."""
        held: object = getattr(contract, self.field) or ()
        changed: object
        if isinstance(held, Mapping):
            names = [name for name, item in held.items() if item == self.old]
            if not names:
                return None
            changed = {**held, names[0]: self.new}
        else:
            assert isinstance(held, tuple | frozenset)  # INVARIANT: what a contract is made of
            if self.old not in held:
                return None
            items = [self.new if item == self.old else item for item in held]
            changed = type(held)(item for item in items if item is not None)
        edit: dict[str, Any] = {self.field: changed}
        return contract._replace(**edit)


def mutants(contracts: Sequence[Contract]) -> Iterator[Mutant]:
    """Every mutant of what the contracts hold, a part that several include only once."""
    seen = set()
    for contract in contracts:
        for mutant in _mutants(contract):
            listed = mutant.field in ("known", "renames")
            key = (None if listed else mutant.place, mutant.field, mutant.edit)
            if key not in seen:
                seen.add(key)
                yield mutant


def _mutants(contract: Contract) -> Iterator[Mutant]:
    for key in contract.keys.values():
        places = {key.name, *(step for place in key.places for step in place.path)}
        for edit, changed in _of_key(key):
            bounds = {str(bound) for bound in changed.range or ()}
            words = {*places, *bounds}
            yield _mutant(key.place, "keys", f"{key.name}: {edit}", key, changed, words)
    for field in ("checks", "pairing"):
        for check in getattr(contract, field):
            words = set(_WORD.findall(str(check[:-1]))) | {check.finding}
            label = f"{check.kind} {check.key or ', '.join(check.keys or check.paths[:1])}"
            for edit, new in _of_check(check):
                yield _mutant(check.place, field, f"{label}: {edit}", check, new, words)
    sizes = sorted({name for spec in contract.tensors for d in spec.shape for name in keys_of(d)})
    integers = [name for name in sizes if contract.keys[name].type == "integer"]
    for spec in contract.tensors:
        words = {
            spec.name,
            spec.name.replace("{layer}", "1"),
            *map(str, (spec.when or {}).values()),
        }
        for edit, new_spec in _of_tensor(spec, integers):
            if new_spec is not None and _clashes(new_spec, spec, contract.tensors):
                continue  # the reader refuses a tensor that is declared twice
            yield _mutant(spec.place, "tensors", f"{spec.name}: {edit}", spec, new_spec, words)
    start = Place(contract.file, 1, 1)
    for rename in contract.renames:
        words = {rename.prefix, "rename"}
        wrong = rename._replace(stands_for=rename.stands_for + "x.")
        yield _mutant(start, "renames", f"drop {rename}", rename, None, words)
        yield _mutant(start, "renames", f"{rename} stands for {wrong}", rename, wrong, words)
    for name in sorted(contract.known):
        yield _mutant(start, "known", f"drop known {name}", name, None, {name})
    for anchor, dim in (contract.drafts or {}).items():
        words = {"sample_from_anchor", "drafts_per_round"}
        more = dim._replace(terms=(*dim.terms, ("1",)))
        yield _mutant(start, "drafts", f"one more draft for {anchor}", dim, more, words)


def _clashes(changed: TensorSpec, spec: TensorSpec, tensors: Sequence[TensorSpec]) -> bool:
    return any(
        other != spec and other.name == changed.name and not exclude(other.when, changed.when)
        for other in tensors
    )


def _mutant(
    place: Place | None, field: str, edit: str, old: object, new: object, words: set[str]
) -> Mutant:
    assert place is not None  # INVARIANT: what a reader read has a place
    return Mutant(place, field, edit, old, new, frozenset(words | set(_WORD.findall(edit))))


def _of_key(key: Key) -> Iterator[tuple[str, Key]]:
    if key.default is None:
        yield "do not require", key._replace(default=Default())
    else:
        yield "require", key._replace(default=None)
        for edit, default in _of_default(key.default):
            yield edit, key._replace(default=default)
    for number, place in enumerate(key.places):
        rest = key.places[:number] + key.places[number + 1 :]
        yield f"drop {place.dotted}", key._replace(places=rest or (_NOWHERE,))
        for edit, changed in _of_place(place):
            places = (*key.places[:number], changed, *key.places[number + 1 :])
            yield edit, key._replace(places=places)
    yield f"read {_OTHER_TYPE[key.type]}", _retyped(key)
    if key.range is not None:
        least, greatest = key.range
        step: Callable[[float, int], float] = _scaled if key.type == "number" else _shifted
        yield "widen below", key._replace(range=(step(least, -1), greatest))
        yield "widen above", key._replace(range=(least, step(greatest, 1)))
        if least < greatest:
            yield "narrow below", key._replace(range=(step(least, 1), greatest))
            yield "narrow above", key._replace(range=(least, step(greatest, -1)))


def _retyped(key: Key) -> Key:
    kind = _OTHER_TYPE[key.type]
    ranged = kind in ("integer", "number", "integers")
    return key._replace(type=kind, range=key.range if ranged else None)


def _shifted(bound: float, by: int) -> float:
    return bound + by


def _scaled(bound: float, by: int) -> float:
    return bound * 2.0**by


def _of_default(default: Default) -> Iterator[tuple[str, Default]]:
    if default.by_rule is not None:
        for rule, value in default.by_rule.items():
            rest = {name: v for name, v in default.by_rule.items() if name != rule}
            yield f"drop default of {rule}", default._replace(by_rule=rest)
            other = {**default.by_rule, rule: _other(value)}
            yield f"other default of {rule}", default._replace(by_rule=other)
    elif default.fill is not None:
        yield "fill other", default._replace(fill=(f"{default.fill[0]}x", default.fill[1]))
    elif default.key or default.quotient or default.tensor:
        yield "default null", Default()
    elif default.value is not None:
        yield "other default", Default(value=_other(default.value))


def _other(value: Value) -> Value:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else f"{value}x"


def _of_place(place: KeyPlace) -> Iterator[tuple[str, KeyPlace]]:
    if place.minus:
        yield f"do not reduce {place.dotted}", place._replace(minus=0)
    if place.negate:
        yield f"do not negate {place.dotted}", place._replace(negate=False)


def _of_check(check: Check) -> Iterator[tuple[str, Check | None]]:
    yield "drop", None
    other = "out-of-range" if check.finding != "out-of-range" else "inconsistent-config"
    if check.kind != "requires":
        yield f"report {other}", check._replace(finding=other)
    for number, path in enumerate(check.paths if len(check.paths) > 1 else ()):
        rest = check.paths[:number] + check.paths[number + 1 :]
        yield f"drop {path}", check._replace(paths=rest)
    for number, name in enumerate(check.keys if len(check.keys) > 1 else ()):
        keys = check.keys[:number] + check.keys[number + 1 :]
        yield f"drop {name}", check._replace(keys=keys)
    for number, value in enumerate(check.values):
        values = check.values[:number] + check.values[number + 1 :]
        yield f"drop {value}", check._replace(values=values)
    if check.other.isdigit():
        yield "other number", check._replace(other=str(int(check.other) * 2))
    swapped = {"below": "at-most", "at-most": "below", "equals": "at-most"}.get(check.kind)
    if swapped is not None:
        yield f"ask {swapped}", check._replace(kind=swapped)
    for edit, when in _of_when(check.when):
        yield edit, check._replace(when=when)


def _of_when(when: Mapping[str, Value] | None) -> Iterator[tuple[str, Mapping[str, Value] | None]]:
    for name, value in (when or {}).items():
        rest = {other: v for other, v in (when or {}).items() if other != name}
        yield f"drop when {name}", rest or None
        yield f"other when {name}", {**rest, name: _other(value)}


def _of_tensor(spec: TensorSpec, sizes: Sequence[str]) -> Iterator[tuple[str, TensorSpec | None]]:
    yield "drop", None
    yield "rename", spec._replace(name=spec.name + "x")
    for need in NEEDS:
        if need != spec.need:
            yield f"need {need}", spec._replace(need=need)
    for edit, when in _of_when(spec.when):
        yield edit, spec._replace(when=when)
    if spec.repeat:
        yield "repeat otherwise", spec._replace(repeat="num_key_value_heads")
    if spec.need == "ignored":
        return  # its shape and dtype are not looked at
    for dtype in spec.dtypes:
        rest = tuple(other for other in spec.dtypes if other != dtype)
        yield f"drop {dtype}", spec._replace(dtypes=rest)
    yield "allow F16", spec._replace(dtypes=(*spec.dtypes, "F16"))
    for number, dim in enumerate(spec.shape):
        yield (
            f"drop dimension {dim.text}",
            spec._replace(shape=spec.shape[:number] + spec.shape[number + 1 :]),
        )
        for edit, changed in _of_dim(dim, sizes):
            shape = (*spec.shape[:number], changed, *spec.shape[number + 1 :])
            yield f"dimension {number}: {edit}", spec._replace(shape=shape)
    if spec.shape != spec.shape[::-1]:
        yield "transpose", spec._replace(shape=spec.shape[::-1])


def _of_dim(dim: Dim, sizes: Sequence[str]) -> Iterator[tuple[str, Dim]]:
    for row, term in enumerate(dim.terms):
        for column, factor in enumerate(term):
            if counted(factor):
                others = ["num_hidden_layers"]
            elif factor.lstrip("-").isdigit():
                others = [str(int(factor) + 1)]
            else:
                others = [name for name in sizes if name != factor]
            for other in others:
                changed = (*term[:column], other, *term[column + 1 :])
                terms = (*dim.terms[:row], changed, *dim.terms[row + 1 :])
                yield f"{other} for {factor}", dim._replace(terms=terms)
