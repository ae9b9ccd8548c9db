"""What several tests of the command line start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark.cli import main
from tests.support.configs import BASE, EAGLE3, write_config


@pytest.fixture
def lane(tmp_path: Path) -> Path:
    """A checkpoint that a lane takes."""
    return write_config(tmp_path / "lane", BASE)


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    """A checkpoint that a rule refuses."""
    return write_config(tmp_path / "refused", EAGLE3)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """`dspark` with these arguments: its exit code and what it printed."""

    def say(*arguments: str) -> tuple[int, str]:
        code = main(arguments)
        return code, capsys.readouterr().out

    return say
