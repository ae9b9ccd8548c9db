"""Broken products, one line each: whatever gemm.cuh and what stands on it need, a test notices."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dspark.kernels.signatures import FOLDER
from tests.kernels.test_mutants import outcome

MUTANTS = [
    # ----------------------------------------------------------------------- gemm.cuh: the ring
    ("gemm.cuh", "    copy_async_wait<kStages - 2>();\n", ""),
    ("gemm.cuh", "copy_async_wait<kStages - 2>", "copy_async_wait<kStages - 1>"),
    ("gemm.cuh", "    __syncthreads();\n", ""),
    (
        "gemm.cuh",
        "    if (step < steps) load(step);\n    copy_async_commit();\n",
        "    if (step < steps) load(step);\n",
    ),
    (
        "gemm.cuh",
        "load(step + kStages - 1);\n    copy_async_commit();\n",
        "load(step + kStages - 1);\n",
    ),
    ("gemm.cuh", "if (step < steps) load(step)", "load(step)"),
    ("gemm.cuh", "if (step + kStages - 1 < steps) load", "load"),
    ("gemm.cuh", "load(step + kStages - 1);", "load(step + kStages);"),
    ("gemm.cuh", "step < kStages - 1; step++", "step < kStages - 2; step++"),
    ("gemm.cuh", "stage = step % kStages * stage_size, at", "stage = 0, at"),
    (
        "gemm.cuh",
        "stage = step % kStages * stage_size;",
        "stage = (step + 1) % kStages * stage_size;",
    ),
    ("gemm.cuh", "+ rows * kVectors;", ";"),
    ("gemm.cuh", "ring + warps * kChannelBytes", "ring + kChannelBytes"),
    ("gemm.cuh", "ring + warp * kChannelBytes", "ring"),
    # ---------------------------------------------------------------------- gemm.cuh: the copies
    ("gemm.cuh", "swizzled(r, lane % 16)", "lane % 16"),
    ("gemm.cuh", "swizzled(row, vector), x", "vector, x"),
    ("gemm.cuh", "vector ^ (row % 2 * 5)", "vector + row % 2"),
    ("gemm.cuh", "channel < n && at < k", "channel < n"),
    ("gemm.cuh", "channel < n && at < k", "at < k"),
    ("gemm.cuh", "channel < n && at < k", "channel < n && at <= k"),
    ("gemm.cuh", "channel < n && at < k", "channel <= n && at < k"),
    ("gemm.cuh", "there ? 16 : 0);\n    }\n    for", "16);\n    }\n    for"),
    ("gemm.cuh", "there ? 16 : 0);\n    }\n  };", "16);\n    }\n  };"),
    ("gemm.cuh", "kPaired ? r % 8 : r", "r"),
    ("gemm.cuh", "kPaired && r >= 8 ? n : 0", "0"),
    ("gemm.cuh", "r = 2 * i + lane / 16", "r = i"),
    ("gemm.cuh", "i < rows * kVectors;", "i < kVectors;"),
    ("gemm.cuh", "i += blockDim.x", "i += rows * kVectors"),
    ("gemm.cuh", "/ panel) * rows + row)", "/ panel) * rows)"),
    ("gemm.cuh", "/ panel) * rows + row)", "/ panel) + row)"),
    ("gemm.cuh", "+ place % panel", "+ place"),
    ("gemm.cuh", "place < k", "true"),
    ("gemm.cuh", "place < k", "place <= k"),
    # ----------------------------------------------------------------------- gemm.cuh: the tiles
    ("gemm.cuh", "swizzled(group, 4 * i + part)", "swizzled(group, 4 * i)"),
    ("gemm.cuh", "from[16 * 8]", "from[0]"),
    ("gemm.cuh", "columns * 8 >= rows", "columns > 0"),
    ("gemm.cuh", "min(columns * 8 + group, rows - 1)", "columns * 8 + group"),
    ("gemm.cuh", "min(columns * 8 + group, rows - 1)", "min(group, rows - 1)"),
    ("gemm.cuh", "(4 * i + part) * (kValues / 8) + j", "4 * i + part"),
    ("gemm.cuh", "{b.x, b.y}", "{b.y, b.x}"),
    ("gemm.cuh", "{b.z, b.w}", "{b.x, b.y}"),
    ("gemm.cuh", "high[4 * j], low[4 * j + 1]", "low[4 * j + 1], high[4 * j]"),
    ("gemm.cuh", "sums[columns][0][i] + sums[columns][1][i]", "sums[columns][0][i]"),
    ("gemm.cuh", "pack_bf16x2(values[2], values[3])", "pack_bf16x2(values[3], values[2])"),
    ("gemm.cuh", "words[i], values", "words[0], values"),
    # -------------------------------------------------------------------- gemm.cuh: the results
    ("gemm.cuh", "scale[i / 2]", "scale[0]"),
    ("gemm.cuh", "kPaired ? 0 : 8 * half", "0"),
    ("gemm.cuh", "kPaired ? half * n : 0", "0"),
    ("gemm.cuh", "if (channel < n) scale", "scale"),
    ("gemm.cuh", "  __syncwarp();\n#pragma", "#pragma"),
    ("gemm.cuh", "  __syncwarp();\n  const int row", "  const int row"),
    ("gemm.cuh", "part * 2 + i % 2", "part * 2 + i / 2"),
    ("gemm.cuh", "(columns * 8 + part", "(part"),
    ("gemm.cuh", "group + i / 2 * 8]", "group]"),
    ("gemm.cuh", "kPitch = 20", "kPitch = 18"),
    ("gemm.cuh", "row = kPaired ? lane % 16 : lane / 2", "row = lane / 2"),
    ("gemm.cuh", "first + (kPaired ? 0 : lane % 2 * 8);", "first;"),
    ("gemm.cuh", "(kPaired ? 0 : lane % 2 * 2)", "0"),
    ("gemm.cuh", "row < rows && channel < n &&", "channel < n &&"),
    ("gemm.cuh", "row < rows && channel < n &&", "row < rows &&"),
    ("gemm.cuh", " && !(kPaired && lane >= 16)", ""),
    ("gemm.cuh", "__expf(-v[j])", "__expf(v[j])"),
    ("gemm.cuh", "right[j] * (v[j]", "right[j] * (right[j]"),
    # ----------------------------------------------------------------------------- gemm_out.cuh
    ("gemm_out.cuh", "at.row) * n", "at.row)"),
    ("gemm_out.cuh", "  if (!at.mine) return;\n  float more", "  float more"),
    ("gemm_out.cuh", "v[j] += more[j]", "v[j] = more[j]"),
    ("gemm_out.cuh", "if (at.mine) *", "*"),
    ("gemm_out.cuh", "  if (!at.mine) return;\n  float4*", "  float4*"),
    ("gemm_out.cuh", "  to[1] = make_float4(v[4], v[5], v[6], v[7]);\n", ""),
    ("gemm_out.cuh", "+ 4 * kPitch", ""),
    ("gemm_out.cuh", "{-kInfinity, kNowhere}", "{0.f, kNowhere}"),
    ("gemm_out.cuh", "if (at.mine) {", "{"),
    ("gemm_out.cuh", "at.channel + j}", "at.channel}"),
    ("gemm_out.cuh", "  best = best_of(best, 2);\n", ""),
    ("gemm_out.cuh", "if (lane % 2 == 0) of_warp", "of_warp"),
    ("gemm_out.cuh", "  __syncthreads();\n", ""),
    ("gemm_out.cuh", "  if (row >= rows) return;\n", ""),
    ("gemm_out.cuh", "w < static_cast<int>(blockDim.x / 32)", "w < 1"),
    ("gemm_out.cuh", "values[row * blocks + blockIdx.x]", "values[row + blockIdx.x]"),
    ("gemm_out.cuh", "places[row * blocks + blockIdx.x]", "places[row * blocks]"),
    # --------------------------------------------------------------------------- gemm.cu and fp8
    ("gemm.cu", "bias + at.channel", "bias"),
    ("gemm.cu", "stream + place_of(at, n)", "stream"),
    ("gemm_fp8.cu", "bias + at.channel", "bias"),
    ("gemm_fp8.cu", "stream + place_of(at, n)", "stream"),
    # ------------------------------------------------------------------------ best.cuh, best.cu
    ("best.cuh", "a_nan ? b_nan : a.value == b.value", "a.value == b.value"),
    ("best.cuh", "b.place < a.place", "b.place > a.place"),
    ("best.cuh", "b.place < a.place", "false"),
    ("best.cuh", "b_nan || b.value", "b.value"),
    ("best.cuh", "b.value > a.value", "b.value < a.value"),
    ("best.cuh", "other = lanes / 2", "other = lanes / 4"),
    ("best.cu", "blockIdx.x) * blocks", "0)"),
    ("best.cu", "{-kInfinity, kNowhere}", "{0.f, kNowhere}"),
    ("best.cu", "i += blockDim.x", "i += blocks"),
    ("best.cu", "  mine = best_of(mine, 32);\n", ""),
    ("best.cu", "if (lane == 0) warp_values", "warp_values"),
    ("best.cu", "  __syncthreads();\n", ""),
    ("best.cu", "  if (threadIdx.x != 0) return;\n", ""),
    ("best.cu", "w < static_cast<int>(blockDim.x / 32)", "w < 1"),
    ("best.cu", "fabsf(mine.value) < kInfinity ?", "mine.value < kInfinity ?"),
    ("best.cu", "fabsf(mine.value) < kInfinity ?", "true ?"),
]
SOURCES = ("gemm.cu", "gemm_fp8.cu", "best.cu")
TESTS = {"best.cu": ("test_best.py",), "best.cuh": ("test_best.py", "test_gemm.py")}


def flat(texts: dict[str, str], file: str) -> str:
    """`file` with its headers' text in their place: what is compiled is kept by the source."""

    def text_of(match: re.Match[str]) -> str:
        return flat(texts, match[1]) if match[1] in texts else match[0]

    text = texts[file].replace(
        "#pragma once\n", f"#ifndef ONCE_{file[:-4]}\n#define ONCE_{file[:-4]}\n"
    )
    end = "#endif\n" if text != texts[file] else ""
    return re.sub(r'#include "([\w.]+)"\n', text_of, text) + end


def sources() -> dict[str, str]:
    names = ("gemm.cuh", "gemm_out.cuh", "best.cuh", *SOURCES)
    return {name: (FOLDER / name).read_text(encoding="utf-8") for name in names}


def written(texts: dict[str, str], folder: Path) -> Path:
    """A folder of all kernels, those of `texts` in place of their own."""
    kernels = folder / "kernels"
    kernels.mkdir()
    for other in FOLDER.glob("*.cu"):
        shutil.copy(other, kernels)
    for source in SOURCES:
        (kernels / source).write_text(flat(texts, source), encoding="utf-8")
    return kernels


@pytest.mark.slow
@pytest.mark.parametrize("test", ["test_best.py", "test_gemm.py"])
def test_what_is_not_broken_passes(test: str, tmp_path: Path) -> None:
    run = outcome(str(Path(__file__).parent / test), written(sources(), tmp_path))

    assert 0 == run.returncode, run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "broken"), MUTANTS, ids=[str(number) for number in range(len(MUTANTS))]
)
def test_a_broken_product_is_noticed(file: str, line: str, broken: str, tmp_path: Path) -> None:
    texts = sources()
    assert line in texts[file]
    texts[file] = texts[file].replace(line, broken, 1)
    kernels = written(texts, tmp_path)

    for test in TESTS.get(file, ("test_gemm.py",)):
        run = outcome(str(Path(__file__).parent / test), kernels)
        if run.returncode:
            break

    # 1: tests ran and one failed. Anything else says nothing about the mutant.
    assert 1 == run.returncode, run.stdout + run.stderr
    assert "CompileError" not in run.stdout
