"""`dspark engines`: what each engine does with a draft, by which rule, and what to type."""

from __future__ import annotations

import io
import json
import sys
import time
from itertools import product
from pathlib import Path

import pytest

import dspark
from dspark.cases import SOURCE_KINDS
from dspark.cli import main
from dspark.engines import EngineAnswer, ask_engine, ask_engines
from dspark.errors import Refused
from dspark.handoff_reader import handoff_table
from dspark.parity_compile import shipped_packs
from dspark.routing import default_table
from tests.support.handoffs import DSPARK, TARGET, write
from tests.support.packs import SMALL, small_pack

CORPUS = Path(__file__).parents[1] / "corpus"
FOLDERS = sorted(str(path.parent) for path in CORPUS.glob("*/config.json"))
PACKS = shipped_packs()
V4_STAGES = {"architectures": ["DSparkDraftModel"], "model_type": "deepseek_v4"}


def answers(name: str) -> dict[str, EngineAnswer]:
    config = json.loads((CORPUS / name / "config.json").read_text(encoding="utf-8"))
    found = ask_engines(PACKS, config, f"models/{name.replace('__', '/')}")
    return {answer.pack.name.partition("-")[0]: answer for answer in found}


PUBLISHED = {
    "deepseek-ai__dspark_qwen3_8b_block7": {
        "llama.cpp": "runs draft-dspark",
        "mlx": "runs dspark/qwen3",
        "sglang": "runs dspark/Qwen3DSparkModel",
        "tensorrt": "runs GQADSparkForCausalLM",
        "vllm": "runs dspark/Qwen3DSparkModel",
        "vllm.cpp": "runs qwen3-dspark",
    },
    "deepseek-ai__dflash_qwen3_8b_block7": {
        "llama.cpp": "runs draft-dflash",
        "mlx": "runs dspark/qwen3",
        "sglang": "refuses ",
        "tensorrt": "unknown ",
        "vllm": "runs dspark/Qwen3DSparkModel",
        "vllm.cpp": "refuses qwen3-dspark",
    },
    "sgl-project__SpecForge-qwen3-8b-dspark": {
        "llama.cpp": "runs draft-dspark",
        "mlx": "runs dspark/qwen3",
        "sglang": "refuses dspark/DSparkDraftModel",
        "tensorrt": "runs GQADSparkForCausalLM",
        "vllm": "refuses dspark/Qwen3DSparkModel",
        "vllm.cpp": "refuses qwen3-dspark",
    },
    "deepseek-ai__dspark_gemma4_12b_block7": {
        "llama.cpp": "refuses ",
        "mlx": "runs dspark/gemma4",
        "sglang": "refuses ",
        "tensorrt": "unknown ",
        "vllm": "runs dspark/Gemma4DSparkModel",
        "vllm.cpp": "swallows qwen3-dspark",
    },
    "z-lab__Qwen3-8B-DFlash-b16": {
        "llama.cpp": "runs draft-dflash",
        "mlx": "runs dflash",
        "sglang": "runs dflash/DFlashDraftModel",
        "tensorrt": "runs DFlashForCausalLM",
        "vllm": "runs dflash/DFlashDraftModel",
        "vllm.cpp": "refuses ",
    },
    "deepseek-ai__DeepSeek-V4-Flash-DSpark": {
        "llama.cpp": "runs draft-dspark",
        "mlx": "refuses ",
        "sglang": "runs dspark/DeepseekV4ForCausalLMDSpark",
        "tensorrt": "runs DSv4DSparkForCausalLM",
        "vllm": "runs dspark/DSparkDraftModel",
        "vllm.cpp": "refuses ",
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_engines_do_with_a_published_draft(name: str) -> None:
    found = answers(name)

    assert PUBLISHED[name] == {
        engine: f"{answer.outcome} {answer.best.answer.lane}" for engine, answer in found.items()
    }


def test_the_way_that_suits_the_draft_is_named() -> None:
    nothing = answers("z-lab__Qwen3-8B-DFlash-b16")["vllm"]
    inside = answers("deepseek-ai__DeepSeek-V4-Flash-DSpark")["vllm"]

    assert '"method": "dflash"' in nothing.best.typed("x")
    assert '"model"' not in inside.best.typed("x")
    assert inside.best.typed("owner/name").startswith("vllm serve owner/name ")


def test_a_way_that_would_swallow_the_draft_is_a_trap() -> None:
    found = answers("z-lab__Qwen3-8B-DFlash-b16")["vllm"]

    (trap,) = [each for each in found.traps if '"dspark"' in each.typed("x")]
    assert ("catch-all", "dspark/DSparkDraftModel") == (
        trap.answer.rule.name,
        trap.answer.lane,
    )


def test_the_path_counts_for_engines_that_look_at_it() -> None:
    config = {"architectures": ["DSparkDraftModel"], "model_type": "deepseek_v4"}
    (pack,) = [pack for pack in PACKS if pack.name == "vllm.cpp-1248"]

    named, neutral = (ask_engine(pack, config, path) for path in ("a/My-DSpark", "a/draft"))

    assert "deepseek-v4-lane" == named.best.answer.rule.name
    assert "not-a-qwen3-draft" == neutral.best.answer.rule.name


def test_no_pack_runs_what_the_hand_off_says_would_run_as_another_model(tmp_path: Path) -> None:
    packs = [pack for pack in PACKS if pack.name.startswith(f"vllm-{handoff_table().version}.")]
    assert 1 == len(packs)
    target = write(tmp_path / "target", TARGET)
    cases = [case for rule in default_table().rules.values() for case in rule.cases]
    hits = [case for case in cases if case.kind == "hit" and not {*case.given} & {*SOURCE_KINDS}]
    assert len(hits) > 300
    refused = 0
    # Most of these drafts lack what is asked of a draft later on; with it they get further.
    further: tuple[dict[str, object], ...] = ({}, {"mask_token_id": 3, "block_size": 7})
    for number, (case, more) in enumerate(product(hits, further)):
        config = {**case.given, **more}
        try:
            dspark.hand_off(write(tmp_path / str(number), config), target=target)
        except Refused as refusal:
            found = getattr(refusal.decision, "findings", ())
        else:
            continue
        if "handoff-other-model" in [each.name for each in found]:
            refused += 1
            answers = ask_engines(packs, config, "owner/name")
            assert [] == [(config, a.best) for a in answers if a.outcome == "runs"]
    assert refused > 20


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"dflash_config": {"projector_type": "dflash3"}}, "V099 dflash/DFlashDraftModel"),
        ({"projector_type": "domino"}, "V099 dflash/DFlashDraftModel"),
        ({"dflash_config": {"selector_rank": 256}}, "V099 dflash/DFlashDraftModel"),
        ({**V4_STAGES, "selector_rank": 4}, "V097 dspark/DSparkDraftModel"),
        ({**V4_STAGES, "projector_type": "domino"}, "V097 dspark/DSparkDraftModel"),
        ({**DSPARK, "projector_type": "domino"}, "V098 dspark/Qwen3DSparkModel"),
        ({**DSPARK, "gru_hidden_dim": 256}, "V098 dspark/Qwen3DSparkModel"),
    ],
)
def test_vllm_swallows_a_draft_whose_algorithm_it_does_not_read(
    config: dict[str, object], expected: str
) -> None:
    draft = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": 7,
        **config,
    }
    (pack,) = [pack for pack in PACKS if pack.engine == "vLLM"]

    best = ask_engine(pack, draft, "owner/name").best.answer

    assert ("swallows", expected) == (best.outcome, f"{best.rule.id} {best.lane}")


@pytest.mark.parametrize(
    ("architecture", "model_type", "expected"),
    [
        ("EagleLlamaForCausalLM", "llama", "runs V088"),
        ("Eagle3DeepseekV2ForCausalLM", "llama", "runs V086"),
        ("PeagleQwen3ForCausalLM", "qwen3", "refuses V044"),
        ("Qwen3NextMTP", "qwen3", "swallows V095"),
        ("MiMoMTPModel", "qwen3", "swallows V095"),
        ("BertForMaskedLM", "qwen3", "unknown V100"),
        ("CLIPModel", "qwen3", "unknown V100"),
        ("Eagle2_5_VLForConditionalGeneration", "qwen3", "unknown V100"),
        ("Qwen3ForCausalLM", "qwen3", "runs V096"),
    ],
)
def test_vllm_runs_a_language_model_as_a_language_model_and_no_other(
    architecture: str, model_type: str, expected: str
) -> None:
    (pack,) = [pack for pack in PACKS if pack.engine == "vLLM"]
    config = {"architectures": [architecture], "model_type": model_type}

    best = ask_engine(pack, config, "owner/name").best.answer

    assert expected == f"{best.outcome} {best.rule.id}"


def test_a_source_that_a_shell_would_take_apart_is_not_put_into_a_command() -> None:
    best = answers("deepseek-ai__dspark_qwen3_8b_block7")["vllm"].best

    assert '"model": "a/b"' in best.typed("a/b")
    for source in ("a b", "a'b", 'a"b', "$(x)", "a;b", "a\nb"):
        assert '"model": "DRAFT"' in best.typed(source)


def test_without_a_way_that_runs_the_first_fitting_one_answers(tmp_path: Path) -> None:
    text = SMALL.replace(
        'commands:\n  - flags: {method: block}\n    type: "small TARGET --draft {source}"\n',
        "commands:\n  - {type: bare}\n"
        "  - {flags: {method: block}, when: {rank: positive}, type: block}\n"
        "  - {flags: {method: block}, type: again}\n",
    )
    pack = small_pack(tmp_path, text)
    block = {"architectures": ["BlockModel"]}

    runs = ask_engine(pack, {**block, "rank": 8}, "x")
    swallows = ask_engine(pack, block, "x")

    assert ("runs", "block", ["bare"]) == (
        runs.outcome,
        runs.best.command.text,
        [trap.command.text for trap in runs.traps],
    )
    assert ("swallows", "bare", ()) == (
        swallows.outcome,
        swallows.best.command.text,
        swallows.traps,
    )


# ------------------------------------------------------------------------------ the command


def test_a_paragraph_says_what_each_engine_does_and_what_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(CORPUS)

    assert 0 == main(["engines", "sgl-project__SpecForge-qwen3-8b-dspark"])

    output = capsys.readouterr().out
    first, *rest = output.splitlines()
    assert first.endswith(": lane qwen3-dspark  [L002 qwen3-dspark-specforge]")
    assert sum("  [" in line and line.startswith("    ") for line in rest) >= len(PACKS)
    assert "refuses after dspark/DSparkDraftModel  [S025 rank-only-nested]" in output
    assert "--drafter sgl-project__SpecForge-qwen3-8b-dspark --mode dspark" in output


def test_the_json_is_one_object_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["engines", "--json", *FOLDERS[:3]])

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert FOLDERS[:3] == [each["source"] for each in found]
    assert [pack.name for pack in PACKS] == [each["pack"] for each in found[0]["engines"]]


def test_the_whole_corpus_in_one_call_takes_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    start = time.process_time()

    assert 0 == main(["engines", "--markdown", *FOLDERS])

    assert time.process_time() - start < 2
    lines = capsys.readouterr().out.splitlines()
    assert 2 + len(FOLDERS) == len(lines)
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def test_what_cannot_be_read_is_said_and_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")

    assert 4 == main(["engines", str(tmp_path), FOLDERS[0]])
    output = capsys.readouterr().out
    assert "refused  [E006 config-invalid-json]" in output or "config-invalid-json]" in output
    assert "vLLM 0.33.0" in output

    assert 4 == main(["engines", "--json", str(tmp_path)])
    found = json.loads(capsys.readouterr().out)
    assert [] == found["engines"]
    assert found["decision"]["refusal"]["message"]


def test_of_a_gguf_file_nothing_is_claimed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "draft.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00")

    assert 0 == main(["engines", "--json", str(file)])

    found = json.loads(capsys.readouterr().out)
    assert "R033" == found["decision"]["rule_id"]
    assert {"unknown"} == {each["outcome"] for each in found["engines"]}


def test_a_config_on_standard_input_is_asked_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stdin:
        buffer = io.BytesIO(b'{"architectures": ["K3DSparkModel"], "model_type": "k3_dspark"}')

    monkeypatch.setattr(sys, "stdin", Stdin())

    assert 0 == main(["engines", "-"])

    assert "-: refused  [R006 kimi-k3-mla-dspark]" in capsys.readouterr().out
