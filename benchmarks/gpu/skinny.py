"""Step 5: products of few rows with Qwen3-8B's matrices, beside torch's on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarks.gpu.bandwidth import ceiling
from benchmarks.gpu.bed import Bed, need
from dspark.kernels.arrays import DeviceArray
from dspark.kernels.gemm_geometry import geometry

if TYPE_CHECKING:
    import torch

CLOSE = 2.0**-7
"""How far two results in bf16 may be apart, by the largest of a row: each was rounded once."""


def run(bed: Bed) -> None:
    """Notes GB/s of weights, ours and torch's, and which share of the ceiling that is."""
    need("torch")
    most = ceiling(bed.notes)
    if most is None and not bed.rehearsal:
        bed.notes.fact("share of the ceiling", "not known: the bandwidth was not measured")
    for name, (n, k) in bed.sizes.products.items():
        weights = [bed.random(n, k) for _ in range(copies(bed, n * k * 2))]
        for rows in bed.sizes.rows:
            for whose, speed in _speeds(bed, weights, rows, f"{name} {n}x{k}").items():
                bed.notes.figure(f"{name} {n}x{k}, {rows} rows, {whose}", speed, "GB/s")
                if most is not None:
                    what = f"{name} {n}x{k}, {rows} rows, {whose}, of the ceiling"
                    bed.notes.figure(what, speed / most, "")


def copies(bed: Bed, size: int) -> int:
    """How many weights take turns: with one alone the cache would be measured."""
    return -(-bed.sizes.rotated_bytes // size)


def _speeds(bed: Bed, weights: Sequence[DeviceArray], rows: int, what: str) -> dict[str, float]:
    n, k = weights[0].shape
    x, out = bed.random(rows, k), bed.device.empty((rows, n), "bf16")
    launch = geometry(
        rows,
        n,
        k,
        weight_bytes=2,
        multiprocessors=bed.driver.multiprocessors,
        most_shared=bed.driver.most_shared,
    )
    kernel, once = bed.device.kernel("gemm"), len(weights) * n * k * 2
    turns = -(-bed.sizes.timed_bytes // once)
    with bed.device.capture(what) as graph:
        for each in weights:
            kernel(launch.grid, launch.block, (each, x, out, rows, n, k), smem=launch.smem)
    ours = bed.seconds(_times(turns, graph.replay), bed.sizes.repeats)
    theirs, theirs_out = by_torch(bed, weights, x)
    other = bed.seconds(_times(turns, theirs), bed.sizes.repeats)
    graph.release()
    apart = _apart(bed.as_torch(out), theirs_out)
    if not apart <= CLOSE:
        bed.notes.trouble(f"{what}, {rows} rows: ours and torch's are {apart:.4f} apart")
        return {}
    moved = turns * once / 1e9
    return {"ours": moved / ours, "torch": moved / other}


def _times(count: int, work: Callable[[], object]) -> Callable[[], object]:
    def several() -> None:
        for _ in range(count):
            work()

    return several


def by_torch(
    bed: Bed, weights: Sequence[DeviceArray], x: DeviceArray
) -> tuple[Callable[[], object], torch.Tensor]:
    """The same products by torch, in a graph on a GPU; and where the last one ends up."""
    import torch

    given, matrices = bed.as_torch(x), [bed.as_torch(each).t() for each in weights]
    out = torch.empty(x.shape[0], weights[0].shape[0], dtype=given.dtype, device=given.device)

    def products() -> None:
        for each in matrices:
            torch.mm(given, each, out=out)

    return captured(bed, products), out


def captured(bed: Bed, work: Callable[[], object]) -> Callable[[], object]:
    """`work` of torch as a graph of its own, where there are graphs."""
    if bed.torch_device != "cuda":
        return work
    import torch

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Callable[[], object] = graph.replay
    return replay


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    wide, other = a.float(), b.float()
    return float(((wide - other).abs().amax(1) / other.abs().amax(1)).max())
