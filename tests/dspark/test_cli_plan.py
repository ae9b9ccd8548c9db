from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dspark
from dspark.cli import main
from tests.support.configs import with_keys, without, write_config
from tests.support.pairs import (
    TINY,
    TINY_SHAPES,
    TINY_TARGET,
    TINY_ZLAB,
    backbone,
    checkpoint,
    target_shapes,
)

OK, USAGE, REFUSED, UNREADABLE = 0, 2, 3, 4


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    draft = checkpoint(tmp_path / "draft", TINY, TINY_SHAPES)
    return str(draft), str(checkpoint(tmp_path / "target", TINY_TARGET, target_shapes(TINY_TARGET)))


def test_a_plan_in_words(pair: tuple[str, str], say: Any) -> None:
    draft, target = pair

    code, text = say("plan", draft, "--target", target, "--memory", "1GiB", "--max-seq", "100")

    assert OK == code
    lines = text.splitlines()
    assert f"{draft} on {target}: lane qwen3-dspark  [L001 qwen3-dspark-native]" == lines[0]
    assert "  drafts     4 a round; num_speculative_tokens 1 to 4" == lines[1]
    assert "  sequences  1 x 100 tokens" == lines[2]
    assert "on cuda, of 1.00 GiB: it fits" in lines[-1]


def test_a_plan_says_what_it_does_not_know(pair: tuple[str, str], say: Any) -> None:
    _, text = say("plan", pair[0], "--target", f"{pair[1]}/config.json")

    assert "whose memory is not known (--memory)" in text
    assert "; drafted up to 200, then decoded by the target alone" in text


def test_shared_and_tied_tensors_are_said(tmp_path: Path, say: Any) -> None:
    shapes = backbone(TINY, 3, own_embedding=False, own_head=False)
    shared = checkpoint(tmp_path / "shared", TINY_ZLAB, shapes)
    tied = checkpoint(
        tmp_path / "tied",
        with_keys(TINY, tie_word_embeddings=True),
        without(TINY_SHAPES, "lm_head.weight"),
    )
    target = str(checkpoint(tmp_path / "target", TINY_TARGET, None))

    assert (
        "  shared     embed_tokens.weight, lm_head.weight of the target"
        in (say("plan", str(shared), "--target", target)[1])
    )
    assert (
        "  tied       lm_head.weight is embed_tokens.weight"
        in (say("plan", str(tied), "--target", target)[1])
    )
    assert "(by its config)" in say("plan", str(tied), "--target", target)[1]


def test_json_is_the_plan_itself(pair: tuple[str, str], say: Any) -> None:
    draft, target = pair

    code, text = say("plan", draft, "--target", target, "--json", "--batch", "2")

    plan = dspark.plan(draft, target=target, batch=2)
    assert OK == code
    assert json.loads(plan.model_dump_json()) == json.loads(text)


def test_a_refusal_is_the_same_object_everywhere(pair: tuple[str, str], say: Any) -> None:
    draft, target = pair
    (Path(draft) / "model.safetensors").unlink()

    code, text = say("plan", draft, "--target", target, "--json")
    checked = say("route", "--check", "--json", draft)

    with pytest.raises(dspark.Refused) as caught:
        dspark.plan(draft, target=target)
    assert REFUSED == code
    assert (code, text) == checked
    assert caught.value.decision.to_json() == json.loads(text)
    assert {"findings", "warnings", "stage", "decision"} <= set(json.loads(text))


@pytest.mark.parametrize(
    ("draft", "target", "code"),
    [
        (TINY, TINY_TARGET, OK),
        (with_keys(TINY, block_size=0), TINY_TARGET, REFUSED),
        (with_keys(TINY, architectures=["Foo"]), TINY_TARGET, REFUSED),
        ("{", TINY_TARGET, UNREADABLE),
        (TINY, "{", UNREADABLE),
        (TINY, TINY, REFUSED),
        (TINY, with_keys(TINY_TARGET, vocab_size=999), REFUSED),
    ],
)
def test_exit_codes(draft: Any, target: Any, code: int, tmp_path: Path, say: Any) -> None:
    left = checkpoint(tmp_path / "draft", draft, TINY_SHAPES)
    right = write_config(tmp_path / "target", target)

    assert code == say("plan", str(left), "--target", str(right))[0]


def test_a_refusal_in_words_lists_every_finding(pair: tuple[str, str], say: Any) -> None:
    draft, target = pair
    write_config(Path(draft), with_keys(TINY, block_size=0, hidden_act="gelu"))

    code, text = say("plan", draft, "--target", target)

    assert REFUSED == code
    assert text.startswith(f"{draft}: refused  2 findings\n")
    assert "[C003 out-of-range]" in text
    assert "[C009 unsupported-activation]" in text
    assert 2 == text.count("help: ")


def test_one_help_for_findings_that_have_the_same(pair: tuple[str, str], say: Any) -> None:
    draft, target = pair
    write_config(Path(draft), with_keys(without(TINY, "block_size", "mask_token_id")))

    _, text = say("plan", draft, "--target", target)

    assert (2, 1) == (text.count("[C001 missing-key]"), text.count("help: "))


def test_a_thousand_findings_are_not_a_thousand_lines(tmp_path: Path, say: Any) -> None:
    draft = checkpoint(
        tmp_path / "draft",
        with_keys(TINY, num_hidden_layers=200, layer_types=["full_attention"] * 200),
        TINY_SHAPES,
    )

    _, text = say("route", "--check", str(draft))

    assert text.startswith(f"{draft}: refused  2178 findings\n")
    assert 25 > text.count("\n")
    assert "... and 2158 more, all of them with --json" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "draft"],
        ["plan", "--target", "t"],
        ["plan", "d", "--target", "t", "--max-seq", "0"],
        ["plan", "d", "--target", "t", "--max-seq", "1.5"],
        ["plan", "d", "--target", "t", "--batch", "-1"],
        ["plan", "d", "--target", "t", "--batch", "9" * 5000],
        ["plan", "d", "--target", "t", "--memory", "lots"],
        ["plan", "d", "--target", "t", "--memory", "0"],
        ["plan", "d", "--target", "t", "--device", "tpu"],
    ],
)
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert USAGE == caught.value.code
    assert "Traceback" not in capsys.readouterr().err


def test_route_check_goes_on_to_the_tensors(pair: tuple[str, str], say: Any) -> None:
    draft, target = pair

    code, text = say("route", "--check", "--json", draft)
    line = json.loads(text)

    assert (OK, "tensors", "qwen3-dspark") == (code, line["stage"], line["decision"]["lane"])
    assert ([], []) == (line["findings"], line["warnings"])
    assert (
        "not-a-draft"
        == json.loads(say("route", "--check", "--json", target)[1])["decision"]["name"]
    )


def test_route_without_check_reads_the_config_alone(pair: tuple[str, str], say: Any) -> None:
    draft, _ = pair
    (Path(draft) / "model.safetensors").unlink()

    code, text = say("route", "--json", draft)

    assert (OK, "route") == (code, json.loads(text)["stage"])
    assert "findings" not in json.loads(text)


def test_route_check_of_many(pair: tuple[str, str], tmp_path: Path, say: Any) -> None:
    draft, _ = pair
    bare = write_config(tmp_path / "more" / "bare", TINY)

    code, text = say("route", "--check", "--recursive", str(tmp_path))

    assert REFUSED == code
    assert f"{draft}: lane qwen3-dspark" in text
    assert f"{bare}: refused  [T001 weights-missing]" in text
    assert "[R030 not-a-draft]" in text


def test_warnings_are_printed_and_refuse_nothing(tmp_path: Path, say: Any) -> None:
    draft = checkpoint(
        tmp_path, with_keys(TINY, tie_word_embeddings=True, mask_token_id=152), TINY_SHAPES
    )

    code, text = say("route", "--check", str(draft))

    assert OK == code
    assert "warning: `tie_word_embeddings` is set" in text
    assert "[W001 suspicious-mask-token]" in text


def test_route_check_explains_the_routing_too(pair: tuple[str, str], say: Any) -> None:
    draft, _ = pair
    write_config(Path(draft), with_keys(TINY, block_size=0))

    _, text = say("route", "--check", "--explain", draft)

    assert "[C003 out-of-range]" in text
    assert "evidence" in text
    assert "architecture is `Qwen3DSparkModel`" in text


def test_a_config_on_standard_input_has_no_weights() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dspark.route", "--check", "--json", "-"],
        input=json.dumps(TINY).encode(),
        capture_output=True,
        check=False,
        env=dict(os.environ),
    )

    line = json.loads(done.stdout)
    assert (REFUSED, "weights-missing") == (done.returncode, line["decision"]["name"])
    assert "standard input brings the config alone" in line["decision"]["refusal"]["message"]


LIGHT = """
import sys, dspark.cli
code = dspark.cli.main(sys.argv[1:])
heavy = {"pydantic", "huggingface_hub", "torch", "transformers", "safetensors", "numpy", "rich"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
sys.exit(code)
"""


def test_only_a_plan_that_is_made_pays_for_pydantic(pair: tuple[str, str]) -> None:
    draft, target = pair
    checks = [sys.executable, "-c", LIGHT, "route", "--check", draft]
    plans = [sys.executable, "-c", LIGHT, "plan", draft, "--target", target]

    assert 0 == subprocess.run(checks, capture_output=True, check=False).returncode
    made = subprocess.run(plans, capture_output=True, text=True, check=False)
    assert 1 == made.returncode
    assert "AssertionError: {'pydantic'}" in made.stderr
