"""The answer for one checkpoint: a lane, or a refusal, with the rule and the evidence behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dspark.facts import Cell
from dspark.messages import plain
from dspark.rule import Rule

if TYPE_CHECKING:
    from dspark.compiled import Table
    from dspark.contract import Finding
    from dspark.observe import Observation


class Refusal(NamedTuple):
    """Why a checkpoint was refused and what to do about it; both texts belong to the rule."""

    message: str
    help: str


class Evidence(NamedTuple):
    """One fact, the cell it took, and the key it was read from (None where it is ABSENT)."""

    fact: str
    value: Cell
    key: str | None
    raw: object = None
    """What the file holds at `key`, for people; not part of the JSON."""

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.fact}: absent"
        if self.key is None:
            return f"{self.fact}: {plain(self.value)} (no key says otherwise)"
        return f"{self.fact}: {plain(self.value)} <- {self.key} = {plain(self.raw)}"


class Step(NamedTuple):
    """One node of the decision graph on the way to the answer."""

    fact: str
    value: Cell
    named: bool
    """False for an architecture that no rule names."""


class Decision:
    """What one checkpoint is: immutable, comparable, JSON-serialisable.

    Attributes:
        source: the argument as it was given; the only part that depends on where the file lies.
        rule: the rule that decided.
        refusal: None when a lane takes the checkpoint.
        stage: where the answer fell, `observe` (the input could not be read) or `route`.
        table_version: content hash of the rules, to tell from a log line which table decided.
    """

    __slots__ = ("architecture", "observation", "refusal", "rule", "source", "stage", "table")

    source: str
    rule: Rule
    refusal: Refusal | None
    stage: str
    table: Table
    observation: Observation | None
    architecture: Cell

    def __init__(
        self,
        *,
        source: str,
        rule: Rule,
        refusal: Refusal | None,
        stage: str,
        table: Table,
        observation: Observation | None,
        architecture: Cell,
    ) -> None:
        put = object.__setattr__
        put(self, "source", source)
        put(self, "rule", rule)
        put(self, "refusal", refusal)
        put(self, "stage", stage)
        put(self, "table", table)
        put(self, "observation", observation)
        put(self, "architecture", architecture)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a decision is immutable: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a decision is immutable: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        # The default way to copy or pickle an object with slots sets its attributes.
        return _restore, tuple(getattr(self, name) for name in Decision.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.source, self.rule.id, self.table_version))

    def __repr__(self) -> str:
        return f"<Decision {self.source}: {self.summary()}>"

    @property
    def rule_id(self) -> str:
        return self.rule.id

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def lane(self) -> str | None:
        return self.rule.lane

    @property
    def table_version(self) -> str:
        return self.table.version

    @property
    def facts(self) -> dict[str, object]:
        """Every fact of the table with its cell; `architecture` is the list of all entries."""
        seen = self.observation
        return {
            fact: (
                list(seen.architectures if seen else ())
                if fact == "architecture"
                else getattr(seen, fact, None)
            )
            for fact in self.table.facts
        }

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Where each fact was read, in the table's fact order; empty if nothing could be read."""
        seen = self.observation
        if seen is None:
            return ()
        found = []
        for fact in self.table.facts:
            key, raw = seen.origins.get(fact, (None, None))
            if fact == "architecture" and isinstance(raw, list | tuple):
                # Entries that contradict one another refuse the checkpoint together.
                decided = [self.architecture] if self.stage != "observe" else seen.architectures
                found += [
                    Evidence(fact, cell, f"{key}[{raw.index(cell)}]", cell) for cell in decided
                ]
            else:
                found.append(Evidence(fact, getattr(seen, fact, None), key, raw))
        return tuple(found)

    @property
    def path(self) -> tuple[Step, ...]:
        """The nodes of the decision graph that led here, in order."""
        if self.observation is None or self.stage == "observe":
            return ()
        return self.table.path(self.table.cells(self.observation, self.architecture))

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What should be known beside the answer: keys of the config that look misspelt."""
        seen = self.observation
        return () if seen is None else self.table.notice(self.lane, seen.config)

    def summary(self) -> str:
        """One line: the rule and its lane, or the rule and its message."""
        label = f"{self.rule_id} {self.name}"
        if self.refusal is None:
            return f"{label}: lane {self.lane}"
        return f"{label}: {self.refusal.message}"

    def to_json(self) -> dict[str, object]:
        """The object `--json` prints, one per checkpoint (schema: `decision.schema.json`)."""
        refusal: Mapping[str, str] | None = self.refusal._asdict() if self.refusal else None
        return {
            "source": self.source,
            "decision": {
                "rule_id": self.rule_id,
                "name": self.name,
                "lane": self.lane,
                "refusal": refusal,
            },
            "facts": self.facts,
            "evidence": [
                {"fact": item.fact, "value": item.value, "key": item.key} for item in self.evidence
            ],
            "stage": self.stage,
            "table_version": self.table_version,
            "warnings": [each.to_json() for each in self.warnings],
        }


def _restore(*values: object) -> Decision:
    return Decision(**dict(zip(Decision.__slots__, values, strict=True)))  # type: ignore[arg-type]
