"""The cost of a round, held against the models themselves on a backend that counts what is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dspark
from dspark.cost import Cost, cost, most_context
from dspark.load_plan import LoadPlan, Model
from dspark.runtime.backends.base import Array, KvStore, Reads
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.backends.rope import Rope
from dspark.runtime.models.block_draft import Anchor, BlockDraft
from dspark.runtime.models.config import DraftConfig, TargetConfig
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.models.rows import Segment
from tests.support.configs import Config, with_keys
from tests.support.pairs import (
    TINY,
    TINY_DFLASH,
    TINY_TARGET,
    TINY_ZLAB,
    Shapes,
    backbone,
    checkpoint,
    dspark_shapes,
    target_shapes,
)

BF16 = 2
PAGES, PAGE_SIZE, CONTEXT = 8, 16, 37


class CountingBackend(ReferenceBackend):
    """Counts the values that pass between memory and each operation."""

    def __init__(self) -> None:
        self.weights = self.rows = self.caches = 0

    def take_counts(self) -> tuple[int, int, int]:
        counts = self.weights * BF16, self.rows * BF16, self.caches * BF16
        self.weights = self.rows = self.caches = 0
        return counts

    def embedding(self, ids: Array, table: Array) -> Array:
        self.rows += len(ids) * table.shape[1]
        return super().embedding(ids, table)

    def linear(self, x: Array, weight: Array) -> Array:
        matrix, bias = weight
        self.weights += matrix.size + (0 if bias is None else bias.size)
        return super().linear(x, weight)

    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array:
        # One copy a head may lie there, of which a kernel reads one.
        self.weights += np.unique(weight.reshape(-1, weight.shape[-1]), axis=0).size
        return super().rms_norm(x, weight, eps)

    def write_kv(self, store: KvStore, layer: int, slots: Array, kv: Array) -> None:
        self.caches += kv.size
        super().write_kv(store, layer, slots, kv)

    def attention_plan(self, reads: Sequence[Reads], store: KvStore, group: int) -> Array:
        return reads, super().attention_plan(reads, store, group)

    def attend(self, q: Array, store: KvStore, layer: int, plan: Array) -> Array:
        reads, inner = plan
        _, kv_heads, _, head_dim = store.keys[layer].shape
        for request in reads:
            seen = max(request.ends) - min(request.begins)
            self.caches += seen * kv_heads * head_dim * 2
        return super().attend(q, store, layer, inner)


def value(model: Model, key: str) -> Any:
    return model.value(key)


def decoder(model: Model) -> dict[str, Any]:
    sizes = (
        *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps", "layer_types"),
        *("sliding_window", "attention_bias", "tie_word_embeddings", "max_position_embeddings"),
    )
    return {key: value(model, key) for key in sizes} | {
        "rope": Rope(theta=value(model, "rope_theta"))
    }


def distinct(shapes: Shapes) -> dict[str, np.ndarray]:
    """Tensors that no two of are equal."""
    return {
        name: np.full(shape, number / 1e4) for number, (name, shape) in enumerate(shapes.items())
    }


def counted(
    plan: LoadPlan, draft_shapes: Shapes, target_config: Config
) -> dict[str, tuple[int, int, int]]:
    """(weights, rows, caches) of each part of a round, as the models move them."""
    backend = CountingBackend()
    kind = value(plan.draft, "markov_head_type") if value(plan.draft, "markov_rank") else "none"
    config = DraftConfig(
        **decoder(plan.draft),
        **{key: value(plan.draft, key) for key in ("draft_vocab_size", "target_hidden_size")},
        **{key: value(plan.draft, key) for key in ("block_size", "mask_token_id", "markov_rank")},
        target_layer_ids=value(plan.draft, "target_layer_ids"),
        markov_head_type=kind,
        enable_confidence_head=value(plan.draft, "enable_confidence_head"),
        confidence_head_with_markov=value(plan.draft, "confidence_head_with_markov"),
        sample_from_anchor=plan.drafts_per_round == value(plan.draft, "block_size"),
    )
    target = Qwen3Target(
        backend,
        TargetConfig(**decoder(plan.target)),
        distinct(target_shapes(target_config)),
        max_length=PAGES * PAGE_SIZE,
        tap_ids=config.target_layer_ids,
    )
    draft = BlockDraft(target, config, distinct(draft_shapes), max_length=PAGES * PAGE_SIZE)
    store, draft_store = target.new_store(PAGES, PAGE_SIZE), draft.new_store(PAGES, PAGE_SIZE)
    pages = list(range(PAGES))
    for kept in (store, draft_store):
        for array in (*kept.keys, *kept.values):
            array[:] = 0.0
    backend.take_counts()
    found = {}
    for name, rows in (("step", 1), ("verify", plan.drafts_per_round + 1)):
        passed = target.forward([Segment([5] * rows, CONTEXT, pages)], store)
        target.logits(passed.hidden)
        found[name] = backend.take_counts()
    assert passed.features is not None
    draft.extend(passed.features, [Segment([5] * rows, CONTEXT, pages)], draft_store)
    found["extend"] = backend.take_counts()
    hidden = draft.block([Anchor(5, CONTEXT, pages)], draft_store)
    draft.base_logits(hidden[0])
    found["block"] = backend.take_counts()
    state = None
    for slot in range(plan.drafts_per_round):
        embedded = draft.embedded([5])
        draft.confidence(hidden[:, slot], embedded)
        if draft.markov is not None and embedded is not None:
            latent, state = draft.markov.step(embedded, hidden[:, slot], state)
            draft.bias(latent)
    found["walk"] = backend.take_counts()
    return found


SLIDING = with_keys(
    TINY,
    layer_types=["full_attention", "sliding_attention"],
    sliding_window=12,
    use_sliding_window=True,
)
TIED = with_keys(TINY_TARGET, tie_word_embeddings=True)
PAIRS: dict[str, tuple[Config, Shapes, Config]] = {
    "vanilla": (TINY, dspark_shapes(TINY, 3), TINY_TARGET),
    "gated": (
        with_keys(TINY, markov_head_type="gated"),
        dspark_shapes(TINY, 3, kind="gated"),
        TINY_TARGET,
    ),
    "rnn": (
        with_keys(TINY, markov_head_type="rnn"),
        dspark_shapes(TINY, 3, kind="rnn"),
        TINY_TARGET,
    ),
    "sliding": (SLIDING, dspark_shapes(SLIDING, 3), TINY_TARGET),
    "dflash": (TINY_DFLASH, backbone(TINY_DFLASH, 3), TINY_TARGET),
    "shared": (TINY_ZLAB, backbone(TINY_ZLAB, 3, own_embedding=False, own_head=False), TINY_TARGET),
    "shared with a tied target": (
        TINY_ZLAB,
        backbone(TINY_ZLAB, 3, own_embedding=False, own_head=False),
        TIED,
    ),
}


@pytest.mark.parametrize("with_target_weights", [True, False])
@pytest.mark.parametrize("name", PAIRS)
def test_a_round_moves_what_the_models_move(
    name: str, with_target_weights: bool, tmp_path: Path
) -> None:
    draft_config, draft_shapes, target_config = PAIRS[name]
    draft = checkpoint(tmp_path / "draft", draft_config, draft_shapes)
    shapes = target_shapes(target_config) if with_target_weights else None
    target = checkpoint(tmp_path / "target", target_config, shapes)
    plan = dspark.plan(draft, target=target)

    found = cost(plan, CONTEXT)

    for part, expected in counted(plan, draft_shapes, target_config).items():
        traffic = getattr(found, part)
        assert expected == (traffic.weights, traffic.rows, traffic.caches), part
    parts = [found.verify, found.extend, found.block, found.walk]
    assert sum(part.total for part in parts) == found.round.total
    assert found.round.total / found.step.total == found.break_even


def tiny_cost(tmp_path: Path, context: int = CONTEXT, **arguments: Any) -> Cost:
    draft = checkpoint(tmp_path / "draft", TINY, dspark_shapes(TINY, 3))
    target = checkpoint(tmp_path / "target", TINY_TARGET, target_shapes(TINY_TARGET))
    return cost(dspark.plan(draft, target=target, **arguments), context)


def test_a_batch_shares_weights_and_nothing_else(tmp_path: Path) -> None:
    one, three = tiny_cost(tmp_path), tiny_cost(tmp_path, batch=3)

    assert one.round.weights == three.round.weights
    assert 3 * one.round.rows == three.round.rows
    assert 3 * one.round.caches == three.round.caches
    # 15 rows of three requests fit into one launch, and 20 of four do not.
    assert one.round.launches == three.round.launches
    assert one.round.launches < tiny_cost(tmp_path, batch=4).round.launches


def test_a_cpu_reads_float32(tmp_path: Path) -> None:
    for arguments in ({"device": "cpu"}, {"dtype": "float32"}):
        assert 2 * tiny_cost(tmp_path).round.total == tiny_cost(tmp_path, **arguments).round.total


def test_a_floor_is_bytes_over_bandwidth(tmp_path: Path) -> None:
    found = tiny_cost(tmp_path)

    # 10^9 B/s is 10^6 B/ms.
    assert found.step.total / 2e6 == found.floor_ms(found.step, 2.0)


def test_a_round_needs_room(tmp_path: Path) -> None:
    # The target serves 100 positions; the round takes 4 drafts and the newest token.
    assert 95 == tiny_cost(tmp_path, context=95, max_seq=100).context
    with pytest.raises(ValueError, match="a round has room behind 0 to 95 positions"):
        tiny_cost(tmp_path, context=96, max_seq=100)
    # The draft is asked up to position 200, and its block takes 4.
    assert 196 == tiny_cost(tmp_path, context=196).context
    with pytest.raises(ValueError, match="behind 0 to 196 positions"):
        tiny_cost(tmp_path, context=197)


def test_the_most_context_may_be_none(tmp_path: Path) -> None:
    draft = checkpoint(tmp_path / "draft", TINY, dspark_shapes(TINY, 3))
    target = checkpoint(tmp_path / "target", TINY_TARGET, None)

    assert -2 == most_context(dspark.plan(draft, target=target, max_seq=3))


def test_launches_are_counted_by_layer_and_step(tmp_path: Path) -> None:
    found = tiny_cost(tmp_path)

    # 6 and 2 layers of 9, and 6 for places, views, embedding, norm, head and choice; 3 taps; 4
    # steps, and two launches for the confidence head. test_launches.py counts the real ones.
    assert (6 * 9 + 6, 6 * 9 + 6 + 3) == (found.step.launches, found.verify.launches)
    assert (3 + 2 * 2, 2 * 9 + 6, 4 + 2) == (
        found.extend.launches,
        found.block.launches,
        found.walk.launches,
    )
    assert 3 == found.round.launches - sum(
        part.launches for part in (found.verify, found.extend, found.block, found.walk)
    )
