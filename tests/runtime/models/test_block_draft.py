"""The draft, element by element, against an implementation that shares nothing with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from dspark.runtime.backends.base import Backend
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.errors import WeightError
from dspark.runtime.models.block_draft import Anchor, BlockDraft
from dspark.runtime.models.config import DraftConfig
from dspark.runtime.models.rows import Segment
from tests.runtime.models.independent_draft import IndependentDraft
from tests.runtime.tiny import (
    DRAFT,
    PLAIN_DRAFT,
    TARGET,
    Tensors,
    draft_model,
    draft_tensors,
    target_model,
    target_tensors,
)

REDUCED = {"draft_vocab_size": 23}
SLIDING = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 4}
CONFIGS: dict[str, DraftConfig] = {
    "vanilla": DRAFT,
    "gated": dataclasses.replace(DRAFT, markov_head_type="gated"),
    "rnn": dataclasses.replace(DRAFT, markov_head_type="rnn"),
    "dflash": PLAIN_DRAFT,
    "anchor-drafts-nothing": dataclasses.replace(DRAFT, sample_from_anchor=False),
    "confidence-without-markov": dataclasses.replace(DRAFT, confidence_head_with_markov=False),
    "reduced": dataclasses.replace(DRAFT, **REDUCED),
    "sliding": dataclasses.replace(DRAFT, **SLIDING),
    "sliding-non-causal": dataclasses.replace(DRAFT, sliding_window_non_causal=True, **SLIDING),
    "rank-is-the-draft-vocabulary": dataclasses.replace(DRAFT, markov_rank=23, **REDUCED),
}
PAGES = [3, 1, 4, 0]


def tensors_of(config: DraftConfig) -> Tensors:
    tensors = draft_tensors(config)
    if config.draft_vocab_size < TARGET.vocab_size:
        ids = torch.arange(config.draft_vocab_size) * 4 + 2
        tensors["d2t"] = ids - torch.arange(config.draft_vocab_size)
    return tensors


def walk(draft: BlockDraft, features: torch.Tensor, anchor: int) -> tuple[Any, list[int], Any]:
    """The runtime's logits, greedy drafts and confidences, with the context added in two parts."""
    backend = draft.backend
    store = draft.new_store(6, 16)
    count = len(features)
    features = backend.parameter(features)
    for begin, end in ((0, 3), (3, count)):
        segment = Segment([0] * (end - begin), begin, PAGES)
        draft.extend(features[begin:end], [segment], store)
    hidden = draft.block([Anchor(anchor, count, PAGES)], store)[0]
    base = draft.base_logits(hidden)
    previous, state, rows, drafts, confidence = anchor, None, [], [], []
    for slot in range(len(hidden)):
        at = hidden[slot : slot + 1]
        embedded = draft.embedded([previous])
        logits = base[slot : slot + 1]
        if draft.markov is not None:
            latent, state = draft.markov.step(embedded, at, state)
            logits = logits + draft.bias(latent)
        sure = draft.confidence(at, embedded)
        if sure is not None:
            confidence.append(float(sure[0]))
        rows.append(backend.host(logits)[0])
        previous = int(draft.target_ids[backend.argmax(logits)[0][0]])
        drafts.append(previous)
    return np.array(rows), drafts, confidence


def features_of(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(count, DRAFT.feature_size, generator=generator)


@pytest.mark.parametrize("backend", [ReferenceBackend(), TorchCpuBackend()], ids=lambda b: b.name)
@pytest.mark.parametrize("name", CONFIGS)
def test_c7_c15_g6_logits_equal_the_independent_draft(name: str, backend: Backend) -> None:
    config = CONFIGS[name]
    tensors = tensors_of(config)
    draft = draft_model(target_model(backend), config, tensors)
    independent = IndependentDraft(config, tensors, target_tensors())
    for count, anchor in ((16, 7), (37, 90)):
        features = features_of(count)
        logits, drafts, sure = independent.walk(features.double().numpy(), anchor)
        ours, our_drafts, our_sure = walk(draft, features, anchor)
        tolerance = 1e-4 if backend.dtype == "float32" else 1e-5
        np.testing.assert_allclose(ours, logits, rtol=0, atol=tolerance)
        np.testing.assert_allclose(our_sure, sure, rtol=0, atol=tolerance)
        assert drafts == our_drafts
        assert config.drafts_per_round == len(drafts)


def test_c8_the_anchor_stands_behind_the_context() -> None:
    # With the block one position early, the independent draft gives other logits.
    independent = IndependentDraft(DRAFT, draft_tensors(), target_tensors())
    features = features_of(20).double().numpy()
    right = independent.hidden(features, 5)
    padded = np.concatenate([features[:1], features])
    assert np.abs(right - independent.hidden(padded, 5)).max() > 1e-2


@pytest.mark.parametrize(
    ("sample_from_anchor", "block", "drafts"), [(True, 7, 7), (False, 8, 7), (True, 8, 8)]
)
def test_c6_drafts_per_block(sample_from_anchor: bool, block: int, drafts: int) -> None:
    config = dataclasses.replace(DRAFT, sample_from_anchor=sample_from_anchor, block_size=block)
    assert drafts == config.drafts_per_round


def test_a_block_without_a_draft_is_refused() -> None:
    with pytest.raises(ValueError, match="a block of 1 holds no draft"):
        dataclasses.replace(DRAFT, sample_from_anchor=False, block_size=1)


def test_g6_a_window_changes_what_lies_beyond_it() -> None:
    features = features_of(40)
    full, sliding = (
        walk(draft_model(target_model(), config), features, 5)[0]
        for config in (DRAFT, CONFIGS["sliding"])
    )
    assert np.abs(full - sliding).max() > 0.05


def test_g6_a_sliding_layer_looks_ahead_only_where_it_was_trained_to() -> None:
    # The first slot tells: behind it, a causal layer sees nothing of the block.
    causal, both = (
        walk(draft_model(target_model(), CONFIGS[name]), features_of(40), 5)[0]
        for name in ("sliding", "sliding-non-causal")
    )
    assert np.abs(causal[0] - both[0]).max() > 0.01


def without(*names: str) -> Tensors:
    return {name: tensor for name, tensor in tensors_of(PLAIN_DRAFT).items() if name not in names}


AS_WIDE = dataclasses.replace(PLAIN_DRAFT, hidden_size=TARGET.hidden_size)


def test_d2_what_the_file_lacks_is_the_targets() -> None:
    tensors = draft_tensors(AS_WIDE)
    del tensors["embed_tokens.weight"], tensors["lm_head.weight"]
    draft = draft_model(target_model(), AS_WIDE, tensors)
    logits, drafts, _ = IndependentDraft(AS_WIDE, tensors, target_tensors()).walk(
        features_of(16).double().numpy(), 9
    )
    ours, our_drafts, _ = walk(draft, features_of(16), 9)
    np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-4)
    assert drafts == our_drafts


@pytest.mark.parametrize("name", ["lm_head.weight", "embed_tokens.weight"])
def test_d4_what_the_file_has_is_used(name: str) -> None:
    tensors = draft_tensors(AS_WIDE)
    before = walk(draft_model(target_model(), AS_WIDE, tensors), features_of(16), 9)[0]
    tensors[name] = tensors[name] * 1.5 + 0.1
    after = walk(draft_model(target_model(), AS_WIDE, tensors), features_of(16), 9)[0]
    assert np.abs(before - after).max() > 0.01


def test_d2_a_head_that_the_targets_cannot_stand_in_for_is_missed() -> None:
    with pytest.raises(WeightError, match=r"`lm_head.weight` is missing.*44 is not 40"):
        draft_model(target_model(), PLAIN_DRAFT, without("lm_head.weight"))
    with pytest.raises(WeightError, match=r"`embed_tokens.weight` is missing.*44 is not 40"):
        draft_model(target_model(), PLAIN_DRAFT, without("embed_tokens.weight"))


def test_e14_a_tie_without_a_head_is_to_the_drafts_own_embedding() -> None:
    tied = dataclasses.replace(PLAIN_DRAFT, tie_word_embeddings=True)
    tensors = without("lm_head.weight")
    ours = walk(draft_model(target_model(), tied, tensors), features_of(16), 9)[0]
    own = {**tensors, "lm_head.weight": tensors["embed_tokens.weight"]}
    expected = walk(draft_model(target_model(), PLAIN_DRAFT, own), features_of(16), 9)[0]
    np.testing.assert_array_equal(expected, ours)
    # A head in the file wins over the flag.
    kept = walk(draft_model(target_model(), tied, tensors_of(PLAIN_DRAFT)), features_of(16), 9)[0]
    assert np.abs(kept - ours).max() > 0.1


def test_d1_padded_rows_beyond_the_target_are_never_drafted() -> None:
    config = dataclasses.replace(PLAIN_DRAFT, vocab_size=104, draft_vocab_size=104)
    tensors = draft_tensors(config)
    tensors["lm_head.weight"][97:] = tensors["lm_head.weight"][:7] * 5
    draft = draft_model(target_model(), config, tensors)
    logits, drafts, _ = walk(draft, features_of(16), 9)
    assert logits.shape == (5, 97)
    assert max(drafts) < TARGET.vocab_size
    beyond, *_ = IndependentDraft(config, tensors, target_tensors()).walk(
        features_of(16).double().numpy(), 9
    )
    assert beyond.argmax(-1).max() >= 97, "this head does not prefer the padded rows"


def test_d1_a_smaller_head_needs_its_map() -> None:
    config = CONFIGS["reduced"]
    tensors = tensors_of(config)
    del tensors["d2t"]
    with pytest.raises(WeightError, match="tensor `d2t` is missing"):
        draft_model(target_model(), config, tensors)


def test_d9_a_map_of_the_targets_own_size_is_a_map() -> None:
    # Whether drafts are mapped is not a matter of sizes: here all are equal.
    tensors = tensors_of(PLAIN_DRAFT)
    unmapped = walk(draft_model(target_model(), PLAIN_DRAFT, tensors), features_of(16), 9)[1]
    rows = TARGET.vocab_size
    tensors["d2t"] = torch.arange(rows).flip(0) - torch.arange(rows)
    mapped = walk(draft_model(target_model(), PLAIN_DRAFT, tensors), features_of(16), 9)[1]
    assert [rows - 1 - draft for draft in unmapped] == mapped
    assert unmapped != mapped


def test_d3_a_map_to_ids_that_the_markov_table_lacks_is_refused() -> None:
    config = dataclasses.replace(CONFIGS["reduced"], vocab_size=90)
    tensors = draft_tensors(config)
    tensors["d2t"] = torch.arange(23) * 3 + 1
    assert 89 == 22 + int(tensors["d2t"][-1])
    draft_model(target_model(), config, tensors)
    tensors["d2t"][-1] += 1
    with pytest.raises(WeightError, match="`d2t` does not map draft ids to distinct ids"):
        draft_model(target_model(), config, tensors)


@pytest.mark.parametrize("wrong", ["too-high", "negative", "onto-one"])
def test_d8_a_map_out_of_the_target_or_onto_one_id_is_refused(wrong: str) -> None:
    config = CONFIGS["reduced"]
    tensors = tensors_of(config)
    offsets = tensors["d2t"]
    wrongs = {"too-high": offsets + 90, "negative": offsets - 3, "onto-one": -torch.arange(23)}
    tensors["d2t"] = wrongs[wrong]
    with pytest.raises(WeightError, match="`d2t` does not map draft ids to distinct ids"):
        draft_model(target_model(), config, tensors)


def test_d3_the_next_slot_is_conditioned_on_the_mapped_id() -> None:
    # With the same table row under both ids the mistake would not show; here it must.
    config = CONFIGS["rank-is-the-draft-vocabulary"]
    tensors = tensors_of(config)
    _, drafts, _ = walk(draft_model(target_model(), config, tensors), features_of(16), 9)
    table = tensors["markov_head.markov_w1.weight"]
    unmapped = [(draft - 2) // 4 for draft in drafts]
    assert unmapped != drafts
    assert not torch.equal(table[drafts], table[unmapped])
    tensors["markov_head.markov_w1.weight"] = table.clone()
    tensors["markov_head.markov_w1.weight"][drafts[0]] += 1.0
    changed = walk(draft_model(target_model(), config, tensors), features_of(16), 9)[0]
    same = walk(draft_model(target_model(), config, tensors_of(config)), features_of(16), 9)[0]
    np.testing.assert_array_equal(changed[0], same[0])
    assert np.abs(changed[1] - same[1]).max() > 0.1


@pytest.mark.parametrize("width", [40, 3 * 40 + 40, 97])
def test_a10_c14_features_of_another_width_are_refused(width: int) -> None:
    draft = draft_model(target_model())
    with pytest.raises(WeightError, match=f"3 taps of 40 values; {width} values arrived"):
        draft.extend(torch.zeros(2, width), [Segment([0, 0], 0, PAGES)], draft.new_store(6, 16))


def test_c5_a_target_of_another_width_or_other_taps_is_refused() -> None:
    with pytest.raises(WeightError, match="taps of 41 values, the target's have 40"):
        draft_model(target_model(), dataclasses.replace(DRAFT, target_hidden_size=41))
    with pytest.raises(
        WeightError, match=r"reads the taps \[-1, 0, 2\], the target gives \[0, 1\]"
    ):
        draft_model(target_model(taps=(0, 1)))


@pytest.mark.parametrize("name", sorted(draft_tensors()))
def test_e15_every_tensor_is_missed(name: str) -> None:
    tensors = draft_tensors()
    del tensors[name]
    with pytest.raises(WeightError, match=f"tensor `{name}` is missing"):
        draft_model(target_model(), DRAFT, tensors)


@pytest.mark.parametrize("name", ["markov_head.markov_w1.weight", "confidence_head.proj.bias"])
def test_a2_a_tensor_of_a_head_that_is_switched_off_is_refused(name: str) -> None:
    tensors = {**tensors_of(PLAIN_DRAFT), name: draft_tensors()[name]}
    with pytest.raises(WeightError, match=f"no part of the model takes tensor `{name}`"):
        draft_model(target_model(), PLAIN_DRAFT, tensors)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"markov_rank": 0}, "`markov_rank` 0 contradicts `markov_head_type` `vanilla`"),
        ({"markov_rank": 0, "markov_head_type": "none"}, "`confidence_head_with_markov` needs"),
        ({"target_layer_ids": (2, 0)}, r"`target_layer_ids` \[2, 0\] do not increase"),
        ({"layer_types": ("full_attention",)}, "has 1 entries for 2 layers"),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3 key heads"),
        ({"layer_types": ("sliding_attention",) * 2}, "a sliding layer needs a `sliding_window`"),
    ],
)
def test_b9_a_contradictory_configuration_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(DRAFT, **changes)


def test_logit_scale_multiplies_the_base_logits() -> None:
    halved = dataclasses.replace(PLAIN_DRAFT, logit_scale=0.5)
    plain = walk(draft_model(target_model(), PLAIN_DRAFT), features_of(16), 9)[0]
    ours = walk(draft_model(target_model(), halved), features_of(16), 9)[0]
    np.testing.assert_allclose(plain * 0.5, ours, rtol=1e-6)
