"""Step 6: what a launch costs, one by one and in a graph; a target of Qwen3-8B's depth has 292."""

from __future__ import annotations

import numpy as np

from benchmarks.gpu.bed import Bed


def run(bed: Bed) -> None:
    """Notes microseconds a launch: as the runtime launches, unchecked, and from a graph."""
    count = bed.sizes.launches
    kernel = bed.device.kernel("count_launch")
    counter = bed.device.array(np.zeros(1, np.int32), "i32")
    function = bed.driver.load(kernel.signature.file, kernel.signature.name)
    one = (1, 1, 1)

    def checked() -> None:
        for _ in range(count):
            kernel(1, 32, (counter,))

    def unchecked() -> None:
        for _ in range(count):
            bed.driver.launch(function, one, (32, 1, 1), (counter.handle,), 0, None)

    with bed.device.capture("launches") as graph:
        checked()
    ways = {
        "eager": checked,
        "eager, past the checks of kernels/launch.py": unchecked,
        "in a graph": graph.replay,
    }
    for turn, (name, way) in enumerate(ways.items(), 1):
        seconds = bed.seconds(way, bed.sizes.repeats)
        bed.notes.figure(f"a launch, {name}, of {count}", seconds / count * 1e6, "us")
        # Each way once more than is measured.
        expected = turn * (bed.sizes.repeats + 1) * count
        found = int(bed.device.read(counter)[0])
        if found != expected:
            bed.notes.trouble(f"{name}: {found} launches happened by then, and not {expected}")
    graph.release()
