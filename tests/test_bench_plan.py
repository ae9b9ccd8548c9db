from __future__ import annotations

from pathlib import Path

import pytest

import dspark
from benchmarks import plan
from benchmarks.route import Gate

PUBLISHED_4B = 1_393_133_569
"""Parameters of the draft that is timed."""


def test_what_is_timed_is_the_published_pair(tmp_path: Path) -> None:
    draft = plan.write_checkpoint(tmp_path / "draft", plan.DRAFT, plan.draft_shapes())
    one = plan.write_checkpoint(tmp_path / "one", plan.TARGET, plan.target_shapes())
    many = plan.write_checkpoint(tmp_path / "many", plan.TARGET, plan.target_shapes(), 7)

    whole, sharded = dspark.plan(draft, target=one), dspark.plan(draft, target=many)

    assert 2 * PUBLISHED_4B == whole.bytes.draft_weights
    assert (64, 398) == (len(whole.draft.tensors), len(whole.target.tensors))
    assert (1, 7) == (len(whole.target.files), len(sharded.target.files))
    assert whole.bytes == sharded.bytes


@pytest.mark.parametrize(("measured", "code"), [(1.0, 0), (31.0, 1)])
def test_one_missed_gate_fails_the_run(
    measured: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = [Gate("good", 1, 30, "ms"), Gate("other", measured, 30, "ms")]
    monkeypatch.setattr(plan, "pin", lambda: 0)
    monkeypatch.setattr(plan, "measure", lambda *_: gates)

    assert code == plan.main(["--repeats", "1"])
    assert [str(gate) for gate in gates] == capsys.readouterr().out.splitlines()


def test_every_limit_is_gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARDS", 3)

    gates = plan.measure(tmp_path, repeats=1)

    assert [(30, "ms"), (150, "ms")] == [(gate.limit, gate.unit) for gate in gates]
    assert all(gate.measured > 0 for gate in gates)
