"""A pair, or a target alone, of which all is known but its weights; and the same with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import dspark
from dspark.runtime.devices import Device, Dtype, open_backend
from dspark.runtime.target_files import TOKENIZER_CONFIG
from dspark.runtime.weight_files import Progress, read_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from dspark import Decision, LoadPlan, TargetPlan
    from dspark.runtime.engine import Engine
    from dspark.runtime.engine_config import EngineConfig
    from dspark.runtime.models.block_draft import BlockDraft
    from dspark.runtime.models.qwen3 import Qwen3Target


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine that is ready, and what text and chat need beside it.

    `plan` and `decision` are those of the pair, None for a target alone. `target` is the target's
    model, which the engine uses too. `folder` is the target's; `tokenizer_config` is the path of
    that file in it, None where there is none.
    """

    engine: Engine
    tokenizer: Tokenizer
    plan: LoadPlan | None
    decision: Decision | None
    target: Qwen3Target
    eos_token_ids: frozenset[int]
    folder: Path
    tokenizer_config: Path | None
    device: Device
    dtype: Dtype


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known before a weight is read: that all fits, and how the engine will be."""

    plan: LoadPlan | TargetPlan
    config: EngineConfig
    tokenizer: Tokenizer
    device: Device
    dtype: Dtype

    @property
    def pair(self) -> LoadPlan | None:
        """The plan if it has a draft."""
        return self.plan if isinstance(self.plan, dspark.LoadPlan) else None

    @property
    def vocab_size(self) -> int:
        """How many ids the target has."""
        rows = self.plan.target.value("vocab_size")
        # INVARIANT: the contract's type for it.
        assert isinstance(rows, int)
        return rows

    @property
    def weight_bytes(self) -> int:
        """How much there is to read."""
        models = [self.plan.target] if self.pair is None else [self.plan.target, self.pair.draft]
        return sum(place.nbytes for model in models for place in model.tensors.values())

    def load(self, progress: Progress | None = None) -> Loaded:
        """Reads the weights and builds the engine; `progress` is told of every tensor.

        Raises:
            dspark.Refused: a file is not what it was, or holds a value that is no finite number;
                or the device has less memory left than it had.
            WeightError: a tensor is not what the model needs.
        """
        from dspark.kernels.errors import AllocationError

        try:
            return self._load(progress)
        except AllocationError as error:
            values = {"gpu": error.device, "available": error.left, "needed": error.asked}
            raise dspark.load_refusal(
                known(self.plan.decision), "gpu-memory-short", **values
            ) from error

    def _load(self, progress: Progress | None) -> Loaded:
        from dspark.runtime.engine import Engine

        pair, tokenizer = self.pair, self.tokenizer
        target = self._target(progress)
        draft = None if pair is None else self._draft(pair, target, progress)
        folder = target_folder(self.plan)
        settings = folder / TOKENIZER_CONFIG
        return Loaded(
            engine=Engine(target, draft, self.config, lambda ids: str(tokenizer.decode(ids))),
            tokenizer=tokenizer,
            plan=pair,
            decision=None if pair is None else pair.decision,
            target=target,
            eos_token_ids=self.config.eos_token_ids,
            folder=folder,
            tokenizer_config=settings if settings.is_file() else None,
            device=self.device,
            dtype=self.dtype,
        )

    def _target(self, progress: Progress | None) -> Qwen3Target:
        from dspark.runtime.lanes import TARGETS
        from dspark.runtime.models.from_plan import draft_config, target_config

        model, pair = self.plan.target, self.pair
        return TARGETS[model.implementation](
            open_backend(self.device, self.dtype),
            target_config(model),
            read_tensors(model, known(self.plan.target_decision), "target", progress),
            max_length=self.config.max_length,
            tap_ids=() if pair is None else draft_config(pair).target_layer_ids,
        )

    def _draft(self, pair: LoadPlan, target: Qwen3Target, progress: Progress | None) -> BlockDraft:
        from dspark.runtime.lanes import LANES
        from dspark.runtime.models.from_plan import draft_config

        tensors = read_tensors(pair.draft, known(pair.decision), "draft", progress)
        return LANES[pair.lane](
            target, draft_config(pair), tensors, max_length=self.config.max_length
        )


def target_folder(plan: LoadPlan | TargetPlan) -> Path:
    """Where the target of a plan for local files lies."""
    # INVARIANT: such a plan has a folder.
    assert plan.target.folder is not None
    return Path(plan.target.folder)


def known(decision: Decision | None) -> Decision:
    """The decision of a plan that was made here."""
    # INVARIANT: only a plan read back from JSON has none.
    assert decision is not None
    return decision
