"""A graph: launches that were recorded once and run again as they were.

What a launch was handed by value is part of the graph: a Python number that changes later changes
nothing. What lies in device memory is read anew each time, so whatever differs from round to round
(positions, lengths, page tables, seeds) lies there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.errors import GraphError

if TYPE_CHECKING:
    from dspark.kernels.launch import Device


class Graph:
    """Made by `Device.capture`; it keeps every array alive that it will use."""

    def __init__(self, device: Device, name: str) -> None:
        self.name = name
        self.launches = 0
        self._device = device
        self._arrays: list[DeviceArray] = []
        self._recorded: Any = None
        self._usable = False

    def keep(self, arrays: Iterable[DeviceArray]) -> None:
        """Counts a launch that uses `arrays`."""
        self.launches += 1
        self._arrays += arrays

    def complete(self, recorded: Any) -> None:
        """Makes the graph ready to be replayed."""
        self._recorded, self._usable = recorded, True

    def replay(self) -> None:
        """Runs the launches once more, on the content that device memory has by then.

        Raises:
            GraphError: the capture failed or is under way, or the graph was released.
        """
        if not self._usable:
            raise GraphError(f"the graph `{self.name}` is not there to be replayed")
        self._device.replay(self, self._recorded)

    def release(self) -> None:
        """Gives up the graph and its arrays; without any other, memory can be allocated again."""
        self._usable, self._recorded = False, None
        self._arrays.clear()
        self._device.forget(self)
