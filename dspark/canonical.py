"""A config read by its contract: one value for each key, whatever its exporter called it.

Every place of every key is read strictly, places that disagree are a finding, and so is a required
key that no place fills. All of them are found in one pass; what a key with a finding would have led
to is not reported again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from dspark.contract import Canonical, Contract, Default, Finding, Key, KeyPlace, Value
from dspark.demands import run_checks
from dspark.dimensions import evaluate, same
from dspark.findings import finding, phrase
from dspark.misspelt import misspelt_keys, read_names
from dspark.places import Blocked, Path, look_up, steps, unread
from dspark.typed import LISTS, bounds, convert, has_type, in_range, number_text

DRAFTS = "drafts_per_round"
"""The key that every lane has and no file: how many tokens a round drafts."""
ANCHOR = "sample_from_anchor"
"""The key that `drafts` of a lane depends on."""


def canonicalise(
    contract: Contract,
    config: Mapping[str, object],
    rule_name: str,
    tensors_present: frozenset[str] | None,
) -> Canonical:
    """The canonical values of `config`, with where each came from and everything wrong with it.

    `rule_name` is the routing rule that led to the lane, empty for a target. `tensors_present` are
    the names in the weights, None where they are not there. Raises nothing: what is wrong is a
    finding.
    """
    reading = _Reading(contract, config, rule_name, tensors_present)
    for key in contract.keys.values():
        reading.read(key)
    # A default may be taken from another key, which has been read by then.
    for key in contract.keys.values():
        reading.fill(key)
    reading.count_drafts()
    names = {name: key.places[0].dotted for name, key in contract.keys.items() if key.places}
    found = reading.findings + run_checks(
        contract.checks, reading.values, config, origins=reading.origins, names=names
    )
    misspelt = misspelt_keys(config, read_names(contract), contract.known)
    others = [key for key in unread_keys(contract, config) if key not in misspelt]
    warnings = [each for each in found if each.warning]
    warnings += [*misspelt.values(), *(finding("unread-key", key=key) for key in others)]
    return Canonical(
        values=reading.values,
        origins=reading.origins,
        findings=tuple(each for each in found if not each.warning),
        warnings=tuple(warnings),
    )


def unread_keys(contract: Contract, config: Mapping[str, object]) -> list[str]:
    """The dotted paths of keys in `config` that nothing of the contract looks at."""
    read: set[Path] = {place.path for key in contract.keys.values() for place in key.places}
    for check in contract.checks:
        read.update(map(steps, check.paths))
    return list(unread(config, read, contract.known))


class _Reading:
    def __init__(
        self,
        contract: Contract,
        config: Mapping[str, object],
        rule_name: str,
        tensors_present: frozenset[str] | None,
    ) -> None:
        self.contract = contract
        self.config = config
        self.rule_name = rule_name
        self.tensors_present = tensors_present
        self.values: dict[str, Value] = {}
        self.origins: dict[str, str] = {}
        self.findings: list[Finding] = []
        self.broken: set[str] = set()
        """Keys with a finding: they have no value, and nobody asks for one again."""
        self.blocked: set[Path] = set()

    def read(self, key: Key) -> None:
        """Takes the key's value from its places."""
        first: tuple[KeyPlace, object] | None = None
        for place in key.places:
            raw = look_up(self.config, place.path)
            if raw is None:
                continue
            if isinstance(raw, Blocked):
                self._report_blocked(raw)
                self.broken.add(key.name)
            elif not self._is_sound(key, place, raw):
                self.broken.add(key.name)
            elif first is None:
                first = (place, raw)
            elif not same(convert(raw, key, place), convert(first[1], key, first[0])):
                self.broken.add(key.name)
                self._add(
                    "conflicting-keys",
                    key=first[0].dotted,
                    got=first[1],
                    other=place.dotted,
                    other_got=raw,
                )
        if first is not None and key.name not in self.broken:
            self.values[key.name] = convert(first[1], key, first[0])
            self.origins[key.name] = first[0].dotted

    def _report_blocked(self, found: Blocked) -> None:
        if found.path not in self.blocked:
            self.blocked.add(found.path)
            got = json.dumps(found.value)
            expected = phrase(found.wanted)
            self._add("bad-type", key=".".join(found.path), expected=expected, got=got)

    def _is_sound(self, key: Key, place: KeyPlace, raw: object) -> bool:
        if not has_type(raw, key.type):
            expected, got = phrase(key.type), json.dumps(raw)
            self._add("bad-type", key=place.dotted, expected=expected, got=got)
        elif not in_range(raw, key, place):
            self._add("out-of-range", key=place.dotted, expected=_range(key, place, raw), got=raw)
        else:
            return True
        return False

    def fill(self, key: Key) -> None:
        """Gives the key its default, or reports that it is missing."""
        if key.name in self.values or key.name in self.broken:
            return
        default = key.default
        if default is None:
            self._miss(key, phrase(key.type))
        elif default.key:
            if default.key in self.values:
                self._put(key, self.values[default.key], f"default: {default.key}")
        elif default.quotient is not None:
            self._divide(key, *default.quotient)
        elif default.fill is not None:
            word, times = default.fill
            count = self.values.get(times)
            if isinstance(count, int):
                self._put(key, (word,) * count, "default")
        elif default.by_rule is not None:
            if self.rule_name in default.by_rule:
                origin = f"default of {self.rule_name}"
                self._put(key, default.by_rule[self.rule_name], origin)
            else:
                expected = phrase(key.type)
                self._miss(key, phrase("by-rule", expected=expected, rule=self.rule_name))
        elif default.tensor:
            self._put(key, self._has_tensor(default), f"default: {default.tensor}")
        else:
            self._put(key, default.value, "default")

    def _divide(self, key: Key, first: str, second: str) -> None:
        dividend, divisor = self.values.get(first), self.values.get(second)
        if not isinstance(dividend, int) or not isinstance(divisor, int):
            return
        if divisor and dividend % divisor == 0:
            self._put(key, dividend // divisor, f"default: {first} / {second}")
        else:
            expected = phrase(key.type)
            self._miss(key, phrase("quotient", expected=expected, first=first, second=second))

    def _has_tensor(self, default: Default) -> bool | None:
        if self.tensors_present is None:
            return None
        names = {default.tensor}
        for rename in self.contract.renames:
            if default.tensor.startswith(rename.stands_for):
                names.add(rename.prefix + default.tensor.removeprefix(rename.stands_for))
        return not names.isdisjoint(self.tensors_present)

    def count_drafts(self) -> None:
        """Computes how many tokens a round drafts."""
        anchor = self.values.get(ANCHOR)
        if self.contract.drafts is None or not isinstance(anchor, bool):
            return
        dim = self.contract.drafts[anchor]
        try:
            drafts = evaluate(dim, self.values)
        except KeyError:
            return  # the key it depends on has a finding of its own
        if drafts >= 1:
            self._put_value(DRAFTS, drafts, "computed")
            return
        key = next(factor for term in dim.terms for factor in term if factor in self.values)
        condition = phrase("condition", key=self._called(ANCHOR), value=anchor)
        expected = phrase("where", expected=phrase("drafts"), conditions=condition)
        got = self.values[key]
        self._add("inconsistent-config", key=self._called(key), expected=expected, got=got)

    def _called(self, key: str) -> str:
        origin = self.origins[key]
        return key if origin.startswith("default") else origin

    def _miss(self, key: Key, expected: str) -> None:
        self.broken.add(key.name)
        self._add("missing-key", key=key.places[0].dotted, expected=expected)

    def _put(self, key: Key, value: Value, origin: str) -> None:
        self._put_value(key.name, value, origin)

    def _put_value(self, name: str, value: Value, origin: str) -> None:
        self.values[name] = value
        self.origins[name] = origin

    def _add(self, name: str, **values: object) -> None:
        self.findings.append(finding(name, **values))


def _range(key: Key, place: KeyPlace, raw: object) -> str:
    if not raw and key.type in LISTS:
        return phrase("entries")
    least, greatest = (number_text(bound) for bound in bounds(key, place))
    return phrase("each-in-range" if key.type in LISTS else "range", least=least, greatest=greatest)
