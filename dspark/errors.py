"""Every exception this package raises on purpose.

    DsparkError
    ├── Refused(DsparkError)            a checkpoint was refused; carries the Decision
    ├── TableError(DsparkError, ValueError)   a rules file is wrong; carries every diagnostic
    ├── FailedTests(DsparkError)        a rules file compiles, and tests inside it fail
    ├── PackError(DsparkError)          a rule pack is not installed, or its package is broken
    ├── TooLarge(DsparkError)           two tables, put together, are too large to compare
    └── Unreadable(DsparkError)         an input could not be read; names its `E` rule (internal:
                                        callers see it as a Decision or as Refused)

Write this around a loader:

    try:
        decision = dspark.require_lane(path)
    except dspark.Refused as refusal:
        log.error("%s", refusal)        # "R014 eagle3: ..."
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark.decision import Decision
    from dspark.diagnostics import Diagnostic


class DsparkError(Exception):
    """Base of everything raised on purpose; catch it to catch them all."""


class Refused(DsparkError):
    """The checkpoint was refused, by a rule with an ID.

    `decision` is the whole Decision, so that a service can log or return it as JSON.
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        return self.decision.summary()


class TableError(DsparkError, ValueError):
    """A rules file does not compile; `diagnostics` holds every problem found, in file order.

    `origin` names the rule pack and its package, where the file is a pack's.
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...], origin: str = "") -> None:
        super().__init__(diagnostics, origin)
        self.diagnostics = diagnostics
        self.origin = origin

    def __str__(self) -> str:
        lines = [diagnostic.headline() for diagnostic in self.diagnostics]
        return "\n".join([*lines, f"in {self.origin}"] if self.origin else lines)


class FailedTests(DsparkError):
    """A rules file compiles, and `failures` says which of the tests inside it fail, and how."""

    def __init__(self, failures: tuple[str, ...]) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        return "\n".join(self.failures)


class PackError(DsparkError):
    """A rule pack cannot be found, or its package does not hold what it promises."""


class Unreadable(DsparkError):
    """An input that no rule could be asked about.

    `rule_name` is the readable name of the `E` rule in `rules/messages.yaml`; `values` fill the
    placeholders of its message. The text itself is never built here.
    """

    def __init__(self, rule_name: str, **values: object) -> None:
        super().__init__(rule_name, values)
        self.rule_name = rule_name
        self.values = values
