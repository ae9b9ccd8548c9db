"""The simulator as a device: the kernels' own sources on a CPU, with graphs as CUDA has them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark.kernels.driver import Argument, Handle, Shape
from dspark.kernels.errors import LaunchError
from dspark.kernels.host.build import Library, build
from dspark.kernels.host.memory import Memory
from dspark.kernels.host.report import Report
from dspark.kernels.host.simulator import IN_ORDER, Schedule, Simulator


@dataclass(frozen=True, slots=True)
class _Function:
    library: Library
    kernel: str


@dataclass(frozen=True, slots=True)
class _Launch:
    """One node of a graph. Its numbers are NumPy scalars, which nobody can change any more."""

    function: _Function
    grid: Shape
    block: Shape
    arguments: tuple[Argument, ...]
    shared_bytes: int


@dataclass(slots=True)
class HostDriver:
    """A device that is a CPU; see `driver.Driver`. Compiled kernels are kept in `folder`.

    `mode` is one of `host.build.MODES`; `reports` says of each launch that ran what it moved, with
    the kernel's name before it. What is wrong with a launch is raised as `KernelFault`.
    """

    folder: Path
    mode: str = "checked"
    schedule: Schedule = IN_ORDER
    memory: Memory = field(default_factory=Memory)
    reports: list[tuple[str, Report]] = field(default_factory=list)
    name: str = "simulator"
    most_shared: int = 227 * 1024
    multiprocessors: int = 4
    _recording: list[_Launch] | None = None
    _unnamed: int = 0

    def load(self, file: Path, kernel: str) -> Any:
        library = build(file, self.folder, self.mode)
        if kernel not in library.kernels:
            raise LaunchError(f"`{kernel}` is not part of {file.name} on the simulator")
        return _Function(library, kernel)

    def launch(
        self,
        function: Any,
        grid: Shape,
        block: Shape,
        arguments: Sequence[Argument],
        shared_bytes: int,
        stream: Any,
    ) -> None:
        if stream is not None:
            raise LaunchError("the simulator has one stream, its own")
        # An array of nothing lies nowhere: whoever looks at it looks at null.
        given = tuple(None if each.size == 0 else each for each in arguments)
        launch = _Launch(function, grid, block, given, shared_bytes)
        if self._recording is None:
            self._run(launch)
        else:
            self._recording.append(launch)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str) -> Handle:
        self._unnamed += not name
        return self.memory.empty(shape, dtype, name or f"array {self._unnamed}")

    def address(self, handle: Handle) -> int:
        return int(handle.ctypes.data)

    def write(self, handle: Handle, values: npt.NDArray[Any]) -> None:
        handle[...] = values

    def read(self, handle: Handle) -> npt.NDArray[Any]:
        return np.array(handle)

    @property
    def has_library(self) -> bool:
        return True

    def library_stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def begin_capture(self) -> None:
        self._recording = []

    def end_capture(self) -> Any:
        recorded, self._recording = self._recording, None
        return recorded

    def replay(self, recorded: Any) -> None:
        for launch in recorded:
            self._run(launch)

    def synchronize(self) -> None:
        """Launches are over when they return."""

    def _run(self, launch: _Launch) -> None:
        report = Simulator(self.memory, self.schedule).launch(
            launch.function.library,
            launch.function.kernel,
            launch.grid,
            launch.block,
            launch.arguments,
            launch.shared_bytes,
        )
        self.reports.append((launch.function.kernel, report))
