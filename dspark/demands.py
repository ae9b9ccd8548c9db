"""The checks a contract makes, run on canonical values: every demand that is not met, as a finding.

Where a finding names a key, it is the place in the file that the value was read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from dspark.contract import Check, Finding, Value
from dspark.dimensions import applies, same
from dspark.findings import finding, phrase
from dspark.messages import plain
from dspark.places import Blocked, look_up, steps

TARGET = "target."
"""In front of the name of a target's key."""


def run_checks(
    checks: Sequence[Check],
    values: Mapping[str, Value],
    raw: Mapping[str, object],
    target_values: Mapping[str, Value] | None = None,
    *,
    origins: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Every demand that is not met, in the order of `checks`.

    `values` are canonical; a key without one demands nothing. `raw` is config.json. `origins` tell
    where each value came from, and `names` what a key that is in no file is called in messages.
    """
    run = _Run(values, raw, target_values or {}, origins or {}, names or {})
    found: list[Finding] = []
    for check in checks:
        if applies(check.when, values):
            found += _CHECKS[check.kind](run, check)
    return found


class _Run:
    def __init__(
        self,
        values: Mapping[str, Value],
        raw: Mapping[str, object],
        target: Mapping[str, Value],
        origins: Mapping[str, str],
        names: Mapping[str, str],
    ) -> None:
        self.values = values
        self.raw = raw
        self.target = target
        self.origins = origins
        self.names = names

    def is_written(self, key: str) -> bool:
        return key in self.values and not self.origins.get(key, "default").startswith("default")

    def called(self, key: str) -> str:
        if self.is_written(key) and self.origins[key] != "computed":
            return self.origins[key]
        return key

    def other(self, name: str) -> Value:
        """The value of what a check compares with; None where it has none."""
        if name.startswith(TARGET):
            return self.target.get(name.removeprefix(TARGET))
        return int(name) if name.isdigit() else self.values.get(name)

    def other_text(self, name: str) -> str:
        value = self.other(name)
        if name.isdigit():
            return name
        if name.startswith(TARGET):
            return phrase("target-key", value=value, other=name.removeprefix(TARGET))
        return phrase("key", value=value, other=self.called(name))

    def unmet(self, check: Check, key: str, got: object, expected: str) -> list[Finding]:
        if check.when:
            conditions = " and ".join(self._condition(*item) for item in check.when.items())
            expected = phrase("where", expected=expected, conditions=conditions)
        given = list(got) if isinstance(got, tuple) else got
        return [finding(check.finding, key=key, expected=expected, got=given)]

    def _condition(self, key: str, wanted: Value) -> str:
        holds = isinstance(self.values[key], tuple | frozenset)
        return phrase("holding" if holds else "condition", key=self.called(key), value=wanted)


def _one_of(run: _Run, check: Check) -> list[Finding]:
    value = run.values.get(check.key)
    entries = value if isinstance(value, tuple) else (value,)
    if value is None or all(any(same(e, v) for v in check.values) for e in entries):
        return []
    return run.unmet(check, run.called(check.key), value, _listed(check.values))


def _length(run: _Run, check: Check) -> list[Finding]:
    value, count = run.values.get(check.key), run.other(check.other)
    if not isinstance(value, tuple) or count is None or len(value) == count:
        return []
    expected = phrase("length", other=run.other_text(check.other))
    return run.unmet(check, run.called(check.key), value, expected)


def _increasing(run: _Run, check: Check) -> list[Finding]:
    value = run.values.get(check.key)
    if not isinstance(value, tuple) or all(a < b for a, b in pairwise(value)):
        return []
    return run.unmet(check, run.called(check.key), value, phrase("increasing"))


def _multiple(run: _Run, check: Check) -> list[Finding]:
    value, other = run.values.get(check.key), run.other(check.other)
    if not isinstance(value, int) or not isinstance(other, int):
        return []
    if (value % other if other else value) == 0:
        return []
    expected = phrase("multiple", other=run.other_text(check.other))
    return run.unmet(check, run.called(check.key), value, expected)


def _below(run: _Run, check: Check) -> list[Finding]:
    value, other = run.values.get(check.key), run.other(check.other)
    entries = value if isinstance(value, tuple) else (value,)
    if value is None or not isinstance(other, int | float) or all(e < other for e in entries):
        return []
    name = "each-below" if isinstance(value, tuple) else "below"
    expected = phrase(name, other=run.other_text(check.other))
    return run.unmet(check, run.called(check.key), value, expected)


def _at_most(run: _Run, check: Check) -> list[Finding]:
    value, other = run.values.get(check.key), run.other(check.other)
    if not isinstance(value, int | float) or not isinstance(other, int | float) or value <= other:
        return []
    expected = phrase("at-most", other=run.other_text(check.other))
    return run.unmet(check, run.called(check.key), value, expected)


def _equals(run: _Run, check: Check) -> list[Finding]:
    value, other = run.values.get(check.key), run.other(check.other)
    if value is None or other is None or same(value, other):
        return []
    return run.unmet(check, run.called(check.key), value, run.other_text(check.other))


def _requires(run: _Run, check: Check) -> list[Finding]:
    found: list[Finding] = []
    for key in check.keys:
        # A key with a finding of its own has no value; to ask for it again would be its echo.
        if key in run.values and not run.is_written(key):
            name = run.names.get(key, key)
            expected = " and ".join(run._condition(*item) for item in (check.when or {}).items())
            expected = phrase("needed", conditions=expected) if expected else phrase("set")
            found.append(finding(check.finding, key=name, expected=expected))
    return found


def _absent(run: _Run, check: Check) -> list[Finding]:
    found: list[Finding] = []
    for key in check.keys:
        if run.is_written(key):
            found += run.unmet(check, run.called(key), run.values[key], phrase("absent"))
    return found


def _inert(run: _Run, check: Check) -> list[Finding]:
    found: list[Finding] = []
    for dotted in check.paths:
        value = look_up(run.raw, steps(dotted))
        # Something in the way is a finding of the key whose place it is in.
        if value is None or isinstance(value, Blocked):
            continue
        if not any(same(value, allowed) for allowed in check.values):
            expected = _listed(check.values) if check.values else phrase("absent")
            found += run.unmet(check, dotted, value, expected)
    return found


def _differs(run: _Run, check: Check) -> list[Finding]:
    value = run.values.get(check.key)
    found: list[Finding] = []
    for dotted in check.paths:
        other = look_up(run.raw, steps(dotted))
        others = other if isinstance(other, list | tuple) else [other]
        if value is not None and any(same(value, entry) for entry in others):
            expected = phrase("differs", other=dotted)
            found += run.unmet(check, run.called(check.key), value, expected)
    return found


def _listed(values: Sequence[Value]) -> str:
    return " or ".join(phrase("value", value=plain(value)) for value in values)


_CHECKS = {
    "one-of": _one_of,
    "length": _length,
    "increasing": _increasing,
    "multiple": _multiple,
    "below": _below,
    "at-most": _at_most,
    "equals": _equals,
    "requires": _requires,
    "absent": _absent,
    "inert": _inert,
    "differs": _differs,
}
