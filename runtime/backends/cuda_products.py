"""Products of rows and weights on a device: by our kernels, or for long prompts by torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.gemm_geometry import MOST_ROWS, Geometry, geometry
from dspark.kernels.launch import Device
from dspark.kernels.shared_memory import norm_bytes
from dspark.runtime.backends.cuda_scratch import Scratch

WIDE = 65
"""From this many rows on a product is torch's, outside rounds and where torch has the device. Ours
reads the weights once for every 16 rows."""

_BF16 = 2


@dataclass(frozen=True, slots=True)
class CudaLinear:
    """A weight [N, H], and a bias [N] or none, on the device."""

    weights: DeviceArray
    bias: DeviceArray | None

    @property
    def outputs(self) -> int:
        return self.weights.shape[0]

    @property
    def inputs(self) -> int:
        return self.weights.shape[1]

    @property
    def with_bias(self) -> tuple[DeviceArray, DeviceArray]:
        """Weight and bias of a head that has one by the tensors its draft takes."""
        # INVARIANT: nobody asks another.
        assert self.bias is not None
        return self.weights, self.bias


def launches_over(rows: int) -> list[tuple[int, int]]:
    """From which row to before which, for each launch of kernels that take `MOST_ROWS` of them."""
    return [(begin, min(begin + MOST_ROWS, rows)) for begin in range(0, rows, MOST_ROWS)]


class Products:
    """Each function returns an array of `scratch`, valid until the next of the same name."""

    def __init__(self, device: Device, scratch: Scratch) -> None:
        self._device = device
        self._scratch = scratch
        self._in_round = False

    @contextmanager
    def in_round(self) -> Iterator[None]:
        """Inside, every product is by our kernels, which a graph can hold."""
        self._in_round = True
        try:
            yield
        finally:
            self._in_round = False

    def _is_wide(self, rows: int) -> bool:
        return rows >= WIDE and not self._in_round and self._device.driver.has_library

    def linear(self, x: DeviceArray, weight: CudaLinear) -> DeviceArray:
        rows, n = x.shape[0], weight.outputs
        out = self._scratch.empty("product", (rows, n))
        if self._is_wide(rows):
            self._wide(x, weight, out)
        elif weight.bias is None:
            self._narrow("gemm", x, weight, (), out)
        else:
            self._narrow("gemm_bias", x, weight, (weight.bias,), out)
        return out

    def logits(self, x: DeviceArray, weight: CudaLinear) -> DeviceArray:
        """In float32."""
        out = self._scratch.empty("logits", (x.shape[0], weight.outputs), "f32")
        self._narrow("gemm_f32", x, weight, (), out)
        return out

    def add(self, x: DeviceArray, weight: CudaLinear, stream: DeviceArray) -> DeviceArray:
        """`stream` plus the product, where `stream` is."""
        rows, n = x.shape[0], weight.outputs
        if weight.bias is not None:
            self._add(self.linear(x, weight), stream)
            return stream
        if self._is_wide(rows):
            with self._device.library_stream():
                _tensor(stream).addmm_(_tensor(x), _tensor(weight.weights).T)
            return stream
        for begin, end in launches_over(rows):
            part = stream.rows(begin, end)
            arguments = (weight.weights, x.rows(begin, end), part, part, end - begin)
            self._launch("gemm_add", end - begin, n, weight.inputs, (*arguments, n, weight.inputs))
        return stream

    def swiglu(self, x: DeviceArray, weight: CudaLinear) -> DeviceArray:
        """SiLU of the first half of the outputs times the second half."""
        rows, n = x.shape[0], weight.outputs // 2
        out = self._scratch.empty("gated", (rows, n))
        if self._is_wide(rows):
            both = self.linear(x, weight)
            blocks = -(-rows * n // 8 // 256)
            self._device.kernel("silu_mul")(blocks, 256, (both, out, rows, n))
            return out
        for begin, end in launches_over(rows):
            arguments = weight.weights, x.rows(begin, end), out.rows(begin, end), end - begin
            self._launch(
                *("gemm_silu_mul", end - begin, n, weight.inputs, (*arguments, n, weight.inputs)),
                paired=True,
            )
        return out

    def best(self, x: DeviceArray, weight: CudaLinear) -> DeviceArray:
        """int32 [R]: the first place of each row's largest output, -1 where that is no number."""
        rows, n, k = x.shape[0], weight.outputs, weight.inputs
        best = self._scratch.empty("best", (rows,), "i32")
        top = self._scratch.empty("top", (-(-rows // 4) * 4,), "f32")
        for begin, end in launches_over(rows):
            count, blocks = end - begin, self._geometry(end - begin, n, k).grid
            values = self._scratch.empty("block values", (count, blocks), "f32")
            places = self._scratch.empty("block places", (count, blocks), "i32")
            arguments = weight.weights, x.rows(begin, end), values, places, count, n, k, blocks
            self._launch("gemm_argmax", count, n, k, arguments)
            found = values, places, best.rows(begin, end), top.rows(begin, end), count, blocks
            self._device.kernel("best_of_blocks")(count, 256, found)
        return best

    def panels(self, x: DeviceArray, out: DeviceArray, weight: CudaLinear) -> None:
        """Puts the product of `x` [panels, up to 16 rows, width], joined by row, into `out`."""
        panels, rows, width = x.shape
        arguments = weight.weights, x, out, rows, weight.outputs, panels, width
        self._launch("gemm_panels", rows, weight.outputs, weight.inputs, arguments)

    def _narrow(
        self,
        kernel: str,
        x: DeviceArray,
        weight: CudaLinear,
        between: tuple[DeviceArray, ...],
        out: DeviceArray,
    ) -> None:
        for begin, end in launches_over(x.shape[0]):
            arguments = weight.weights, x.rows(begin, end), *between, out.rows(begin, end)
            sizes = end - begin, weight.outputs, weight.inputs
            self._launch(kernel, *sizes, (*arguments, *sizes))

    def _launch(
        self, kernel: str, rows: int, n: int, k: int, arguments: Any, *, paired: bool = False
    ) -> None:
        chosen = self._geometry(rows, n, k, paired=paired)
        self._device.kernel(kernel)(chosen.grid, chosen.block, arguments, smem=chosen.smem)

    def _geometry(self, rows: int, n: int, k: int, *, paired: bool = False) -> Geometry:
        driver = self._device.driver
        return _geometry(rows, n, k, driver.multiprocessors, driver.most_shared, paired)

    def _wide(self, x: DeviceArray, weight: CudaLinear, out: DeviceArray) -> None:
        with self._device.library_stream():
            made, rows, matrix = (_tensor(each) for each in (out, x, weight.weights))
            if weight.bias is None:
                made.copy_(rows @ matrix.T)
            else:
                made.copy_(rows @ matrix.T + _tensor(weight.bias))

    def _add(self, x: DeviceArray, stream: DeviceArray) -> None:
        # No published model has a bias here, so none has a kernel: the sum is one of a norm's.
        rows, width = x.shape
        weight, out = (self._scratch.empty(name, x.shape) for name in ("no weight", "no norm"))
        arguments = x, stream, weight, out, rows, width, 1.0
        self._device.kernel("add_rms_norm")(rows, 128, arguments, smem=norm_bytes(width))


def _tensor(array: DeviceArray) -> Any:
    """A bf16 array as torch sees it, without a copy."""
    import torch
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(array.handle).view(torch.bfloat16)


@lru_cache(maxsize=1024)
def _geometry(
    rows: int, n: int, k: int, multiprocessors: int, most_shared: int, paired: bool
) -> Geometry:
    return geometry(
        *(rows, n, k),
        weight_bytes=_BF16,
        multiprocessors=multiprocessors,
        most_shared=most_shared,
        paired=paired,
    )
