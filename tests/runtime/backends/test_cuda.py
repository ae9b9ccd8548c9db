"""The kernels as a backend, on the simulator: the models' passes against float64."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark.runtime.backends.base import Backend, HostFloats
from dspark.runtime.backends.cuda import CudaBackend, Features
from dspark.runtime.backends.cuda_products import WIDE
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.backends.rope import Rope
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.models.block_draft import Anchor
from dspark.runtime.models.config import DraftConfig, TargetConfig
from dspark.runtime.models.rows import Segment, plan_rows
from tests.runtime.device_round.pair import (
    DRAFT_CONFIG,
    NO_HEADS,
    TARGET_CONFIG,
    models,
    rounded,
    simulator,
)
from tests.runtime.tiny import target_tensors

PAGE_SIZE = 16

TARGETS: dict[str, dict[str, Any]] = {
    "gqa 2": {},
    "gqa 1, heads of 80": {"num_attention_heads": 2, "head_dim": 80},
    "gqa 4, heads of 128": {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 128},
    "heads of 96, tied": {"head_dim": 96, "tie_word_embeddings": True},
    "bias": {"attention_bias": True},
    "yarn": {"rope": Rope(theta=1e4, kind="yarn", factor=4.0, original_max_position_embeddings=32)},
    "sliding": {
        "layer_types": ("sliding_attention", "full_attention"),
        "sliding_window": 19,
    },
}

FIRST = [Segment(list(range(5, 42)), 0, [3, 1, 0]), Segment([7, 8, 9], 0, [2])]
SECOND = [Segment([11, 12, 13], 37, [3, 1, 0]), Segment([1, 2, 3], 3, [2])]
LONG = [Segment([int(at * 7 % 131) for at in range(WIDE + 8)], 0, [5, 4, 3, 2, 1])]
# Two requests of three rows are one launch, 37 and 3 rows are several; 37 ends inside a chunk.
assert [3, 3] == [len(each.tokens) for each in SECOND]
assert len(FIRST[0].tokens) % 16
assert len(LONG[0].tokens) >= WIDE


def features(backend: Backend, found: Any) -> HostFloats:
    if isinstance(found, Features):
        rows = [backend.host(chunk).transpose(1, 0, 2) for chunk in found.chunks]
        return np.concatenate([each.reshape(each.shape[0], -1) for each in rows])
    return backend.host(found)


def passes(backend: Backend, config: TargetConfig, tensors: Any) -> list[HostFloats]:
    model, _ = models(backend, target=config, target_weights=tensors)
    found = []
    with backend.session():
        for segments in ([FIRST, SECOND], [LONG]):
            store = model.new_store(8, PAGE_SIZE)
            for each in segments:
                passed = model.forward(each, store)
                found.append(features(backend, passed.features))
                found.append(backend.host(model.logits(passed.hidden)))
    return found


@pytest.mark.parametrize("kind", TARGETS)
def test_a_target_is_as_near_to_float64_as_torch_is(kind: str, repository: Path) -> None:
    config = dataclasses.replace(TARGET_CONFIG, **TARGETS[kind])
    tensors = rounded(target_tensors(config, seed=len(kind)))

    ours = passes(simulator(repository), config, tensors)

    exact = passes(ReferenceBackend(), config, tensors)
    torchs = passes(TorchCpuBackend("bfloat16"), config, tensors)
    for mine, theirs, right in zip(ours, torchs, exact, strict=True):
        scale = np.abs(right).max()
        assert np.abs(mine - right).max() <= 1.5 * np.abs(theirs - right).max() + 2**-9 * scale
        # And the bound itself is one: bfloat16 has eight bits, and two layers add up.
        assert np.abs(mine - right).max() < 0.03 * scale


DRAFTS: dict[str, dict[str, Any]] = {
    "full": {},
    "sliding": {
        "layer_types": ("sliding_attention", "full_attention"),
        "sliding_window": 7,
    },
    "sliding, not causal": {
        "layer_types": ("full_attention", "sliding_attention"),
        "sliding_window": 3,
        "sliding_window_non_causal": True,
    },
    "no heads": NO_HEADS,
}


def blocks(backend: Backend, config: DraftConfig) -> HostFloats:
    target, draft = models(backend, config)
    assert draft is not None
    with backend.session():
        target_store, store = target.new_store(8, PAGE_SIZE), draft.new_store(8, PAGE_SIZE)
        for segments in (FIRST, SECOND):
            passed = target.forward(segments, target_store)
            draft.extend(passed.features, segments, store)
        anchors = [Anchor(44, 40, [3, 1, 0]), Anchor(9, 6, [2])]
        masks = [config.mask_token_id] * (config.block_size - 1)
        segments = [Segment([each.token, *masks], each.position, each.pages) for each in anchors]
        ids = backend.ids([token for segment in segments for token in segment.tokens])
        rows = plan_rows(
            *(backend, config, segments, store, draft.rope_table),
            causal=False,
            sliding_causal=not config.sliding_window_non_causal,
        )
        return backend.host(draft.run(ids, store, rows))


@pytest.mark.parametrize("kind", DRAFTS)
def test_a_block_is_as_near_to_float64_as_torch_is(kind: str, repository: Path) -> None:
    config = dataclasses.replace(DRAFT_CONFIG, **DRAFTS[kind])

    ours = blocks(simulator(repository), config)

    exact = blocks(ReferenceBackend(), config)
    theirs = blocks(TorchCpuBackend("bfloat16"), config)
    scale = np.abs(exact).max()
    assert np.abs(ours - exact).max() <= 1.5 * np.abs(theirs - exact).max() + 2**-9 * scale
    assert np.abs(ours - exact).max() < 0.04 * scale


def test_h1_rows_do_not_depend_on_their_company(repository: Path) -> None:
    """Alone, in threes and all at once, the rows of a pass have the same bits."""
    backend = simulator(repository)
    model, _ = models(backend)
    store = model.new_store(8, PAGE_SIZE)
    tokens, pages = list(range(20, 41)), [6, 2]
    model.forward([Segment(tokens, 0, pages)], store)

    def logits(*sizes: int) -> HostFloats:
        found, at = [], 0
        for size in sizes:
            passed = model.forward([Segment(tokens[at : at + size], at, pages)], store)
            found.append(backend.host(model.logits(passed.hidden)))
            at += size
        return np.concatenate(found)

    alone = logits(*[1] * 21)
    np.testing.assert_array_equal(alone, logits(*[3] * 7))
    np.testing.assert_array_equal(alone, logits(21))
    np.testing.assert_array_equal(alone, logits(2, 17, 2))


class Holder:
    """Counts how often it is told to give up its graphs."""

    def __init__(self) -> None:
        self.released: list[int] = []

    def release(self) -> None:
        self.released.append(1)


def test_memory_that_a_graph_uses_is_not_let_go(repository: Path) -> None:
    """Arrays that grow tell whoever holds graphs; the others are left where they are."""
    backend = simulator(repository)
    holder = Holder()
    backend.scratch.holders.add(holder)
    grown = holder.released

    address = backend.device.driver.address
    small = backend.scratch.empty("some", (3, 5))
    assert [1] == grown
    again = backend.scratch.empty("some", (5, 3))
    assert [1] == grown
    assert address(small.handle) == address(again.handle)
    backend.scratch.empty("some", (3000, 5))
    assert [1, 1] == grown


def test_what_is_there_already_is_not_written_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = simulator(repository)
    written: list[Any] = []
    real = backend.device.write
    monkeypatch.setattr(
        backend.device, "write", lambda array, values: (written.append(values), real(array, values))
    )

    for values in ([1, 2], [1, 2], [1, 3], [1, 2, 3]):
        found = backend.scratch.filled("some", values)
        assert values == backend.device.read(found).tolist()

    assert [[1, 2], [1, 3], [1, 2, 3]] == [each.tolist() for each in written]
    backend.scratch.changed("some", [7, 8, 9])
    backend.scratch.filled("some", [1, 2, 3])
    assert [1, 2, 3] == written[-1].tolist()
    assert 4 == len(written)


def test_a_backend_is_told_from_one_that_the_host_walks_with() -> None:
    assert CudaBackend.rounds_on_device
    assert not TorchCpuBackend.rounds_on_device
    assert not ReferenceBackend.rounds_on_device
