"""The one seam between the runtime and whatever runs its kernels.

    device = Device(driver)
    rms_norm = device.kernel("rms_norm")
    rms_norm(rows, 256, (x, weight, out, rows, width, 1e-6), smem=2 * width)

A launch is held against the kernel's source before it happens: how many arguments, which are
arrays, of what, and large enough. `Device.capture` records launches as a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark.kernels.arguments import check_arguments, check_geometry
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.driver import STORAGE, Driver
from dspark.kernels.errors import AllocatedUnderGraph, GraphError, LaunchError
from dspark.kernels.graph import Graph
from dspark.kernels.signatures import Signature, kernels_in

Dimensions = int | tuple[int, ...]


class Device:
    """Where kernels run: memory, launches and graphs of one driver. Not thread-safe.

    `kernels` are the kernels there are, by name; those that ship by default.
    """

    def __init__(self, driver: Driver, kernels: Mapping[str, Signature] | None = None) -> None:
        self.driver = driver
        self.launches = 0
        self._signatures = kernels_in() if kernels is None else kernels
        self._kernels: dict[str, Kernel] = {}
        self._capturing: Graph | None = None
        self._live: set[Graph] = set()

    def kernel(self, name: str) -> Kernel:
        """The kernel called `name`, compiled if it was not yet.

        Raises:
            LaunchError: there is no such kernel, or not for this device.
            CompileError: its source does not compile.
        """
        if name not in self._kernels:
            if name not in self._signatures:
                raise LaunchError(f"there is no kernel `{name}`")
            self._refuse_while_capturing(f"`{name}` is loaded")
            self._kernels[name] = Kernel(self, self._signatures[name])
        return self._kernels[name]

    def empty(self, shape: Sequence[int], dtype: str, name: str = "") -> DeviceArray:
        """An array of unspecified content; `dtype` is one of `signatures.SIZES`.

        `name` is what messages about it call it; on the simulator no two may have the same.

        Raises:
            AllocatedUnderGraph: a captured graph has not been released.
            AllocationError: there is not that much memory.
        """
        if self._capturing is not None or self._live:
            graph = self._capturing or min(self._live, key=lambda each: each.name)
            raise AllocatedUnderGraph(
                f"{prod(shape)} values of {dtype} were asked for while the graph `{graph.name}` is"
                " in use: allocate everything before the first capture"
            )
        return DeviceArray(self.driver.empty(tuple(shape), STORAGE[dtype], name), dtype)

    def array(self, values: npt.NDArray[Any], dtype: str, name: str = "") -> DeviceArray:
        """A new array that holds `values`, which are in the storage of `dtype` already.

        Raises:
            LaunchError: they are not.
            AllocatedUnderGraph, AllocationError: as `empty`.
        """
        new = self.empty(values.shape, dtype, name)
        self.write(new, values)
        return new

    def write(self, array: DeviceArray, values: npt.NDArray[Any]) -> None:
        """Replaces the content of `array`. Graphs see it: they hold addresses, not content.

        Raises:
            LaunchError: `values` are of another shape or type.
            GraphError: a capture is under way.
        """
        self._refuse_while_capturing("an array is written to")
        if values.dtype != STORAGE[array.dtype] or values.shape != array.shape:
            raise LaunchError(
                f"an array of {array.dtype} {list(array.shape)} cannot take {values.dtype}"
                f" {list(values.shape)}"
            )
        self.driver.write(array.handle, np.ascontiguousarray(values))

    def read(self, array: DeviceArray) -> npt.NDArray[Any]:
        """The content of `array` in its storage type, once all work before is done.

        Raises:
            GraphError: a capture is under way.
        """
        self._refuse_while_capturing("an array is read")
        return self.driver.read(array.handle)

    def synchronize(self) -> None:
        """Returns when everything launched so far is done. Raises `GraphError` in a capture."""
        self._refuse_while_capturing("the device is waited for")
        self.driver.synchronize()

    def library_stream(self) -> AbstractContextManager[object]:
        """What a library's work on arrays runs inside, to keep its place among the launches.

        Raises:
            GraphError: a capture is under way; a library's work is never part of a graph.
        """
        self._refuse_while_capturing("a library is called")
        return self.driver.library_stream()

    @property
    def capturing(self) -> bool:
        """Whether launches are being recorded."""
        return self._capturing is not None

    @contextmanager
    def capture(self, name: str) -> Iterator[Graph]:
        """Records the launches inside, which do not run, as the graph `name`.

        Raises:
            GraphError: another capture is under way, or nothing was launched.
        """
        self._refuse_while_capturing(f"the graph `{name}` is captured")
        graph = Graph(self, name)
        self._capturing = graph
        self.driver.begin_capture()
        try:
            yield graph
        finally:
            # Ended whatever happened inside: a stream left capturing fails every later call.
            self._capturing = None
            recorded = self.driver.end_capture()
        if not graph.launches:
            raise GraphError(f"the graph `{name}` was captured without a launch")
        graph.complete(recorded)
        self._live.add(graph)

    def forget(self, graph: Graph) -> None:
        """Lets memory be allocated again as far as `graph` is concerned; see `Graph.release`."""
        self._live.discard(graph)

    def replay(self, graph: Graph, recorded: Any) -> None:
        """Runs what `graph` recorded; see `Graph.replay`."""
        self._refuse_while_capturing(f"the graph `{graph.name}` is replayed")
        self.launches += graph.launches
        self.driver.replay(recorded)

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        arrays: Sequence[DeviceArray],
        shared_bytes: int,
        stream: Any,
    ) -> None:
        """Runs a launch that was checked, or records it; see `Kernel`."""
        if self._capturing is not None:
            if stream is not None:
                raise GraphError("a launch inside a capture goes to the capture's own stream")
            self._capturing.keep(arrays)
        else:
            self.launches += 1
        self.driver.launch(function, grid, block, arguments, shared_bytes, stream)

    def _refuse_while_capturing(self, what: str) -> None:
        if self._capturing is not None:
            raise GraphError(f"{what} inside the capture of `{self._capturing.name}`")


class Kernel:
    """One kernel on one device; call it to launch it."""

    def __init__(self, device: Device, signature: Signature) -> None:
        self.signature = signature
        self._device = device
        self._function = device.driver.load(signature.file, signature.name)

    def __call__(
        self,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[object],
        smem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launches `grid` blocks of `block` threads with `smem` bytes of dynamic shared memory.

        `args` are `DeviceArray`s, ints and floats, in the order of the source. Returns at once;
        what the kernel does is seen by whatever is launched or read after it.

        Raises:
            LaunchError: an argument, or the geometry, is not the kernel's; nothing was launched.
        """
        name = self.signature.name
        driver = self._device.driver
        blocks, threads = _three(name, grid), _three(name, block)
        check_geometry(self.signature, blocks, threads, smem, driver.most_shared)
        arrays, arguments = check_arguments(self.signature, args, driver.address)
        self._device.launch(self._function, blocks, threads, arguments, arrays, smem, stream)


def _three(kernel: str, dimensions: Dimensions) -> tuple[int, int, int]:
    given = (dimensions,) if isinstance(dimensions, int) else tuple(dimensions)
    if not 1 <= len(given) <= 3:
        raise LaunchError(f"`{kernel}` is launched with {len(given)} dimensions; there are up to 3")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
