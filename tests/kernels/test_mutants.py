"""Broken kernels, one line each: whatever a kernel needs, a test notices when it is gone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dspark.kernels.signatures import FOLDER

MUTANTS = [
    # ------------------------------------------------------------------------------- norm.cu
    ("norm", "  __syncthreads();\n", ""),
    ("norm", "squares = warp_sum(squares);", ""),
    ("norm", "if (lane == 0) partial[warp] = squares;", "partial[warp] = squares;"),
    ("norm", "partial[warp] = squares", "partial[0] = squares"),
    ("norm", "w < static_cast<int>(blockDim.x / 32)", "w < static_cast<int>(blockDim.x / 32) - 1"),
    ("norm", "w < static_cast<int>(blockDim.x / 32)", "w < 32"),
    (
        "norm",
        "  for (int i = threadIdx.x; i < vectors; i += blockDim.x) {\n    uint4",
        "  { int i = threadIdx.x;\n    uint4",
    ),
    (
        "norm",
        "i < vectors; i += blockDim.x) {\n    float v[8], w[8]",
        "i < vectors + 1; i += blockDim.x) {\n    float v[8], w[8]",
    ),
    ("norm", "kept[i] = packed;", "kept[0] = packed;"),
    ("norm", "packed = pack_bf16x8(v);\n      sums[i] = packed;", "sums[i] = pack_bf16x8(v);"),
    ("norm", "      unpack_bf16x8(packed, v);\n    }", "    }"),
    ("norm", "sums[i] = packed;", ""),
    ("norm", "to_float(to_bf16(v[j] * scale)) * w[j]", "v[j] * scale * w[j]"),
    ("norm", "total / width + eps", "total / width"),
    ("norm", "total / width + eps", "total + eps"),
    ("norm", "reinterpret_cast<uint4*>(out) + row", "reinterpret_cast<uint4*>(out)"),
    # ------------------------------------------------------------------------------- rows.cu
    ("rows", "id >= 0 && id < entries", "id < entries"),
    ("rows", "id >= 0 && id < entries", "id >= 0"),
    ("rows", "id < entries", "id <= entries"),
    ("rows", "known ? from[i] : nothing", "from[i]"),
    ("rows", "(known ? id : 0)", "id"),
    ("rows", "i < vectors; i += blockDim.x", "i < 32; i += blockDim.x"),
    ("rows", "i / vectors * vectors + i", "2 * i"),
    ("rows", "from[at + vectors]", "from[at + 1]"),
    ("rows", "gridDim.x) * blockDim.x;", "1) * blockDim.x;"),
    (
        "rows",
        "static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count",
        "threadIdx.x; i < count",
    ),
    ("rows", "i < count", "i < count - 1"),
    ("rows", "__expf(-gate[j])", "__expf(gate[j])"),
    # ------------------------------------------------------------------------------- rope.cu
    ("rope", "slot / page_size, place", "slot / page_size * 0, place"),
    ("rope", "slot % page_size", "slot / page_size"),
    ("rope", "position >= 0 && position < positions", "position < positions"),
    ("rope", "position >= 0 && position < positions", "position >= 0"),
    ("rope", "position < positions", "position <= positions"),
    ("rope", "known && part < kParts", "known"),
    ("rope", "part < kParts;\n    const bool is_query", "true;\n    const bool is_query"),
    ("rope", "turn[kHalf / 4]", "turn[0]"),
    ("rope", "cosine[j] = sine[j] = __int_as_float(0x7fffffff)", "cosine[j] = 1.f, sine[j] = 0.f"),
    ("rope", "first += gridDim.y * together", "first += items"),
    ("rope", "first = blockIdx.y * together", "first = 0"),
    ("rope", "item < items && part < kParts", "part < kParts"),
    ("rope", "other = 4; other > 0", "other = 2; other > 0"),
    ("rope", "    if (!mine) continue;\n", ""),
    ("rope", "item >= heads + kv_heads", "item >= heads + kv_heads + 1"),
    ("rope", "(item - heads) % kv_heads", "0"),
    ("rope", "(is_value ? values : keys)", "keys"),
    ("rope", "* kv_heads + kv) * page_size", "+ kv) * page_size"),
    ("rope", "is_query ? q_weight : k_weight", "q_weight"),
    ("rope", "squares / kDim + eps", "squares / kHalf + eps"),
    ("rope", "a[j] = u * cosine[j] - v * sine[j]", "a[j] = u * cosine[j] + v * sine[j]"),
    ("rope", "b[j] = v * cosine[j] + u * sine[j]", "b[j] = v * cosine[j]"),
    ("rope", "if (!is_value) {", "{"),
    ("rope", "reinterpret_cast<uint4*>(to)[part + kParts] = right;", ""),
    ("rope", "right = from[kParts]", "right = from[0]"),
    ("rope", "weight[kParts]", "weight[0]"),
    # ------------------------------------------------------------------------------ round.cu
    ("round", "lengths[request] + index", "lengths[request] + index + 1"),
    ("round", "index < rows_of[request] && ", ""),
    ("round", " && position / page_size < table_pages", ""),
    ("round", "position / page_size < table_pages", "position / page_size <= table_pages"),
    ("round", "used ? position : 0", "position"),
    ("round", "scratch + row", "scratch"),
    ("round", "request * table_pages + position / page_size", "position / page_size"),
    ("round", "+ position % page_size", ""),
    ("round", "row += gridDim.x * blockDim.x", "row += rows"),
    ("round", "rows_of[request] - 1", "width - 1"),
    ("round", "i < drafts && choice", "i < drafts + 1 && choice"),
    ("round", "choice[i] >= 0 && ", ""),
    ("round", "mine[i + 1] == choice[i]", "mine[i] == choice[i]"),
    ("round", "__ffs(~votes) - 1", "__ffs(~votes)"),
    ("round", "votes != kFullWarp", "true"),
    ("round", "    accepted += 32;\n", "    break;\n"),
    ("round", "drafts < 0 ? 0 : accepted + 1", "accepted + 1"),
    ("round", "i < count ? choice[i] : -1", "choice[i]"),
    ("round", "i = lane; i < width", "i = lane; i < 32"),
    ("round", "if (lane == 0) kept", "kept"),
    ("round", "  if (request >= requests) return;\n", ""),
    ("round", "if (count == 0) continue;", ""),
    ("round", "lengths[request] += count", "lengths[request] += width"),
    ("round", "width + count - 1]", "width + count]"),
    ("round", "request += gridDim.x * blockDim.x", "request += requests"),
]
TESTS = {
    "norm": "test_norm.py",
    "rows": "test_rows.py",
    "rope": "test_rope.py",
    "round": "test_round.py",
}


def outcome(test: str, kernels: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test],
        env=os.environ | {"DSPARK_MUTANT": str(kernels)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "broken"), MUTANTS, ids=[str(number) for number in range(len(MUTANTS))]
)
def test_a_broken_kernel_is_noticed(file: str, line: str, broken: str, tmp_path: Path) -> None:
    text = (FOLDER / f"{file}.cu").read_text(encoding="utf-8")
    assert line in text
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for other in FOLDER.glob("*.cu"):
        shutil.copy(other, kernels)
    (kernels / f"{file}.cu").write_text(text.replace(line, broken, 1), encoding="utf-8")

    run = outcome(str(Path(__file__).parent / TESTS[file]), kernels)

    # 1: tests ran and one failed. Anything else says nothing about the mutant.
    assert 1 == run.returncode, run.stdout + run.stderr
