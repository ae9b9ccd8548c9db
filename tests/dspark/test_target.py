from __future__ import annotations

from pathlib import Path

import pytest

import dspark
from dspark.errors import Refused
from dspark.routing import default_table
from dspark.target import Target, read_target, read_weights
from tests.support.configs import Config, with_keys, without, write_config
from tests.support.pairs import (
    TINY,
    TINY_SHAPES,
    TINY_TARGET,
    WEIGHTS,
    checkpoint,
    corpus,
    target_shapes,
)
from tests.support.safetensors_files import encoded, write_index, write_sparse


def read(place: Path | str) -> Target:
    return read_target(default_table(), place)


def refused(place: Path | str) -> dspark.Verdict:
    with pytest.raises(Refused) as caught:
        read_weights(read(place))
    assert isinstance(caught.value.decision, dspark.Verdict)
    return caught.value.decision


QWEN3 = {
    "Qwen__Qwen3-0.6B": (28, 1024, True),
    "Qwen__Qwen3-1.7B": (28, 2048, True),
    "Qwen__Qwen3-4B": (36, 2560, True),
    "Qwen__Qwen3-4B-Instruct-2507": (36, 2560, True),
    "Qwen__Qwen3-8B": (36, 4096, False),
    "Qwen__Qwen3-14B": (40, 5120, False),
    "Qwen__Qwen3-32B": (64, 5120, False),
}


@pytest.mark.parametrize("name", QWEN3)
def test_dense_qwen3_is_a_target(name: str, repository: Path) -> None:
    target = read(repository / "tests/corpus" / name)

    values = target.canonical.values
    assert QWEN3[name] == (
        values["num_hidden_layers"],
        values["hidden_size"],
        values["tie_word_embeddings"],
    )
    assert read_weights(target) is None


OTHERS = {
    "Qwen3_5ForConditionalGeneration": "Qwen3.5/3.6/3.8",
    "Qwen3_5MoeForCausalLM": "Qwen3.5/3.6/3.8",
    "Qwen3NextForCausalLM": "Qwen3-Next",
    "Qwen3MoeForCausalLM": "Qwen3 MoE",
    "Qwen3VLForConditionalGeneration": "a multimodal Qwen3",
    "Gemma4UnifiedForConditionalGeneration": "Gemma",
    "DeepseekV3ForCausalLM": "DeepSeek",
    "KimiK3ForCausalLM": "Kimi",
    "MiniCPM5ForCausalLM": "MiniCPM",
    "LlamaForCausalLM": "Llama",
    "Glm4MoeForCausalLM": "GLM",
    "GptOssForCausalLM": "gpt-oss",
    "Lfm2ForCausalLM": "LFM2",
    "Qwen2ForCausalLM": "Qwen2",
}


@pytest.mark.parametrize("architecture", OTHERS)
def test_another_family_is_refused_by_its_name(architecture: str, tmp_path: Path) -> None:
    config = with_keys(TINY_TARGET, architectures=[architecture], model_type="other")

    verdict = refused(write_config(tmp_path, config))

    assert ("unsupported-target", "pairing") == (verdict.name, verdict.stage)
    (found,) = verdict.findings
    assert f"the target is {OTHERS[architecture]}" in found.message
    assert f"`architectures` is `{architecture}`" in found.message


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (without(TINY_TARGET, "architectures"), "a model of no declared architecture"),
        (without(TINY_TARGET, "architectures"), "(`architectures` is absent)"),
        (
            with_keys(TINY_TARGET, architectures=["Qwen3ForCausalLM", "FooForCausalLM"]),
            "(`architectures` is `Qwen3ForCausalLM`, `FooForCausalLM`)",
        ),
        (with_keys(TINY_TARGET, architectures=["FooForCausalLM"]), "of a family no rule names"),
        (with_keys(TINY_TARGET, model_type="llama"), "(`model_type` is `llama`)"),
        (without(TINY_TARGET, "model_type"), "(`model_type` is absent)"),
        # N9: stale sizes beside the nested ones are another model.
        (
            with_keys(TINY_TARGET, text_config={"hidden_size": 4096}),
            "nested in `text_config`",
        ),
        (
            {
                "architectures": ["Qwen3VLForConditionalGeneration"],
                "text_config": without(TINY_TARGET, "architectures"),
            },
            "a multimodal Qwen3",
        ),
    ],
)
def test_what_is_not_plainly_qwen3_is_refused(config: Config, words: str, tmp_path: Path) -> None:
    verdict = refused(write_config(tmp_path, config))

    assert "unsupported-target" == verdict.name
    assert words in verdict.findings[0].message
    assert "decodes only `Qwen3ForCausalLM` with model_type `qwen3`" in verdict.findings[0].message


DRAFTS = [
    "deepseek-ai__dspark_qwen3_8b_block7",
    "z-lab__Qwen3-8B-DFlash-b16",
    "RadixArk__Qwen3.8-27B-DSpark",
    "mgoin__Qwen3-8B-speculator.dspark-reasoning",
    # Refused as drafts, and no targets for it.
    "deepseek-ai__eagle3_qwen3_8b_ttt7",
    "deepseek-ai__dspark_gemma4_12b_block7",
]


@pytest.mark.parametrize("name", DRAFTS)
def test_a_draft_is_no_target(name: str, repository: Path) -> None:
    verdict = refused(repository / "tests/corpus" / name)

    assert ("target-is-a-draft", "pairing") == (verdict.name, verdict.stage)
    assert "is itself a draft" in verdict.findings[0].message


def test_a_target_with_stages_inside_is_a_family(repository: Path) -> None:
    verdict = refused(repository / "tests/corpus/deepseek-ai__DeepSeek-V4-Pro-DSpark")

    assert "unsupported-target" == verdict.name
    assert "the target is DeepSeek" in verdict.findings[0].message


def test_a_gguf_target_is_refused_as_one(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    assert "the target is a GGUF file" in refused(tmp_path / "model.gguf").findings[0].message


@pytest.mark.parametrize(
    ("changes", "name", "stage"),
    [
        ({"hidden_size": "64"}, "bad-type", "check"),
        ({"rms_norm_eps": None}, "missing-key", "check"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "unsupported-rope", "check"),
        ({"quantization_config": {"quant_method": "awq"}}, "unsupported-target", "check"),
    ],
)
def test_a_targets_config_is_checked(
    changes: Config, name: str, stage: str, tmp_path: Path
) -> None:
    verdict = refused(write_config(tmp_path, with_keys(TINY_TARGET, **changes)))

    assert (name, stage) == (verdict.name, verdict.stage)
    assert str(tmp_path) == verdict.source


def test_a_target_that_is_not_there_is_unreadable(tmp_path: Path) -> None:
    verdict = refused(str(tmp_path / "nowhere" / "model"))

    assert ("not-a-checkpoint", "observe") == (verdict.name, verdict.stage)
    assert () == verdict.findings


def test_weights_beside_the_config_are_checked(tmp_path: Path) -> None:
    shapes = target_shapes(TINY_TARGET)
    sound = checkpoint(tmp_path / "sound", TINY_TARGET, shapes)
    broken = checkpoint(tmp_path / "broken", TINY_TARGET, without(shapes, "model.norm.weight"))

    found = read_weights(read(sound))
    verdict = refused(broken)

    assert found is not None
    assert set(shapes) == set(found.matched.tensors)
    assert ("tensor-missing", "tensors", str(broken)) == (
        verdict.name,
        verdict.stage,
        verdict.source,
    )


def test_weights_that_are_half_there_are_no_absent_ones(tmp_path: Path) -> None:
    sharded = write_config(tmp_path / "sharded", TINY_TARGET)
    write_index(sharded, {"model.norm.weight": "a.safetensors"})
    empty = write_config(tmp_path / "empty", TINY_TARGET)
    (empty / WEIGHTS).write_bytes(encoded({}))
    loose = write_config(tmp_path / "loose", TINY_TARGET)
    for name in ("a.safetensors", "b.safetensors"):
        write_sparse(loose / name, {"x": (1,)})

    assert "shard-missing" == refused(sharded).name
    assert "weights-missing" == refused(empty).name
    assert "weights-missing" == refused(loose).name


def test_a_config_alone_is_enough(tmp_path: Path) -> None:
    config = write_config(tmp_path, TINY_TARGET) / "config.json"

    assert read_weights(read(config)) is None


def test_a_draft_folder_named_like_a_target_is_a_draft(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "Qwen3-8B", TINY, TINY_SHAPES)

    assert "target-is-a-draft" == refused(place).name


def test_published_targets_have_the_tensors_of_their_contract(tmp_path: Path) -> None:
    for name in ("Qwen__Qwen3-4B", "Qwen__Qwen3-8B"):
        config = corpus(name)
        found = read_weights(read(checkpoint(tmp_path / name, config, target_shapes(config))))

        assert found is not None
        assert (36 * 11 + (2 if config["tie_word_embeddings"] else 3)) == len(found.matched.tensors)
