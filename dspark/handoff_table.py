"""How another engine runs each rule's checkpoints, as `rules/handoff/` has it.

A rule leads to a recipe that serves its checkpoints, or to a finding that says why none does. The
language: docs/handoff.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dspark.diagnostics import Place
from dspark.facts import Cell

SEPARATE, IN_TARGET, OF_TARGET = DRAFTS = ("separate", "in-target", "of-target")
"""Where a draft is: in a checkpoint of its own, in one that is its target too, or in one that only
describes a part of its target's."""


class Where(NamedTuple):
    """Holds where the value of a key is one of these; None among them stands for its absence."""

    key: str
    values: tuple[object, ...]


class Demand(NamedTuple):
    """Something that must hold for the engine to run the draft as it was trained."""

    kind: str
    keys: tuple[str, ...]
    """Dotted keys of the draft's config, the first that is set counting; for `target` its fact."""
    values: tuple[object, ...]
    other: str
    """The key of the target's config to compare with; with `draft.` in front, of the draft's."""
    least: int | None
    """The smallest entry that will do; None for the kind's own."""
    unless: Where | None
    finding: str


class Tokens(NamedTuple):
    """How many tokens the draft proposes at a time."""

    places: tuple[str, ...]
    less: int
    """What is taken from the number found, because the slot of the anchor drafts nothing."""
    less_where: Where | None
    """Where that is done; everywhere if None."""
    exact: bool
    """Whether the engine refuses any other number."""


class Recipe(NamedTuple):
    """How a kind of draft is started."""

    name: str
    method: str
    draft: str
    """One of `DRAFTS`; only a separate one is named on the command line."""
    tokens: Tokens
    arguments: tuple[str, ...]
    """More of the command line."""
    options: Mapping[str, object]
    """More of the speculative config."""
    demands: tuple[Demand, ...]


class Case(NamedTuple):
    """One answer for a rule: a recipe, or the finding that says why there is none."""

    when: Mapping[str, tuple[Cell, ...]]
    recipe: str
    finding: str
    because: str
    refs: tuple[str, ...]
    place: Place


class HandoffTable(NamedTuple):
    """Everything one version of one engine is known to do with each rule's checkpoints."""

    engine: str
    version: str
    image: str
    recipes: Mapping[str, Recipe]
    rules: Mapping[str, tuple[Case, ...]]
    uncaptured: tuple[str, ...]
    """Architectures of targets that hand out no layers."""
    not_block: frozenset[str]
    """IDs of rules whose checkpoints may be something else than a block draft."""

    def covers(self, version: str) -> bool:
        """Whether a version of the engine, such as `0.33.1`, is the one this is about."""
        return version == self.version or version.startswith(
            (f"{self.version}.", f"{self.version}+")
        )
