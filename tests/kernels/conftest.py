"""What the tests of the kernels that ship share."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.kernels.host.simulator import Schedule
from tests.support.kernel_bench import Bench

SCHEDULES = [Schedule(0), *(Schedule(seed, resident=3) for seed in range(1, 5))]


@pytest.fixture(scope="session")
def compiled(repository: Path) -> Path:
    """Where compiled kernels stay from one run of the tests to the next."""
    return repository / "build" / "kernels-host"


@pytest.fixture(params=SCHEDULES, ids=lambda schedule: f"seed{schedule.seed}")
def bench(request: pytest.FixtureRequest, compiled: Path) -> Bench:
    """The simulator, once in order and once for each of four shuffled schedules."""
    return Bench(compiled, request.param)


@pytest.fixture
def plain_bench(compiled: Path) -> Bench:
    """The simulator in order, for what does not depend on who has the turn."""
    return Bench(compiled, SCHEDULES[0])
