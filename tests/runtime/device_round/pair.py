"""A pair whose sizes the kernels take, all different, and engines for it on the simulator."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from dspark.kernels.host_driver import HostDriver
from dspark.kernels.launch import Device
from dspark.kernels.signatures import kernels_in
from dspark.runtime.backends.base import Backend
from dspark.runtime.backends.cuda import CudaBackend
from dspark.runtime.device_round.round import DeviceRound
from dspark.runtime.engine import Engine
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.config import DraftConfig, TargetConfig
from dspark.runtime.models.qwen3 import Qwen3Target
from tests.runtime.tiny import (
    DRAFT,
    TARGET,
    Tensors,
    draft_tensors,
    engine_config,
    target_tensors,
)

CASES = Path(__file__).parent / "cases"
MAX_LENGTH = 224

TARGET_CONFIG = dataclasses.replace(
    TARGET,
    hidden_size=72,
    intermediate_size=104,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=136,
    layer_types=("full_attention",) * 2,
)

DRAFT_CONFIG = dataclasses.replace(
    DRAFT,
    hidden_size=88,
    intermediate_size=120,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=80,
    vocab_size=136,
    draft_vocab_size=136,
    target_hidden_size=72,
    target_layer_ids=(-1, 0, 1),
    block_size=5,
    mask_token_id=130,
    markov_rank=16,
    layer_types=("full_attention",) * 2,
)

NO_HEADS: dict[str, Any] = {
    "markov_rank": 0,
    "markov_head_type": "none",
    "enable_confidence_head": False,
    "confidence_head_with_markov": False,
}


def rounded(tensors: Tensors) -> Tensors:
    """What the device holds: the same in every backend, so that only sums differ."""
    return {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        for name, tensor in tensors.items()
    }


TARGET_TENSORS = rounded(target_tensors(TARGET_CONFIG))


def simulator(repository: Path, mode: str = "fast") -> CudaBackend:
    """A device of its own, whose kernels are compiled once for all tests.

    In mode `checked`, which the slow tests use, it also looks for races and bounds; in `fast` it
    computes the same in a quarter of the time.
    """
    kernels = {**kernels_in(), **kernels_in(CASES)}
    return CudaBackend(Device(HostDriver(repository / "build" / "kernels-host", mode), kernels))


def models(
    backend: Backend,
    config: DraftConfig | None = DRAFT_CONFIG,
    *,
    target: TargetConfig = TARGET_CONFIG,
    target_weights: Tensors = TARGET_TENSORS,
    draft_weights: Tensors | None = None,
) -> tuple[Qwen3Target, BlockDraft | None]:
    taps = () if config is None else config.target_layer_ids
    model = Qwen3Target(backend, target, target_weights, max_length=MAX_LENGTH, tap_ids=taps)
    if config is None:
        return model, None
    weights = draft_weights or rounded(draft_tensors(config))
    return model, BlockDraft(model, config, weights, max_length=MAX_LENGTH)


def engine(
    backend: Backend,
    config: DraftConfig | None = DRAFT_CONFIG,
    *,
    target: TargetConfig = TARGET_CONFIG,
    target_weights: Tensors = TARGET_TENSORS,
    draft_weights: Tensors | None = None,
    **changes: Any,
) -> Engine:
    made = models(
        backend,
        config,
        target=target,
        target_weights=target_weights,
        draft_weights=draft_weights,
    )
    settings: dict[str, Any] = {"max_length": 192, "max_batch": 4, "pages": 64, "page_size": 16}
    return Engine(*made, engine_config(**{**settings, **changes}))


def round_of(engine: Engine) -> DeviceRound:
    """What runs the engine's passes."""
    found = engine._round
    assert isinstance(found, DeviceRound)
    return found
