"""The budget of every kernel on every architecture, compiled here and now, without a GPU."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dspark.kernels.cubins import ARCHITECTURES, Compiler, open_compiler
from dspark.kernels.signatures import kernels_in
from scripts import kernel_budget
from scripts.kernel_budget import BUDGET, Cost, Costs, measure, problems, table

SPILLING = """\
#include "device.cuh"
extern "C" __global__ void spilling(float* x /* [1] */, int n) {
  float many[64];
  for (int i = 0; i < 64; i++) many[i] = x[i * n];
  for (int i = 0; i < n; i++) many[(i * 7) % 64] += many[i % 64];
  for (int i = 0; i < 64; i++) x[i] = many[i];
}
"""
COST = Cost(registers=40, shared_bytes=128, spills=0, vector_loads=2, tensor_ops=0)
COSTS: Costs = {"norm": {"sm_80": COST, "sm_90": COST}}


@pytest.fixture(scope="module")
def measured(repository: Path) -> tuple[Costs, str]:
    found = open_compiler()
    compiler = Compiler(found.nvrtc, found.toolkit, repository / "build" / "cubins")
    return measure(compiler), "{}.{}".format(*compiler.nvrtc.version)


def budget(**changes: Any) -> dict[str, Any]:
    kernels = {
        name: {arch: asdict(cost) for arch, cost in each.items()} for name, each in COSTS.items()
    }
    claims = {"vector_loads": ["norm"], "tensor_ops": []}
    return {"toolkit": "13.0", "claims": claims, "kernels": kernels} | changes


@pytest.mark.slow
def test_every_kernel_is_within_its_budget(measured: tuple[Costs, str]) -> None:
    assert [] == problems(measured[0], json.loads(BUDGET.read_text(encoding="utf-8")), measured[1])


@pytest.mark.slow
def test_every_kernel_is_compiled_for_every_architecture(measured: tuple[Costs, str]) -> None:
    costs, _ = measured

    assert set(kernels_in()) == set(costs)
    everywhere = {f"sm_{architecture}" for architecture in ARCHITECTURES}
    assert dict.fromkeys(costs, everywhere) == {name: set(each) for name, each in costs.items()}
    assert 1 + len(costs) * len(ARCHITECTURES) == len(list(table(costs)))


def test_a_spill_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "spilling.cu"
    file.write_text(SPILLING, encoding="utf-8")
    found = open_compiler()

    cubin = Compiler(found.nvrtc, found.toolkit, tmp_path).cubin(file, 90)
    ((name, cost),) = kernel_budget._costs(cubin)

    assert "spilling" == name
    assert cost.spills > 2


def test_what_was_committed_is_no_problem() -> None:
    assert [] == problems(COSTS, budget(), "13.0")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spills": 3}, "norm on sm_90 spills 3 times to local memory"),
        ({"registers": 129}, "norm on sm_90 takes 129 registers, beyond 128"),
        ({"vector_loads": 0}, "norm on sm_90 has no vector loads, which are claimed"),
    ],
)
def test_what_no_budget_may_allow(change: dict[str, int], says: str) -> None:
    worse = {"norm": {"sm_90": replace(COST, **change)}}
    as_committed = {"norm": {"sm_90": asdict(worse["norm"]["sm_90"])}}

    assert [says] == problems(worse, budget(kernels=as_committed), "13.0")


@pytest.mark.parametrize("by", [1, -1])
def test_a_drift_in_either_direction_is_said(by: int) -> None:
    moved = {"norm": {"sm_80": COST, "sm_90": replace(COST, registers=40 + by)}}

    (problem,) = problems(moved, budget(), "13.0")
    assert problem.startswith("norm on sm_90 changed: {'registers': 40,")
    assert problem.endswith("run `scripts/kernels --write` and look at the difference")


def test_a_kernel_that_came_or_went_is_said() -> None:
    came = problems({**COSTS, "new": {"sm_80": COST}}, budget(), "13.0")
    went = problems({}, budget(claims={}), "13.0")

    assert ["new on sm_80 changed: None -> "] == [each.partition("{")[0] for each in came]
    assert ["norm on sm_80", "norm on sm_90"] == [each.partition(" changed")[0] for each in went]


def test_a_claim_is_about_a_kernel() -> None:
    claims = {"vector_loads": ["norm"], "tensor_ops": ["gone"]}

    assert ["a claim is about `gone`, which is no kernel"] == problems(
        COSTS, budget(claims=claims), "13.0"
    )


def test_another_compiler_is_another_budget() -> None:
    (problem,) = problems(COSTS, budget(), "13.5")

    assert problem.startswith("the budget is that of NVRTC 13.0, and this is 13.5: run")


def test_writing_keeps_the_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "budget.json"
    file.write_text(json.dumps(budget(kernels={}, toolkit="")), encoding="utf-8")
    monkeypatch.setattr(kernel_budget, "BUDGET", file)
    monkeypatch.setattr(kernel_budget, "measure", lambda _: COSTS)

    assert 1 == kernel_budget.main([])
    assert 0 == kernel_budget.main(["--write"])
    assert 0 == kernel_budget.main([])
    written = json.loads(file.read_text(encoding="utf-8"))
    assert budget()["claims"] == written["claims"]
    assert budget()["kernels"] == written["kernels"]
    row = '      "sm_80": {"registers": 40, "shared_bytes": 128, "spills": 0, '
    assert row in file.read_text(encoding="utf-8")
