"""Step 4: how fast this memory is read and copied, the ceiling of all that follows."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.gpu.bed import Bed, need
from benchmarks.gpu.notes import Notes

CEILING = "read, the best"
BLOCK = 256
BLOCKS_EACH = (4, 8, 16)
"""Blocks for each multiprocessor; which is best differs from card to card."""


def run(bed: Bed) -> None:
    """Notes GB/s of reading with 128-bit loads, and of torch's copy."""
    need("torch")
    import torch

    wanted = bed.sizes.read_bytes
    if bed.torch_device == "cuda":
        # Twice, for the copy.
        wanted = min(wanted, torch.cuda.mem_get_info()[0] // 5 * 2)
    vectors = wanted // 16
    words = bed.device.empty((4 * vectors,), "u32")
    filled = torch.as_tensor(words.handle.view("int32"))
    filled.random_()
    expected = int(filled.sum(dtype=torch.int64)) % 2**32
    bed.notes.figure("memory read", 16 * vectors, "bytes")
    kernel, best = bed.device.kernel("read_all"), 0.0
    for each in BLOCKS_EACH:
        blocks = each * bed.driver.multiprocessors
        sums = bed.device.empty((blocks * BLOCK,), "u32")
        read = partial(kernel, blocks, BLOCK, (words, sums, vectors, blocks * BLOCK))
        seconds = bed.seconds(read, bed.sizes.repeats)
        # What was not read was not measured.
        found = int(bed.device.read(sums).astype(np.uint64).sum() % 2**32)
        if found != expected:
            bed.notes.trouble(f"{each} blocks each: the sum is {found}, and not {expected}")
            continue
        speed = 16 * vectors / seconds / 1e9
        best = max(best, speed)
        bed.notes.figure(f"read, {each} blocks each", speed, "GB/s")
    if best:
        bed.notes.figure(CEILING, best, "GB/s")
    copy = torch.empty_like(filled)
    seconds = bed.seconds(lambda: copy.copy_(filled), bed.sizes.repeats)
    bed.notes.figure("copy by torch, read and written", 2 * 16 * vectors / seconds / 1e9, "GB/s")


def ceiling(notes: Notes) -> float | None:
    """GB/s that this step found; None where it did not."""
    return notes.earlier("bandwidth", CEILING)
