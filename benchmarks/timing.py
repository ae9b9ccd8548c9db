"""How long something takes: calls inside this process, whole commands outside it."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_LOOP_S = 0.02  # long enough to hide the clock, short enough that a neighbour rarely hits a loop


class Call(NamedTuple):
    """A function and the positional arguments it is timed with."""

    function: Callable[..., object]
    arguments: tuple[object, ...]


class Sample(NamedTuple):
    """Seconds of one thing, measured several times."""

    minimum: float
    median: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Sample:
        return cls(min(seconds), statistics.median(seconds))


def pin() -> int:
    """Keeps this process and its children on one core, and returns its number."""
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def time_calls(calls: Mapping[str, Call], repeats: int = 9) -> dict[str, Sample]:
    """Seconds per call, by name. The repeats take turns, so that a busy moment hits all of them."""
    timers = {name: _timer(call) for name, call in calls.items()}
    loops = {name: _loops(timer) for name, timer in timers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, timer in timers.items():  # timeit itself turns the collector off
            seconds[name].append(timer.timeit(loops[name]) / loops[name])
    return {name: Sample.of(found) for name, found in seconds.items()}


def _timer(call: Call) -> timeit.Timer:
    names = {f"a{number}": value for number, value in enumerate(call.arguments)}
    return timeit.Timer(f"f({', '.join(names)})", globals={"f": call.function, **names})


def _loops(timer: timeit.Timer) -> int:
    loops = 1
    while (seconds := timer.timeit(loops)) < _LOOP_S / 4:
        loops *= 4
    return max(1, round(loops * _LOOP_S / seconds))


def time_once(work: Callable[[], object], repeats: int) -> Sample:
    """CPU seconds of something slow in this process, each time from a collected heap."""
    seconds = []
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
        del result
    return Sample.of(seconds)


def time_commands(
    commands: Mapping[str, Sequence[str]], repeats: int, folder: str, codes: Sequence[int] = (0,)
) -> dict[str, Sample]:
    """Wall-clock seconds of whole commands, taking turns, run in `folder`.

    Raises CalledProcessError for an exit code that is not among `codes`.
    """
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            start = time.perf_counter()
            done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)
            seconds[name].append(time.perf_counter() - start)
            if done.returncode not in codes:
                raise subprocess.CalledProcessError(done.returncode, list(command))
    return {name: Sample.of(found) for name, found in seconds.items()}
