"""Broken attention, one line each: whatever these kernels need, a test notices when it is gone."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dspark.kernels.signatures import FOLDER
from tests.kernels.test_mutants import outcome

MUTANTS = [
    # ------------------------------------------------------------------- attention.cuh: the scores
    ("attention.cuh", "begin >= 0 && begin < end", "begin < end"),
    ("attention.cuh", "begin < end && end <= positions", "end <= positions"),
    ("attention.cuh", "end <= positions", "end <= positions + 1"),
    ("attention.cuh", "most == -kInfinity ? 0.f : most", "most"),
    ("attention.cuh", "kStrand + lane / 16 * 8 + lane % 8)", "kStrand + lane % 16)"),
    ("attention.cuh", "k + lane / 8 % 2 * 8", "k + lane / 16 * 8"),
    ("attention.cuh", "(team.top + lane % 16) * kPitch", "(lane % 16) * kPitch"),
    ("attention.cuh", "mma_m16n8k16(s[1], a, {b[2], b[3]})", "mma_m16n8k16(s[1], a, {b[0], b[3]})"),
    ("attention.cuh", "k < kDim; k += 16", "k < kDim - 16; k += 16"),
    ("attention.cuh", "strand += team.warps", "strand += 4"),
    ("attention.cuh", "strand = team.member;", "strand = 0;"),
    ("attention.cuh", "start + column + j / 2 * 8", "start + column + j / 2"),
    ("attention.cuh", "at >= team.begin[half] && at", "at"),
    ("attention.cuh", "at < team.end[half] ?", "at <= team.end[half] ?"),
    ("attention.cuh", "team.end[half] ? score * scale", "team.end[half] ? score"),
    (
        "attention.cuh",
        "      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));\n",
        "",
    ),
    (
        "attention.cuh",
        "      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));\n",
        "",
    ),
    ("attention.cuh", "s[n][half * 2] - reference(most)", "s[n][half * 2]"),
    (
        "attention.cuh",
        "row * kWeightPitch + column + n * 8) = pair",
        "row * kTile + column) = pair",
    ),
    (
        "attention.cuh",
        "weight += unpack_bf16x2(pair).x + unpack_bf16x2(pair).y;",
        "weight += exp2f(s[n][half * 2] - reference(most)) + unpack_bf16x2(pair).y;",
    ),
    ("attention.cuh", "      weight += __shfl_xor_sync(kFullWarp, weight, 1);\n", ""),
    ("attention.cuh", "      weight += __shfl_xor_sync(kFullWarp, weight, 2);\n", ""),
    ("attention.cuh", "if (lane % 4 == 0) {", "{"),
    ("attention.cuh", "strands.most[row * kStrands + strand] = most", "strands.most[row] = most"),
    # ------------------------------------------------------------------- attention.cuh: the values
    ("attention.cuh", "keep[half] = exp2f(before - reference(now))", "keep[half] = 1.f"),
    ("attention.cuh", "fmaxf(fmaxf(before, fmaxf(m.x, m.y))", "fmaxf(fmaxf(m.x, m.y)"),
    ("attention.cuh", "fmaxf(m.z, m.w)", "m.z"),
    ("attention.cuh", "exp2f(m.z - reference(now))", "exp2f(m.y - reference(now))"),
    ("attention.cuh", "    sums.most[half] = now;\n", ""),
    ("attention.cuh", "sums.weight[half] * keep[half] +", "sums.weight[half] +"),
    ("attention.cuh", " + w.y * factor[half][1]", ""),
    ("attention.cuh", "chunk = team.member + i * team.warps", "chunk = team.member + i"),
    ("attention.cuh", "mixed[j] *= keep[j / 2 % 2]", "mixed[j] *= keep[0]"),
    ("attention.cuh", "(team.top + lane % 16) * kWeightPitch", "(lane % 16) * kWeightPitch"),
    ("attention.cuh", "strand * kStrand + lane / 16 * 8);", "lane / 16 * 8);"),
    ("attention.cuh", "ldmatrix_x4_trans(b", "ldmatrix_x4(b"),
    ("attention.cuh", "chunk * 16 + lane / 16 * 8);\n      if", "lane / 16 * 8);\n      if"),
    ("attention.cuh", "part[1], a, {b[2], b[3]}", "part[1], a, {b[0], b[1]}"),
    ("attention.cuh", "factor[j / 2 % 2][strand]", "factor[0][strand]"),
    ("attention.cuh", "factor[j / 2 % 2][strand]", "factor[j / 2 % 2][0]"),
    # ----------------------------------------------------- attention.cuh: what is no finite number
    ("attention.cuh", "is_finite(pair) ? pair & 0xffffu : 0u", "pair & 0xffffu"),
    ("attention.cuh", "is_finite(pair >> 16) ? pair & 0xffff0000u : 0u", "pair & 0xffff0000u"),
    ("attention.cuh", "(bits & 0x7f80u) != 0x7f80u", "(bits & 0x7fc0u) != 0x7fc0u"),
    ("attention.cuh", "finite_of(v.x) == v.x && ", ""),
    ("attention.cuh", "finite_of(v.y) == v.y && ", ""),
    ("attention.cuh", "finite_of(v.z) == v.z && ", ""),
    ("attention.cuh", " && finite_of(v.w) == v.w", ""),
    ("attention.cuh", "for (uint32_t& pair : b) pair = finite_of(pair);", "{}"),
    ("attention.cuh", "if (!strange) continue;", "continue;"),
    ("attention.cuh", "start + at < team.begin[half] || ", ""),
    ("attention.cuh", " || start + at >= team.end[half]", ""),
    ("attention.cuh", "if (!is_finite(__float_as_uint(v) >> 16)) mixed", "mixed"),
    ("attention.cuh", "+= weight * v * times", "+= v * times"),
    ("attention.cuh", "+= weight * v * times", "+= weight * v"),
    ("attention.cuh", "j / 2 * 8 + lane % 4 * 2 + j % 2]);", "j / 2 * 8 + lane % 4 * 2]);"),
    ("attention.cuh", "mixed[j / 2 * 4 + half * 2 + j % 2]", "mixed[j / 2 * 4 + half * 2]"),
    # ----------------------------------------------------------------------- attention.cu: copies
    ("attention.cu", "row / group * heads + row % group;", "row;"),
    ("attention.cu", "real ? 16 : 0);", "16);"),
    ("attention.cu", "at >= low && at < high", "at < high"),
    ("attention.cu", "at >= low && at < high", "at >= low"),
    ("attention.cu", "at >= low && at < high", "at >= low && at <= high"),
    ("attention.cu", "* kv_heads + kv) * page_size", "+ kv) * page_size"),
    ("attention.cu", "+ at % page_size", ""),
    ("attention.cu", "row < 32 ? place[0] : place[1]", "place[0]"),
    ("attention.cu", "at < 0 ? 0 : 16", "16"),
    ("attention.cu", "page_tables + request * table_pages", "page_tables"),
    ("attention.cu", "step % 2 ? values : keys", "keys"),
    ("attention.cu", "    if (step < steps)\n", ""),
    ("attention.cu", "    copy_async_commit();\n", ""),
    ("attention.cu", "step < stages - 1; step++", "step < stages; step++"),
    ("attention.cu", "step < stages - 1; step++", "step < stages - 2; step++"),
    ("attention.cu", "copy_step(step + stages - 1)", "copy_step(step + stages)"),
    ("attention.cu", "copy_async_wait<0>()", "copy_async_wait<1>()"),
    ("attention.cu", "copy_async_wait<1>()", "copy_async_wait<2>()"),
    ("attention.cu", "if (stages == 2)", "if (stages == 3)"),
    # ----------------------------------------------------------------------- attention.cu: ranges
    ("attention.cu", "any ? end : 0", "end"),
    ("attention.cu", "min(table_pages * page_size, splits * split)", "table_pages * page_size"),
    ("attention.cu", "min(table_pages * page_size, splits * split)", "splits * split"),
    ("attention.cu", "  __syncthreads();\n", ""),
    ("attention.cu", "    if (end_of[t] == 0) continue;\n", ""),
    ("attention.cu", "low = min(low, begin_of[t])", "low = begin_of[t]"),
    ("attention.cu", "all_low = max(all_low, begin_of[t])", "all_low = begin_of[0]"),
    ("attention.cu", "high = max(high, end_of[t])", "high = end_of[t]"),
    ("attention.cu", "all_high = min(all_high, end_of[t])", "all_high = max(high, end_of[t])"),
    ("attention.cu", "  if (max(low, split_begin) >= min(high, split_end)) return;\n", ""),
    ("attention.cu", "first = max(low, split_begin) / kTile", "first = split_begin / kTile"),
    ("attention.cu", "+ kTile - 1) / kTile", ") / kTile"),
    ("attention.cu", "ring + step % stages * kStage;", "ring;"),
    # ------------------------------------------------------------------------ attention.cu: steps
    ("attention.cu", "blockDim.x / 32 / row_tiles", "4"),
    ("attention.cu", "threadIdx.x / 32 % team.warps", "threadIdx.x / 32 % 2"),
    ("attention.cu", "(team.top + half * 8 + lane / 4) / group", "(half * 8 + lane / 4) / group"),
    ("attention.cu", "t < width ? begin_of[t] : 0", "begin_of[0]"),
    ("attention.cu", "start >= all_low && ", ""),
    ("attention.cu", " && start + kTile <= all_high", ""),
    ("attention.cu", "__syncthreads_or(step", "(step"),
    ("attention.cu", "step % 2 && !shared_by_all && has", "false && has"),
    ("attention.cu", "scale * 1.4426950408889634f", "scale"),
    # ---------------------------------------------------------------------- attention.cu: results
    ("attention.cu", "    if (max(begin, split_begin) >= min(end, split_end)) continue;\n", ""),
    ("attention.cu", "begin >= split_begin && end <= split_end", "end <= split_end"),
    ("attention.cu", "begin >= split_begin && end <= split_end", "begin >= split_begin"),
    ("attention.cu", "begin >= split_begin && end <= split_end", "false"),
    ("attention.cu", "__fdividef(1.f, sums.weight[half])", "1.f"),
    ("attention.cu", "!whole && team.member == 0 && lane", "!whole && lane"),
    ("attention.cu", "!whole && team.member == 0 && lane", "team.member == 0 && lane"),
    ("attention.cu", "team.member == 0 && lane % 4 == 0)\n", "team.member == 0)\n"),
    ("attention.cu", "      if (column >= kDim) break;\n", ""),
    ("attention.cu", "stats[item * splits + blockIdx.x]", "stats[item * splits]"),
    ("attention.cu", "(item * splits + blockIdx.x) * kDim", "(item * splits) * kDim"),
    ("attention.cu", "static_cast<size_t>(request) * width * heads", "0"),
    # --------------------------------------------------------------------------------- combine.cu
    ("combine.cu", "  if (item >= rows * heads) return;\n", ""),
    ("combine.cu", "lane < kDim / 4", "lane < 32"),
    ("combine.cu", "min(positions, splits * split)", "positions"),
    ("combine.cu", "min(positions, splits * split)", "splits * split"),
    ("combine.cu", "begin == end ? 0u : ~0u", "0u"),
    ("combine.cu", "begin == end ? 0u : ~0u", "~0u"),
    ("combine.cu", "    if (mine) *to = make_uint2(nothing, nothing);\n", ""),
    ("combine.cu", "first = begin / split", "first = 0"),
    ("combine.cu", "(end - 1) / split", "end / split"),
    ("combine.cu", "  if (first == last) return;", "  "),
    ("combine.cu", "base <= last; base += 32", "base <= last; base += 64"),
    ("combine.cu", "base <= last; base += 32", "base < last; base += 32"),
    ("combine.cu", "min(32, last + 1 - base)", "min(31, last + 1 - base)"),
    ("combine.cu", "last + 1 - base", "last - base"),
    ("combine.cu", "lane < count ? stats[at + base + lane]", "true ? stats[at + base + lane]"),
    ("combine.cu", "stats[at + base + lane]", "stats[at + first + lane]"),
    ("combine.cu", "fmaxf(most, warp_max(stat.x))", "warp_max(stat.x)"),
    ("combine.cu", "keep = exp2f(most - reference(now))", "keep = 1.f"),
    ("combine.cu", "factor = exp2f(stat.x - reference(now))", "factor = exp2f(stat.x)"),
    ("combine.cu", "weight * keep +", "weight +"),
    ("combine.cu", "warp_sum(stat.y * factor)", "warp_sum(stat.y)"),
    ("combine.cu", "    most = now;\n", ""),
    ("combine.cu", "total[j] *= keep", "total[j] *= 1.f"),
    ("combine.cu", "kFullWarp, factor, i + j", "kFullWarp, factor, i"),
    ("combine.cu", "mine && i + j < count", "mine"),
    ("combine.cu", "mine && i + j < count", "i + j < count"),
    ("combine.cu", "(base + i + j) * (kDim / 4)", "(base + i + j) * 32"),
    ("combine.cu", "part.y * times", "part.x * times"),
    ("combine.cu", "__fdividef(1.f, weight)", "1.f"),
    ("combine.cu", "  if (mine)\n    *to", "    *to"),
]
SOURCES = ("attention.cu", "combine.cu")
OTHERS = re.compile(r"^[A-Z_]+\((?:64|96|128)\)\n", re.M)
"""One size is enough to show what is broken, and compiles four times as fast."""

INCLUDED = '#include "attention.cuh"\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "broken"), MUTANTS, ids=[str(number) for number in range(len(MUTANTS))]
)
def test_broken_attention_is_noticed(file: str, line: str, broken: str, tmp_path: Path) -> None:
    texts = {name: (FOLDER / name).read_text("utf-8") for name in ("attention.cuh", *SOURCES)}
    assert line in texts[file]
    texts[file] = texts[file].replace(line, broken, 1)
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for other in FOLDER.glob("*.cu"):
        shutil.copy(other, kernels)
    # What is compiled is kept by the source, so the header goes into it.
    header = texts["attention.cuh"].replace("#pragma once\n", "")
    for source in SOURCES:
        assert INCLUDED in texts[source]
        text, others = OTHERS.subn("", texts[source].replace(INCLUDED, header))
        assert 3 == others
        (kernels / source).write_text(text, encoding="utf-8")

    first, then = "test_attention", "test_attention_geometry"
    for test in (first, then) if file != "combine.cu" else ("test_combine", first):
        run = outcome(str(Path(__file__).parent / f"{test}.py"), kernels)
        if run.returncode:
            break

    # 1: tests ran and one failed. Anything else says nothing about the mutant.
    assert 1 == run.returncode, run.stdout + run.stderr
    assert "CompileError" not in run.stdout
