"""Every exception this package raises on purpose.

    DsparkError
    ├── Refused(DsparkError)            a checkpoint was refused; carries the Decision
    ├── TableError(DsparkError, ValueError)   a rules file is wrong; carries every diagnostic
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
    """A rules file does not compile; `diagnostics` holds every problem found, in file order."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return "\n".join(diagnostic.headline() for diagnostic in self.diagnostics)


class Unreadable(DsparkError):
    """An input that no rule could be asked about.

    `rule_name` is the readable name of the `E` rule in `rules/messages.yaml`; `values` fill the
    placeholders of its message. The text itself is never built here.
    """

    def __init__(self, rule_name: str, **values: object) -> None:
        super().__init__(rule_name, values)
        self.rule_name = rule_name
        self.values = values
