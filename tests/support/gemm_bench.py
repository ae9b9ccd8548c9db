"""How tests run the products of gemm.cu and gemm_fp8.cu, in one way for both kinds of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dspark.kernels import bf16
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.gemm_geometry import geometry
from dspark.kernels.host.report import Report
from tests.support.kernel_bench import Bench, Floats

BYTES = {"bf16": 2, "fp8": 1}
"""Of one weight."""


def integers(shape: tuple[int, ...], seed: int) -> Floats:
    """Whole numbers up to 4, which bf16 and fp8 hold and whose products add up exactly."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


class Products:
    """Launches with weights of one kind, which stay until others are given.

    `worth` is what the weights are worth as they lie on the device, `scales` those of fp8, and
    `places` what the first step of `argmax` left, [rows, blocks].
    """

    worth: Floats
    scales: Floats
    places: list[list[int]]

    def __init__(self, bench: Bench, kind: str, multiprocessors: int = 4) -> None:
        self.multiprocessors = multiprocessors
        self._bench = bench
        self._kind = kind
        self._weights: list[DeviceArray] = []
        self._result: DeviceArray | None = None

    def out(self, rows: int, n: int, dtype: str = "bf16") -> DeviceArray:
        """Poisoned room for a result, which `result` then returns."""
        return self.keep(self._fresh("out", (rows, n), dtype))

    def keep(self, array: DeviceArray) -> DeviceArray:
        """Makes `array` what `result` returns."""
        self._result = array
        return array

    def result(self) -> Floats:
        # INVARIANT: tests call `out` or `keep` before they look.
        assert self._result is not None
        read = self._bench.device.read(self._result)
        return (bf16.from_bits(read) if self._result.dtype == "bf16" else read).astype(np.float64)

    def launch(
        self,
        kernel: str,
        x: Floats,
        matrix: Floats | None,
        *arrays: DeviceArray,
        sizes: tuple[int, ...] | None = None,
        paired: bool = False,
        less: int = 0,
    ) -> Report:
        """The kernel for this kind of weights, with `less` shared memory than it needs.

        `matrix` None: with the weights of the launch before. Sizes are rows, n and k by default.
        """
        if matrix is not None:
            self._place(matrix)
        rows, k = x.shape[-2], self.worth.shape[1]
        n = self.worth.shape[0] // (1 + paired)
        name = kernel if self._kind == "bf16" else kernel + "_fp8"
        self._free("x")
        args = *self._weights, self._bench.bf16(x, "x"), *arrays, *(sizes or (rows, n, k))
        launch = geometry(
            rows,
            n,
            k,
            weight_bytes=BYTES[self._kind],
            multiprocessors=self.multiprocessors,
            most_shared=self._bench.driver.most_shared,
            paired=paired,
        )
        smem = launch.smem - less
        return self._bench.launch(name, launch.grid, launch.block, *args, smem=smem)

    def argmax(self, x: Floats, matrix: Floats | None) -> tuple[list[int], Floats]:
        """The best place and value of each row, in both steps."""
        if matrix is not None:
            self._place(matrix)
        (rows, k), n = x.shape, self.worth.shape[0]
        blocks = geometry(
            rows,
            n,
            k,
            weight_bytes=BYTES[self._kind],
            multiprocessors=self.multiprocessors,
            most_shared=self._bench.driver.most_shared,
        ).grid
        values = self._fresh("values", (rows, blocks), "f32")
        places = self._fresh("places", (rows, blocks), "i32")
        self.launch("gemm_argmax", x, None, values, places, sizes=(rows, n, k, blocks))
        self.places = self._bench.ints(places)
        best, top = self._fresh("best", (rows,), "i32"), self._fresh("top", (rows,), "f32")
        self._bench.launch("best_of_blocks", rows, 64, values, places, best, top, rows, blocks)
        return self._bench.ints(best), self._bench.device.read(top).astype(np.float64)

    def _place(self, matrix: Floats) -> None:
        for name in ("weights", "scales"):
            self._free(name)
        if self._kind == "bf16":
            bits = bf16.to_bits(matrix)
            self.worth = bf16.from_bits(bits).astype(np.float64)
            self._weights = [self._bench.device.array(bits, "bf16", "weights")]
            return
        codes = _fp8(matrix)
        # Powers of two, so that what was exact stays so.
        self.scales = 2.0 ** np.random.default_rng(0).integers(-3, 4, len(matrix))
        self.worth = _values(codes) * self.scales[:, None]
        weights = self._bench.device.array(codes, "fp8", "weights")
        self._weights = [weights, self._bench.f32(self.scales, "scales")]

    def _fresh(self, name: str, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        self._free(name)
        return self._bench.poison(shape, name, dtype)

    def _free(self, name: str) -> None:
        if any(each.name == name for each in self._bench.driver.memory.buffers):
            self._bench.driver.memory.free(name)


def _fp8(matrix: Any) -> Any:
    """Codes of the nearest e4m3; codes already are themselves."""
    if matrix.dtype == np.uint8:
        return matrix
    return torch.from_numpy(matrix).to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def _values(codes: Any) -> Floats:
    return torch.from_numpy(codes).view(torch.float8_e4m3fn).to(torch.float64).numpy()
