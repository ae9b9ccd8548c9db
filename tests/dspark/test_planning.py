from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

import dspark
from dspark.budget import physical_memory
from dspark.cli import main
from dspark.routing import default_table
from tests.support.configs import with_keys, without, write_config
from tests.support.pairs import (
    TINY,
    TINY_SHAPES,
    TINY_TARGET,
    WEIGHTS,
    Shapes,
    backbone,
    checkpoint,
    corpus,
    dspark_shapes,
    heads,
    target_shapes,
    write_published,
)
from tests.support.range_hub import REPO, serving

TARGET_SHAPES = target_shapes(TINY_TARGET)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return (
        checkpoint(tmp_path / "draft", TINY, TINY_SHAPES),
        checkpoint(tmp_path / "target", TINY_TARGET, TARGET_SHAPES),
    )


def refused(draft: Path | str, target: Path | str, **arguments: Any) -> dspark.Verdict:
    with pytest.raises(dspark.Refused) as caught:
        dspark.plan(draft, target=target, **arguments)
    assert isinstance(caught.value.decision, dspark.Verdict)
    return caught.value.decision


def test_a_plan_has_all_that_a_loader_needs(pair: tuple[Path, Path]) -> None:
    draft, target = pair

    plan = dspark.plan(draft, target=target, max_seq=100, batch=2)

    assert ("qwen3-dspark", "L001", "qwen3-dspark-native") == (
        plan.lane,
        plan.rule_id,
        plan.rule_name,
    )
    assert default_table().version == plan.table_version
    assert ("block-draft", "qwen3") == (plan.draft.implementation, plan.target.implementation)
    assert (str(draft), str(target)) == (plan.draft.source, plan.target.source)
    assert ((), {}) == (plan.shared, plan.tied)
    assert (4, 1, 4) == (
        plan.drafts_per_round,
        plan.num_speculative_tokens.least,
        plan.num_speculative_tokens.most,
    )
    assert ("cuda", 2, 100, 100, None, None) == (
        plan.device,
        plan.batch,
        plan.max_seq,
        plan.draft_positions,
        plan.memory,
        plan.fits,
    )
    assert () == plan.warnings


def test_every_value_says_where_it_came_from(pair: tuple[Path, Path]) -> None:
    plan = dspark.plan(pair[0], target=pair[1])

    config = plan.draft.config
    assert ((1, 3, 5), "target_layer_ids") == (
        config["target_layer_ids"].value,
        config["target_layer_ids"].origin,
    )
    assert (1000000, "rope_parameters.rope_theta") == (
        config["rope_theta"].value,
        config["rope_theta"].origin,
    )
    assert "default of qwen3-dspark-native" == config["sample_from_anchor"].origin
    assert (80, "head_dim") == (
        plan.target.value("head_dim"),
        plan.target.config["head_dim"].origin,
    )


def test_every_tensor_says_where_it_lies(pair: tuple[Path, Path]) -> None:
    plan = dspark.plan(pair[0], target=pair[1])

    for model, shapes in ((plan.draft, TINY_SHAPES), (plan.target, TARGET_SHAPES)):
        assert shapes == {name: place.shape for name, place in model.tensors.items()}
        places = sorted(model.tensors.values(), key=lambda place: place.offset)
        assert all(
            before.offset + before.nbytes == after.offset for before, after in pairwise(places)
        )
        (file,) = model.files
        assert (WEIGHTS, file.nbytes) == (places[-1].file, places[-1].offset + places[-1].nbytes)


def test_bytes_add_up(pair: tuple[Path, Path]) -> None:
    plan = dspark.plan(pair[0], target=pair[1], max_seq=100, batch=2)

    sizes = plan.bytes
    assert sum(place.nbytes for place in plan.draft.tensors.values()) == sizes.draft_weights
    assert sum(place.nbytes for place in plan.target.tensors.values()) == sizes.target_weights
    assert "headers" == sizes.target_weights_from
    assert 2 * 100 * sizes.draft_kv_per_token == sizes.draft_kv
    assert 2 * 5 * 160 * 4 * 2 == sizes.logits
    parts = sizes.draft_weights + sizes.target_weights + sizes.draft_kv + sizes.target_kv
    assert parts + sizes.logits == sizes.total


def test_a_target_that_is_not_there_weighs_the_same(pair: tuple[Path, Path]) -> None:
    draft, target = pair

    there = dspark.plan(draft, target=target).bytes
    (target / WEIGHTS).unlink()
    planned = dspark.plan(draft, target=target)

    assert there.target_weights == planned.bytes.target_weights
    assert "config" == planned.bytes.target_weights_from
    assert ({}, ()) == (planned.target.tensors, planned.target.files)


@pytest.mark.parametrize(
    ("name", "nbytes", "parameters"),
    [
        ("dspark_qwen3_4b", 2_786_273_970, 1_393_133_569),
        ("dspark_qwen3_8b", 4_742_170_330, 2_371_081_729),
        ("dspark_qwen3_14b", 6_832_533_210, 3_416_263_169),
        ("dflash_qwen3_4b", 2_630_685_488, 1_315_339_520),
        ("dflash_qwen3_8b", 4_586_578_776, 2_293_286_144),
        ("dflash_qwen3_14b", 6_676_939_608, 3_338_466_560),
    ],
)
def test_published_drafts_weigh_what_they_weigh(
    name: str, nbytes: int, parameters: int, tmp_path: Path, repository: Path
) -> None:
    config = corpus(f"deepseek-ai__{name}_block7")
    shapes = dspark_shapes(config, 5) if name.startswith("dspark") else backbone(config, 5)
    draft = write_config(tmp_path / "draft", config)
    assert nbytes == write_published(draft / WEIGHTS, shapes)
    size = name.rpartition("_")[2].upper()

    plan = dspark.plan(draft, target=repository / f"tests/corpus/Qwen__Qwen3-{size}")

    assert [(WEIGHTS, nbytes)] == [(file.name, file.nbytes) for file in plan.draft.files]
    assert 2 * parameters == plan.bytes.draft_weights
    assert 20 * 1024 == plan.bytes.draft_kv_per_token
    assert 40960 == plan.max_seq


def test_zlabs_published_draft_is_planned(tmp_path: Path, repository: Path) -> None:
    config = corpus("z-lab__Qwen3-4B-DFlash-b16")
    shapes = backbone(config, 5, own_embedding=False, own_head=False)
    draft = checkpoint(tmp_path, config, shapes)

    plan = dspark.plan(draft, target=repository / "tests/corpus/Qwen__Qwen3-4B")

    assert ("qwen3-dflash", 15) == (plan.lane, plan.drafts_per_round)
    assert ("embed_tokens.weight", "lm_head.weight") == plan.shared
    assert 537_427_200 * 2 == plan.bytes.draft_weights


def test_specforges_published_draft_is_planned(tmp_path: Path, repository: Path) -> None:
    config = corpus("sgl-project__SpecForge-qwen3-8b-dspark")
    shapes = backbone(config, 5, own_embedding=False, own_head=False) | heads(config)
    draft = checkpoint(tmp_path, config, shapes)

    plan = dspark.plan(draft, target=repository / "tests/corpus/Qwen__Qwen3-8B")

    assert ("qwen3-dspark", 7) == (plan.lane, plan.drafts_per_round)
    assert ("embed_tokens.weight", "lm_head.weight") == plan.shared


def test_memory_decides_and_says_what_would_fit(pair: tuple[Path, Path]) -> None:
    needed = dspark.plan(pair[0], target=pair[1]).bytes.total

    assert dspark.plan(pair[0], target=pair[1], memory=needed).fits is True
    verdict = refused(*pair, memory=needed - 1)

    assert ("over-budget", "budget", "B001") == (verdict.name, verdict.stage, verdict.rule_id)
    (found,) = verdict.findings
    assert (needed, needed - 1) == (found.values["needed"], found.values["available"])
    assert "lower --max-seq to 255" in found.help
    assert dspark.plan(pair[0], target=pair[1], memory=needed - 1, max_seq=255).fits is True


def test_nothing_fits_where_the_weights_do_not(pair: tuple[Path, Path]) -> None:
    assert "no length fits" in refused(*pair, memory="1KiB").findings[0].help


def test_a_cpu_has_the_machines_memory_and_float32(pair: tuple[Path, Path]) -> None:
    on_cpu = dspark.plan(pair[0], target=pair[1], device="cpu")
    on_gpu = dspark.plan(pair[0], target=pair[1])

    assert (physical_memory(), True) == (on_cpu.memory, on_cpu.fits)
    assert 2 * on_gpu.bytes.draft_weights == on_cpu.bytes.draft_weights
    assert 2 * on_gpu.bytes.target_kv == on_cpu.bytes.target_kv


def test_a_draft_context_ends_where_the_draft_does(pair: tuple[Path, Path]) -> None:
    plan = dspark.plan(pair[0], target=pair[1])

    assert (256, 200) == (plan.max_seq, plan.draft_positions)
    assert 200 * plan.bytes.draft_kv_per_token == plan.bytes.draft_kv


def test_no_sequence_outgrows_the_target(pair: tuple[Path, Path]) -> None:
    assert 256 == dspark.plan(pair[0], target=pair[1], max_seq=256).max_seq

    verdict = refused(*pair, max_seq=257)

    assert ("max-seq-too-long", "budget") == (verdict.name, verdict.stage)
    assert "sequences of 257 tokens are asked for, and the target has 256 positions" in str(
        verdict.summary()
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_seq": 0},
        {"max_seq": True},
        {"max_seq": 8.0},
        {"batch": 0},
        {"batch": "2"},
        {"memory": 0},
        {"memory": "lots"},
        {"memory": 2.5},
        {"device": "tpu"},
    ],
)
def test_arguments_that_mean_nothing(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`\w+`|a size is"):
        dspark.plan("nowhere", target="nowhere", **arguments)


def test_a_plan_is_frozen_and_survives_a_round_trip(pair: tuple[Path, Path]) -> None:
    plan = dspark.plan(pair[0], target=pair[1])

    with pytest.raises(ValidationError, match="frozen"):
        plan.max_seq = 1
    assert plan == dspark.LoadPlan.model_validate_json(plan.model_dump_json())
    assert plan == pickle.loads(pickle.dumps(plan))


def test_a_verdict_survives_a_round_trip(pair: tuple[Path, Path]) -> None:
    verdict = refused(*pair, max_seq=257)

    again = pickle.loads(pickle.dumps(verdict))

    assert verdict == again
    assert verdict.to_json() == again.to_json()
    with pytest.raises(AttributeError, match="immutable"):
        verdict.stage = "route"


# One fault per stage, in the order they must win; each is a change to draft, target or call.
GONE = without(TINY_SHAPES, "fc.weight")
FAULTS: dict[str, dict[str, Any]] = {
    "config-not-object": {"draft": "[]"},
    "eagle3": {"draft": {"architectures": ["Eagle3DraftModel"], "model_type": "qwen3"}},
    "bad-type": {"draft": with_keys(TINY, block_size="4")},
    "tensor-missing": {"shapes": GONE},
    "target-is-a-draft": {"target": TINY},
    "target-mismatch": {"target": with_keys(TINY_TARGET, num_hidden_layers=7)},
    "shard-corrupt": {"target_weights": b"\xff" * 16},
    "max-seq-too-long": {"call": {"max_seq": 10_000}},
    "over-budget": {"call": {"memory": 1}},
}


def with_faults(folder: Path, *names: str) -> tuple[Path, Path, dict[str, Any]]:
    """A pair with all these faults at once; of two values for one thing the first counts."""
    made: dict[str, Any] = {}
    call: dict[str, Any] = {}
    for name in names:
        fault = FAULTS[name]
        call |= fault.get("call", {})
        made = {**fault, **made}
    shapes: Shapes = made.get("shapes", TINY_SHAPES)
    draft = checkpoint(folder / "draft", made.get("draft", TINY), shapes)
    target = write_config(folder / "target", made.get("target", TINY_TARGET))
    if "target_weights" in made:
        (target / WEIGHTS).write_bytes(made["target_weights"])
    return draft, target, call


ORDER = list(FAULTS)


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_cheapest_stage_wins_and_each_fault_alone_is_itself(first: int, tmp_path: Path) -> None:
    name = ORDER[first]
    draft, target, call = with_faults(tmp_path / "alone", name)
    assert name == refused(draft, target, **call).name

    draft, target, call = with_faults(tmp_path / "all", *ORDER[first:])
    verdict = refused(draft, target, **call)
    assert name == verdict.name
    for second in ORDER[first + 1 :]:
        draft, target, call = with_faults(tmp_path / second, name, second)
        assert name == refused(draft, target, **call).name


@pytest.mark.parametrize("name", ORDER[:4])
def test_a_refused_draft_is_refused_alike_beside_every_target(name: str, tmp_path: Path) -> None:
    draft, target, _ = with_faults(tmp_path, name)

    alone = refused(draft, target).to_json()

    assert alone == refused(draft, tmp_path / "nowhere/at-all").to_json()
    assert alone == refused(draft, "-").to_json()


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_same_stage_wins_from_every_entry(
    first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft, target, call = with_faults(tmp_path, *ORDER[first:])
    expected = refused(draft, target, **call).to_json()
    options = [f"--{name.replace('_', '-')}={value}" for name, value in call.items()]

    main(["plan", str(draft), "--target", str(target), "--json", *options])
    assert expected == json.loads(capsys.readouterr().out)

    code = main(["route", "--check", "--json", str(draft)])
    checked = json.loads(capsys.readouterr().out)
    if ORDER[first] in ORDER[:4]:
        assert expected == checked
    else:
        assert (0, "tensors") == (code, checked["stage"])


@pytest.mark.parametrize("name", ORDER)
def test_every_refusal_is_what_the_schema_says(name: str, tmp_path: Path, repository: Path) -> None:
    draft, target, call = with_faults(tmp_path, name)
    schema = json.loads((repository / "schemas/decision.schema.json").read_text(encoding="utf-8"))

    document = json.loads(json.dumps(refused(draft, target, **call).to_json()))

    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert name == document["decision"]["name"]


def test_a_target_that_cannot_be_read_is_unreadable(pair: tuple[Path, Path]) -> None:
    verdict = refused(pair[0], pair[1] / "nothing")

    assert ("E", "observe", str(pair[1] / "nothing")) == (
        verdict.rule_id[0],
        verdict.stage,
        verdict.source,
    )


@pytest.fixture
def hub_environment(tmp_path: Path) -> dict[str, str]:
    return {
        **{k: v for k, v in os.environ.items() if not k.upper().endswith("_PROXY")},
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "*",
    }


def test_a_remote_draft_is_planned_from_kilobytes(
    tmp_path: Path, repository: Path, hub_environment: dict[str, str]
) -> None:
    config = corpus("deepseek-ai__dspark_qwen3_4b_block7")
    served = write_config(tmp_path / "served", config)
    size = write_published(served / WEIGHTS, dspark_shapes(config, 5))
    target = repository / "tests/corpus/Qwen__Qwen3-4B"

    with serving(served) as hub:
        done = subprocess.run(
            [
                *(sys.executable, "-c", "import sys, dspark.cli; sys.exit(dspark.cli.main())"),
                *("plan", REPO, "--target", str(target), "--json"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**hub_environment, "HF_ENDPOINT": hub.endpoint},
        )
        sent = hub.sent

    assert 0 == done.returncode, done.stdout + done.stderr
    plan = json.loads(done.stdout)
    assert REPO == plan["draft"]["source"]
    assert [{"name": WEIGHTS, "nbytes": size}] == plan["draft"]["files"]
    assert sent < 200_000


# --------------------------------------------------------------------- a target without a draft


def test_a_target_alone_is_planned_as_in_a_pair(pair: tuple[Path, Path]) -> None:
    both = dspark.plan(pair[0], target=pair[1], max_seq=100, batch=2, memory="1GiB")

    alone = dspark.plan_target(pair[1], max_seq=100, batch=2, memory="1GiB")

    assert both.target == alone.target
    assert (both.device, both.max_seq, both.batch) == (alone.device, alone.max_seq, alone.batch)
    assert (both.bytes.target_weights, both.bytes.target_kv) == (
        alone.bytes.target_weights,
        alone.bytes.target_kv,
    )
    assert (0, 0, 0) == (
        alone.bytes.draft_weights,
        alone.bytes.draft_kv,
        alone.bytes.draft_kv_per_token,
    )
    # One row of logits a sequence, and as much to work in.
    assert 2 * 160 * 4 * 2 == alone.bytes.logits
    assert alone.fits is True
    assert both.target_decision == alone.decision == alone.target_decision


@pytest.mark.parametrize(
    ("changes", "options", "rule_id", "stage"),
    [
        ({"architectures": ["Qwen3DSparkModel"], "markov_rank": 8}, {}, "P003", "pairing"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, {}, "P002", "pairing"),
        ({"hidden_size": None}, {}, "C001", "check"),
        ({"vocab_size": 161}, {}, "T011", "tensors"),
        ({}, {"max_seq": 257}, "B002", "budget"),
        ({}, {"memory": 1000}, "B001", "budget"),
    ],
)
def test_a_target_alone_is_held_against_the_same_contract(
    changes: dict[str, Any], options: dict[str, Any], rule_id: str, stage: str, tmp_path: Path
) -> None:
    target = checkpoint(tmp_path, with_keys(TINY_TARGET, **changes), TARGET_SHAPES)

    with pytest.raises(dspark.Refused) as caught:
        dspark.plan_target(target, **options)

    decision = caught.value.decision
    assert (rule_id, stage, str(target)) == (decision.rule_id, decision.stage, decision.source)
    if rule_id == "B001":
        assert "the target alone needs" in str(caught.value)


def test_a_target_alone_that_just_fits(pair: tuple[Path, Path]) -> None:
    needed = dspark.plan_target(pair[1], max_seq=50).bytes.total

    assert dspark.plan_target(pair[1], max_seq=50, memory=needed).fits
    with pytest.raises(dspark.Refused, match="B001") as caught:
        dspark.plan_target(pair[1], max_seq=51, memory=needed)
    assert caught.value.decision.refusal is not None
    assert "lower --max-seq to 50" in caught.value.decision.refusal.help


# ------------------------------------------------------------------- what a loader asks for


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_everything_is_counted_in_the_format_computed_in(
    device: Any, dtype: Any, pair: tuple[Path, Path]
) -> None:
    size = {"float32": 4, "bfloat16": 2}[dtype]

    plan = dspark.plan(pair[0], target=pair[1], device=device, dtype=dtype, max_seq=10)
    alone = dspark.plan_target(pair[1], device=device, dtype=dtype, max_seq=10)

    assert size * sum(map(prod, TARGET_SHAPES.values())) == plan.bytes.target_weights
    assert size * sum(map(prod, TINY_SHAPES.values())) == plan.bytes.draft_weights
    assert 6 * 2 * 3 * 80 * size == plan.bytes.target_kv_per_token
    assert 2 * 2 * 2 * 128 * size == plan.bytes.draft_kv_per_token
    assert (dtype, dtype) == (plan.dtype, alone.dtype)
    assert plan.bytes.target_weights == alone.bytes.target_weights


def test_without_a_format_it_is_left_to_device_and_files(pair: tuple[Path, Path]) -> None:
    values = sum(map(prod, TARGET_SHAPES.values()))
    found = {
        device: dspark.plan_target(pair[1], device=device)  # type: ignore[arg-type]
        for device in ("cpu", "cuda")
    }

    assert {"cpu": 4 * values, "cuda": 2 * values} == {
        device: plan.bytes.target_weights for device, plan in found.items()
    }
    assert {None} == {plan.dtype for plan in found.values()}


def test_a_plan_says_where_its_files_lie(pair: tuple[Path, Path]) -> None:
    plan = dspark.plan(pair[0] / WEIGHTS, target=pair[1] / "config.json", local=True)

    assert [str(place) for place in pair] == [plan.draft.folder, plan.target.folder]


def test_a_loader_needs_weights_in_folders(pair: tuple[Path, Path], tmp_path: Path) -> None:
    bare = checkpoint(tmp_path / "bare", TINY_TARGET, None)
    config = str(bare / "config.json")

    def download(*_: object, **__: object) -> str:
        return config

    assert dspark.plan(pair[0], target=bare).target.tensors == {}
    for words, arguments in (
        ("the target's folder has only its config", {"target": bare}),
        ("they are on the hub", {"target": "owner/name", "download": download}),
    ):
        with pytest.raises(dspark.Refused, match=f"T001 .*: {words}") as caught:
            dspark.plan_target(**arguments, local=True)
        assert ("tensors", str(arguments["target"])) == (
            caught.value.decision.stage,
            caught.value.decision.source,
        )
        with pytest.raises(dspark.Refused, match=f"T001 .*: {words}"):
            dspark.plan(pair[0], **arguments, local=True)


def test_a_plan_carries_the_decisions_that_led_to_it(pair: tuple[Path, Path]) -> None:
    plan = dspark.plan(pair[0], target=pair[1])
    assert plan.decision is not None
    assert plan.target_decision is not None

    assert ("budget", "L001", str(pair[0])) == (
        plan.decision.stage,
        plan.decision.rule_id,
        plan.decision.source,
    )
    assert ("R030", str(pair[1])) == (plan.target_decision.rule_id, plan.target_decision.source)
    assert dspark.LoadPlan.model_validate_json(plan.model_dump_json()).decision is None
    assert "decision" not in json.loads(plan.model_dump_json())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float16"}, "`dtype` is `float32` or `bfloat16`"),
        ({"device": "tpu"}, "`device` is `cuda` or `cpu`"),
        ({"batch": 0}, "`batch` is a whole number of 1 or more"),
        ({"max_seq": True}, "`max_seq` is a whole number"),
        ({"memory": 0}, "`memory` is a number of bytes"),
    ],
)
def test_terms_that_mean_nothing(
    changes: dict[str, Any], words: str, pair: tuple[Path, Path]
) -> None:
    for made in (lambda: dspark.plan_target(pair[1], **changes),
                 lambda: dspark.plan(pair[0], target=pair[1], **changes)):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            made()
