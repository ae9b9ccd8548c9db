"""Who asked to be told of decisions is told of each, once; the log holds a line for each."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import dspark
from dspark import decision_log
from dspark.routing import decide_source
from tests.dspark.test_schemas import problems
from tests.support.configs import BASE, with_keys, write_config
from tests.support.pairs import TINY, TINY_SHAPES, TINY_TARGET, checkpoint, target_shapes

EAGLE3 = {"architectures": ["Qwen3Eagle3Model"]}


@pytest.fixture(autouse=True)
def nobody_listens_afterwards() -> Iterator[None]:
    assert () == decision_log._subscriptions
    yield
    decision_log._subscriptions = ()


@pytest.fixture
def told() -> list[dspark.Decision]:
    found: list[dspark.Decision] = []
    dspark.on_decision(found.append)
    return found


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    return write_config(tmp_path / "refused", EAGLE3)


def test_each_decision_is_told_once_before_the_caller_has_it(
    told: list[dspark.Decision], lane: Path, refused: Path
) -> None:
    answers = [dspark.route(lane), dspark.route(refused), dspark.require_lane(lane)]
    with pytest.raises(dspark.Refused) as caught:
        dspark.require_lane(refused)

    assert [*answers, caught.value.decision] == told
    assert all(one is other for one, other in zip(answers, told, strict=False))


def test_an_input_that_cannot_be_read_is_told_too(
    told: list[dspark.Decision], tmp_path: Path
) -> None:
    dspark.route(tmp_path / "nowhere")

    assert ["E014"] == [decision.rule_id for decision in told]


def test_a_plan_is_told_once_with_the_stage_it_came_to(
    told: list[dspark.Decision], tmp_path: Path, refused: Path
) -> None:
    draft = checkpoint(tmp_path / "draft", TINY, TINY_SHAPES)
    target = checkpoint(tmp_path / "target", TINY_TARGET, target_shapes(TINY_TARGET))
    dspark.plan(draft, target=target)
    with pytest.raises(dspark.Refused):
        dspark.plan(draft, target=target, memory=1)
    with pytest.raises(dspark.Refused):
        dspark.plan(refused, target=target)

    assert [("qwen3-dspark", "budget"), (None, "budget"), (None, "route")] == [
        (decision.lane, decision.stage) for decision in told
    ]
    assert ["L001", "B001", "R028"] == [decision.rule_id for decision in told]


def test_deciding_what_is_not_a_checkpoint_is_told_to_nobody(told: list[dspark.Decision]) -> None:
    """`dspark check` decides thousands of made-up configs; a log of them would be noise."""
    dspark.compile_table().route(BASE)

    assert [] == told


def test_callbacks_are_called_in_order_until_they_are_unsubscribed(lane: Path) -> None:
    calls: list[str] = []
    first = dspark.on_decision(lambda _: calls.append("first"))
    dspark.on_decision(lambda _: calls.append("second"))

    dspark.route(lane)
    first()
    first()
    dspark.route(lane)

    assert ["first", "second", "second"] == calls


def test_a_callback_that_is_there_twice_is_called_twice_and_goes_one_by_one(lane: Path) -> None:
    calls: list[object] = []
    callback = calls.append  # one object; `calls.append` makes a new one each time
    first, second = dspark.on_decision(callback), dspark.on_decision(callback)

    dspark.route(lane)
    assert 2 == len(calls)
    first()
    first()
    dspark.route(lane)
    assert 3 == len(calls)
    second()
    dspark.route(lane)
    assert 3 == len(calls)


def test_what_a_callback_raises_reaches_the_caller(lane: Path) -> None:
    def fail(_: dspark.Decision) -> None:
        raise OSError("the log is full")

    dspark.on_decision(fail)

    with pytest.raises(OSError, match="the log is full"):
        dspark.route(lane)


def test_subscribing_from_many_threads_loses_nobody(lane: Path) -> None:
    calls: list[int] = []
    enders: list[Callable[[], None]] = []
    together = threading.Barrier(8)

    def subscribe() -> None:
        together.wait()
        for number in range(200):
            end = dspark.on_decision(lambda _, number=number: calls.append(number))  # type: ignore[misc]
            if number % 2:
                end()
            else:
                enders.append(end)

    threads = [threading.Thread(target=subscribe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dspark.route(lane)

    assert 800 == len(calls) == len(enders)
    assert {0} == {number % 2 for number in calls}


def test_without_a_listener_the_look_allocates_nothing(lane: Path) -> None:
    decision = dspark.route(lane)
    decision_log.announce(decision)

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(1000):
            decision_log.announce(decision)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # One block's worth: the interpreter's own frame, kept for the next call.
    assert peak - before < 600


def test_the_log_is_not_imported_by_who_does_not_use_it(lane: Path) -> None:
    code = (
        "import sys, dspark; dspark.route(sys.argv[1]);"
        "assert not {'dspark.jsonl', 'dspark.reload', 'logging'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(lane)], check=True)


# ------------------------------------------------------------------------------ the sink


def lines(log: Path) -> list[dict[str, object]]:
    text = log.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_is_the_decision_with_its_time(tmp_path: Path, lane: Path, refused: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    before = datetime.now(UTC)
    dspark.on_decision(dspark.JsonlSink(log))

    answers = [dspark.route(lane), dspark.route(refused)]

    found = lines(log)
    assert ["time", "source"] == list(found[0])[:2]
    for line, answer in zip(found, answers, strict=True):
        when = datetime.fromisoformat(str(line.pop("time")))
        assert timedelta(0) == when.utcoffset()
        assert before - timedelta(milliseconds=1) <= when <= datetime.now(UTC)
        assert answer.to_json() == line
        assert [] == problems("decision", line)
        assert answer.table_version == line["table_version"]


def test_a_log_that_is_moved_away_is_begun_anew(tmp_path: Path, lane: Path) -> None:
    log, moved = tmp_path / "decisions.jsonl", tmp_path / "decisions.jsonl.1"
    dspark.on_decision(dspark.JsonlSink(log))

    dspark.route(lane)
    log.rename(moved)
    dspark.route(lane)

    assert [1, 1] == [len(lines(file)) for file in (moved, log)]


def test_half_a_line_spoils_no_other(tmp_path: Path, lane: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    log.write_text('{"time": "2026-0', encoding="utf-8")
    dspark.on_decision(dspark.JsonlSink(log))

    dspark.route(lane)
    dspark.route(lane)

    half, *whole = log.read_text(encoding="utf-8").splitlines()
    assert '{"time": "2026-0' == half
    assert ["L001", "L001"] == [json.loads(line)["decision"]["rule_id"] for line in whole]


def test_a_write_that_is_cut_short_is_finished(
    tmp_path: Path, lane: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "decisions.jsonl"
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    decision = dspark.route(lane)

    dspark.JsonlSink(log)(decision)

    assert decision.to_json() == {k: v for k, v in lines(log)[0].items() if k != "time"}


def test_a_log_that_cannot_be_written_is_the_callers_to_know(tmp_path: Path, lane: Path) -> None:
    dspark.on_decision(dspark.JsonlSink(tmp_path / "no" / "decisions.jsonl"))

    with pytest.raises(FileNotFoundError, match=r"no/decisions\.jsonl"):
        dspark.route(lane)


def _log_many(log: Path, source: str, count: int) -> None:
    decision = decide_source(dspark.compile_table(), source)
    sink = dspark.JsonlSink(log)
    threads = [
        threading.Thread(target=lambda: [sink(decision) for _ in range(count)]) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_lines_of_several_processes_and_threads_never_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "decisions.jsonl"
    long = [
        str(
            write_config(tmp_path / letter / (letter * 200), with_keys(BASE, model_type=letter * 9))
        )
        for letter in "abcd"
    ]
    # In pieces, so that only the lock keeps them together.
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:100]))
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=_log_many, args=(log, source, 25)) for source in long]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [0] * 4 == [worker.exitcode for worker in workers]

    found = lines(log)
    assert 200 == len(found)
    assert dict.fromkeys(long, 50) == {
        source: sum(line["source"] == source for line in found) for source in long
    }
    for line in found:
        letter = Path(str(line["source"])).name[0]
        assert letter * 9 == line["facts"]["model_type"]  # type: ignore[index]


def test_a_service_is_not_held_up_by_its_log(tmp_path: Path, lane: Path) -> None:
    """No figure, only an order of magnitude: a line is a few system calls."""
    decision = dspark.route(lane)
    sink = dspark.JsonlSink(tmp_path / "decisions.jsonl")

    start = time.process_time()
    for _ in range(200):
        sink(decision)

    assert time.process_time() - start < 2
