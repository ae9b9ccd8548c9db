"""The hand-off and the plugin against vLLM's own parser, `EngineArgs` and `SpeculativeConfig`.

vLLM's Python files come from its wheel; where no index has that, the tests are skipped and say so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dspark
from dspark.handoff_command import commands
from dspark.handoff_reader import handoff_table
from tests.support.handoffs import (
    CORPUS,
    DEEPSEEK_V4,
    DFLASH,
    DSPARK,
    FOR_OMNI,
    GEMMA4_DRAFT,
    GEMMA4_TARGET,
    KIMI_K3,
    KIMI_TARGET,
    LAYERS,
    MUSE,
    OMNI,
    SERVED,
    SPECULATORS,
    TARGET,
    Config,
    Pair,
    named,
    write,
)
from tests.support.vllm_layers import registered, without_layers
from tests.support.vllm_wheel import NoWheel, unpacked

pytestmark = pytest.mark.slow

VERSION = "0.33.0"


class Vllm:
    """A process that answers what `vllm serve` would make of a command line."""

    def __init__(self, folder: Path, *, plugin: bool) -> None:
        self.plugin = plugin
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.vllm_serve", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).parents[3],
        )

    def serve(self, *argv: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(
            json.dumps({"argv": argv, "plugin": self.plugin}), file=self.process.stdin, flush=True
        )
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def speculate(self, target: str, **config: object) -> dict[str, Any]:
        return self.serve(target, "--speculative-config", json.dumps(config))

    def close(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def wheel() -> Path:
    try:
        return unpacked(VERSION)
    except NoWheel as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def bare(wheel: Path) -> Iterator[Vllm]:
    vllm = Vllm(wheel, plugin=False)
    yield vllm
    vllm.close()


@pytest.fixture(scope="module")
def guarded(wheel: Path) -> Iterator[Vllm]:
    vllm = Vllm(wheel, plugin=True)
    yield vllm
    vllm.close()


@pytest.mark.parametrize(
    "pair", [pytest.param(p, id=f"{n}-{p.rule_id}") for n, p in enumerate(SERVED)]
)
def test_what_is_printed_is_what_vllm_then_does(
    pair: Pair, bare: Vllm, guarded: Vllm, tmp_path: Path
) -> None:
    draft = write(tmp_path / "draft", pair.draft)
    target = None if pair.target is None else write(tmp_path / "target", pair.target)
    found = dspark.hand_off(draft, target=target, num_speculative_tokens=pair.asked)
    (command,) = commands(found)
    assert ("vllm", "serve") == command.argv[:2]

    answer = bare.serve(*command.argv[2:])

    assert "error" not in answer, answer["error"]
    assert (pair.method, pair.tokens) == (answer["method"], answer["tokens"])
    assert answer == guarded.serve(*command.argv[2:])


@pytest.mark.parametrize("draft", [DSPARK, SPECULATORS, DFLASH])
def test_vllm_takes_a_target_of_another_family_than_the_drafts_layers(
    draft: Config, bare: Vllm, tmp_path: Path
) -> None:
    llama = TARGET | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    found = dspark.hand_off(write(tmp_path / "draft", draft), target=write(tmp_path / "t", llama))
    (command,) = commands(found)

    answer = bare.serve(*command.argv[2:])

    assert "error" not in answer, answer["error"]
    assert (found.method, found.num_speculative_tokens) == (answer["method"], answer["tokens"])


def test_the_targets_that_hand_out_no_layers_are_those_of_its_classes(wheel: Path) -> None:
    known = registered(wheel)
    assert 200 < len(known)
    assert known.keys() >= {"Qwen3ForCausalLM", "Gemma4ForConditionalGeneration"}

    found = without_layers(wheel)

    assert "LlamaForCausalLM" not in found
    assert set(handoff_table().uncaptured) == found


CORPUS_TARGETS = {
    "deepseek-ai__dflash_gemma4_12b_block7": "google__gemma-4-12B",
    "deepseek-ai__dspark_gemma4_12b_block7": "google__gemma-4-12B",
    "deepseek-ai__dflash_qwen3_4b_block7": "Qwen__Qwen3-4B",
    "deepseek-ai__dflash_qwen3_8b_block7": "Qwen__Qwen3-8B",
    "deepseek-ai__dflash_qwen3_14b_block7": "Qwen__Qwen3-14B",
    "deepseek-ai__dspark_qwen3_4b_block7": "Qwen__Qwen3-4B",
    "deepseek-ai__dspark_qwen3_8b_block7": "Qwen__Qwen3-8B",
    "deepseek-ai__dspark_qwen3_14b_block7": "Qwen__Qwen3-14B",
    "sgl-project__SpecForge-qwen3-8b-dflash": "Qwen__Qwen3-8B",
    "z-lab__Qwen3-4B-DFlash-b16": "Qwen__Qwen3-4B",
    "z-lab__Qwen3-8B-DFlash-b16": "Qwen__Qwen3-8B",
    "deepseek-ai__DeepSeek-V4-Flash-DSpark": None,
    "deepseek-ai__DeepSeek-V4-Pro-DSpark": None,
}
"""The published drafts that are handed off as they are, with a published target each."""


@pytest.mark.parametrize("draft", CORPUS_TARGETS)
@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (2, 1), (2, 2)])
def test_the_published_drafts_are_accepted_on_any_number_of_machines(
    draft: str, gpus: int, nodes: int, bare: Vllm
) -> None:
    name = CORPUS_TARGETS[draft]
    found = dspark.hand_off(
        CORPUS / draft,
        target=None if name is None else CORPUS / name,
        gpus=gpus,
        nodes=nodes,
        master_address="10.0.0.1",
    )
    wanted = (found.method, found.num_speculative_tokens, gpus * nodes, nodes)

    for command in commands(found):
        answer = bare.serve(*command.argv[2:])

        assert "error" not in answer, answer["error"]
        assert wanted == (answer["method"], answer["tokens"], answer["gpus"], answer["nodes"])


class Wrong(NamedTuple):
    """A speculative config, what vLLM makes of it, and the ID that the plugin refuses it by."""

    id: str
    draft: Config | None
    config: dict[str, object]
    without: dict[str, object]
    folder: str = "draft"
    target: Config = TARGET


CATCH_ALL = {"method": "dspark", "model_type": "deepseek_v4", "architectures": ["DSparkDraftModel"]}
LLAMA = SPECULATORS | {"transformer_layer_config": LAYERS | {"model_type": "llama"}}
WRONG = [
    Wrong("X001", named("DSparkDraftModel", "llama"), {"method": "dspark"}, CATCH_ALL),
    Wrong("X001", TARGET, {"method": "dspark", "num_speculative_tokens": 5}, CATCH_ALL),
    Wrong("X001", TARGET, {"num_speculative_tokens": 5}, CATCH_ALL, folder="my-dspark"),
    Wrong("X001", None, {"method": "dspark", "num_speculative_tokens": 5}, CATCH_ALL),
    Wrong(
        "X001",
        {k: v for k, v in DSPARK.items() if k != "architectures"},
        {"method": "dspark"},
        CATCH_ALL,
    ),
    Wrong(
        "X002", named("Qwen3DSparkModel", "llama"), {}, {"method": "dspark", "model_type": "llama"}
    ),
    Wrong("X002", LLAMA, {"method": "dspark"}, {"architectures": ["Qwen3DSparkModel"]}),
    Wrong(
        "X002",
        DFLASH | {"selector_rank": 8},
        {"method": "dflash", "num_speculative_tokens": 15},
        {"architectures": ["DFlashDraftModel"]},
    ),
    Wrong(
        "X004",
        DSPARK | {"markov_rank": None, "dspark_config": {"markov_rank": 16}},
        {},
        {"tokens": 5},
    ),
    Wrong("X005", DSPARK | {"markov_head_type": "gated"}, {}, {"method": "dspark"}),
    Wrong("X006", DSPARK | {"dspark_bonus_anchor": True}, {}, {"tokens": 5}),
    Wrong("X009", DSPARK, {"num_speculative_tokens": 20}, {"tokens": 20}),
    Wrong("X009", SPECULATORS, {"method": "dspark"}, {"tokens": 5}),
    Wrong("P001", DSPARK | {"hidden_size": 32}, {}, {"method": "dspark"}),
    Wrong("C005", DSPARK | {"dspark_target_layer_ids": [1, 8]}, {}, {"method": "dspark"}),
    Wrong("X005", DSPARK | {"target_layer_ids": [6, 1]}, {}, {"method": "dspark"}),
    Wrong("P001", MUSE | {"target_layer_ids": [1, 8]}, {}, {"method": "dspark"}),
    Wrong(
        "P001",
        None,
        {"method": "dspark", "num_speculative_tokens": 5},
        {"architectures": ["DSparkDraftModel"]},
        target=DEEPSEEK_V4 | {"dspark_target_layer_ids": [40, 41, 43]},
    ),
    Wrong(
        "P001",
        named("Qwen3OmniDSparkModel") | FOR_OMNI | {"target_layer_ids": [-1, 3]},
        {},
        {"error": "zero-based text-layer indices in [0, 7]"},
        target=OMNI,
    ),
    Wrong("P001", DSPARK | {"vocab_size": 300}, {}, {"method": "dspark"}),
    Wrong(
        "P001",
        GEMMA4_DRAFT | {"draft_vocab_size": 300},
        {},
        {"method": "dspark"},
        target=GEMMA4_TARGET,
    ),
    Wrong(
        "P001",
        KIMI_K3 | {"draft_vocab_size": 300},
        {"method": "dspark", "num_speculative_tokens": 6},
        {"error": "requires draft_vocab_size to equal vocab_size"},
        target=KIMI_TARGET,
    ),
    Wrong(
        "X021",
        DSPARK,
        {},
        {"method": "dspark"},
        target=TARGET | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"},
    ),
    Wrong(
        "X020",
        KIMI_K3,
        {"num_speculative_tokens": 6},
        {"method": "draft_model"},
        target=KIMI_TARGET,
    ),
    Wrong("X020", DSPARK, {}, {"error": "DFlashQwen3DSparkModel"}, folder="dflash-drafts"),
    Wrong("X003", named("Lfm2DSparkDraftModel"), {"method": "dspark"}, {"error": "not supported"}),
]


@pytest.mark.parametrize("wrong", [pytest.param(w, id=f"{n}-{w.id}") for n, w in enumerate(WRONG)])
def test_the_plugin_refuses_by_id_what_vllm_would_have_run_or_garbled(
    wrong: Wrong, bare: Vllm, guarded: Vllm, tmp_path: Path
) -> None:
    config = dict(wrong.config)
    if wrong.draft is not None:
        config["model"] = write(tmp_path / wrong.folder, wrong.draft)
    target = write(tmp_path / "target", wrong.target)

    answer = bare.speculate(target, **config)
    refused = guarded.speculate(target, **config)

    wanted = dict(wrong.without)
    assert wanted.pop("error", "") in answer.get("error", "")
    assert ("error" in wrong.without) == ("error" in answer), answer
    assert wanted == {key: answer[key] for key in wanted}
    assert f"Value error, {wrong.id} " in refused["error"]


@pytest.mark.parametrize(
    ("draft", "config"),
    [
        (
            named("LlamaForCausalLMEagle3", "llama"),
            {"method": "eagle3", "num_speculative_tokens": 3},
        ),
        (TARGET, {"method": "draft_model", "num_speculative_tokens": 3}),
        (TARGET, {"num_speculative_tokens": 3}),
        (None, {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2}),
        (named("NoSuchModel"), {"method": "eagle", "num_speculative_tokens": 3}),
    ],
)
def test_the_plugin_leaves_every_other_method_alone(
    draft: Config | None, config: dict[str, object], bare: Vllm, guarded: Vllm, tmp_path: Path
) -> None:
    if draft is not None:
        config = config | {"model": write(tmp_path / "draft", draft)}
    target = write(tmp_path / "target", TARGET)

    assert bare.speculate(target, **config) == guarded.speculate(target, **config)
