"""What docs/serving.md types at a server is answered as it shows."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHOWN = "127.0.0.1:8000"
COMMAND = re.compile(r"^\$ (curl .*)\n(\{.*)$", re.M)
OWN = ("id", "created")
"""Keys that are another's in each answer."""


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs/serving.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def address(repository: Path, page: str) -> Iterator[str]:
    """Where the command that the page begins with serves, on a free port."""
    command = re.search(r"^\$ dspark (serve .*)$", page, re.M)
    assert command is not None
    dspark = str(Path(sys.executable).parent / "dspark")
    words = [dspark, *shlex.split(command[1]), "--port", "0"]
    server = subprocess.Popen(words, cwd=repository, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        events = (json.loads(line) for line in server.stderr)
        listening = next(event for event in events if event["event"] == "listening")
        yield f"{listening['host']}:{listening['port']}"
    finally:
        server.terminate()
        server.communicate(timeout=60)


def told(text: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(text)
    return {key: value for key, value in answer.items() if key not in OWN}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_each_command_is_answered_as_shown(page: str, address: str) -> None:
    shown = COMMAND.findall(page)
    assert ["/v1/completions", "/v1/chat/completions"] == [
        command.partition(SHOWN)[2].split()[0] for command, _ in shown
    ]

    for command, answer in shown:
        done = subprocess.run(
            shlex.split(command.replace(SHOWN, address)), capture_output=True, text=True, check=True
        )

        assert told(answer) == told(done.stdout)
