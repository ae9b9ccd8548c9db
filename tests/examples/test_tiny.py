"""The pair that ships: its files as published, its report, and the script that makes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

FOLDERS = ["target", "dspark", "dflash", "dspark-speculators"]
LIMIT = 40_000_000

# Said twice on purpose: here as numbers, in the configs as keys.
HIDDEN, QUERIES, KEYS, HEAD, INNER = 256, 384, 128, 64, 448
VOCAB, DRAFT_VOCAB, RANK, TAPS = 1536, 640, 80, 3

FLAT = {
    "architectures", "attention_bias", "attention_dropout", "block_size", "bos_token_id", "dtype",
    "enable_confidence_head", "eos_token_id", "head_dim", "hidden_act", "hidden_size",
    "initializer_range", "intermediate_size", "layer_types", "markov_rank", "mask_token_id",
    "max_position_embeddings", "max_window_layers", "model_type", "num_anchors",
    "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "num_target_layers",
    "pad_token_id", "rms_norm_eps", "rope_parameters", "sliding_window", "target_layer_ids",
    "tie_word_embeddings", "transformers_version", "use_cache", "use_sliding_window", "vocab_size",
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(repository: Path) -> Path:
    return repository / "examples" / "tiny"


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def header_of(folder: Path) -> dict[str, tuple[str, list[int]]]:
    with safe_open(folder / "model.safetensors", framework="numpy") as tensors:
        assert {"format": "pt"} == tensors.metadata()
        slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
        return {name: (one.get_dtype(), one.get_shape()) for name, one in slices.items()}


def qwen_layers(depth: int, prefix: str = "") -> dict[str, list[int]]:
    one = {
        "input_layernorm": [HIDDEN],
        "post_attention_layernorm": [HIDDEN],
        "self_attn.q_proj": [QUERIES, HIDDEN],
        "self_attn.k_proj": [KEYS, HIDDEN],
        "self_attn.v_proj": [KEYS, HIDDEN],
        "self_attn.o_proj": [HIDDEN, QUERIES],
        "self_attn.q_norm": [HEAD],
        "self_attn.k_norm": [HEAD],
        "mlp.gate_proj": [INNER, HIDDEN],
        "mlp.up_proj": [INNER, HIDDEN],
        "mlp.down_proj": [HIDDEN, INNER],
    }
    return {
        f"{prefix}layers.{layer}.{name}.weight": shape
        for layer in range(depth)
        for name, shape in one.items()
    }


BACKBONE = qwen_layers(2) | {
    "fc.weight": [HIDDEN, TAPS * HIDDEN],
    "hidden_norm.weight": [HIDDEN],
    "norm.weight": [HIDDEN],
}
HEADS = {
    "markov_head.markov_w1.weight": [VOCAB, RANK],
    "confidence_head.proj.weight": [1, HIDDEN + RANK],
    "confidence_head.proj.bias": [1],
}
OWN = {"embed_tokens.weight": [VOCAB, HIDDEN], "lm_head.weight": [VOCAB, HIDDEN]}
EXPECTED: dict[str, dict[str, list[int]]] = {
    "target": qwen_layers(8, "model.")
    | {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN]},
    "dspark": BACKBONE | HEADS | OWN | {"markov_head.markov_w2.weight": [VOCAB, RANK]},
    "dflash": BACKBONE | OWN,
    "dspark-speculators": BACKBONE
    | HEADS
    | {
        "markov_head.markov_w2.weight": [DRAFT_VOCAB, RANK],
        "lm_head.weight": [DRAFT_VOCAB, HIDDEN],
        "d2t": [DRAFT_VOCAB],
        "t2d": [VOCAB],
    },
}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_tensors_are_those_of_a_published_checkpoint(tiny: Path, name: str) -> None:
    header = header_of(tiny / name)

    assert EXPECTED[name] == {tensor: shape for tensor, (_, shape) in header.items()}
    other = {"d2t": "I64", "t2d": "BOOL"}
    assert {tensor: other.get(tensor, "BF16") for tensor in header} == {
        tensor: dtype for tensor, (dtype, _) in header.items()
    }


def test_no_two_sizes_are_the_same() -> None:
    sizes = [HIDDEN, QUERIES, KEYS, HEAD, INNER, VOCAB, DRAFT_VOCAB, RANK, TAPS * HIDDEN]

    assert len(set(sizes)) == len(sizes)


def test_the_reduced_vocabulary_is_stored_as_offsets(tiny: Path) -> None:
    with safe_open(tiny / "dspark-speculators" / "model.safetensors", framework="numpy") as file:
        offsets, kept = file.get_tensor("d2t").tolist(), file.get_tensor("t2d").tolist()
    ids = [row + offset for row, offset in enumerate(offsets)]

    assert sorted(set(ids)) == ids  # ascending, none twice
    assert ids == [token for token, is_kept in enumerate(kept) if is_kept]
    assert max(ids) < VOCAB
    assert ids != list(range(DRAFT_VOCAB))  # a map that is dropped would show


def test_the_drafts_declare_what_they_are_the_way_the_published_ones_do(tiny: Path) -> None:
    dspark, dflash = config_of(tiny / "dspark"), config_of(tiny / "dflash")

    assert FLAT | {"confidence_head_with_markov", "markov_head_type"} == set(dspark)
    assert set(dflash) == FLAT
    for config in (dspark, dflash):
        assert config["architectures"] == ["Qwen3DSparkModel"]
        assert (7, [1, 4, 6], 8, 1509) == (
            config["block_size"],
            config["target_layer_ids"],
            config["num_target_layers"],
            config["mask_token_id"],
        )
    assert (80, True) == (dspark["markov_rank"], dspark["enable_confidence_head"])
    assert (0, False) == (dflash["markov_rank"], dflash["enable_confidence_head"])

    speculators = config_of(tiny / "dspark-speculators")
    assert speculators["speculators_model_type"] == "dspark"
    assert [2, 5, 7] == speculators["aux_hidden_state_layer_ids"]
    assert (8, False, DRAFT_VOCAB) == (
        speculators["block_size"],
        speculators["sample_from_anchor"],
        speculators["draft_vocab_size"],
    )
    assert speculators["transformer_layer_config"]["model_type"] == "qwen3"


def test_the_mask_token_is_a_padding_row(tiny: Path) -> None:
    tokenizer = json.loads((tiny / "target" / "tokenizer.json").read_text(encoding="utf-8"))
    ids = set(tokenizer["model"]["vocab"].values())
    ids |= {token["id"] for token in tokenizer["added_tokens"]}
    mask = config_of(tiny / "dspark")["mask_token_id"]

    assert ids == set(range(1500))
    assert max(ids) < mask < config_of(tiny / "target")["vocab_size"]


@pytest.mark.parametrize(
    ("name", "lane", "rule"),
    [
        ("dspark", "qwen3-dspark", "L001"),
        ("dflash", "qwen3-dflash", "L005"),
        ("dspark-speculators", "qwen3-dspark", "L003"),
        ("target", "not-a-draft", "R030"),
    ],
)
def test_each_folder_routes(tiny: Path, name: str, lane: str, rule: str) -> None:
    routed = subprocess.run(
        [sys.executable, "-m", "dspark.route", str(tiny / name)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert lane in routed.stdout
    assert f"[{rule} " in routed.stdout


def test_the_folder_stays_small(tiny: Path) -> None:
    sizes = {path: path.stat().st_size for path in tiny.rglob("*") if path.is_file()}

    assert {tiny / name / "model.safetensors" for name in FOLDERS} <= set(sizes)
    assert sum(sizes.values()) < LIMIT


def test_the_report_says_how_many_drafts_are_accepted(tiny: Path) -> None:
    report = json.loads((tiny / "acceptance.json").read_text(encoding="utf-8"))

    assert (0, 7) == (report["temperature"], report["block"])
    assert report["prompts"] >= 64
    assert report["new_tokens"] >= 128
    drafts = report["drafts"]
    assert set(drafts) == set(FOLDERS) - {"target"}
    for draft in drafts.values():
        accepted = draft["acceptance_per_position"]
        assert len(accepted) == 7
        assert accepted == sorted(accepted, reverse=True)  # a prefix can only get longer
        # One token a round is the target's own; the rest is the sum of the prefixes.
        assert draft["tokens_per_round"] == pytest.approx(1 + sum(accepted), abs=0.005)
        assert draft["prompts_that_differ_from_plain_greedy"] == 0


def test_dspark_reaches_its_goal_and_beats_dflash(tiny: Path) -> None:
    drafts = json.loads((tiny / "acceptance.json").read_text(encoding="utf-8"))["drafts"]

    assert drafts["dspark"]["tokens_per_round"] >= 3.5
    assert drafts["dspark"]["tokens_per_round"] > drafts["dflash"]["tokens_per_round"] + 0.3


def test_a_smoke_run_makes_every_file(tiny: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(tiny / "train.py"), "all", "--steps", "2", "--threads", "1"]
    subprocess.run(
        [*command, "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )

    for name in FOLDERS:
        assert header_of(tmp_path / "out" / name) == header_of(tiny / name)
        assert config_of(tmp_path / "out" / name) == config_of(tiny / name)
    made, ships = (top / "target/tokenizer_config.json" for top in (tmp_path / "out", tiny))
    assert ships.read_text(encoding="utf-8") == made.read_text(encoding="utf-8")
    report = json.loads((tmp_path / "out" / "acceptance.json").read_text(encoding="utf-8"))
    assert set(report["drafts"]) == set(FOLDERS) - {"target"}
    assert {0} == {
        draft["prompts_that_differ_from_plain_greedy"] for draft in report["drafts"].values()
    }
