"""Weights on the hub, through a hub on the loopback interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark.headers import TensorInfo
from dspark.ranges import FileUnreadable
from dspark.source import Source
from dspark.weights import Weights
from tests.support.configs import with_keys, write_config
from tests.support.pairs import (
    TINY,
    TINY_SHAPES,
    TINY_TARGET,
    WEIGHTS,
    checkpoint,
    dspark_shapes,
    target_shapes,
    with_dtypes,
)
from tests.support.range_hub import REPO, serving

REDUCED = with_keys(TINY, draft_vocab_size=40)


def planned(draft: str, target: str, served: Path, folder: Path) -> tuple[dict[str, Any], int]:
    """What `dspark plan --json` prints in a process of its own, and how much the hub sent."""
    environment = {k: v for k, v in os.environ.items() if not k.upper().endswith("_PROXY")}
    with serving(served) as hub:
        done = subprocess.run(
            [
                *(sys.executable, "-c", "import sys, dspark.cli; sys.exit(dspark.cli.main())"),
                *("plan", draft, "--target", target, "--json"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={
                **environment,
                "HF_HOME": str(folder / "home"),
                "HF_ENDPOINT": hub.endpoint,
                "HF_HUB_DISABLE_TELEMETRY": "1",
            },
        )
        sent = hub.sent
    assert "" == done.stderr
    return json.loads(done.stdout), sent


@pytest.mark.parametrize(("wrong", "name"), [(0, None), (200, "tensor-value")])
def test_a_remote_map_is_read_by_its_range(wrong: int, name: str | None, tmp_path: Path) -> None:
    served, target = tmp_path / "served", checkpoint(tmp_path / "target", TINY_TARGET, None)
    shapes = dspark_shapes(REDUCED, 3) | {"d2t": (40,)}
    offsets = {"d2t": np.full(40, wrong, dtype=np.int64)}
    with_dtypes(served, REDUCED, shapes, {"d2t": "I64"}, offsets)

    document, _ = planned(REPO, str(target), served, tmp_path)

    decision = document.get("decision", {"name": None})
    assert name == decision["name"]


def test_a_remote_targets_weights_are_checked(tmp_path: Path) -> None:
    draft = str(checkpoint(tmp_path / "draft", TINY, TINY_SHAPES))
    shapes = target_shapes(TINY_TARGET)
    served = checkpoint(tmp_path / "served", TINY_TARGET, shapes)

    plan, _ = planned(draft, REPO, served, tmp_path)
    checkpoint(served, TINY_TARGET, {**shapes, "model.norm.weight": (63,)})
    refused, _ = planned(draft, REPO, served, tmp_path)
    (served / WEIGHTS).unlink()
    by_config, _ = planned(draft, REPO, served, tmp_path)

    assert "headers" == plan["bytes"]["target_weights_from"]
    assert ("tensor-shape", REPO) == (refused["decision"]["name"], refused["source"])
    assert "config" == by_config["bytes"]["target_weights_from"]


def test_a_hub_that_stops_answering_is_unreachable(tmp_path: Path) -> None:
    served = write_config(tmp_path / "served", TINY)
    (served / WEIGHTS).mkdir()
    target = checkpoint(tmp_path / "target", TINY_TARGET, None)
    with serving(served) as hub:
        endpoint = hub.endpoint
        hub.listing_status = 503
        done = subprocess.run(
            [
                *(sys.executable, "-c", "import sys, dspark.cli; sys.exit(dspark.cli.main())"),
                *("plan", REPO, "--target", str(target), "--json"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": endpoint},
        )

    assert 4 == done.returncode, done.stderr
    assert "hub-unreachable" == json.loads(done.stdout)["decision"]["name"]


def test_a_file_that_vanishes_is_named(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, TINY, TINY_SHAPES)
    weights = Weights(Source("config", b"", place))
    (place / WEIGHTS).unlink()
    info = TensorInfo("d2t", "I64", (1,), WEIGHTS, 8, 16)

    with pytest.raises(FileUnreadable) as caught:
        weights.read_integers(info)

    assert WEIGHTS == caught.value.values["file"]
    assert "it was removed while it was read" == caught.value.values["reason"]


def test_standard_input_has_none() -> None:
    (found,) = Weights(Source("config", b"", None)).found.findings

    assert "weights-missing" == found.rule_name


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("pytorch_model.bin", False),
        ("model.gguf", False),
        ("tokenizer.json", True),
        ("training_args.bin", True),
    ],
)
def test_weights_in_another_format_are_not_absent(name: str, absent: bool, tmp_path: Path) -> None:
    """A target is planned for without its weights, but not with weights nothing could load."""
    (tmp_path / name).write_bytes(b"x")

    weights = Weights(Source("config", b"{}", tmp_path))

    assert ["weights-missing"] == [each.rule_name for each in weights.found.findings]
    assert absent == weights.absent
