"""The answer for a checkpoint that was looked at beyond its routing."""

from __future__ import annotations

from collections.abc import Sequence

from dspark.contract import Finding
from dspark.decision import Decision, Refusal


class Verdict(Decision):
    """A decision with what the later stages found; `rule` is still the routing rule.

    With findings it is a refusal: its ID, name and help are the first finding's, and `findings`
    has all of its stage. `stage` is the one that refused, or the last one passed: `check` (the
    config), `tensors`, `pairing` or `budget`.
    """

    __slots__ = ("findings", "warnings")

    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    def __init__(
        self,
        decision: Decision,
        *,
        stage: str,
        findings: Sequence[Finding] = (),
        warnings: Sequence[Finding] = (),
    ) -> None:
        super().__init__(
            source=decision.source,
            rule=decision.rule,
            refusal=_refusal(findings) if findings else decision.refusal,
            stage=stage,
            table=decision.table,
            observation=decision.observation,
            architecture=decision.architecture,
        )
        object.__setattr__(self, "findings", tuple(findings))
        object.__setattr__(self, "warnings", tuple(warnings))

    def __reduce__(self) -> tuple[object, ...]:
        values = {name: getattr(self, name) for name in Decision.__slots__}
        return _restore, (Decision(**values), self.stage, self.findings, self.warnings)

    @property
    def rule_id(self) -> str:
        return self.findings[0].rule_id if self.findings else self.rule.id

    @property
    def name(self) -> str:
        return self.findings[0].name if self.findings else self.rule.name

    @property
    def lane(self) -> str | None:
        return None if self.findings else self.rule.lane

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"findings": [each.to_json() for each in self.findings]}


def _refusal(findings: Sequence[Finding]) -> Refusal:
    first, *rest = findings
    more = f" (and {len(rest)} more)" if rest else ""
    return Refusal(first.message + more, first.help)


def _restore(
    decision: Decision, stage: str, findings: Sequence[Finding], warnings: Sequence[Finding]
) -> Verdict:
    return Verdict(decision, stage=stage, findings=findings, warnings=warnings)
