"""Tensor-core fragments by the rules of the PTX ISA, written down here a second time."""

from __future__ import annotations

import numpy as np
import torch

from dspark.kernels.host.simulator import Schedule
from tests.kernels.host.bench import Array, Bench, line


def bf16(values: Array) -> tuple[Array, Array]:
    """bf16 codes of `values`, and what they are worth."""
    rounded = torch.from_numpy(values.astype(np.float32)).bfloat16()
    return rounded.view(torch.int16).numpy().view(np.uint16), rounded.float().numpy()


def fragments(codes: Array, places: list[list[tuple[int, int]]]) -> Array:
    """Per lane, the elements at its (row, column) places, two to a register, the first one low."""
    lanes = [[codes[row, column] for row, column in places[lane]] for lane in range(32)]
    return np.array(lanes, np.uint16).view(np.uint32)


def test_mma_multiplies_by_the_layout_of_the_ptx_isa(bench: Bench, schedule: Schedule) -> None:
    rng = np.random.default_rng(8)
    a_codes, a = bf16(rng.standard_normal((16, 16)))
    b_codes, b = bf16(rng.standard_normal((16, 8)))
    c = rng.standard_normal((16, 8)).astype(np.float32)
    # PTX ISA, matrix fragments for mma.m16n8k16, .bf16:
    #   A, i in 0..7: row = groupID, and 8 more for i in 2, 3, 6, 7;
    #                 column = threadID_in_group * 2 + (i & 1), and 8 more for i >= 4
    #   B, i in 0..3: row = threadID_in_group * 2 + (i & 1), and 8 more for i >= 2; column = groupID
    #   C, i in 0..3: row = groupID, and 8 more for i >= 2; column = threadID_in_group * 2 + (i & 1)
    a_places, b_places, c_places = [], [], []
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        a_places.append(
            [
                (group + 8 * (i in (2, 3, 6, 7)), thread * 2 + (i & 1) + 8 * (i >= 4))
                for i in range(8)
            ]
        )
        b_places.append([(thread * 2 + (i & 1) + 8 * (i >= 2), group) for i in range(4)])
        c_places.append([(group + 8 * (i >= 2), thread * 2 + (i & 1)) for i in range(4)])

    bench.run(
        "matrices.multiply",
        {
            "a": fragments(a_codes, a_places),
            "b": fragments(b_codes, b_places),
            "d": np.array([[c[place] for place in places] for places in c_places]),
        },
        schedule=schedule,
    )

    product = a.astype(np.float64) @ b.astype(np.float64) + c
    expected = np.array([[product[place] for place in places] for places in c_places])
    np.testing.assert_allclose(expected, bench.arrays["d"], rtol=1e-5, atol=1e-5)


def test_ldmatrix_hands_out_rows_or_columns(bench: Bench, schedule: Schedule) -> None:
    matrices = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
    expected = np.zeros((32, 14), np.uint32)
    for lane in range(32):
        row, column = lane // 4, lane % 4 * 2
        plain = [int(m[row, column]) | int(m[row, column + 1]) << 16 for m in matrices]
        turned = [int(m[column, row]) | int(m[column + 1, row]) << 16 for m in matrices]
        expected[lane] = [plain[0], *plain[:2], *plain, turned[0], *turned[:2], *turned]

    bench.run(
        "matrices.load_matrices",
        {"in": matrices, "out": np.zeros((32, 14), np.uint32)},
        schedule=schedule,
    )

    np.testing.assert_array_equal(expected, bench.arrays["out"])


def test_ldmatrix_wants_rows_aligned_to_16_bytes(bench: Bench) -> None:
    (finding,) = bench.faults(
        "matrices.load_misaligned", {"out": np.zeros(32, np.uint32)}, shared=1024
    )

    assert finding.kind == "misaligned"
    assert "gives ldmatrix a row that is not aligned to 16 bytes" in finding.text
    assert line("matrices", "bytes + 16 * threadIdx.x + 8") in finding.text


def test_ldmatrix_reads_shared_memory_alone(bench: Bench) -> None:
    (finding,) = bench.faults(
        "matrices.load_global", {"in": np.zeros(128, "u4"), "out": np.zeros(32, "u4")}
    )

    assert finding.kind == "out-of-bounds"
    assert "gives ldmatrix a row at byte 0 of `in`, outside shared memory" in finding.text


def test_mma_needs_the_whole_warp(bench: Bench, schedule: Schedule) -> None:
    findings = bench.faults(
        "matrices.multiply_with_half_a_warp", {"d": np.zeros(16, "f4")}, schedule=schedule
    )

    assert findings[0].kind == "mask"
    assert "is in a mma without all 32 lanes" in findings[0].text
