"""What `dspark plan --cost` says of launches, against rounds of the pair that ships."""

from __future__ import annotations

from pathlib import Path

import pytest

import dspark
from dspark.cost import cost
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.device_round.batch import Sizes
from dspark.runtime.engine import Engine
from dspark.runtime.engine_config import EngineConfig
from dspark.runtime.models import from_plan
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.params import SamplingParams
from dspark.runtime.prepared import known
from dspark.runtime.weight_files import read_tensors
from tests.runtime import trained
from tests.runtime.device_round.pair import round_of, simulator
from tests.runtime.trained import DRAFTS

PROMPT = [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("name", "batch"), [*((name, 1) for name in DRAFTS), ("dspark", 4)])
def test_a_round_launches_what_its_cost_says(name: str, batch: int, repository: Path) -> None:
    backend, pair = simulator(repository), trained.plan(name)
    config = trained.draft_config(name)
    target = Qwen3Target(
        backend,
        from_plan.target_config(pair.target),
        read_tensors(pair.target, known(pair.target_decision), "target"),
        max_length=64,
        tap_ids=config.target_layer_ids,
    )
    draft = BlockDraft(target, config, trained.tensors(name), max_length=64)
    schedule = ConfidenceSchedule(((1, 1.0),))
    engine = Engine(
        target,
        draft,
        EngineConfig(max_length=48, pages=8, page_size=32, max_batch=batch, schedule=schedule),
    )
    for _ in range(batch):
        engine.submit(PROMPT, SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True))
    engine.step()
    before = backend.device.launches

    engine.step()

    graphs = round_of(engine).graphs
    assert {Sizes(batch, 0, False), Sizes(batch, config.drafts_per_round, False)} == graphs._seen
    assert 0 == graphs.replayed
    plan = dspark.plan(
        trained.FOLDER / name,
        target=trained.FOLDER / "target",
        local=True,
        max_seq=512,
        batch=batch,
    )
    assert cost(plan, len(PROMPT)).round.launches == backend.device.launches - before
