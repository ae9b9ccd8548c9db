"""What a place that runs kernels must offer: memory, launches, and graphs of launches.

There are two: `cupy_driver.py` for a GPU and `host_driver.py` for the simulator. Whatever is said
about a launch or a graph before it reaches a driver is checked in `launch.py`, for both alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Handle: TypeAlias = Any
"""A driver's own array; it has `shape`, `reshape` and slices as NumPy's do."""

Argument: TypeAlias = Any
"""What a kernel is handed: a `Handle`, or a NumPy scalar of the parameter's own size."""

Shape: TypeAlias = tuple[int, int, int]

STORAGE: dict[str, npt.DTypeLike] = {
    "bf16": np.uint16,
    "fp8": np.uint8,
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "u8": np.uint8,
}
"""What arrays are made of on the host and on the device, by the launch layer's name of a type."""


class Driver(Protocol):
    """A device; see the module. Nothing here checks what it is handed."""

    name: str
    most_shared: int
    """Bytes of shared memory that a block can have."""
    multiprocessors: int

    def load(self, file: Path, kernel: str) -> Any:
        """A kernel of a .cu file, ready to be launched.

        Raises:
            CompileError: the file does not compile.
            LaunchError: what was compiled for this device lacks the kernel.
        """
        ...

    def launch(
        self,
        function: Any,
        grid: Shape,
        block: Shape,
        arguments: Sequence[Argument],
        shared_bytes: int,
        stream: Any,
    ) -> None:
        """Puts a launch on `stream`, None being the driver's own."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str) -> Handle:
        """An array whose content is unspecified; `name` is for messages about it, and may be empty.

        Raises:
            AllocationError: there is not that much memory.
        """
        ...

    def address(self, handle: Handle) -> int:
        """Where the array lies on the device."""
        ...

    def write(self, handle: Handle, values: npt.NDArray[Any]) -> None:
        """Copies `values`, of the same shape and type, to the device, behind all work put there."""
        ...

    def read(self, handle: Handle) -> npt.NDArray[Any]:
        """The array's content, once all work put on the device is done."""
        ...

    @property
    def has_library(self) -> bool:
        """Whether torch computes on this device too."""
        ...

    def library_stream(self) -> AbstractContextManager[object]:
        """What torch's work on arrays runs inside, so that it comes between the launches."""
        ...

    def begin_capture(self) -> None:
        """From here on, launches are recorded and not run."""
        ...

    def end_capture(self) -> Any:
        """What was recorded since `begin_capture`, to be handed to `replay`."""
        ...

    def replay(self, recorded: Any) -> None:
        """Puts all recorded launches on the driver's stream, with the arguments they had then."""
        ...

    def synchronize(self) -> None:
        """Returns when all work put on the device is done."""
        ...
