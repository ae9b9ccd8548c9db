from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark
from dspark.checked import read_draft
from dspark.contract import Finding
from dspark.errors import Refused
from dspark.pairing import pair
from dspark.routing import default_table
from dspark.target import read_target
from tests.support.configs import Config, with_keys, without
from tests.support.pairs import (
    TINY,
    TINY_DFLASH,
    TINY_SHAPES,
    TINY_TARGET,
    Shapes,
    backbone,
    checkpoint,
    corpus,
    dspark_shapes,
    heads,
    target_shapes,
    with_dtypes,
)


def paired(
    folder: Path, draft: Config = TINY, shapes: Shapes = TINY_SHAPES, target: Config = TINY_TARGET
) -> tuple[list[Finding], list[Finding]]:
    table = default_table()
    left = read_draft(table, checkpoint(folder / "draft", draft, shapes))
    right = read_target(table, checkpoint(folder / "target", target, None))
    return pair(left, right)


def test_a_pair_that_was_made_for_each_other_has_no_findings(tmp_path: Path) -> None:
    assert ([], []) == paired(tmp_path)


def test_the_last_layer_and_the_embedding_can_be_tapped(tmp_path: Path) -> None:
    draft = with_keys(TINY, target_layer_ids=[-1, 0, 5])

    assert ([], []) == paired(tmp_path, draft)


@pytest.mark.parametrize(
    ("draft", "target", "key", "got", "expected"),
    [
        ({}, {"hidden_size": 72}, "target_hidden_size", 64, "72 (its `hidden_size`)"),
        ({}, {"num_hidden_layers": 7}, "num_target_layers", 6, "7 (its `num_hidden_layers`)"),
        (
            {"num_target_layers": None, "target_layer_ids": [1, 3, 6]},
            {},
            "target_layer_ids",
            [1, 3, 6],
            "entries less than 6 (its `num_hidden_layers`)",
        ),
        ({}, {"vocab_size": 161}, "vocab_size", 160, "at least 161 (its `vocab_size`)"),
    ],
)
def test_a_mismatch_says_both_numbers(
    draft: Config, target: Config, key: str, got: object, expected: str, tmp_path: Path
) -> None:
    found, _ = paired(tmp_path, with_keys(TINY, **draft), target=with_keys(TINY_TARGET, **target))

    values = [each.values for each in found if each.name == "target-mismatch"]
    assert {"key": key, "got": got, "expected": expected} in values


def test_every_mismatch_is_listed(tmp_path: Path) -> None:
    target = with_keys(TINY_TARGET, hidden_size=72, num_hidden_layers=5, vocab_size=170)

    found, _ = paired(tmp_path, target=target)

    keys = {each.values.get("key") for each in found}
    assert {"target_hidden_size", "num_target_layers", "target_layer_ids", "vocab_size"} <= keys


LAYOUTS: dict[str, tuple[Config, Shapes]] = {
    "dspark, own": (TINY, TINY_SHAPES),
    "dspark, shared": (TINY, backbone(TINY, 3, own_embedding=False, own_head=False) | heads(TINY)),
    "dspark, shared embedding": (TINY, backbone(TINY, 3, own_embedding=False) | heads(TINY)),
    "dflash, own": (TINY_DFLASH, backbone(TINY, 3)),
    "dflash, shared": (TINY_DFLASH, backbone(TINY, 3, own_embedding=False, own_head=False)),
    "dflash, shared embedding": (TINY_DFLASH, backbone(TINY, 3, own_embedding=False)),
}

# What the draft's 160 rows are to a target of 152, 160 and 168: refused names, and warned or not.
LARGER, SAME, SMALLER = 168, 160, 152
FITS = {
    "dspark, own": {SMALLER: [], LARGER: ["tensor-missing", "target-mismatch"]},
    "dspark, shared": {SMALLER: ["target-mismatch"], LARGER: ["target-mismatch"]},
    "dspark, shared embedding": {
        SMALLER: ["target-mismatch"],
        LARGER: ["tensor-missing", "target-mismatch"],
    },
    "dflash, own": {SMALLER: [], LARGER: ["tensor-missing", "target-mismatch"]},
    "dflash, shared": {SMALLER: [], LARGER: []},
    "dflash, shared embedding": {SMALLER: [], LARGER: ["tensor-missing"]},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [SMALLER, SAME, LARGER])
def test_rows_of_both_vocabularies(layout: str, rows: int, tmp_path: Path) -> None:
    draft, shapes = LAYOUTS[layout]
    target = with_keys(TINY_TARGET, vocab_size=rows)

    found, warned = paired(tmp_path, draft, shapes, target)

    assert FITS[layout].get(rows, []) == [each.name for each in found]
    quiet = rows == SAME or layout.endswith(", shared")
    assert ([] if quiet else ["tokenizer-unverified"]) == [each.name for each in warned]
    if not quiet:
        assert f"the draft has 160 ids and the target {rows}" in warned[0].message


def test_a_map_makes_up_for_a_smaller_head(tmp_path: Path) -> None:
    reduced = with_keys(TINY, draft_vocab_size=40)
    shapes = dspark_shapes(reduced, 3) | {"d2t": (40,)}
    with_dtypes(tmp_path / "draft", reduced, shapes, {"d2t": "I64"})
    target = checkpoint(tmp_path / "target", TINY_TARGET, None)
    table = default_table()

    found = pair(read_draft(table, tmp_path / "draft"), read_target(table, target))

    assert ([], []) == found


def test_a_shared_embedding_must_be_as_wide_and_hold_the_mask(tmp_path: Path) -> None:
    wide = with_keys(TINY_DFLASH, target_hidden_size=72)
    shapes = backbone(TINY, 3, own_embedding=False, own_head=False) | {"fc.weight": (64, 3 * 72)}
    target = with_keys(TINY_TARGET, hidden_size=72, vocab_size=150)

    found, _ = paired(tmp_path, wide, shapes, target)

    keys = [each.values["key"] for each in found]
    assert {"hidden_size", "mask_token_id"} == set(keys)


def test_a_draft_may_be_narrower_than_its_target(tmp_path: Path) -> None:
    narrow = with_keys(TINY, target_hidden_size=72)
    shapes = TINY_SHAPES | {"fc.weight": (64, 3 * 72)}

    assert ([], []) == paired(tmp_path, narrow, shapes, with_keys(TINY_TARGET, hidden_size=72))


@given(
    taps=st.lists(st.integers(-1, 8), min_size=1, max_size=4, unique=True).map(sorted),
    depth=st.integers(1, 9),
)
def test_taps_are_within_the_targets_depth(
    taps: list[int], depth: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    draft = with_keys(without(TINY, "num_target_layers"), target_layer_ids=taps)
    target = with_keys(TINY_TARGET, num_hidden_layers=depth)

    found, _ = paired(
        tmp_path_factory.mktemp("pair"), draft, dspark_shapes(TINY, len(taps)), target
    )

    assert (max(taps) >= depth) == bool(found)


SIZES = {"4b": "Qwen__Qwen3-4B", "8b": "Qwen__Qwen3-8B", "14b": "Qwen__Qwen3-14B"}


@pytest.mark.parametrize("draft", SIZES)
@pytest.mark.parametrize("target", SIZES)
@pytest.mark.parametrize("kind", ["dspark", "dflash"])
def test_deepspec_drafts_pair_with_their_own_target(
    kind: str, draft: str, target: str, tmp_path: Path
) -> None:
    config = corpus(f"deepseek-ai__{kind}_qwen3_{draft}_block7")
    shapes = dspark_shapes(config, 5) if kind == "dspark" else backbone(config, 5)
    model = corpus(SIZES[target])
    left = checkpoint(tmp_path / "draft", config, shapes)
    right = checkpoint(tmp_path / "target", model, target_shapes(model))

    if draft == target:
        plan = dspark.plan(left, target=right)
        assert (7, f"qwen3-{kind}") == (plan.drafts_per_round, plan.lane)
        assert () == plan.warnings
        return
    with pytest.raises(Refused) as caught:
        dspark.plan(left, target=right)
    assert "target-mismatch" == caught.value.decision.name
    hidden = f"`{config['hidden_size']}`, and the target asks for {model['hidden_size']}"
    assert hidden in str(caught.value)


def radixark(folder: Path) -> Path:
    config = corpus("RadixArk__Qwen3.8-27B-DSpark")
    shapes = backbone(config, 5, own_embedding=False, own_head=False) | heads(config)
    return checkpoint(folder, config, shapes)


def test_a_draft_of_another_family_passes_alone(tmp_path: Path) -> None:
    """Flat and nested keys that agree, and a YaRN that is declared in full."""
    draft = read_draft(default_table(), radixark(tmp_path))

    assert [] == [each for each in draft.warnings if each.name != "unread-key"]
    values = draft.canonical.values
    assert ("yarn", 32.0, 8192) == tuple(
        values[key] for key in ("rope_type", "rope_factor", "rope_original_positions")
    )
    assert "dflash_config.mask_token_id" == draft.canonical.origins["mask_token_id"]
    assert 7 == values["drafts_per_round"]


def test_a_draft_of_another_family_is_refused_by_its_target(tmp_path: Path) -> None:
    target = with_keys(
        corpus("Qwen__Qwen3.5-0.8B"), architectures=["Qwen3_5ForConditionalGeneration"]
    )
    place = checkpoint(tmp_path / "target", target, None)

    with pytest.raises(Refused) as caught:
        dspark.plan(radixark(tmp_path / "draft"), target=place)

    decision = caught.value.decision
    assert ("unsupported-target", "pairing") == (decision.name, decision.stage)
    assert "the target is Qwen3.5/3.6/3.8, whose recurrent layers cannot be cut back" in str(
        caught.value
    )
    assert str(place) == decision.source
