"""What the tests of the kernels that ship share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from dspark.kernels.host.simulator import Schedule
from tests.support.kernel_bench import Bench
from tests.support.kernel_device import PLACE, PROVOKES_FAULT, WITHOUT_BENCH, NoReport

SCHEDULES = [Schedule(0), *(Schedule(seed, resident=3) for seed in range(1, 5))]
if PLACE != "simulator":
    del SCHEDULES[1:]


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """On a GPU, leaves out by name and with a reason what is about the simulator alone."""
    for item in items if PLACE != "simulator" else ():
        if isinstance(item, pytest.Function) and Path(__file__).parent in item.path.parents:
            reason = not_for_a_gpu(item)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def not_for_a_gpu(item: pytest.Function) -> str | None:
    test = getattr(item.function, "hypothesis", None)
    code = inspect.unwrap(item.function if test is None else test.inner_test).__code__
    if "KernelFault" in code.co_names:
        return PROVOKES_FAULT
    benches = {"bench", "plain_bench"} & set(item.fixturenames)
    return None if benches or "Bench" in code.co_names else WITHOUT_BENCH


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """On a GPU, ends a test where it asks what a launch moved."""
    try:
        return (yield)
    except NoReport as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def compiled(repository: Path) -> Path:
    """Where compiled kernels stay from one run of the tests to the next; broken ones do not."""
    broken = os.environ.get("DSPARK_MUTANT")
    return Path(broken).with_name("compiled") if broken else repository / "build" / "kernels-host"


@pytest.fixture(params=SCHEDULES, ids=lambda schedule: f"seed{schedule.seed}")
def bench(request: pytest.FixtureRequest, compiled: Path) -> Bench:
    """The simulator, once in order and once for each of four shuffled schedules."""
    return Bench(compiled, request.param)


@pytest.fixture
def plain_bench(compiled: Path) -> Bench:
    """The simulator in order, for what does not depend on who has the turn."""
    return Bench(compiled, SCHEDULES[0])
