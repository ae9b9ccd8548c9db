"""The pair that ships, loaded as anyone loads it, with its models shared by all tests.

Nothing here or in the tests that use it states a figure of the pair: it may be trained anew.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dspark import LoadPlan
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.engine import Engine
from dspark.runtime.engine_config import EngineConfig
from dspark.runtime.load import prepare
from dspark.runtime.models import from_plan
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.config import DraftConfig
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.prepared import Prepared, known
from dspark.runtime.weight_files import read_tensors

FOLDER = Path(__file__).parents[2] / "examples" / "tiny"
DRAFTS = ("dspark", "dflash", "dspark-speculators")
LENGTH = 512

Tensors = dict[str, torch.Tensor]


@cache
def prepared(name: str) -> Prepared:
    return prepare(FOLDER / "target", FOLDER / name, max_length=LENGTH)


def plan(name: str) -> LoadPlan:
    pair = prepared(name).pair
    assert pair is not None
    return pair


def draft_config(name: str) -> DraftConfig:
    return from_plan.draft_config(plan(name))


@cache
def tensors(name: str) -> Tensors:
    """The tensors of a draft."""
    pair = plan(name)
    assert not pair.tied
    return read_tensors(pair.draft, known(pair.decision), "draft")


@cache
def target(dtype: Any = "float32", taps: tuple[int, ...] | None = None) -> Qwen3Target:
    pair = plan("dspark")
    return Qwen3Target(
        TorchCpuBackend(dtype),
        from_plan.target_config(pair.target),
        read_tensors(pair.target, known(pair.target_decision), "target"),
        max_length=LENGTH,
        tap_ids=draft_config("dspark").target_layer_ids if taps is None else taps,
    )


@cache
def draft(name: str, dtype: Any = "float32") -> BlockDraft:
    return BlockDraft(target(dtype), draft_config(name), tensors(name), max_length=LENGTH)


def engine(name: str | None = "dspark", *, dtype: Any = "float32", **changes: Any) -> Engine:
    settings: dict[str, Any] = {"max_length": LENGTH, "pages": 96, "page_size": 32}
    return Engine(
        target(dtype),
        None if name is None else draft(name, dtype),
        EngineConfig(**{**settings, **changes}),
        decode,
    )


def decode(ids: list[int]) -> str:
    return str(prepared("dspark").tokenizer.decode(ids))


@cache
def prompts() -> tuple[list[int], ...]:
    """Held-out prompts, as token ids."""
    lines = (FOLDER / "prompts.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["prompt"] for line in lines]
    return tuple(list(prepared("dspark").tokenizer.encode(text).ids) for text in texts)
