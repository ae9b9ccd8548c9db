"""The steps of `scripts/gpu`, each on the simulator with tiny sizes, and what makes it fail."""

from __future__ import annotations

import ast
import dataclasses
import runpy
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch

from benchmarks.gpu import (
    bandwidth,
    doctor,
    launch_cost,
    no_pytest,
    pair,
    qwen3_8b,
    sanitizer,
    skinny,
    subset,
    tiny_pair,
    vectors,
)
from benchmarks.gpu.bed import HERE, Bed, open_bed
from benchmarks.gpu.notes import Found, Notes, Skipped, read
from benchmarks.gpu.sizes import FULL, TINY
from benchmarks.gpu.torch_qwen3 import TorchQwen3
from dspark.cost import cost
from dspark.kernels.cubins import ARCHITECTURES, open_compiler
from dspark.kernels.host.simulator import IN_ORDER
from dspark.kernels.host_driver import HostDriver
from dspark.kernels.launch import Device
from dspark.kernels.signatures import kernels_in
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.load import prepare
from dspark.runtime.models.from_plan import draft_config, target_config
from dspark.runtime.models.rows import Segment
from tests.runtime.tiny import TARGET, target_model, target_tensors
from tests.support.cost_page import _plan
from tests.support.kernel_bench import KERNELS, Bench
from tests.support.kernel_device import PROVOKES_FAULT, WITHOUT_REPORT
from tests.support.pairs import corpus, dspark_shapes, target_shapes

TESTS = Path(__file__).parent / "kernels"


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    """A rehearsal, of which the figures are kept."""
    made = open_bed(tmp_path, "step", rehearsal=True)
    return dataclasses.replace(made, notes=Notes(tmp_path, "step"))


def found(folder: Path) -> Found:
    return read(folder, "step")


def names(found: Found) -> list[str]:
    return [figure.name for figure in found.figures]


# ---------------------------------------------------------------------------- the machine


def test_the_doctor_says_what_machine_this_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSPARK_LIBCUDA", "libnowhere.so")

    doctor.run(Notes(tmp_path, "doctor"), rehearsal=False)

    said = read(tmp_path, "doctor")
    assert ["there is no NVIDIA driver (`libnowhere.so` is not installed)"] == said.troubles
    assert (np.__version__, "not installed") == (said.facts["numpy"], said.facts["cupy-cuda13x"])
    assert "none" == said.facts["CUDA of the driver"]
    assert [] == said.figures


def test_the_doctor_compiles_the_kernels(tmp_path: Path) -> None:
    doctor.run(Notes(tmp_path, "doctor"), rehearsal=True)

    said = read(tmp_path, "doctor")
    (figure,) = said.figures
    assert figure.name.endswith("files of kernels ready for sm_90")
    assert said.facts["NVRTC"].startswith("{}.{} ".format(*open_compiler().nvrtc.version))


def test_a_gpu_needs_cupy(tmp_path: Path) -> None:
    if find_spec("cupy") is not None:
        pytest.skip("it is installed here")
    with pytest.raises(Skipped, match="the package `cupy` is not installed"):
        open_bed(tmp_path, "step", rehearsal=False)


# --------------------------------------------------------------------- the tests of kernels


@pytest.mark.parametrize("place", ["test_norm.py", "test_round.py"])
def test_tests_of_kernels_run_on_what_has_no_reports(place: str, bed: Bed, tmp_path: Path) -> None:
    bed.sizes = dataclasses.replace(TINY, vector_files=(f"tests/kernels/{place}",))

    vectors.run(bed)

    said = found(tmp_path)
    assert [] == said.troubles
    figures = {figure.name: figure.value for figure in said.figures}
    if place == "test_round.py":
        assert ["tests passed"] == list(figures)
        return
    reads, faults = f"left out: {WITHOUT_REPORT}", f"left out: {PROVOKES_FAULT}"
    assert {"tests passed": 5, reads: 1, faults: 1} == figures
    assert "test_norm::test_a_row_moves_once" == said.facts[reads]
    assert "test_norm::test_too_little_shared_memory_is_found" == said.facts[faults]


def test_results_are_counted_and_failures_told_in_full(tmp_path: Path) -> None:
    report = ET.fromstring(
        """<testsuites><testsuite>
        <testcase classname="tests.kernels.test_norm" name="test_one[seed0]"/>
        <testcase classname="tests.kernels.test_norm" name="test_two">
          <failure message="short">E   long</failure></testcase>
        <testcase classname="tests.kernels.test_rows" name="test_three[1]">
          <skipped message="a reason"/></testcase>
        <testcase classname="tests.kernels.test_rows" name="test_three[2]">
          <skipped message="a reason"/></testcase>
        <testcase classname="" name="tests.kernels.test_broken"><error message="no import"/>
        </testcase></testsuite></testsuites>"""
    )

    vectors.note_results(Notes(tmp_path, "step"), report)

    said = read(tmp_path, "step")
    assert ["test_norm::test_two\nE   long", "::tests.kernels.test_broken\nno import"] == (
        said.troubles
    )
    assert [1, 2] == [figure.value for figure in said.figures]
    assert {"left out: a reason": "test_rows::test_three"} == said.facts


def test_no_test_is_no_success(tmp_path: Path) -> None:
    vectors.note_results(Notes(tmp_path, "step"), ET.fromstring("<testsuites/>"))

    assert ["no test passed"] == read(tmp_path, "step").troubles


def test_the_subset_launches_every_kernel(compiled: Path) -> None:
    launched: set[str] = set()
    for module, name, arguments in subset.TESTS:
        bench = Bench(compiled, IN_ORDER)
        getattr(subset.import_module(f"tests.kernels.{module}"), name)(bench=bench, **arguments)
        launched |= {kernel for kernel, _ in bench.driver.reports}

    assert set(KERNELS) == launched


@pytest.fixture(scope="session")
def compiled(repository: Path) -> Path:
    return repository / "build" / "kernels-host"


def test_the_subset_tells_what_failed_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, right = {"kind": "wood", "rows": 3}, ("test_norm", "test_rms_norm", {})
    monkeypatch.setattr(subset, "TESTS", (("test_gemm", "test_gemm_f32", wrong), right))

    assert 1 == subset.main()
    said = capsys.readouterr().out
    assert said.startswith(f"FAILED test_gemm::test_gemm_f32{wrong}\nTraceback")
    assert "KeyError: 'wood'" in said
    assert said.endswith("ok test_norm::test_rms_norm\n")


def test_without_pytest_the_subset_is_run_and_pytest_named(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "find_spec", lambda name: name != "pytest" or None)

    vectors.run(bed)

    said = found(tmp_path)
    assert [] == said.troubles
    assert ["`pytest` is not installed"] == list(said.facts)
    assert [len(subset.TESTS)] == [figure.value for figure in said.figures]


def test_a_subset_that_fails_is_a_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors.sys, "executable", "/bin/false")

    vectors.run_subset(Notes(tmp_path, "step"), "rehearsal", [])

    assert ["the tests ended with 1"] == [each.strip() for each in read(tmp_path, "step").troubles]


@pytest.mark.parametrize("module", sorted({module for module, _, _ in subset.TESTS}))
def test_the_modules_of_the_subset_need_no_pytest(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = ast.walk(ast.parse((TESTS / f"{module}.py").read_text("utf-8")))
    assert "hypothesis" not in {
        node.module for node in imported if isinstance(node, ast.ImportFrom)
    }
    monkeypatch.setitem(sys.modules, "pytest", pytest)
    monkeypatch.setattr(no_pytest, "find_spec", lambda _: None)

    no_pytest.stand_in_for_pytest()

    assert pytest is not sys.modules["pytest"]
    ran = runpy.run_path(str(TESTS / f"{module}.py"))
    assert {name for each, name, _ in subset.TESTS if each == module} <= set(ran)


# ------------------------------------------------------------------------------ the checkers


@pytest.mark.parametrize(
    ("tool", "code", "said", "errors", "troubles"),
    [
        ("memcheck", 0, "ok\n========= ERROR SUMMARY: 0 errors\n", [0], 0),
        ("memcheck", 0, "========= Invalid\n========= ERROR SUMMARY: 3 errors", [3], 1),
        ("synccheck", 1, "FAILED x\n========= ERROR SUMMARY: 0 errors", [0], 1),
        (
            "racecheck",
            0,
            "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)",
            [2],
            1,
        ),
        ("racecheck", 0, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)", [0], 0),
        ("memcheck", 1, "========= Device not supported", [], 1),
    ],
)
def test_what_a_checker_says(
    tool: str, code: int, said: str, errors: list[int], troubles: int, tmp_path: Path
) -> None:
    sanitizer.note_errors(Notes(tmp_path, "step"), tool, code, said)

    noted = read(tmp_path, "step")
    assert errors == [figure.value for figure in noted.figures]
    assert troubles == len(noted.troubles)
    assert all(said.strip() in trouble for trouble in noted.troubles)


def test_every_checker_is_run_on_the_subset(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text('#!/bin/sh\necho "ran $*"\necho "= ERROR SUMMARY: 1 errors"\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sanitizer, "find_program", lambda _: program)
    bed.rehearsal = False

    sanitizer.run(bed)

    said = found(tmp_path)
    assert [f"{tool}, errors" for tool in sanitizer.TOOLS] == names(said)
    for tool, trouble in zip(sanitizer.TOOLS, said.troubles, strict=True):
        assert f"ran --tool {tool} --print-limit 10 {sys.executable} -m benchmarks.gpu.subset" in (
            trouble
        )


def test_without_a_checker_nothing_is_checked(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "find_program", lambda _: None)
    bed.rehearsal = False

    with pytest.raises(Skipped, match="`compute-sanitizer` is neither with CUDA nor on the path"):
        sanitizer.run(bed)


# ------------------------------------------------------------------- memory and launches


@pytest.mark.parametrize(("vectors", "blocks"), [(1, 1), (70, 1), (2 * 8 * 64 + 65, 2), (700, 3)])
def test_all_is_read_and_read_once(vectors: int, blocks: int, compiled: Path) -> None:
    driver = HostDriver(compiled)
    device = Device(driver, kernels_in(HERE))
    words = np.random.default_rng(0).integers(0, 2**32, 4 * vectors, np.uint32)
    threads = 32 * blocks
    sums = device.empty((threads,), "u32", "sums")

    arguments = device.array(words, "u32", "words"), sums, vectors, threads
    device.kernel("read_all")(blocks, 32, arguments)

    assert int(words.sum(dtype=np.uint64)) % 2**32 == (
        int(device.read(sums).sum(dtype=np.uint64)) % 2**32
    )
    ((_, report),) = driver.reports
    assert 16 * vectors == report.reads["words"].requested


def test_the_measuring_kernels_compile_for_every_architecture() -> None:
    compiler = open_compiler()
    for architecture in ARCHITECTURES:
        assert compiler.cubin(HERE / "read.cu", architecture).stat().st_size


def test_the_bandwidth(bed: Bed, tmp_path: Path) -> None:
    bed.notes = Notes(tmp_path, "bandwidth")

    bandwidth.run(bed)

    said = read(tmp_path, "bandwidth")
    speeds = {figure.name: figure.value for figure in said.figures}
    assert [] == said.troubles
    reads = [speeds[f"read, {each} blocks each"] for each in bandwidth.BLOCKS_EACH]
    assert max(reads) == speeds[bandwidth.CEILING] == bandwidth.ceiling(Notes(tmp_path, "later"))
    assert TINY.read_bytes == speeds["memory read"]


def test_what_was_not_read_is_no_bandwidth(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bed.device.read
    monkeypatch.setattr(bed.device, "read", lambda array: original(array) + np.uint32(1))

    bandwidth.run(bed)

    said = found(tmp_path)
    assert len(bandwidth.BLOCKS_EACH) == len(said.troubles)
    assert ["memory read", "copy by torch, read and written"] == names(said)


def test_the_cost_of_a_launch(bed: Bed, tmp_path: Path) -> None:
    launch_cost.run(bed)

    said = found(tmp_path)
    assert [] == said.troubles
    assert 3 == len(said.figures)
    assert {"us"} == {figure.unit for figure in said.figures}


def test_launches_that_did_not_happen_are_noticed(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostDriver, "replay", lambda *_: None)

    launch_cost.run(bed)

    (trouble,) = found(tmp_path).troubles
    assert trouble.startswith("in a graph: ")


# --------------------------------------------------------------------------------- products


def test_the_products(bed: Bed, tmp_path: Path) -> None:
    Notes(tmp_path, "bandwidth").figure(bandwidth.CEILING, 1e-6, "GB/s")

    skinny.run(bed)

    said = found(tmp_path)
    assert [] == said.troubles
    speeds = {figure.name: figure.value for figure in said.figures}
    for name, (n, k) in TINY.products.items():
        for rows in TINY.rows:
            for whose in ("ours", "torch"):
                what = f"{name} {n}x{k}, {rows} rows, {whose}"
                assert speeds[what] > 0
                assert speeds[f"{what}, of the ceiling"] == pytest.approx(speeds[what] / 1e-6)


def test_products_take_turns_on_more_weights_than_a_cache_holds() -> None:
    bed: Any = SimpleNamespace(sizes=FULL)
    for n, k in FULL.products.values():
        held = skinny.copies(bed, 2 * n * k) * 2 * n * k
        assert FULL.rotated_bytes <= held < FULL.rotated_bytes + 2 * n * k


def test_a_product_that_is_wrong_has_no_speed(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = skinny.by_torch

    def wrong(*arguments: Any) -> Any:
        work, out = original(*arguments)
        return work, out * 1.1

    monkeypatch.setattr(skinny, "by_torch", wrong)
    bed.sizes = dataclasses.replace(TINY, rows=(3,))

    skinny.run(bed)

    said = found(tmp_path)
    assert [] == said.figures
    assert all(", 3 rows: ours and torch's are " in trouble for trouble in said.troubles)
    assert len(TINY.products) == len(said.troubles)


# ----------------------------------------------------------------------------- the tiny pair


def test_the_trained_pair_is_the_loaders() -> None:
    direct = pair.trained_pair()
    prepared = prepare(pair.TINY / "target", pair.TINY / "dspark", max_length=64)
    plan = prepared.pair
    assert plan is not None

    assert target_config(plan.target) == direct.target
    assert draft_config(plan) == direct.draft
    assert set(plan.target.tensors) == set(direct.target_tensors)
    assert set(plan.draft.tensors) <= set(direct.draft_tensors)
    loaded = prepared.load()
    engine = direct.engine(direct.target_on(TorchCpuBackend(), 64, taps=True), 64)
    prompt = [5, 6, 7, 8]
    expected = tiny_pair.decoded(loaded.engine, prompt, 12, None)
    assert expected.token_ids == tiny_pair.decoded(engine, prompt, 12, None).token_ids


def test_a_text_that_parts_is_judged_by_the_cpu(tmp_path: Path) -> None:
    cpu, prompt = target_model(taps=()), [3, 4, 5]
    engine_text = greedy(cpu, prompt, 6)
    other = (engine_text[2] + 1) % TARGET.vocab_size
    compared = tiny_pair.Compared()

    compared.add(cpu, prompt, engine_text, engine_text)
    compared.add(cpu, prompt, [*engine_text[:2], other], engine_text)

    assert (2, 1, 9) == (compared.texts, compared.same, compared.tokens)
    logits = logits_behind(cpu, [*prompt, *engine_text[:2]])
    expected = float(logits.max() - logits[other])
    assert [pytest.approx(expected)] == compared.gaps
    assert [(2, pytest.approx(expected))] == compared.first
    notes = Notes(tmp_path, "step")
    tiny_pair.note(notes, "made up", compared)
    troubles = read(tmp_path, "step").troubles
    assert (expected > tiny_pair.LIMIT) == bool(troubles)
    assert expected > tiny_pair.LIMIT, "the token that was put in is to be far from right"


def test_texts_that_part_within_the_limit_are_no_failure(tmp_path: Path) -> None:
    compared = tiny_pair.Compared(texts=1, tokens=4, gaps=[tiny_pair.LIMIT], first=[(1, 0.0625)])

    tiny_pair.note(Notes(tmp_path, "step"), "near", compared)

    said = read(tmp_path, "step")
    assert [] == said.troubles
    figures = {figure.name: figure.value for figure in said.figures}
    assert 0.0625 == figures["near, texts part at token 1, by"]
    assert 1 == figures["near, tokens not the likeliest in float32"]


def logits_behind(target: Any, tokens: Sequence[int]) -> np.ndarray:
    store = target.new_store(4, 32)
    with target.backend.session():
        passed = target.forward([Segment(tokens, 0, range(4))], store)
        return target.backend.host(target.logits(passed.hidden))[-1]


def greedy(target: Any, prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_behind(target, tokens).argmax()))
    return tokens[len(prompt) :]


def test_the_trained_pair_and_the_loaders_refusal(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, but with the CPU for the kernels, and no GPU that the loader could find."""
    monkeypatch.setenv("DSPARK_LIBCUDA", "libnowhere.so")
    monkeypatch.setattr(tiny_pair, "device_backend", lambda _: TorchCpuBackend("bfloat16"))
    bed.rehearsal, bed.sizes = False, dataclasses.replace(TINY, prompts=2, new_tokens=12)

    tiny_pair.run(bed)

    said = found(tmp_path)
    (trouble,) = said.troubles
    assert trouble.startswith("open_engine: ")
    assert "there is no NVIDIA driver (`libnowhere.so` is not installed)" in trouble
    figures = {figure.name: figure.value for figure in said.figures}
    for name in ("without a draft", "with the draft"):
        assert (2, 2, 24) == tuple(
            figures[f"{name}, {what}"] for what in ("texts", "texts as the CPU's", "tokens")
        )
    assert figures["tokens a round, with the draft"] > 1
    assert {} == said.facts


def test_without_the_backend_the_step_is_skipped_by_name(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_pair, "find_spec", lambda _: None)

    with pytest.raises(Skipped, match=r"this checkout has no `dspark\.runtime\.backends\.cuda`"):
        tiny_pair.device_backend(bed.device)


# ------------------------------------------------------------------------ Qwen3-8B's shape


def test_the_floors_are_the_cost_models() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = cost(_plan(Path(folder), "8B"), FULL.context)

    assert (qwen3_8b.STEP_BYTES, qwen3_8b.ROUND_BYTES) == (found.step.total, found.round.total)


# In 4B, the queries are not as wide as the stream.
@pytest.mark.parametrize("size", ["4B", "8B"])
def test_the_shapes_are_the_published_ones(size: str) -> None:
    names = f"Qwen__Qwen3-{size}", f"deepseek-ai__dspark_qwen3_{size.lower()}_block7"
    target = pair.target_config(pair.published(names[0]))
    draft = pair.draft_config(pair.published(names[1]), target.hidden_size)

    assert target_shapes(corpus(names[0])) == dict(pair.target_shapes(target))
    assert dspark_shapes(corpus(names[1]), 5) == dict(pair.draft_shapes(draft))
    assert ((target, draft) == qwen3_8b.SHAPES["Qwen3-8B"]()) == (size == "8B")


def test_torchs_step_is_the_targets() -> None:
    tensors = target_tensors()
    model = TorchQwen3(TARGET, tensors, 16)
    target, tokens = target_model(taps=()), [3, 50, 7, 3, 96]

    with torch.inference_mode():
        for place, token in enumerate(tokens):
            model.token.fill_(token)
            found = model.step()[0].numpy()
            expected = logits_behind(target, tokens[: place + 1])
            np.testing.assert_allclose(found, expected, atol=2e-5)
            assert (int(expected.argmax()), place + 1) == (int(model.token), int(model.position))


def test_a_share_of_the_floor_is_of_what_was_measured(bed: Bed, tmp_path: Path) -> None:
    bed.rehearsal = False
    qwen3_8b.note_step(bed.notes, "ours", 0.008, bed)
    Notes(tmp_path, "bandwidth").figure(bandwidth.CEILING, 4000.0, "GB/s")
    qwen3_8b.note_time(bed.notes, "a round", 0.010, bed)

    said = found(tmp_path)
    assert ["a step, ours, of the floor"] == list(said.facts)
    figures = {figure.name: figure.value for figure in said.figures}
    assert 125.0 == figures["without a draft, ours"]
    assert 8.0 == figures["a step, ours"]
    floor = qwen3_8b.ROUND_BYTES / 4000e9
    assert floor / 0.010 == pytest.approx(figures["a round, of the floor"])
    assert "a step, ours, of the floor" not in figures


@pytest.mark.skipif(
    find_spec("dspark.runtime.backends.cuda") is None, reason="there is no such backend yet"
)
@pytest.mark.parametrize("step", [tiny_pair, qwen3_8b])
def test_decoding_goes_through_the_backend(step: Any, bed: Bed, tmp_path: Path) -> None:
    step.run(bed)

    said = found(tmp_path)
    assert [] == said.troubles
    expected = "with the draft, texts" if step is tiny_pair else "a round with the draft of block 7"
    assert expected in names(said)
    assert all(np.isfinite(figure.value) for figure in said.figures)
