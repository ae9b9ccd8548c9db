"""From folders to an engine: what is refused before a weight is read, and what is read then."""

from __future__ import annotations

import dataclasses
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import dspark
from dspark.contract_reader import load_contract, load_target_contract
from dspark.kernels.errors import AllocationError
from dspark.kernels.host_driver import HostDriver
from dspark.kernels.launch import Device as KernelDevice
from dspark.runtime import InvalidRequest, SamplingParams, devices, load, weight_files
from dspark.runtime.backends.rope import Rope
from dspark.runtime.lanes import LANES, TARGETS
from dspark.runtime.load import Loaded, open_engine, prepare
from dspark.runtime.models.from_plan import draft_config, target_config
from dspark.runtime.models.rows import Segment
from tests.support import fake_driver
from tests.support.configs import Config, with_keys, without
from tests.support.fake_driver import H200, RTX_4090
from tests.support.pairs import (
    TINY,
    TINY_DFLASH,
    TINY_SHAPES,
    TINY_ZLAB,
    WEIGHTS,
    backbone,
    checkpoint,
    dspark_shapes,
    target_shapes,
)
from tests.support.real_pairs import (
    EOS,
    TARGET,
    drawn,
    save,
    write_draft,
    write_json,
    write_target,
)
from tests.support.safetensors_files import encoded

GREEDY = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return write_draft(tmp_path / "draft")


def tokens(loaded: Loaded, drafts: int | None = None) -> tuple[int, ...]:
    return loaded.engine.generate([PROMPT], GREEDY, drafts=drafts)[0].token_ids


def refusal(*sources: Any, **options: Any) -> tuple[str, str, str]:
    with pytest.raises(dspark.Refused) as caught:
        open_engine(*sources, **options)
    decision = caught.value.decision
    return decision.rule_id, decision.source, str(caught.value)


# ------------------------------------------------------------------------------------- the lanes


def test_every_lane_has_a_class_and_every_class_a_lane(repository: Path) -> None:
    lanes = {file.stem for file in (repository / "rules" / "lanes").glob("*.yaml")}
    targets = {file.stem for file in (repository / "rules" / "targets").glob("*.yaml")}

    assert lanes == set(LANES)
    assert {load_target_contract().contract.model} == set(TARGETS) == targets
    # One name, one class: what a plan calls the implementation is what the lane runs.
    named = {(load_contract(lane).model, LANES[lane]) for lane in lanes}
    assert len(named) == len({name for name, _ in named})


# ------------------------------------------------------------------------------ what is configured


def test_a_config_is_taken_over_key_by_key(tmp_path: Path) -> None:
    rope = {
        "rope_type": "yarn", "rope_theta": 5000, "factor": 4.0, "beta_fast": 16, "beta_slow": 2,
        "original_max_position_embeddings": 64, "attention_factor": 1.5,
    }  # fmt: skip
    config = with_keys(
        TINY,
        rope_parameters=rope,
        rms_norm_eps=1e-5,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=12,
        sliding_window_non_causal=True,
        markov_head_type="gated",
        sample_from_anchor=False,
        draft_vocab_size=100,
        attention_bias=True,
    )
    shapes = dspark_shapes(config, 3, kind="gated") | {"d2t": (100,)}
    for layer in range(2):
        for part, rows in (("q", 512), ("k", 256), ("v", 256), ("o", 64)):
            shapes[f"layers.{layer}.self_attn.{part}_proj.bias"] = (rows,)
    tensors = drawn(shapes, 2) | {"d2t": torch.zeros(100, dtype=torch.int64)}
    place = save(tmp_path / "draft", config, tensors)
    plan = dspark.plan(place, target=write_target(tmp_path / "target"), device="cpu")

    found = dataclasses.asdict(draft_config(plan))

    assert found.pop("rope") == dataclasses.asdict(
        Rope(
            theta=5000.0,
            kind="yarn",
            factor=4.0,
            original_max_position_embeddings=64,
            beta_fast=16.0,
            beta_slow=2.0,
            attention_factor=1.5,
        )
    )
    assert found == {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "vocab_size": 160,
        "rms_norm_eps": 1e-5,
        "layer_types": ("sliding_attention", "full_attention"),
        "sliding_window": 12,
        "attention_bias": True,
        "tie_word_embeddings": False,
        "max_position_embeddings": 200,
        "draft_vocab_size": 100,
        "target_hidden_size": 64,
        "block_size": 4,
        "mask_token_id": 150,
        "target_layer_ids": (1, 3, 5),
        "markov_rank": 8,
        "markov_head_type": "gated",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "sample_from_anchor": False,
        "sliding_window_non_causal": True,
        "logit_scale": 1.0,
    }


def test_a_loaded_target_computes_what_transformers_does(repository: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = repository / "examples" / "tiny" / "target"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loaded = open_engine(folder, max_batch=1, max_length=64)
    ids = loaded.tokenizer.encode("def main(argv):\n    return [").ids
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
        store = loaded.target.new_store(2, 32)
        passed = loaded.target.forward([Segment(ids, 0, [1, 0])], store)
        ours = loaded.target.backend.host(loaded.target.logits(passed.hidden))

    assert 5 < len(ids)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4)


# ---------------------------------------------------------------------------- what gets loaded

SHARED = backbone(TINY_ZLAB, 3, own_embedding=False, own_head=False)
TIED = {name: shape for name, shape in TINY_SHAPES.items() if name != "lm_head.weight"}
KINDS: dict[str, tuple[Config, dict[str, tuple[int, ...]]]] = {
    "dspark": (TINY, TINY_SHAPES),
    "dflash": (TINY_DFLASH, backbone(TINY_DFLASH, 3)),
    "shared": (TINY_ZLAB, SHARED),
    "tied": (with_keys(TINY, tie_word_embeddings=True), TIED),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_text_is_the_targets_own(kind: str, dtype: Any, tmp_path: Path, target: Path) -> None:
    draft = write_draft(tmp_path / "draft", *KINDS[kind])

    pair = open_engine(target, draft, dtype=dtype)
    alone = open_engine(target, dtype=dtype)

    assert tokens(alone) == tokens(pair) == tokens(pair, drafts=0)
    assert 24 == len(tokens(pair))
    assert (None, None) == (alone.plan, alone.decision)
    assert pair.plan is not None
    assert pair.decision is not None
    assert ("budget", pair.plan.lane) == (pair.decision.stage, pair.decision.lane)
    assert dtype == pair.dtype == pair.plan.dtype


def test_e14_a_tied_head_is_the_drafts_own_embedding(tmp_path: Path, target: Path) -> None:
    config, shapes = KINDS["tied"]
    tensors = drawn(shapes, 2)
    own = save(
        tmp_path / "own",
        with_keys(config, tie_word_embeddings=False),
        {**tensors, "lm_head.weight": tensors["embed_tokens.weight"].clone()},
    )
    tied = save(tmp_path / "tied", config, tensors)
    accepted = [
        open_engine(target, place).engine.generate([PROMPT], GREEDY)[0].statistics.acceptance
        for place in (own, tied)
    ]

    assert accepted[0] == accepted[1]


@pytest.mark.parametrize("rows", [153, 160, 176])
def test_d2_a_draft_that_shares_both_has_the_targets_rows(rows: int, tmp_path: Path) -> None:
    config = with_keys(TINY_ZLAB, vocab_size=160)
    target = write_target(tmp_path / "target", with_keys(TARGET, vocab_size=rows))
    loaded = open_engine(target, write_draft(tmp_path / "draft", config, SHARED))
    alone = open_engine(target)

    assert loaded.plan is not None
    assert (rows, rows) == (
        draft_config(loaded.plan).vocab_size,
        draft_config(loaded.plan).draft_vocab_size,
    )
    assert tokens(alone) == tokens(loaded)
    assert loaded.engine.statistics.acceptance.verified


def test_d3_a_vocabulary_map_is_read_from_its_file(repository: Path) -> None:
    tiny = repository / "examples" / "tiny"
    place = tiny / "dspark-speculators"
    offsets = load_file(place / WEIGHTS)["d2t"]
    plan = dspark.plan(place, target=tiny / "target", device="cpu", local=True)
    assert plan.decision is not None

    read = weight_files.read_tensors(plan.draft, plan.decision, "draft")

    assert offsets.tolist() == read["d2t"].tolist()
    assert set(plan.draft.tensors) == set(read)
    assert "t2d" not in read


def test_the_formats_of_a_file_are_kept_until_a_model_takes_them(target: Path) -> None:
    plan = dspark.plan_target(target, device="cpu", local=True)
    assert plan.target_decision is not None
    expected = load_file(target / WEIGHTS)
    told: list[tuple[str, int, int]] = []

    read = weight_files.read_tensors(
        plan.target, plan.target_decision, "target", lambda *news: told.append(news)
    )

    assert set(expected) == set(read)
    assert all(torch.equal(tensor, read[name]) for name, tensor in expected.items())
    assert len(expected) == len(told)
    assert {"target"} == {whose for whose, _, _ in told}
    total = sum(tensor.nbytes for tensor in expected.values())
    assert {total} == {most for _, _, most in told}
    assert total == told[-1][1] == max(done for _, done, _ in told)


def test_a_header_of_odd_length_is_as_good(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    before = tokens(open_engine(target))
    data = (target / WEIGHTS).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size].rstrip() + b" "
    header += b" " * (1 - len(header) % 2)
    assert len(header) % 2
    (target / WEIGHTS).write_bytes(encoded(header, data[8 + size :]))

    assert before == tokens(open_engine(target))
    plan = dspark.plan_target(target, device="cpu", local=True)
    assert plan.target_decision is not None
    read = weight_files.read_tensors(plan.target, plan.target_decision, "target")
    assert {0} == {tensor.data_ptr() % 2 for tensor in read.values()}


def test_a_file_that_is_overwritten_later_changes_nothing(target: Path) -> None:
    # In the file's own format, where nothing has to be converted.
    loaded = open_engine(target, dtype="bfloat16")
    expected = tokens(open_engine(target, dtype="bfloat16"))
    with (target / WEIGHTS).open("r+b") as file:
        file.truncate(100)

    assert expected == tokens(loaded)


def test_pages_hold_what_was_asked_for(target: Path, draft: Path) -> None:
    loaded = open_engine(target, draft, max_length=62, max_batch=3)
    config = loaded.engine.config
    full = SamplingParams(max_tokens=54, temperature=0.0, ignore_eos=True)

    done = loaded.engine.generate([PROMPT] * 3, full)

    assert (62, 3) == (config.max_length, config.max_batch)
    assert [54] * 3 == [len(each.token_ids) for each in done]
    # Three pages of 32 for 62 tokens and a block of 4, each of the three.
    assert 9 == config.pages


# ------------------------------------------------------------------- what is refused beforehand


def poison(folder: Path) -> None:
    """The same headers, and behind them nothing but NaN: whoever reads a value finds one."""
    file = folder / WEIGHTS
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    file.write_bytes(data[:begin] + b"\xff" * (len(data) - begin))


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a weight file was mapped")

    monkeypatch.setattr(weight_files, "_mapped", read)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("config", "rule", "words"),
    [
        ({"architectures": ["Qwen3Eagle3Model"]}, "R028", "EAGLE-3"),
        (without(TINY, "target_layer_ids"), "C001", "`target_layer_ids`"),
        (with_keys(TINY, markov_rank=9), "T011", "(and 2 more)"),
        (with_keys(TINY, num_target_layers=7), "P001", "`num_target_layers`"),
    ],
)
def test_a_draft_is_refused_before_a_weight_is_read(
    config: Config, rule: str, words: str, tmp_path: Path, target: Path
) -> None:
    draft = save(tmp_path / "draft", config, drawn(TINY_SHAPES, 2))
    poison(draft)
    poison(target)

    found, source, message = refusal(target, draft)

    assert (rule, str(draft)) == (found, source)
    assert words in message


@pytest.mark.usefixtures("unread")
def test_a_refused_draft_is_refused_though_its_weights_are_cut(target: Path, draft: Path) -> None:
    write_json(draft / "config.json", {"architectures": ["Qwen3Eagle3Model"]})
    data = (draft / WEIGHTS).read_bytes()
    (draft / WEIGHTS).write_bytes(data[: 8 + int.from_bytes(data[:8], "little")])

    assert "R028" == refusal(target, draft)[0]


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("whose", ["target", "draft"])
@pytest.mark.parametrize(
    ("change", "rule", "words"),
    [
        ("shape", "T011", "has the shape [5]"),
        ("missing", "T009", "no tensor `{norm}`"),
        ("extra", "T010", "a tensor `stray`"),
        ("cut", "T003", "is cut short"),
        ("none", "T001", "there are no weights to load"),
    ],
)
def test_wrong_files_are_named(
    whose: str, change: str, rule: str, words: str, target: Path, draft: Path
) -> None:
    folder = {"target": target, "draft": draft}[whose]
    norm = "model.norm.weight" if whose == "target" else "norm.weight"
    tensors = load_file(folder / WEIGHTS)
    if change == "shape":
        tensors[norm] = torch.ones(5, dtype=torch.bfloat16)
    elif change == "missing":
        del tensors[norm]
    elif change == "extra":
        tensors["stray"] = torch.ones(5, dtype=torch.bfloat16)
    save(folder, {**(TARGET if whose == "target" else TINY)}, tensors)
    if change == "cut":
        data = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(data[:-2])
    elif change == "none":
        (folder / WEIGHTS).unlink()

    found, source, message = refusal(target, draft)

    assert (rule, str(folder)) == (found, source)
    assert words.format(norm=norm) in message


@pytest.mark.usefixtures("unread")
def test_a_target_alone_needs_its_weights_too(target: Path) -> None:
    (target / WEIGHTS).unlink()

    found, source, message = refusal(target)

    assert ("T001", str(target)) == (found, source)
    assert "the target's folder has only its config" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("whose", ["target", "draft"])
def test_a_value_that_is_no_number_is_named(
    whose: str, value: float, target: Path, draft: Path
) -> None:
    folder = {"target": target, "draft": draft}[whose]
    name = ("model." if whose == "target" else "") + "layers.1.mlp.up_proj.weight"
    tensors = load_file(folder / WEIGHTS)
    tensors[name][7, 3] = value
    save(folder, TARGET if whose == "target" else TINY, tensors)

    found, source, message = refusal(target, draft)

    assert ("T016", str(folder)) == (found, source)
    assert f"the tensor `{name}` in `{WEIGHTS}` holds a value that is not" in message


@pytest.mark.parametrize("change", ["shorter", "gone"])
def test_a_file_that_changes_after_the_plan_is_named(change: str, target: Path) -> None:
    prepared = prepare(target)
    data = (target / WEIGHTS).read_bytes()
    (target / WEIGHTS).unlink()
    if change == "shorter":
        (target / WEIGHTS).write_bytes(data[:-2])

    with pytest.raises(dspark.Refused, match=rf"T007 shard-unreadable: `{WEIGHTS}` cannot") as why:
        prepared.load()

    size = len(data)
    words = f"it has {size - 2} bytes, and had {size}" if change == "shorter" else "no such file"
    assert words in str(why.value)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("drafts", [-1, 5])
def test_more_drafts_than_a_block_are_refused(drafts: int, target: Path, draft: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"from 0 to 4, .* not `{drafts}`"):
        open_engine(target, draft, drafts=drafts)


@pytest.mark.usefixtures("unread")
def test_drafts_need_a_draft(target: Path) -> None:
    with pytest.raises(InvalidRequest, match="must be 0 where no draft was given"):
        open_engine(target, drafts=1)


def test_the_drafts_of_the_engine_are_those_asked_for(target: Path, draft: Path) -> None:
    loaded = open_engine(target, draft, drafts=2)
    tokens(loaded)

    assert 2 == len(loaded.engine.statistics.acceptance.verified)


@pytest.mark.usefixtures("unread")
def test_memory_is_counted_in_the_format_computed_in(target: Path, draft: Path) -> None:
    found, _, message = refusal(target, draft, memory="200kB", max_length=64, max_batch=2)
    assert "B001" == found
    assert "the pair needs" in message
    needed = dspark.plan(
        draft, target=target, device="cpu", dtype="bfloat16", max_seq=64, batch=2
    ).bytes.total
    prepare(target, draft, dtype="bfloat16", memory=needed, max_length=64, max_batch=2)
    with pytest.raises(dspark.Refused, match="B001"):
        prepare(target, draft, dtype="bfloat16", memory=needed - 1, max_length=64, max_batch=2)


@pytest.mark.usefixtures("unread")
def test_cuda_is_refused_by_name(target: Path, draft: Path) -> None:
    for sources in ((target, draft), (target,)):
        found, _, message = refusal(*sources, device="cuda")
        assert "B003" == found
        assert "the device `cuda` cannot be used here: there is no NVIDIA driver" in message


@pytest.mark.usefixtures("unread")
def test_a_package_that_is_missing_is_named(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        devices, "find_spec", lambda name: None if name == "torch" else find_spec(name)
    )
    with pytest.raises(dspark.Refused) as caught:
        open_engine(target)

    refused = caught.value.decision.refusal
    assert refused is not None
    assert "the package `torch` is not installed" in refused.message
    assert "dspark[cpu]" in refused.help


# ---------------------------------------------------------------------- the target's other files


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        (None, 151, {151}),
        ({"eos_token_id": 7}, 151, {7}),
        ({"eos_token_id": [7, 9]}, 151, {7, 9}),
        ({"bos_token_id": 7}, 151, {151}),
        ({"eos_token_id": None}, [151, 3], {151, 3}),
        (None, None, set()),
    ],
)
def test_what_ends_a_text(generation: Any, config: Any, expected: set[int], target: Path) -> None:
    write_json(target / "config.json", with_keys(TARGET, eos_token_id=config))
    if generation is not None:
        write_json(target / "generation_config.json", generation)

    assert expected == prepare(target).config.eos_token_ids


def test_an_end_of_text_id_ends_a_text(target: Path) -> None:
    free = tokens(open_engine(target))
    write_json(target / "generation_config.json", {"eos_token_id": [EOS, free[5]]})
    loaded = open_engine(target)

    done = loaded.engine.generate([PROMPT], SamplingParams(max_tokens=24, temperature=0.0))[0]

    assert free[: free.index(free[5]) + 1] == done.token_ids
    assert "stop" == done.finish_reason
    assert {EOS, free[5]} == loaded.eos_token_ids


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"eos_token_id": "</s>"}', '`eos_token_id` is `"</s>"`, and not ids'),
        ('{"eos_token_id": [1, true]}', "`eos_token_id` is `[1, true]`, and not ids"),
        ('{"eos_token_id": -1}', "`eos_token_id` is `-1`, and not ids"),
        ('{"eos_token_id": []}', "`eos_token_id` is `[]`, and not ids"),
        ('{"eos_token_id": 1000000}', "`eos_token_id` has an id beyond "),
        ('{"eos_token_id": 1, "eos_token_id": 2}', "it has the key `eos_token_id` twice"),
        ("{", "it is not JSON"),
        ("[]", "it is not a JSON object"),
    ],
)
def test_an_end_of_text_is_never_guessed(text: str, words: str, target: Path) -> None:
    (target / "generation_config.json").write_text(text, encoding="utf-8")

    found, source, message = refusal(target)

    assert ("T018", str(target)) == (found, source)
    assert f"the target's `generation_config.json` cannot be used: {words}" in message


@pytest.mark.usefixtures("unread")
def test_a_tokenizer_is_needed_and_is_the_targets(target: Path, draft: Path) -> None:
    # O4: a draft's own tokenizer is never looked at.
    (draft / "tokenizer.json").write_text("{", encoding="utf-8")
    prepare(target, draft)

    (target / "tokenizer.json").write_text("{", encoding="utf-8")
    broken, _, broken_message = refusal(target, draft)
    (target / "tokenizer.json").unlink()
    missing, source, message = refusal(target, draft)

    assert ("T018", "T017", str(target)) == (broken, missing, source)
    assert "the target's `tokenizer.json` cannot be used" in broken_message
    assert "the target's folder has no `tokenizer.json`" in message


def test_a_tokenizer_neither_cuts_nor_fills_up_a_prompt(target: Path) -> None:
    plain = open_engine(target).tokenizer.encode("w3 w1 w4").ids
    path = target / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    filled = {"strategy": {"Fixed": 40}, "direction": "Right", "pad_to_multiple_of": None}
    filled |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "w0"}
    write_json(path, document | {"truncation": cut, "padding": filled})

    assert plain == open_engine(target).tokenizer.encode("w3 w1 w4").ids


ALONE = {"Sequence": {"id": "A", "type_id": 0}}
BEYOND = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, ALONE],
    "pair": [ALONE, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"x": {"id": "x", "ids": [99999], "tokens": ["x"]}},
}
PANIC = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": PANIC}, "cannot be used"),
        ({"post_processor": BEYOND}, "it puts token `99999` around a text"),
    ],
)
def test_a_tokenizer_that_breaks_is_refused(
    change: dict[str, Any], message: str, target: Path
) -> None:
    path = target / "tokenizer.json"
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | change)

    rule, _, said = refusal(target)

    assert "T018" == rule
    assert message in said


def test_text_goes_through_the_tokenizer(target: Path, draft: Path) -> None:
    shutil.copy(draft / "config.json", target / "tokenizer_config.json")
    loaded = open_engine(target, draft)
    ids = loaded.tokenizer.encode("w3 w1 w4").ids

    done = loaded.engine.generate([ids], SamplingParams(max_tokens=8, temperature=0.0))[0]

    assert [3, 1, 4] == ids
    assert loaded.tokenizer.decode(list(done.token_ids)) == done.text
    assert target / "tokenizer_config.json" == loaded.tokenizer_config
    assert target == loaded.folder


def test_an_argument_that_means_nothing_is_a_value_error(target: Path) -> None:
    with pytest.raises(ValueError, match="`dtype` is `float32` or `bfloat16`"):
        open_engine(target, dtype="float16")  # type: ignore[arg-type]


def test_a_plan_knows_the_target_of_its_own_config(target: Path) -> None:
    config = target_config(dspark.plan_target(target, device="cpu").target)

    assert (6, 3, 80, 112) == (
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.intermediate_size,
    )


# --------------------------------------------------------------------------------------- a GPU


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU that has nothing against any format but float32."""
    monkeypatch.setattr(devices, "troubles", lambda *_: iter(()))
    monkeypatch.setattr(load, "block_shared_memory", lambda: 227 * 1024)


@pytest.mark.usefixtures("unread")
def test_a_size_without_a_kernel_is_refused_before_a_weight_is_read_or_a_gpu_looked_for(
    target: Path, draft: Path
) -> None:
    narrow = write_target(target, with_keys(TARGET, head_dim=48))
    for sources in ((narrow, draft), (narrow,)):
        found, _, message = refusal(*sources, device="cuda")
        assert "B008" == found
        assert "`head_dim` is `48`, and the kernels take heads of 64, 80, 96, 128" in message


ON_A_4090 = "and on a GPU with 101376 bytes of shared memory a block the kernels take"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_driver.build(tmp_path_factory.mktemp("driver"))


def test_what_a_block_may_share_is_that_of_the_gpu_that_computes(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of one that the compiler has no machine code for, which is passed over."""
    fake_driver.install(monkeypatch, driver, "990:too new:9:8:7", RTX_4090)

    assert 101376 == devices.block_shared_memory()


def ranked(folder: Path, rank: int) -> Path:
    config = with_keys(TINY, markov_rank=rank)
    return write_draft(folder / f"rank {rank}", config, dspark_shapes(config, 3))


@pytest.mark.parametrize(
    ("gpu", "rank", "max_batch", "words"),
    [
        (RTX_4090, 3072, 16, None),
        (RTX_4090, 3080, 8, None),
        (RTX_4090, 3080, 9, "up to 8 requests at a `markov_rank` of 3080"),
        (RTX_4090, 4096, 16, "up to 8 requests at a `markov_rank` of 4096"),
        (H200, 4096, 16, None),
    ],
)
def test_what_a_block_may_share_limits_a_markov_head(
    gpu: str,
    rank: int,
    max_batch: int,
    words: str | None,
    target: Path,
    tmp_path: Path,
    driver: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what the driver says of the GPU, and before a weight is read."""
    monkeypatch.setattr(devices, "troubles", lambda *_: iter(()))
    fake_driver.install(monkeypatch, driver, gpu)
    sizes: dict[str, Any] = {"device": "cuda", "max_batch": max_batch}
    draft = ranked(tmp_path, rank)
    if words is None:
        assert max_batch == prepare(target, draft, **sizes).plan.batch
        return
    poison(draft)

    found, source, message = refusal(target, draft, **sizes)

    assert ("B008", str(draft)) == (found, source)
    assert f"`max_batch` is `{max_batch}`, {ON_A_4090} {words}" in message


@pytest.mark.usefixtures("unread")
def test_what_a_block_may_share_limits_a_width(
    tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "troubles", lambda *_: iter(()))
    fake_driver.install(monkeypatch, driver, RTX_4090)
    for hidden, words in ((50624, "T017"), (50632, "sizes of up to 50624")):
        config = with_keys(TARGET, hidden_size=hidden)
        wide = checkpoint(tmp_path / str(hidden), config, target_shapes(config))
        # It has no tokenizer, which is looked for next.
        assert words in refusal(wide, device="cuda", max_batch=1)[2]


def test_the_highest_rank_of_a_small_gpu_decodes(
    target: Path, tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    """On the simulator, which launches nothing that asks for more than the device has."""
    monkeypatch.setattr(devices, "troubles", lambda *_: iter(()))
    fake_driver.install(monkeypatch, driver, RTX_4090)
    folder = repository / "build" / "kernels-host"
    host = HostDriver(folder, "fast", most_shared=devices.block_shared_memory())
    monkeypatch.setattr(devices, "open_gpu", lambda: KernelDevice(host))

    draft = ranked(tmp_path, 4096)
    loaded = open_engine(target, draft, device="cuda", max_length=64, max_batch=8)
    loaded.engine.generate([PROMPT], dataclasses.replace(GREEDY, max_tokens=3))

    assert 101376 == host.most_shared
    assert "markov_step_8" in [name for name, _ in host.reports]


@pytest.mark.usefixtures("with_gpu")
def test_a_gpu_that_is_full_is_named(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = repository / "examples" / "tiny"

    def full() -> Any:
        raise AllocationError("no room", 3_000_000, 20_000, "GPU 0")

    monkeypatch.setattr(devices, "open_gpu", full)
    found, _, message = refusal(tiny / "target", tiny / "dspark", device="cuda")
    assert "B007" == found
    assert "the GPU `GPU 0` has 20000 bytes free, and 3000000 are needed" in message


@pytest.mark.usefixtures("unread")
def test_a_format_without_kernels_is_refused(target: Path) -> None:
    found, _, message = refusal(target, device="cuda", dtype="float32")
    assert "B003" == found
    assert "its kernels compute in bfloat16 only" in message
    # The format is the user's to change, so it comes before a GPU that is not there.
    assert "no NVIDIA driver" not in message


@pytest.mark.usefixtures("unread", "with_gpu")
def test_what_kernels_work_in_is_counted(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair whose weights and caches would fit, and nothing else beside them."""
    tiny = repository / "examples" / "tiny"
    sizes: dict[str, Any] = {"max_length": 256, "max_batch": 2, "device": "cuda"}
    plan = dspark.plan(
        *(tiny / "dspark",),
        target=tiny / "target",
        device="cuda",
        dtype="bfloat16",
        max_seq=256,
        batch=2,
        local=True,
    )
    monkeypatch.setattr(load, "device_memory", lambda _: plan.bytes.total)

    found, _, message = refusal(tiny / "target", tiny / "dspark", **sizes)

    assert "B007" == found
    needed = int(message.split(" bytes free, and ")[1].split()[0])
    # Two sets of chances and a history beside the logits, and at least one launch's partial sums.
    assert needed > plan.bytes.total + 2 * 18 * 1536 * 4 + 4 * 2**24
    monkeypatch.setattr(load, "device_memory", lambda _: needed)
    prepare(tiny / "target", tiny / "dspark", **sizes)
    prepare(tiny / "target", tiny / "dspark", memory=f"{needed}", **sizes)
    with pytest.raises(dspark.Refused, match="B007"):
        prepare(tiny / "target", tiny / "dspark", memory=needed - 1, **sizes)
