"""A graph for each size of a round that comes again."""

from __future__ import annotations

from collections.abc import Callable

from dspark.kernels.graph import Graph
from dspark.kernels.launch import Device
from dspark.runtime.device_round.batch import Sizes


class Graphs:
    """Runs rounds: the first of a size launch by launch, and from the second on as its graph.

    The first one also loads the kernels and grows the arrays, neither of which a capture allows.
    `eager` and `replayed` count the rounds of either kind, `captured` the graphs made so far.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._graphs: dict[Sizes, Graph] = {}
        self._seen: set[Sizes] = set()
        self.eager = self.replayed = self.captured = 0

    def run(self, sizes: Sizes, launch: Callable[[], None]) -> None:
        """Runs what `launch` launches, which is the same for equal `sizes`."""
        if sizes not in self._seen:
            launch()
            # Not before: where memory ran short, its arrays have not grown yet.
            self._seen.add(sizes)
            self.eager += 1
            return
        if sizes not in self._graphs:
            with self._device.capture(str(sizes)) as graph:
                launch()
            self._graphs[sizes] = graph
            self.captured += 1
        self.replayed += 1
        self._graphs[sizes].replay()

    def release(self) -> None:
        """Gives up all graphs, so that memory can be had again; they are captured anew later."""
        for graph in self._graphs.values():
            graph.release()
        self._graphs.clear()
