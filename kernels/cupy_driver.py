"""A GPU, through CuPy: its arrays and memory pool, its streams and graphs, and our machine code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from dspark.kernels.cubins import Compiler, open_compiler
from dspark.kernels.driver import Argument, Handle, Shape
from dspark.kernels.errors import AllocationError, LaunchError

_ALWAYS_SHARED = 48 * 1024
"""What a kernel may use without being allowed more first."""


class CupyDriver:
    """The GPU with this number, as CUDA counts them; see `driver.Driver`.

    Raises:
        ToolkitMissing, CompileError: there is no usable compiler.
    """

    name = "cupy"

    def __init__(self, ordinal: int = 0, compiler: Compiler | None = None) -> None:
        self._compiler = open_compiler() if compiler is None else compiler
        self._device = cupy.cuda.Device(ordinal)
        self._device.use()
        self.architecture = int(self._device.compute_capability)
        self.most_shared = int(self._device.attributes["MaxSharedMemoryPerBlockOptin"])
        self.multiprocessors = int(self._device.attributes["MultiProcessorCount"])
        # Not the default stream, which cannot be captured.
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._modules: dict[Path, Any] = {}
        self._has_library: bool | None = None

    @contextmanager
    def _here(self, stream: Any = None) -> Iterator[None]:
        """The device and its stream are the thread's, which may not be the one that made them."""
        with self._device, self._stream if stream is None else stream:
            yield

    def load(self, file: Path, kernel: str) -> Any:
        try:
            with self._here():
                if file not in self._modules:
                    cubin = self._compiler.cubin(file, self.architecture)
                    self._modules[file] = cupy.RawModule(path=str(cubin))
                function = self._modules[file].get_function(kernel)
                # CuPy loads it when it is first asked something, not to be inside a capture.
                function.compile()
                return function
        except cupy.cuda.driver.CUDADriverError as error:
            raise LaunchError(
                f"`{kernel}` is not part of {file.name} on sm_{self.architecture}: {error}"
            ) from error

    def launch(
        self,
        function: Any,
        grid: Shape,
        block: Shape,
        arguments: Sequence[Argument],
        shared_bytes: int,
        stream: Any,
    ) -> None:
        with self._here(stream):
            if shared_bytes > max(_ALWAYS_SHARED, function.max_dynamic_shared_size_bytes):
                function.max_dynamic_shared_size_bytes = shared_bytes
            function(grid, block, tuple(arguments), shared_mem=shared_bytes)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str) -> Handle:
        try:
            with self._here():
                return cupy.empty(shape, dtype=dtype)
        except cupy.cuda.memory.OutOfMemoryError as error:
            free, total = self._device.mem_info
            asked = prod(shape) * np.dtype(dtype).itemsize
            raise AllocationError(
                f"{asked} bytes were asked for{f' ({name})' if name else ''}, and the GPU has"
                f" {free} of {total} left",
                *(asked, free, f"GPU {self._device.id}"),
            ) from error

    def address(self, handle: Handle) -> int:
        return int(handle.data.ptr)

    def write(self, handle: Handle, values: npt.NDArray[Any]) -> None:
        with self._here():
            handle.set(values, stream=self._stream)
            # The caller may change `values` as soon as this returns.
            self._stream.synchronize()

    def read(self, handle: Handle) -> npt.NDArray[Any]:
        with self._here():
            values: npt.NDArray[Any] = handle.get(stream=self._stream)
            return values

    @property
    def has_library(self) -> bool:
        # A build of torch for CPUs is installed as often as not, and would take no array of CuPy's.
        if self._has_library is None:
            import torch

            self._has_library = torch.cuda.is_available()
        return self._has_library

    def library_stream(self) -> AbstractContextManager[object]:
        import torch

        make: Any = torch.cuda.ExternalStream
        stream = make(self._stream.ptr, device=f"cuda:{self._device.id}")
        made: AbstractContextManager[object] = torch.cuda.stream(stream)
        return made

    def begin_capture(self) -> None:
        with self._here():
            self._stream.begin_capture()

    def end_capture(self) -> Any:
        with self._here():
            graph = self._stream.end_capture()
            graph.upload(self._stream)
            return graph

    def replay(self, recorded: Any) -> None:
        with self._here():
            recorded.launch(self._stream)

    def synchronize(self) -> None:
        with self._here():
            self._stream.synchronize()
