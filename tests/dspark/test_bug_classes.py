"""Faults that hit real users of other engines, each with the answer this router must give.

The letter and number before a case name the class of fault; the comment says what went wrong
there. Every case enters through the command line and asserts words that only its rule prints.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark.cli import main
from tests.support.configs import BASE, Config, Routed, routed, with_keys, without, write_config

DSPARK, DFLASH = "qwen3-dspark", "qwen3-dflash"
ZLAB: Config = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}
SPECULATORS: Config = {
    "speculators_model_type": "dspark",
    "architectures": ["DSparkDraftModel"],
    "transformer_layer_config": {"model_type": "qwen3", "hidden_size": 4096},
    "block_size": 8,
    "aux_hidden_state_layer_ids": [2, 10, 18, 26, 34],
    "markov_rank": 256,
}
IN_TARGET: Config = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "dspark_block_size": 5,
    "num_nextn_predict_layers": 3,
}
TINY: Config = with_keys(
    BASE,
    block_size=4,
    target_layer_ids=[1, 3, 5],
    num_target_layers=6,
    markov_rank=8,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    vocab_size=160,
    mask_token_id=150,
    layer_types=["full_attention"] * 2,
)


@pytest.fixture
def decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def decide(config: Config | str | bytes, folder: str = "checkpoint") -> Routed:
        place = write_config(tmp_path / folder, config)
        code = main(["route", "--json", str(place)])
        return routed(json.loads(capsys.readouterr().out), code)

    return decide


def name(architecture: str) -> Config:
    return with_keys(BASE, architectures=[architecture])


LANES = {
    # A1: the generic name was sent to the DeepSeek-V4 class, which died on `hc_mult`.
    "A1 pair": (name("DSparkDraftModel"), "qwen3-dspark-specforge", DSPARK),
    # A11: the prefixed key beside the draft's own keys does not make it an in-target draft; the
    # lane's contract reads it, and refuses the two if they differ.
    "A11 prefixed instead": (
        {**without(BASE, "block_size"), "dspark_block_size": 7},
        "qwen3-dspark-native",
        DSPARK,
    ),
    "A11 both": (with_keys(BASE, dspark_block_size=5), "qwen3-dspark-native", DSPARK),
    # A2: an official DFlash draft was renamed to an unregistered class, or got a 0-wide head.
    "A2": (
        without(
            with_keys(BASE, markov_rank=0, enable_confidence_head=False),
            "markov_head_type",
            "confidence_head_with_markov",
        ),
        "qwen3-dflash-native",
        DFLASH,
    ),
    # A4: under a neutral path it ran as an independent model, 1.02 tokens per round.
    "A4": (ZLAB, "qwen3-dflash-zlab", DFLASH),
    # A6 (1): a DFlash draft was taken for a Qwen3 model, since it says model_type qwen3.
    "A6 draft": (ZLAB, "qwen3-dflash-zlab", DFLASH),
    # A11: only the prefixed `dspark_block_size` was known.
    "A11 bare": (BASE, "qwen3-dspark-native", DSPARK),
    # A18: the third packaging was not seen at all; the outer model_type may be absent.
    "A18": (SPECULATORS, "qwen3-dspark-speculators", DSPARK),
    "A18 no architectures": (
        without(SPECULATORS, "architectures"),
        "qwen3-dspark-speculators",
        DSPARK,
    ),
    # B1, B2: what the lane's contract must ask for is not the router's to guess; identity stands.
    "B1": (without(BASE, "target_layer_ids"), "qwen3-dspark-native", DSPARK),
    "B2": (with_keys(BASE, mask_token_id=None), "qwen3-dspark-native", DSPARK),
    # B6: layers = taps = 5 hid a wrong size in every official file.
    "B6": (TINY, "qwen3-dspark-native", DSPARK),
    "B6 nested taps": (
        {**without(TINY, "target_layer_ids"), "dflash_config": {"target_layer_ids": [1, 3, 5]}},
        "qwen3-dspark-native",
        DSPARK,
    ),
    # B8: `block_size` moved into dflash_config.
    "B8": (
        {**without(ZLAB, "block_size"), "dflash_config": {"block_size": 16}},
        "qwen3-dflash-zlab",
        DFLASH,
    ),
    # B12: routing on a framework's config class would see a rewritten head_dim; we read the file.
    "B12": (without(BASE, "head_dim"), "qwen3-dspark-native", DSPARK),
    # C6: the layout differs by packaging, so the packagings must stay apart as rules.
    "C6 flat": (BASE, "qwen3-dspark-native", DSPARK),
    "C6 speculators": (
        with_keys(SPECULATORS, sample_from_anchor=True),
        "qwen3-dspark-speculators",
        DSPARK,
    ),
    # F1: the target's quantisation is not the draft's; here there is none to inherit.
    "F1": (BASE, "qwen3-dspark-native", DSPARK),
    # G1: rope_theta only inside rope_parameters must not disturb identity.
    "G1": (BASE, "qwen3-dspark-native", DSPARK),
    # G6: sliding layers are the contract's business.
    "G6": (
        with_keys(BASE, layer_types=["sliding_attention"] * 5, sliding_window=2048),
        "qwen3-dspark-native",
        DSPARK,
    ),
    # N1: entries no rule names are ignored beside one that is named.
    "N1 unnamed beside named": (
        with_keys(BASE, architectures=["FooModel", "Qwen3DSparkModel"]),
        "qwen3-dspark-native",
        DSPARK,
    ),
    # O4: a folder without tokenizer files was refused by a loader that builds one per model.
    "O4": (BASE, "qwen3-dspark-native", DSPARK),
}

REFUSALS = {
    "A1 deepseek": (
        with_keys(name("DSparkDraftModel"), model_type="deepseek_v4"),
        "deepseek-v4-dspark",
        "is the DeepSeek-V4 DSpark module",
    ),
    "A1 alone": (
        without(name("DSparkDraftModel"), "model_type"),
        "ambiguous-dspark-draft",
        "alone does not say which module this is: its model_type is absent",
    ),
    "A1 llama": (
        with_keys(name("DSparkDraftModel"), model_type="llama"),
        "ambiguous-dspark-draft",
        "its model_type is `llama`",
    ),
    "A6 llm": (
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
        "not-a-draft",
        "`Qwen3ForCausalLM` is a language model, not a draft",
    ),
    # A7: DSpark stages inside the target were loaded through the serial MTP class.
    "A7": (IN_TARGET, "deepseek-v4-in-target", "live inside the target's own weights (`mtp.*`)"),
    "A7 v4.1": (
        with_keys(IN_TARGET, model_type="deepseek_v41"),
        "deepseek-v41-in-target",
        "DeepSeek-V4.1 keeps its DSpark stages inside the target",
    ),
    # A8: one name, two packagings: the refusal says which of the two it saw.
    "A8 prefixed": (
        {"architectures": ["DSparkDraftModel"], "model_type": "qwen3", "dspark_block_size": 7},
        "prefixed-keys-outside-target",
        "all its draft keys carry the `dspark_` prefix",
    ),
    # A14: spelling differs between ecosystems; nothing is folded, the nearest name is offered.
    "A14 case": (
        name("qwen3dsparkmodel"),
        "unknown-architecture",
        "`qwen3dsparkmodel` with model_type `qwen3`; did you mean `Qwen3DSparkModel`?",
    ),
    "A14 space": (
        name("Qwen3DSparkModel "),
        "unknown-architecture",
        "did you mean `Qwen3DSparkModel`?",
    ),
    # A15: DFlash2 was loaded as DFlash: more tensors, lower acceptance, no error.
    "A15 name": (
        {"architectures": ["DFlash2DraftModel"], "model_type": "qwen3"},
        "dflash2",
        "DFlash2 drafts add convolutions",
    ),
    "A15 v1 name, v2 keys": (
        {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "dflash_config": {"block_size": 8, "selector_rank": 256, "selector_top_k": 16},
        },
        "dflash2",
        "DFlash2 drafts add convolutions",
    ),
    # A17: families grow by prefix and suffix; a wildcard would have taken each of these.
    "A17 omni": (
        name("Qwen3OmniDSparkModel"),
        "qwen3-omni-dspark",
        "pair only with the thinker of a Qwen3-Omni target",
    ),
    "A17 3.5": (
        name("Qwen3_5DSparkModel"),
        "other-dspark-family",
        "`Qwen3_5DSparkModel` is a DSpark draft of a family that no lane here covers",
    ),
    "A17 gemma": (
        with_keys(name("Gemma4DSparkModel"), model_type="gemma4_text"),
        "gemma4-dspark",
        "Gemma 4 block drafts",
    ),
    "A17 llama": (
        with_keys(name("LlamaDSparkModel"), model_type="llama"),
        "unknown-architecture",
        "no rule for architectures `LlamaDSparkModel`",
    ),
    # A11: a prefixed rank under a separate draft's keys is no alias: it selects no lane.
    "A11 prefixed rank": (
        {**without(BASE, "markov_rank"), "dspark_markov_rank": 256},
        "markov-rank-missing",
        "this file declares none",
    ),
    # B1: markov_rank decides between two lanes, so a missing one selects neither.
    "B1 markov": (without(BASE, "markov_rank"), "markov-rank-missing", "this file declares none"),
    # B6: two places that disagree on what the draft is.
    "B6 both places": (
        with_keys(BASE, dflash_config={"markov_rank": 0}),
        "identity-keys-conflict",
        "`markov_rank` is `256` and `dflash_config.markov_rank` is `0`",
    ),
    # N1: null, absent and [] crashed or fell into a catch-all; [null] was iterated.
    "N1 null": (
        with_keys(BASE, architectures=None),
        "architectures-missing",
        "the config declares no `architectures`",
    ),
    "N1 absent": (
        without(BASE, "architectures"),
        "architectures-missing",
        "the config declares no `architectures`",
    ),
    "N1 empty": (
        with_keys(BASE, architectures=[]),
        "architectures-missing",
        "the config declares no `architectures`",
    ),
    "N1 [null]": (
        with_keys(BASE, architectures=[None]),
        "architectures-bad-type",
        "must be a list of strings, and it is a list that holds null",
    ),
    "N1 two named": (
        with_keys(BASE, architectures=["DFlashDraftModel", "Qwen3DSparkModel"]),
        "architectures-conflict",
        "names both `DFlashDraftModel` (R015) and `Qwen3DSparkModel` (L001)",
    ),
    "N1 two unnamed": (
        with_keys(BASE, architectures=["A", "B"]),
        "unknown-architecture",
        "no rule for architectures `A`, `B`",
    ),
    # N2: a bare string was searched for substrings; the singular key was read.
    "N2 string": (
        with_keys(BASE, architectures="Qwen3DSparkModel"),
        "architectures-bad-type",
        "must be a list of strings, and it is a string",
    ),
    "N2 singular": (
        {**without(BASE, "architectures"), "architecture": ["Qwen3DSparkModel"]},
        "architectures-missing",
        "do not identify a draft that a lane here takes",
    ),
    # A18, A17: the outer architecture of a Speculators file may not name another family.
    "A17 speculators": (
        with_keys(SPECULATORS, architectures=["Lfm2DSparkDraftModel"]),
        "speculators-other-architecture",
        "names `Lfm2DSparkDraftModel`, which is not a class of that type",
    ),
    # N9: a multimodal wrapper's nested sizes; as a draft it is refused by name.
    "N9": (
        {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "text_config": {"hidden_size": 4096, "architectures": ["Qwen3DSparkModel"]},
        },
        "not-a-draft",
        "`Qwen3VLForConditionalGeneration` is a language model, not a draft",
    ),
}

UNREADABLE = {
    # N4: a trailing comma broke everyone at once, and the error hid where.
    "N4 comma": ('{"block_size":7,}', "config-invalid-json", "line 1, column"),
    "N4 comment": ('{\n  // seven\n  "block_size": 7}', "config-invalid-json", "line 2, column 3"),
    "N4 quotes": ("{'block_size': 7}", "config-invalid-json", "line 1, column 2"),
    # N6: an integer of more than 4300 digits raised a plain ValueError.
    "N6 5000 digits": ('{"vocab_size":' + "9" * 5000 + "}", "number-out-of-range", "line 1"),
    "N6 2^63": ('{"vocab_size": 9223372036854775808}', "number-out-of-range", "line 1"),
    "N6 1e999": ('{"rms_norm_eps": 1e999}', "number-out-of-range", "line 1"),
}


@pytest.mark.parametrize("case", LANES)
def test_a_lane_takes_it(case: str, decide: Any) -> None:
    config, rule_name, lane = LANES[case]

    answer = decide(config)

    assert (0, rule_name, lane) == (answer.code, answer.name, answer.lane)


@pytest.mark.parametrize("case", REFUSALS)
def test_a_rule_refuses_it(case: str, decide: Any) -> None:
    config, rule_name, words = REFUSALS[case]

    answer = decide(config)

    exit_code = 4 if answer.line["decision"]["rule_id"].startswith("E") else 3
    assert (exit_code, rule_name, None) == (answer.code, answer.name, answer.lane)
    assert words in answer.message


@pytest.mark.parametrize("case", UNREADABLE)
def test_it_cannot_be_read(case: str, decide: Any) -> None:
    text, rule_name, words = UNREADABLE[case]

    answer = decide(text)

    assert (4, rule_name, "observe") == (answer.code, answer.name, answer.line["stage"])
    assert words in answer.message


@pytest.mark.parametrize("number", ["1e30", "151936.0", "9223372036854775807"])
def test_a_number_that_fits_is_left_to_the_contract(number: str, decide: Any) -> None:
    text = json.dumps(BASE).replace('"vocab_size": 151936', f'"vocab_size": {number}')
    assert number in text

    assert "qwen3-dspark-native" == decide(text).name


@pytest.mark.parametrize("folder", ["some/eagle3", "some/my-eagle-draft", "dflash_old", "mtp", "x"])
def test_a3_the_path_never_decides(folder: str, decide: Any) -> None:
    for config, rule_name in ((BASE, "qwen3-dspark-native"), (ZLAB, "qwen3-dflash-zlab")):
        answer = decide(config, folder)
        answer.line.pop("source")
        reference = decide(with_keys(config, _name_or_path="eagle3"), "elsewhere")
        reference.line.pop("source")

        assert rule_name == answer.name
        assert json.dumps(answer.line) == json.dumps(reference.line)


def test_f9_a_gguf_is_named_and_not_called_broken_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "draft.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00")

    codes = [main(["route", "--json", str(place)]) for place in (file, tmp_path)]

    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [3, 3] == codes
    assert ["gguf-draft", "gguf-draft"] == [answer["decision"]["name"] for answer in answers]
    assert "this is a GGUF file" in answers[0]["decision"]["refusal"]["message"]
