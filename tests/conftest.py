"""What every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines stall at random, so a slow example is no evidence of anything.
settings.register_profile("dspark", deadline=None)
settings.load_profile("dspark")


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parent.parent
