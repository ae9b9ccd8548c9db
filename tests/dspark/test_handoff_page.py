"""The commands that docs/handoff.md shows print what it shows, for configs in the hub's cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.handoffs import CORPUS

FENCE = re.compile(r"^```console\n(?P<body>.*?)^```$", re.M | re.S)
COMMIT = "0" * 40
REPOS = {
    "deepseek-ai/dspark_qwen3_8b_block7",
    "deepseek-ai/DeepSeek-V4-Flash-DSpark",
    "Qwen/Qwen3-8B",
}


def sessions(page: str) -> list[tuple[list[str], str]]:
    """The commands of each block that is about handing over, with the output shown last."""
    found = []
    for block in FENCE.finditer(page):
        *_, output = re.split(r"^\$ .*\n", block["body"], flags=re.M)
        commands = re.findall(r"^\$ (.*)$", block["body"], re.M)
        if any(command.startswith("dspark handoff") for command in commands):
            found.append((commands, output))
    return found


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for repo in REPOS:
        folder = tmp_path / "hub" / f"models--{repo.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs/main").write_text(COMMIT, encoding="utf-8")
        shutil.copytree(CORPUS / repo.replace("/", "__"), folder / "snapshots" / COMMIT)
    return tmp_path


def test_what_is_shown_is_what_is_printed(repository: Path, cache: Path, tmp_path: Path) -> None:
    shown = sessions((repository / "docs/handoff.md").read_text(encoding="utf-8"))
    (tmp_path / "draft").mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HF_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    assert 3 <= len(shown)

    for commands, output in shown:
        done = subprocess.run(
            ["bash", "-c", "\n".join(commands)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert output.rstrip("\n") == (done.stdout + done.stderr).rstrip("\n")
