"""Passes for the attention kernels: pages in no order, and NaN wherever no row may look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark.kernel_sizes import HEAD_DIMS
from dspark.kernels import bf16
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.attention_geometry import AttentionGeometry, attention_geometry
from dspark.kernels.host.report import Report
from dspark.runtime.backends.base import KvStore, Reads
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.models import rows
from tests.support.kernel_bench import HALF_ULP, KERNELS, Bench, Floats, rounded

SIZES = [size for size in HEAD_DIMS if f"attend_{size}" in KERNELS]
"""All of them, or as many as a folder of broken kernels has."""

BEYOND = 2**20
"""A page that no store has: whoever looks it up is out of bounds."""

Range = tuple[int, int]


def ranges(
    start: int, count: int, window: int | None = None, *, causal: bool = True
) -> list[Range]:
    """What the runtime lets `count` rows from position `start` on see."""
    segment = rows.Segment([0] * count, start, [])
    reads = rows._reads(segment, window, causal=causal)
    return list(zip(reads.begins, reads.ends, strict=True))


@dataclass(slots=True)
class Case:
    """Sizes of a pass; by default four query heads share two key heads, and a page is no tile."""

    size: int
    heads: int = 4
    kv_heads: int = 2
    page_size: int = 24
    split: int = 64
    width: int = 5
    table_pages: int = 8
    pages: int = 20
    most_shared: int = 232_448

    @property
    def splits(self) -> int:
        return -(-self.table_pages * self.page_size // self.split)

    def geometry(self, requests: int) -> AttentionGeometry:
        return attention_geometry(
            requests=requests,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.size,
            splits=self.splits,
            most_shared=self.most_shared,
        )


class Pass:
    """A pass of `case`: for each request what its rows see. Further rows see nothing.

    Queries, keys and values are drawn by request, position and range alone, so that what two passes
    have in common is the same in both. `names` are the numbers of the requests there.
    """

    def __init__(
        self, case: Case, seen: Sequence[Sequence[Range]], names: Sequence[int] | None = None
    ) -> None:
        self.case, self.seen = case, seen
        self.names = range(len(seen)) if names is None else names
        dealt = iter(np.random.default_rng(len(seen)).permutation(case.pages).tolist())
        ends = [max((end for _, end in each), default=0) for each in seen]
        self.tables = [[next(dealt) for _ in range(0, end, case.page_size)] for end in ends]
        store = case.pages, case.kv_heads, case.page_size, case.size
        self.keys, self.values = np.full(store, np.nan), np.full(store, np.nan)
        self.q = np.full((len(seen), case.width, case.heads, case.size), np.nan)
        for request, each in enumerate(seen):
            name = self.names[request]
            for position in sorted({at for one in each for at in range(*one)}):
                random = np.random.default_rng([name, position])
                page, place = self.place(request, position)
                drawn = rounded(random.normal(size=(2, case.kv_heads, case.size)))
                self.keys[page, :, place], self.values[page, :, place] = drawn
            for row, one in enumerate(each):
                random = np.random.default_rng([name, *one])
                self.q[request, row] = rounded(random.normal(size=self.q.shape[2:]) * 2)

    def place(self, request: int, position: int) -> tuple[int, int]:
        """Page, and place in it."""
        return self.tables[request][position // self.case.page_size], position % self.case.page_size

    def content(self) -> dict[str, npt.NDArray[Any]]:
        """What the device gets, by the name of the parameter."""
        bounds = np.zeros((2, len(self.seen), self.case.width), np.int32)
        tables = np.full((len(self.seen), self.case.table_pages), BEYOND, np.int32)
        for request, each in enumerate(self.seen):
            bounds[:, request, : len(each)] = np.reshape(each, (-1, 2)).T
            tables[request, : len(self.tables[request])] = self.tables[request]
        floats = {"q": self.q, "keys": self.keys, "values": self.values}
        return {name: bf16.to_bits(each) for name, each in floats.items()} | {
            "page_tables": tables,
            "begins": bounds[0],
            "ends": bounds[1],
        }

    def place_on(self, bench: Bench) -> dict[str, DeviceArray]:
        """Everything that the two kernels read or write, by the name of the parameter."""
        case, shape = self.case, (len(self.seen), self.case.width, self.case.heads)
        # No two arrays of a bench have the same name; those of its first pass have the plain ones.
        mark = f" behind {len(bench.driver.reports)}" if bench.driver.reports else ""
        placed = {
            name: bench.device.array(each, "i32" if each.dtype == np.int32 else "bf16", name + mark)
            for name, each in self.content().items()
        }
        return placed | {
            "partial": bench.poison((*shape, case.splits, case.size), "partial" + mark, "f32"),
            "stats": bench.poison((*shape, case.splits, 2), "stats" + mark, "f32"),
            "out": bench.poison((*shape, case.size), "out" + mark),
        }

    def launch(self, bench: Bench, arrays: Mapping[str, DeviceArray], less: int = 0) -> None:
        """Both launches, the first with `less` bytes of shared memory than it should have."""
        case, requests = self.case, len(self.seen)
        geometry = case.geometry(requests)
        attend = bench.device.kernel(f"attend_{case.size}")
        numbers: dict[str, Any] = {
            "requests": requests,
            "width": case.width,
            "rows": requests * case.width,
            "heads": case.heads,
            "kv_heads": case.kv_heads,
            "pages": case.pages,
            "page_size": case.page_size,
            "table_pages": case.table_pages,
            "positions": case.table_pages * case.page_size,
            "splits": case.splits,
            "split": case.split,
            "stages": geometry.stages,
            "scale": case.size**-0.5,
        }
        given = numbers | dict(arrays)
        args = [given[each.name] for each in attend.signature.parameters]
        attend(geometry.grid, geometry.block, args, smem=geometry.smem - less)
        combine = bench.device.kernel(f"combine_splits_{case.size}")
        args = [given[each.name] for each in combine.signature.parameters]
        combine(geometry.combine_grid, geometry.combine_block, args)

    def run(self, bench: Bench) -> list[Report]:
        """Launches both kernels, says what each moved, and does what `read` does."""
        arrays = self.place_on(bench)
        self.launch(bench, arrays)
        self.read(bench, arrays)
        return [report for _, report in bench.driver.reports[-2:]]

    def read(self, bench: Bench, arrays: Mapping[str, DeviceArray]) -> None:
        """Leaves `bits` and `out` [requests, width, heads, d] behind."""
        self.bits, self.out = bench.device.read(arrays["out"]), bench.floats(arrays["out"])

    def expected(self, values: Floats) -> list[Floats]:
        """For each request [its rows, heads, d]."""
        backend, case = ReferenceBackend(), self.case
        store = KvStore([self.keys], [values], case.page_size)
        found = []
        for request, each in enumerate(self.seen):
            reads = Reads(self.tables[request], [b for b, _ in each], [e for _, e in each])
            plan = backend.attention_plan([reads], store, case.heads // case.kv_heads)
            q = self.q[request, : len(each)]
            found.append(backend.attend(q, store, 0, plan).reshape(q.shape))
        return found

    def assert_right(self) -> None:
        """`out` is the reference's, and 0 in rows that see nothing."""
        # A weight is rounded by its own size, and so is what comes out; roundings cancel in part.
        sizes = self.expected(np.abs(self.values))
        for request, expected in enumerate(self.expected(self.values)):
            found = self.out[request, : len(expected)]
            limit = HALF_ULP * (np.abs(expected) + sizes[request])
            assert (np.abs(found - expected) <= limit).all(), np.abs(found - expected).max()
            np.testing.assert_array_equal(self.out[request, len(expected) :], 0.0)
