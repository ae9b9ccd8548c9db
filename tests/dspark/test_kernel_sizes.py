"""Which sizes of a pair no kernel takes on any GPU, and that a plan for one says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dspark
from dspark.kernel_sizes import size_findings
from tests.support.configs import Config, with_keys
from tests.support.pairs import (
    CORPUS,
    TINY,
    TINY_TARGET,
    TINY_ZLAB,
    backbone,
    checkpoint,
    corpus,
    dspark_shapes,
    target_shapes,
)

TARGET: dict[str, Any] = {
    "hidden_size": 72,
    "intermediate_size": 104,
    "vocab_size": 136,
    "head_dim": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
DRAFT: dict[str, Any] = {
    "hidden_size": 88,
    "intermediate_size": 120,
    "vocab_size": 136,
    "head_dim": 80,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "draft_vocab_size": 144,
    "markov_rank": 16,
    "block_size": 6,
    "drafts_per_round": 5,
}


def found(target: Any, draft: Any = None, batch: int = 1) -> list[tuple[object, object, object]]:
    findings = list(size_findings(TARGET | target, draft and DRAFT | draft, batch))
    assert {"B008"} >= {each.rule_id for each in findings}
    return [(each.values["key"], each.values["got"], each.values["expected"]) for each in findings]


def test_sizes_with_kernels_are_no_findings() -> None:
    assert [] == found({})
    assert [] == found({}, {"block_size": 6})
    for head_dim in (64, 80, 96, 128):
        assert [] == found({"head_dim": head_dim}, {"head_dim": head_dim})


@pytest.mark.parametrize("whose", ["target", "draft"])
@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "vocab_size"])
def test_what_is_read_in_vectors_is_made_of_them(key: str, whose: str) -> None:
    expected = [(key, 124, "multiples of 8")]

    assert expected == (found({key: 124}) if whose == "target" else found({}, {key: 124}))


@pytest.mark.parametrize("key", ["draft_vocab_size", "markov_rank"])
def test_so_is_what_only_a_draft_has(key: str) -> None:
    assert [(key, 100, "multiples of 8")] == found({}, {key: 100})


def test_a_head_that_no_kernel_has_is_named() -> None:
    heads = "heads of 64, 80, 96, 128"

    assert [("head_dim", 112, heads)] == found({"head_dim": 112})
    assert [("head_dim", 72, heads)] == found({}, {"head_dim": 72})


def test_query_heads_share_a_key_head_by_the_rows_of_a_round() -> None:
    key = "num_attention_heads"
    # Six rows of a target: five drafts and the newest token. Without a draft it is one.
    assert [] == found({key: 42}, {"block_size": 6})
    assert [(key, 44, "up to 21 query heads to a key head at 6 rows")] == found(
        {key: 44}, {"block_size": 6}
    )
    assert [] == found({key: 256})
    assert [(key, 258, "up to 128 query heads to a key head at 1 rows")] == found({key: 258})
    # Of a draft it is the rows of its block.
    block = {"block_size": 8, "drafts_per_round": 5}
    assert [] == found({}, block | {key: 16})
    assert [(key, 17, "up to 16 query heads to a key head at 8 rows")] == found(
        {}, block | {key: 17}
    )


def test_a_block_has_room_for_fifteen_drafts() -> None:
    assert [] == found({}, {"block_size": 16, "drafts_per_round": 15})
    assert [("block_size", 16, "blocks of up to 15 drafts")] == found(
        {}, {"block_size": 16, "drafts_per_round": 16}
    )


def test_a_round_has_room_for_so_many_rows() -> None:
    assert [] == found({}, None, 512)
    assert [("max_batch", 513, "up to 512 rows a round, 1 for each request")] == found(
        {}, None, 513
    )
    assert [] == found({}, {"block_size": 6}, 73)
    assert [("max_batch", 74, "up to 512 rows a round, 7 for each request")] == found(
        {}, {"block_size": 6}, 74
    )


# ------------------------------------------------------------------------------------- in a plan


def pair(folder: Path, draft: Config, target: Config = TINY_TARGET) -> dict[str, Path]:
    shapes = dspark_shapes(draft, 3)
    return {
        "draft": checkpoint(folder / "draft", draft, shapes),
        "target": checkpoint(folder / "target", target, target_shapes(target)),
    }


def refused(call: Any, **arguments: Any) -> dspark.Verdict:
    with pytest.raises(dspark.Refused) as caught:
        call(**arguments)
    assert isinstance(caught.value.decision, dspark.Verdict)
    return caught.value.decision


def test_a_plan_for_a_gpu_names_every_size_without_a_kernel(tmp_path: Path) -> None:
    made = pair(
        tmp_path, with_keys(TINY, head_dim=32, markov_rank=12), with_keys(TINY_TARGET, head_dim=16)
    )

    verdict = refused(dspark.plan, **made, memory=1000)

    said = [
        (each.rule_id, each.values.get("key"), each.values.get("got")) for each in verdict.findings
    ]
    sizes = [("B008", "head_dim", 16), ("B008", "head_dim", 32), ("B008", "markov_rank", 12)]
    # One refusal has everything of its stage.
    assert [*sizes, ("B001", None, None)] == said
    assert ("budget", str(made["draft"])) == (verdict.stage, verdict.source)
    assert "and the kernels take heads of 64, 80, 96, 128" in verdict.findings[0].message
    assert "`--batch` of a plan" in verdict.findings[0].help
    # A CPU has no kernels, and so takes every size.
    assert "cpu" == dspark.plan(**made, device="cpu").device


def test_a_plan_knows_how_many_are_served_at_a_time(tmp_path: Path) -> None:
    made = pair(tmp_path, TINY)

    assert 102 == dspark.plan(**made, batch=102).batch
    (found,) = refused(dspark.plan, **made, batch=103).findings

    assert (
        "`max_batch` is `103`, and the kernels take up to 512 rows a round, 5 for" in found.message
    )


def test_so_does_a_plan_for_a_target_alone(tmp_path: Path) -> None:
    config = with_keys(TINY_TARGET, head_dim=16)
    target = checkpoint(tmp_path, config, target_shapes(config))

    verdict = refused(dspark.plan_target, target=target)

    assert (["B008"], "budget") == ([each.rule_id for each in verdict.findings], verdict.stage)
    assert "`head_dim` is `16`, and the kernels take heads" in verdict.findings[0].message
    assert "cpu" == dspark.plan_target(target, device="cpu").device


def test_shared_ends_have_the_targets_rows(tmp_path: Path) -> None:
    """Whatever the draft's config says of a vocabulary that it does not have."""
    shared = with_keys(TINY_ZLAB, vocab_size=156)
    shapes = backbone(shared, 3, own_embedding=False, own_head=False)
    draft = checkpoint(tmp_path / "draft", shared, shapes)
    target = checkpoint(tmp_path / "target", TINY_TARGET, None)
    odd_config = with_keys(TINY_TARGET, vocab_size=164)
    odd = checkpoint(tmp_path / "odd", odd_config, None)

    plan = dspark.plan(draft, target=target)
    keys = [each.values["key"] for each in refused(dspark.plan, draft=draft, target=odd).findings]

    assert {"embed_tokens.weight", "lm_head.weight"} == set(plan.shared)
    assert ["vocab_size", "vocab_size", "draft_vocab_size"] == keys


def test_a_vocabulary_of_its_own_is_the_drafts(tmp_path: Path) -> None:
    config = with_keys(TINY, vocab_size=164)
    made = pair(tmp_path, config, with_keys(TINY_TARGET, vocab_size=160))

    found = refused(dspark.plan, **made).findings

    assert ["vocab_size", "draft_vocab_size"] == [each.values["key"] for each in found]
    assert [164, 164] == [each.values["got"] for each in found]


@pytest.mark.parametrize("size", ["4", "8", "14"])
def test_published_pairs_have_kernels(size: str, tmp_path: Path) -> None:
    """At as many requests as a round has rows for."""
    config = corpus(f"deepseek-ai__dspark_qwen3_{size}b_block7")
    shapes = dspark_shapes(config, len(config["target_layer_ids"]))
    draft = checkpoint(tmp_path, config, shapes)

    plan = dspark.plan(draft, target=CORPUS / f"Qwen__Qwen3-{size}B", batch=64)

    assert 512 == plan.batch * (1 + config["block_size"])
