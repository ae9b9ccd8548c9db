"""What the tests of the simulator share."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.kernels.host.simulator import Schedule
from tests.kernels.host.bench import SCHEDULES, Bench


@pytest.fixture(scope="session")
def compiled(repository: Path) -> Path:
    """Where compiled kernels stay from one run of the tests to the next."""
    return repository / "build" / "kernels-host"


@pytest.fixture
def bench(compiled: Path) -> Bench:
    return Bench(compiled)


@pytest.fixture(params=SCHEDULES, ids=lambda schedule: f"seed{schedule.seed}")
def schedule(request: pytest.FixtureRequest) -> Schedule:
    chosen: Schedule = request.param
    return chosen
