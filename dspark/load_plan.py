"""A load plan: everything a loader needs to know before it reads a weight, as one frozen object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr

if TYPE_CHECKING:
    from dspark.decision import Decision

Device = Literal["cuda", "cpu"]
Dtype = Literal["float32", "bfloat16"]
ConfigScalar = bool | int | float | str | None


class Part(BaseModel):
    """What every part of a plan is: frozen, with no field but those named."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ConfigValue(Part):
    """One canonical key of a config."""

    value: ConfigScalar | tuple[ConfigScalar, ...]
    """Its value."""
    origin: str
    """The key of config.json it was read from, or where its default came from."""


class TensorPlace(Part):
    """Where one tensor lies."""

    file: str
    """The weight file, by its name in the checkpoint."""
    name: str
    """What the file calls the tensor."""
    dtype: str
    """Its format, as safetensors writes it."""
    shape: tuple[int, ...]
    """Its dimensions."""
    offset: int
    """Its first byte, counted from the start of the file."""
    nbytes: int
    """How many bytes it has."""


class WeightFile(Part):
    """One weight file."""

    name: str
    """Its name in the checkpoint."""
    nbytes: int
    """Its size."""


class Model(Part):
    """One of the two models."""

    source: str
    """The argument as it was given."""
    folder: str | None
    """The local folder that its files lie in; null for a repo on the hub."""
    implementation: str
    """What runs it, by its registered name."""
    config: dict[str, ConfigValue]
    """Every canonical key."""
    tensors: dict[str, TensorPlace]
    """Every tensor to load, by canonical name; empty for a target whose weights are not there."""
    files: tuple[WeightFile, ...]
    """The files they are in."""

    def value(self, key: str) -> ConfigScalar | tuple[ConfigScalar, ...]:
        """The value of a canonical key; raises KeyError."""
        return self.config[key].value


class TokenRange(Part):
    """How many draft tokens a round may have."""

    least: int
    """The fewest."""
    most: int
    """The most: a round cannot draft beyond the block the draft was trained with."""


class Bytes(Part):
    """Memory by what it is for, in bytes."""

    draft_weights: int
    """The draft's own weights on the device."""
    target_weights: int
    """The target's weights on the device."""
    target_weights_from: Literal["headers", "config"]
    """Whether they were added up from its files or computed from its config."""
    draft_kv_per_token: int
    """Keys and values of one position of the draft's context, all layers together."""
    target_kv_per_token: int
    """The same of the target."""
    draft_kv: int
    """The draft's context of all rows."""
    target_kv: int
    """The target's cache of all rows."""
    logits: int
    """Logits of a round and one workspace of their size, of all rows."""
    total: int
    """All of it."""


class Warned(Part):
    """Something that does not stop the load and should be known."""

    rule_id: str
    """Its ID."""
    name: str
    """Its readable name."""
    message: str
    """What was noticed."""
    help: str
    """What to do about it."""


class Plan(Part):  # noqa: PLW1641 - a plan holds dicts, which have no hash either
    """A plan with the decisions that led to it, which are not in its JSON nor compared."""

    _decision: Decision | None = PrivateAttr(default=None)
    _target_decision: Decision | None = PrivateAttr(default=None)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def decided_by(self, decision: Decision, target_decision: Decision) -> Self:
        """The plan itself, once it knows them."""
        self._decision, self._target_decision = decision, target_decision
        return self

    @property
    def decision(self) -> Decision | None:
        """The verdict on the draft, or on the target without one; None for a plan out of JSON."""
        return self._decision

    @property
    def target_decision(self) -> Decision | None:
        """The same for the target: what is wrong with its files is said of it."""
        return self._target_decision


class LoadPlan(Plan):
    """A draft and a target that fit each other, and what running them takes.

    Serialise it with `model_dump_json()`; the schema is `schemas/plan.schema.json`.
    """

    table_version: str
    """Content hash of the rules that decided."""
    rule_id: str
    """The routing rule that led to the lane."""
    rule_name: str
    """Its readable name."""
    lane: str
    """The lane that runs the draft."""
    draft: Model
    """The draft."""
    target: Model
    """The target."""
    shared: tuple[str, ...]
    """The draft's tensors that are the target's own, by canonical name."""
    tied: dict[str, str]
    """The draft's tensors that another tensor of its own stands for."""
    drafts_per_round: int
    """How many tokens the draft proposes in a round."""
    num_speculative_tokens: TokenRange
    """How many of them an engine may be asked to use."""
    device: Device
    """What the bytes are counted for."""
    dtype: Dtype | None
    """What everything is computed in; null where it is left to the device and the files."""
    batch: int
    """Sequences at a time."""
    max_seq: int
    """The longest of them, in tokens."""
    draft_positions: int
    """Positions up to which the draft is asked; beyond them the target decodes alone."""
    bytes: Bytes
    """What it takes."""
    memory: int | None
    """Bytes there are; null where nobody said."""
    fits: bool | None
    """Whether it fits, null where `memory` is; a pair that does not is refused."""
    warnings: tuple[Warned, ...]
    """What should be known."""


class TargetPlan(Plan):
    """A target without a draft, and what running it takes; `bytes` has zeros for the draft."""

    table_version: str
    """Content hash of the rules that decided."""
    target: Model
    """The target."""
    device: Device
    """What the bytes are counted for."""
    dtype: Dtype | None
    """What everything is computed in; null where it is left to the device and the files."""
    batch: int
    """Sequences at a time."""
    max_seq: int
    """The longest of them, in tokens."""
    bytes: Bytes
    """What it takes."""
    memory: int | None
    """Bytes there are; null where nobody said."""
    fits: bool | None
    """Whether it fits, null where `memory` is; a target that does not is refused."""
    warnings: tuple[Warned, ...]
    """What should be known."""
