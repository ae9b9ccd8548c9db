"""What a pair is handed over as: what an engine has to know of it, and of its machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dspark.checked import refuse_if
from dspark.contract import Finding
from dspark.decision import Decision
from dspark.findings import finding
from dspark.handoff_table import HandoffTable, Recipe
from dspark.messages import quoted

STAGE = "handoff"
Backend = Literal["mp", "ray"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines that an engine gets."""

    gpus: int
    """Of each node."""
    nodes: int
    backend: Backend
    """What joins the nodes: the engine's own processes, or a Ray cluster."""
    master_address: str | None
    """Where the first node is reached; None for one node."""

    @property
    def size(self) -> int:
        return self.gpus * self.nodes


@dataclass(frozen=True, slots=True)
class Placed:
    """A model as the engine is told of it."""

    name: str
    """A folder, by its absolute path, or a repo id."""
    revision: str | None
    local: bool


@dataclass(frozen=True, slots=True)
class HandOff:
    """How an engine serves a pair."""

    decision: Decision
    """What the routing table says of the draft; its lane is None where only the engine has one."""
    table: HandoffTable
    recipe: Recipe
    target: Placed
    draft: Placed | None
    """None where the draft is a part of the target's checkpoint."""
    num_speculative_tokens: int
    """How many tokens the draft is asked for at a time."""
    proposes: int | None
    """How many it can be asked for; None if its config does not say."""
    cluster: Cluster

    @property
    def method(self) -> str:
        return self.recipe.method

    @property
    def speculative_config(self) -> dict[str, object]:
        """What the engine's own speculative config is made from."""
        found: dict[str, object] = {"method": self.method}
        if self.draft is not None:
            found["model"] = self.draft.name
            if self.draft.revision is not None:
                found["revision"] = self.draft.revision
        tokens = self.num_speculative_tokens
        return {**found, "num_speculative_tokens": tokens, **self.recipe.options}

    def confirm(self, method: str, num_speculative_tokens: int) -> None:
        """Holds what the engine is about to do against this.

        Raises `Refused` if it chose another method, or more tokens than the draft proposes.
        """
        found = too_many(self.recipe, num_speculative_tokens, self.proposes)
        if method != self.method:
            version, got, expected = self.table.version, quoted(method), quoted(self.method)
            values = {"got": got, "expected": expected, "version": version}
            found = [finding("handoff-method-differs", **values)]
        refuse_if(self.decision, STAGE, found)


def too_many(recipe: Recipe, asked: int, proposes: int | None) -> list[Finding]:
    """The finding that a draft is asked for more than it proposes, if it is."""
    if proposes is None or asked == proposes or (asked < proposes and not recipe.tokens.exact):
        return []
    return [finding("handoff-too-many-tokens", got=asked, expected=proposes)]
