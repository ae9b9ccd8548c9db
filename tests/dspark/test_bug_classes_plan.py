"""The classes of fault that a config, a header or a pair can show, each with its right outcome.

The labels are the rows of the collection these were distilled from: B keys, C blocks and taps,
D vocabularies, E files, F formats, G positions and attention, M memory.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dspark.cli import main
from tests.support.configs import BASE, Config, with_keys, without, write_config
from tests.support.pairs import (
    TINY,
    TINY_DFLASH,
    TINY_SHAPES,
    TINY_TARGET,
    TINY_ZLAB,
    WEIGHTS,
    Shapes,
    backbone,
    checkpoint,
    corpus,
    dspark_shapes,
    heads,
    with_dtypes,
)
from tests.support.safetensors_files import declared, encoded, write_index, write_sparse


class Outcome(NamedTuple):
    """What `dspark plan --json` said."""

    code: int
    name: str
    stage: str
    messages: list[str]
    document: dict[str, Any]

    @property
    def message(self) -> str:
        return "\n".join(self.messages)


class Bench:
    """A folder where pairs are written and planned."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def draft(self, config: Config = TINY, shapes: Shapes | None = None) -> Path:
        place = self.folder / "draft"
        shutil.rmtree(place, ignore_errors=True)
        return checkpoint(place, config, TINY_SHAPES if shapes is None else shapes)

    def target(self, config: Config = TINY_TARGET) -> Path:
        return checkpoint(self.folder / "target", config, None)

    def plan(self, draft: Path | str, target: Path | str | None = None, *options: str) -> Outcome:
        place = self.target() if target is None else target
        return self.say("plan", str(draft), "--target", str(place), *options)

    def check(self, draft: Path) -> Outcome:
        return self.say("route", "--check", str(draft))

    def say(self, *arguments: str) -> Outcome:
        code = main([*arguments, "--json"])
        document = json.loads(self._capsys.readouterr().out)
        inner = document.get("decision", {"name": document.get("rule_name")})
        findings = [each["message"] for each in document.get("findings", [])]
        return Outcome(code, inner["name"], document.get("stage", "planned"), findings, document)


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


def nested(config: Config, *keys: str) -> Config:
    """The config with these keys moved into `dflash_config`."""
    return {**without(config, *keys), "dflash_config": {key: config[key] for key in keys}}


TAPS = {"target_layer_ids": [1, 3, 5]}
BASE_SHAPES = dspark_shapes(BASE, 5)
TARGET_8B = corpus("Qwen__Qwen3-8B")

CONFIGS = {
    # B1: a guessed tap list fits every shape, and accepts nothing.
    "B1 taps": (without(TINY, "target_layer_ids"), "missing-key", "`target_layer_ids`"),
    "B1 block": (without(TINY, "block_size"), "missing-key", "`block_size`"),
    "B1 rank": (
        with_keys(without(TINY, "markov_rank"), architectures=["DSparkDraftModel"]),
        "missing-key",
        "`markov_rank`",
    ),
    # B2: None was found out at the first decode.
    "B2 absent": (without(TINY, "mask_token_id"), "missing-key", "`mask_token_id`"),
    "B2 null": (with_keys(TINY, mask_token_id=None), "missing-key", "`mask_token_id`"),
    # B6, B8, A11: one key in two places must agree.
    "B6 both": (
        with_keys(TINY, dflash_config={"target_layer_ids": [1, 3, 4]}),
        "conflicting-keys",
        "`dflash_config.target_layer_ids`",
    ),
    "B8 both": (
        with_keys(TINY, dflash_config={"block_size": 5}),
        "conflicting-keys",
        "`dflash_config.block_size`",
    ),
    # B9: an assertion at the first decode.
    "B9": (
        with_keys(TINY_DFLASH, confidence_head_with_markov=True),
        "inconsistent-config",
        "`confidence_head_with_markov` is `true`",
    ),
    # B11: these two numbers index and size memory.
    "B11 mask past the rows": (with_keys(TINY, mask_token_id=160), "out-of-range", "`160`"),
    "B11 mask below 0": (with_keys(TINY, mask_token_id=-1), "out-of-range", "`-1`"),
    "B11 block 0": (with_keys(TINY, block_size=0), "out-of-range", "`block_size` is `0`"),
    "B11 block huge": (with_keys(TINY, block_size=10**6), "out-of-range", "`1000000`"),
    # C1: the same tap twice, or in another order, is not the list that was trained.
    "C1 order": (
        with_keys(TINY, target_layer_ids=[1, 5, 3]),
        "inconsistent-config",
        "increasing",
    ),
    # C6: a block of one whose anchor predicts nothing drafts nothing.
    "C6 nothing left": (
        with_keys(TINY, block_size=1, sample_from_anchor=False),
        "inconsistent-config",
        "leaves a draft",
    ),
    # F2: quantised drafts ran without their scales.
    "F2 quantised": (
        with_keys(TINY, quantization_config={"quant_method": "compressed-tensors"}),
        "quantized-draft",
        "compressed-tensors",
    ),
    "F2 mlx": (with_keys(TINY, quantization={"bits": 4}), "quantized-draft", "`quantization`"),
    # G1: a default of 10000 was taken for the official files.
    "G1 neither": (without(TINY, "rope_parameters"), "missing-key", "rope_theta"),
    "G1 different": (with_keys(TINY, rope_theta=10000), "conflicting-keys", "`rope_theta`"),
    # G3, G4: another rotation keeps the text and loses acceptance.
    "G3 unknown": (
        with_keys(TINY, rope_parameters={"rope_theta": 1e6, "rope_type": "longrope"}),
        "unsupported-rope",
        "`longrope`",
    ),
    "G3 yarn without factor": (
        with_keys(TINY, rope_parameters={"rope_theta": 1e6, "rope_type": "yarn"}),
        "missing-key",
        "factor",
    ),
    "G4": (with_keys(TINY, is_neox_style=False), "unsupported-rope", "`is_neox_style`"),
    # G6, G7: a window that is not read, and a list that is compared with a string.
    "G6 no window": (
        with_keys(TINY, layer_types=["sliding_attention", "full_attention"]),
        "missing-key",
        "`sliding_window`",
    ),
    "G7 string": (with_keys(TINY, layer_types="sliding_attention"), "bad-type", "`layer_types`"),
    # N6: no integer for any library.
    "N6 float": (with_keys(TINY, vocab_size=160.0), "bad-type", "`160.0`"),
    "N6 huge": (with_keys(TINY, vocab_size=2**40), "out-of-range", "`vocab_size`"),
}


@pytest.mark.parametrize("row", CONFIGS)
def test_a_config_is_refused_before_a_header_is_read(row: str, bench: Bench) -> None:
    config, name, words = CONFIGS[row]
    place = checkpoint(bench.folder / "draft", config, None)
    (place / WEIGHTS).mkdir()  # whoever opened it would say so

    outcome = bench.plan(place, "no target is looked at")

    assert (3, name, "check") == (outcome.code, outcome.name, outcome.stage)
    assert words in outcome.message
    assert outcome.document == bench.check(place).document


PASS = {
    "B6 more taps than layers": (TINY, TINY_SHAPES, 4),
    "B6 nested": (nested(TINY, "target_layer_ids"), TINY_SHAPES, 4),
    "B8 nested": (nested(TINY, "block_size"), TINY_SHAPES, 4),
    "A2 a DFlash draft of DeepSpec's": (TINY_DFLASH, backbone(TINY, 3), 4),
    "A6 a DFlash draft without embedding": (
        TINY_ZLAB,
        backbone(TINY, 3, own_embedding=False, own_head=False),
        3,
    ),
    "B11 the last row": (with_keys(TINY, mask_token_id=159), TINY_SHAPES, 4),
    "B11 block 1": (with_keys(TINY, block_size=1), TINY_SHAPES, 1),
    "C1 the embedding's output": (
        with_keys(TINY, target_layer_ids=[-1, 3, 5]),
        TINY_SHAPES,
        4,
    ),
    "C3 the last layer": (TINY, TINY_SHAPES, 4),
    "C6 flat": (TINY, TINY_SHAPES, 4),
    "C6 flat, said": (with_keys(TINY, sample_from_anchor=True), TINY_SHAPES, 4),
    "C6 flat, denied": (with_keys(TINY, sample_from_anchor=False), TINY_SHAPES, 3),
    "D1 padded": (
        with_keys(TINY, vocab_size=168),
        dspark_shapes(with_keys(TINY, vocab_size=168), 3),
        4,
    ),
    "G1 only the old key": (
        with_keys(without(TINY, "rope_parameters"), rope_theta=1000000),
        TINY_SHAPES,
        4,
    ),
    "G1 both alike": (with_keys(TINY, rope_theta=1000000), TINY_SHAPES, 4),
    "G3 yarn": (
        with_keys(
            TINY,
            rope_parameters={
                "rope_theta": 1000000,
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 50,
            },
        ),
        TINY_SHAPES,
        4,
    ),
    "G6 sliding": (
        with_keys(TINY, layer_types=["sliding_attention", "full_attention"], sliding_window=16),
        TINY_SHAPES,
        4,
    ),
}


@pytest.mark.parametrize("row", PASS)
def test_a_sound_pair_is_planned(row: str, bench: Bench) -> None:
    config, shapes, drafts = PASS[row]

    outcome = bench.plan(bench.draft(config, shapes))

    assert (0, "planned") == (outcome.code, outcome.stage), outcome.message
    assert drafts == outcome.document["drafts_per_round"]
    # C9: more drafts than the block has slots collapse every position.
    assert {"least": 1, "most": drafts} == outcome.document["num_speculative_tokens"]


def speculators(**changes: Any) -> tuple[Config, Shapes]:
    """TINY as the Speculators library writes it: taps count from 1, the anchor is only held."""
    inner = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
    inner += ["num_key_value_heads", "head_dim", "vocab_size", "hidden_act", "rms_norm_eps"]
    inner += ["max_position_embeddings", "rope_parameters", "layer_types", "model_type"]
    config: Config = {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "transformer_layer_config": {key: TINY[key] for key in inner},
        "block_size": 4,
        "mask_token_id": 150,
        "aux_hidden_state_layer_ids": [2, 4, 6],
        "markov_rank": 8,
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        **changes,
    }
    return config, TINY_SHAPES


@pytest.mark.parametrize(("said", "drafts"), [({}, 3), ({"sample_from_anchor": True}, 4)])
def test_c6_the_same_missing_key_means_the_opposite(
    said: Config, drafts: int, bench: Bench
) -> None:
    config, shapes = speculators(**said)

    outcome = bench.plan(bench.draft(config, shapes))

    assert drafts == outcome.document["drafts_per_round"], outcome.message
    # C2: these ids count from 1.
    assert [1, 3, 5] == outcome.document["draft"]["config"]["target_layer_ids"]["value"]


@pytest.mark.parametrize(
    ("config", "target", "key", "got", "expected"),
    [
        # C5: hidden sizes match, so nothing but the depth complains.
        (TINY, with_keys(TINY_TARGET, num_hidden_layers=5), "num_target_layers", "6", "5"),
        (
            without(TINY, "num_target_layers"),
            with_keys(TINY_TARGET, num_hidden_layers=5),
            "target_layer_ids",
            "[1, 3, 5]",
            "5",
        ),
        (TINY, with_keys(TINY_TARGET, hidden_size=72, num_attention_heads=9), "", "64", "72"),
        # D1, D9: rows are compared with the target's rows.
        (TINY, with_keys(TINY_TARGET, vocab_size=176), "vocab_size", "160", "176"),
    ],
)
def test_c5_a_pair_that_does_not_fit_is_refused_with_both_numbers(
    config: Config, target: Config, key: str, got: str, expected: str, bench: Bench
) -> None:
    outcome = bench.plan(bench.draft(config), bench.target(target))

    assert (3, "pairing") == (outcome.code, outcome.stage)
    message = next(each for each in outcome.messages if "was not made for this target" in each)
    assert f"`{got}`" in message
    assert expected in message.partition("asks for")[2]
    assert key in message


def test_d1_a_smaller_vocabulary_needs_its_map(bench: Bench) -> None:
    small = with_keys(TINY, vocab_size=152)

    outcome = bench.plan(bench.draft(small, dspark_shapes(small, 3)))

    assert (3, "tensor-missing", "pairing") == (outcome.code, outcome.name, outcome.stage)
    assert "no tensor `d2t`" in outcome.messages[0]
    # The Markov table and the embedding are looked up by target ids, map or not.
    assert "at least 160" in outcome.messages[1]


@pytest.mark.parametrize("rows", [144, 160, 176])
def test_d2_a_draft_that_shares_both_has_the_targets_vocabulary(rows: int, bench: Bench) -> None:
    config = with_keys(TINY_ZLAB, vocab_size=152)
    shapes = backbone(config, 3, own_embedding=False, own_head=False)
    config["dflash_config"]["mask_token_id"] = 143

    outcome = bench.plan(
        bench.draft(config, shapes), bench.target(with_keys(TINY_TARGET, vocab_size=rows))
    )

    assert 0 == outcome.code, outcome.message
    assert {"embed_tokens.weight", "lm_head.weight"} == set(outcome.document["shared"])


def test_d2_a_shared_dspark_draft_needs_the_targets_rows(bench: Bench) -> None:
    shapes = backbone(TINY, 3, own_embedding=False, own_head=False) | heads(TINY)
    draft = bench.draft(TINY, shapes)

    same = bench.plan(draft)
    other = bench.plan(draft, bench.target(with_keys(TINY_TARGET, vocab_size=159)))

    assert 0 == same.code
    assert (3, "target-mismatch") == (other.code, other.name)
    assert "`160`" in other.message
    assert "asks for 159" in other.message


REDUCED = with_keys(TINY, draft_vocab_size=8)
# Rank and draft vocabulary are equal, so that a transposed W2 also fits.
REDUCED_SHAPES = dspark_shapes(REDUCED, 3) | {"d2t": (8,)}
OFFSETS = np.array([20 * (i + 1) - 1 - i for i in range(8)], dtype=np.int64)


def reduced(bench: Bench, offsets: np.ndarray, config: Config = REDUCED) -> Outcome:
    place = bench.folder / "draft"
    with_dtypes(place, config, REDUCED_SHAPES, {"d2t": "I64"}, {"d2t": offsets})
    return bench.plan(place)


def test_d3_a_reduced_vocabulary_has_two_id_spaces(bench: Bench) -> None:
    assert (160, 8) == REDUCED_SHAPES["markov_head.markov_w1.weight"]
    assert (8, 8) == REDUCED_SHAPES["markov_head.markov_w2.weight"]
    assert [19, 39, 59, 79, 99, 119, 139, 159] == [i + int(o) for i, o in enumerate(OFFSETS)]

    outcome = reduced(bench, OFFSETS)

    assert 0 == outcome.code, outcome.message
    assert "d2t" in outcome.document["draft"]["tensors"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({7: 153}, ["entry 7 of the tensor `d2t` is 153 (target id 160)", "below 160"]),
        ({0: -1}, ["entry 0 of the tensor `d2t` is -1 (target id -1)"]),
        ({3: 36}, ["entry 3 of the tensor `d2t` is 36 (target id 39, as for entry 1)"]),
    ],
)
def test_d8_a_map_must_lead_to_ids_of_the_target(
    changes: dict[int, int], words: list[str], bench: Bench
) -> None:
    offsets = OFFSETS.copy()
    for index, value in changes.items():
        offsets[index] = value

    outcome = reduced(bench, offsets)

    assert (3, "tensor-value", "tensors") == (outcome.code, outcome.name, outcome.stage)
    assert [] == [word for word in words if word not in outcome.message]


def test_d4_a_head_in_the_file_is_used(bench: Bench) -> None:
    outcome = bench.plan(bench.draft())

    assert [] == outcome.document["shared"]
    assert "lm_head.weight" in outcome.document["draft"]["tensors"]


def test_d6_a_renamed_head_is_the_drafts_own(bench: Bench) -> None:
    renamed = {f"model.{name}": shape for name, shape in TINY_SHAPES.items()}

    outcome = bench.plan(bench.draft(TINY, renamed))

    assert [] == outcome.document["shared"]
    assert "model.lm_head.weight" == outcome.document["draft"]["tensors"]["lm_head.weight"]["name"]


def split(bench: Bench, names: tuple[str, str] = ("a.safetensors", "b.safetensors")) -> Path:
    """TINY in two shards and their index."""
    place = write_config(bench.folder / "draft", TINY)
    items = list(TINY_SHAPES.items())
    halves = [dict(items[:20]), dict(items[20:])]
    for name, half in zip(names, halves, strict=True):
        write_sparse(place / name, half)
    weight_map = {t: n for n, half in zip(names, halves, strict=True) for t in half}
    write_index(place, weight_map)
    return place


def test_e1_an_absent_shard_is_named(bench: Bench) -> None:
    place = split(bench)
    assert 0 == bench.plan(place).code
    (place / "b.safetensors").unlink()

    outcome = bench.plan(place)

    assert (3, "shard-missing", "tensors") == (outcome.code, outcome.name, outcome.stage)
    assert 1 == len(outcome.messages)
    assert "the weight file `b.safetensors` is listed in `model.safetensors.index.json`" in (
        outcome.message
    )


def test_e1_a_tensor_that_its_shard_lacks_is_named_once(bench: Bench) -> None:
    place = split(bench)
    lost = dict(list(TINY_SHAPES.items())[20:-1])
    write_sparse(place / "b.safetensors", lost)

    outcome = bench.plan(place)

    name = list(TINY_SHAPES)[-1]
    assert (3, "tensor-missing") == (outcome.code, outcome.name)
    assert 1 == len(outcome.messages)
    assert f"`{name}` in `b.safetensors`" in outcome.message


def test_e3_a_stray_file_beside_shards_is_not_read(bench: Bench) -> None:
    place = split(bench)
    (place / WEIGHTS).write_bytes(encoded({"fc.weight": 3}))

    outcome = bench.plan(place)

    assert ["a.safetensors", "b.safetensors"] == [
        each["name"] for each in outcome.document["draft"]["files"]
    ]


def test_e3_a_stale_index_is_not_repaired(bench: Bench) -> None:
    place = split(bench)
    (place / "a.safetensors").rename(place / WEIGHTS)

    assert "shard-missing" == bench.plan(place).name


def test_e5_a_truncated_file_says_both_sizes(bench: Bench) -> None:
    place = bench.draft()
    size = (place / WEIGHTS).stat().st_size
    with (place / WEIGHTS).open("rb+") as file:
        file.truncate(size - 8)

    outcome = bench.plan(place)

    assert "shard-truncated" == outcome.name
    assert f"has {size - 8} bytes, and its header needs {size}" in outcome.message


def test_e8_a_header_that_lies_is_refused(bench: Bench) -> None:
    place = write_config(bench.folder / "draft", TINY)
    lie = {"a": {"dtype": "F32", "shape": [1000, 1000], "data_offsets": [0, 4]}}
    (place / WEIGHTS).write_bytes(encoded(lie, bytes(4)))

    assert "shard-corrupt" == bench.plan(place).name


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("BF16", ""), ("F32", ""), ("F16", "tensor-dtype"), ("I32", "tensor-dtype")],
)
def test_e10_f5_weights_are_bf16_or_f32(dtype: str, name: str, bench: Bench) -> None:
    place = checkpoint(bench.folder / "draft", TINY, TINY_SHAPES, dtype)

    outcome = bench.plan(place)

    assert (3 if name else 0) == outcome.code
    assert (len(TINY_SHAPES) if name else 0) == len(outcome.messages)
    if name:
        assert name == outcome.name
        assert f"is {dtype}, and this lane reads BF16 or F32" in outcome.message


@pytest.mark.parametrize("files", [{}, {WEIGHTS: encoded({})}, {"pytorch_model.bin": b"PK"}])
def test_e11_a_draft_without_weights_is_refused(files: dict[str, bytes], bench: Bench) -> None:
    place = write_config(bench.folder / "draft", TINY)
    for name, data in files.items():
        (place / name).write_bytes(data)

    assert "weights-missing" == bench.plan(place).name
    assert 0 == main(["route", "--quiet", str(place)])


@pytest.mark.parametrize("said", [{}, {"head_dim": None}])
def test_e12_a_derived_head_dim_must_agree_with_the_tensors(said: Config, bench: Bench) -> None:
    config = {**without(TINY, "head_dim"), **said}

    wide = bench.plan(bench.draft(config))
    narrow = dspark_shapes(with_keys(TINY, head_dim=16), 3)
    # No kernel on a GPU takes heads as narrow as these.
    fitting = bench.plan(bench.draft(config, narrow), None, "--device", "cpu")

    assert "tensor-shape" == wide.name
    assert "`layers.0.self_attn.q_proj.weight` has the shape [512, 64]" in wide.message
    assert "[64, 64] (num_attention_heads * head_dim, hidden_size)" in wide.message
    assert 0 == fitting.code
    assert 16 == fitting.document["draft"]["config"]["head_dim"]["value"]


def test_e14_a_head_in_the_file_wins_over_the_flag(bench: Bench) -> None:
    outcome = bench.plan(bench.draft(with_keys(TINY, tie_word_embeddings=True)))

    assert 0 == outcome.code
    assert {} == outcome.document["tied"]
    assert "tie-flag-ignored" in [each["name"] for each in outcome.document["warnings"]]


def test_e14_a_tied_head_is_the_drafts_own_embedding(bench: Bench) -> None:
    shapes = {name: shape for name, shape in TINY_SHAPES.items() if name != "lm_head.weight"}

    tied = bench.plan(bench.draft(with_keys(TINY, tie_word_embeddings=True), shapes))
    untied = bench.plan(bench.draft(TINY, shapes))

    assert {"lm_head.weight": "embed_tokens.weight"} == tied.document["tied"]
    assert [] == tied.document["shared"]
    assert "tensor-missing" == untied.name
    assert "no tensor `lm_head.weight`" in untied.message


def test_e17_both_spellings_of_a_name_are_named(bench: Bench) -> None:
    shapes = TINY_SHAPES | {"model.fc.weight": (64, 192)}

    outcome = bench.plan(bench.draft(TINY, shapes))

    assert "tensor-duplicate" == outcome.name
    assert "`fc.weight` in " in outcome.message
    assert "`model.fc.weight` in " in outcome.message


def test_e17_midlayer_is_the_first_layer(bench: Bench) -> None:
    shapes = {name.replace("layers.0.", "midlayer."): s for name, s in TINY_SHAPES.items()}

    outcome = bench.plan(bench.draft(TINY, shapes))

    assert 0 == outcome.code
    assert (
        "midlayer.mlp.up_proj.weight"
        == (outcome.document["draft"]["tensors"]["layers.0.mlp.up_proj.weight"]["name"])
    )


PACKED = {
    **{name: shape for name, shape in TINY_SHAPES.items() if name != "fc.weight"},
    "fc.weight_packed": (64, 48),
    "fc.weight_scale": (64, 1),
}


def test_f2_packed_weights_are_refused_by_name(bench: Bench) -> None:
    place = bench.folder / "draft"
    with_dtypes(place, TINY, PACKED, {"fc.weight_packed": "I32"})

    outcome = bench.plan(place)

    assert (3, "tensors") == (outcome.code, outcome.stage)
    assert [] == [
        name
        for name in ("`fc.weight`", "`fc.weight_packed`", "`fc.weight_scale`")
        if name not in outcome.message
    ]


def test_f2_the_config_says_so_first(bench: Bench) -> None:
    config = with_keys(TINY, quantization_config={"quant_method": "compressed-tensors"})
    place = bench.folder / "draft"
    with_dtypes(place, config, PACKED, {"fc.weight_packed": "I32"})

    outcome = bench.plan(place)

    assert ("quantized-draft", "check") == (outcome.name, outcome.stage)


def test_f1_a_quantised_target_is_refused_as_the_target(bench: Bench) -> None:
    target = with_keys(TINY_TARGET, quantization_config={"quant_method": "fp8"})

    outcome = bench.plan(bench.draft(), bench.target(target))

    assert (3, "unsupported-target") == (outcome.code, outcome.name)
    assert "the target's `quantization_config`" in outcome.message
    assert outcome.document["source"].endswith("target")


def test_f9_a_gguf_draft_is_refused_as_one(bench: Bench) -> None:
    place = bench.folder / "draft.gguf"
    place.write_bytes(b"GGUF")

    assert (3, "gguf-draft", "route") == bench.plan(place)[:3]


def test_g10_a_shorter_draft_is_asked_only_as_far_as_it_goes(bench: Bench) -> None:
    whole = bench.plan(bench.draft())
    part = bench.plan(bench.draft(), None, "--max-seq", "150")

    assert (256, 200) == (whole.document["max_seq"], whole.document["draft_positions"])
    assert (150, 150) == (part.document["max_seq"], part.document["draft_positions"])


def test_g11_each_model_has_its_own_geometry(bench: Bench) -> None:
    sizes = bench.plan(bench.draft()).document["bytes"]

    assert 2 * 2 * 2 * 128 * 2 == sizes["draft_kv_per_token"]
    assert 6 * 2 * 3 * 80 * 2 == sizes["target_kv_per_token"]


def test_a2_a_head_that_the_config_denies_is_unexpected(bench: Bench) -> None:
    outcome = bench.plan(bench.draft(TINY_DFLASH, TINY_SHAPES))

    assert "tensor-unexpected" == outcome.name
    assert set(heads(TINY)) == {each["values"]["tensor"] for each in outcome.document["findings"]}


def test_a6_a_draft_as_its_own_target_is_refused_as_a_draft(bench: Bench) -> None:
    draft = bench.draft()

    outcome = bench.plan(draft, draft)

    assert (3, "target-is-a-draft", "pairing") == outcome[:3]


@pytest.mark.parametrize("confidence", ["markov", ""])
def test_an_undeclared_confidence_head_is_there_if_its_tensors_are(
    confidence: str, bench: Bench
) -> None:
    config = without(TINY, "enable_confidence_head")
    shapes = dspark_shapes(TINY, 3, confidence=confidence)

    outcome = bench.plan(bench.draft(config, shapes))

    assert 0 == outcome.code, outcome.message
    assert bool(confidence) == ("confidence_head.proj.bias" in outcome.document["draft"]["tensors"])
    said = outcome.document["draft"]["config"]["enable_confidence_head"]
    assert (bool(confidence), "default: confidence_head.proj.weight") == (
        said["value"],
        said["origin"],
    )


def test_c14_a_fc_over_all_layers_is_refused(bench: Bench) -> None:
    outcome = bench.plan(bench.draft(TINY, TINY_SHAPES | {"fc.weight": (64, 7 * 64)}))

    assert "tensor-shape" == outcome.name
    assert "count(target_layer_ids) * target_hidden_size" in outcome.message


def test_b11_official_values_are_taken(bench: Bench) -> None:
    target = bench.target(TARGET_8B)

    for mask in (151669, 151935):
        draft = bench.draft(with_keys(BASE, mask_token_id=mask), BASE_SHAPES)
        assert 0 == bench.plan(draft, target).code


def test_m1_bytes_are_counted_before_anything_is_allocated(bench: Bench) -> None:
    draft, target = bench.draft(BASE, BASE_SHAPES), bench.target(TARGET_8B)

    fits = bench.plan(draft, target, "--max-seq", "1024", "--memory", "24GiB")
    whole = bench.plan(draft, target, "--memory", "24GiB")

    sizes = fits.document["bytes"]
    assert 20 * 1024 == sizes["draft_kv_per_token"]
    assert 8 * 151936 * 4 * 2 == sizes["logits"]
    assert fits.document["fits"] is True
    assert (3, "over-budget", "budget") == whole[:3]
    values = whole.document["findings"][0]["values"]
    assert 24 * 2**30 == values["available"]
    assert str(values["needed"]) in whole.message
    kv = (20 * 1024 + 144 * 1024) * 40960
    assert (
        sizes["draft_weights"] + sizes["target_weights"] + sizes["logits"] + kv == values["needed"]
    )


def test_every_finding_of_a_stage_is_listed(bench: Bench) -> None:
    config = with_keys(TINY, block_size=0, mask_token_id=-1, hidden_act="gelu")

    outcome = bench.plan(bench.draft(config))

    assert 3 == len(outcome.messages)
    message = outcome.document["decision"]["refusal"]["message"]
    assert f"{outcome.messages[0]} (and 2 more)" == message


def test_no_message_quotes_where_the_checkpoint_lies(bench: Bench) -> None:
    declared_only = declared(TINY_SHAPES)
    place = write_config(bench.folder / "draft", TINY)
    (place / WEIGHTS).write_bytes(encoded(declared_only))

    outcome = bench.plan(place)

    assert "shard-truncated" == outcome.name
    text = json.dumps({**outcome.document, "source": ""})
    assert str(bench.folder) not in text
