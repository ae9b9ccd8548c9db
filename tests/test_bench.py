from __future__ import annotations

import gc
import subprocess
from pathlib import Path

import pytest

from benchmarks import peers, route, tables, timing
from benchmarks.peers import Peer
from benchmarks.tables import DEFAULT, Facts, Row
from benchmarks.timing import Call, Sample
from dspark.compile import compile_text

MODULES = {
    "zen-engine": "zen",
    "cel-python": "celpy",
    "celine-regorus": "regorus",
    "json-logic-qubit": "json_logic",
}

ROWS = tables.rows(12)


def every_row(rows: list[Row]) -> dict[str, tuple[Facts, str]]:
    """One input per rule, and the inputs that share only one fact with a rule."""
    first, last = rows[0], rows[-1]
    hits = {
        row.id: (Facts(row.architecture, row.model_type, row.markov or None), row.id)
        for row in rows
    }
    crossed = {
        "crossed": (Facts(first.architecture, last.model_type), DEFAULT),
        "no architecture": (Facts("NoModel", last.model_type), DEFAULT),
    }
    return {**hits, **crossed, **tables.probes(rows)}


def compiled(rows: list[Row]) -> Peer:
    return route.on_cells(compile_text(tables.yaml_text(rows).encode(), "made-up.yaml"))


def test_a_made_up_table_compiles_and_decides_each_row_by_its_own_rule() -> None:
    rows = tables.rows(120)
    assert {"", "positive"} == {row.markov for row in rows}
    assert 30 == sum(not row.lane for row in rows)
    assert 120 == len({row.model_type for row in rows})

    assert [] == peers.disagreements(compiled(rows), every_row(rows))


def test_a_row_that_asks_for_markov_is_not_decided_without_it() -> None:
    rows = tables.rows(120)
    asking = next(row for row in rows if row.markov)

    wanted = {"no markov": (Facts(asking.architecture, asking.model_type), DEFAULT)}

    assert [] == peers.disagreements(compiled(rows), wanted)


def test_the_rows_that_are_timed_ask_for_two_facts_only() -> None:
    assert {""} == {row.markov for row in ROWS}
    large = tables.rows(route.LARGE)
    assert ["", ""] == [large[0].markov, large[-1].markov]


def test_the_floor_decides_as_we_do() -> None:
    wanted = every_row(ROWS)

    assert [] == peers.disagreements(compiled(ROWS), wanted)
    assert [] == peers.disagreements(peers.floor(ROWS), wanted)


@pytest.mark.parametrize("engine", peers.ENGINES)
def test_every_path_of_an_engine_decides_as_we_do(engine: str) -> None:
    pytest.importorskip(MODULES[engine], reason="it comes with the `bench` extra")

    paths = peers.ENGINES[engine](ROWS)

    assert paths
    for path in paths:
        assert [] == peers.disagreements(path, every_row(ROWS))


def test_whoever_decides_wrongly_is_named_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Peer("broken", lambda facts: Call(str, (facts.model_type,)), str)
    monkeypatch.setattr(route, "time_calls", lambda _: pytest.fail("it was timed"))

    with pytest.raises(SystemExit, match="broken, first: family_00000 instead of L00001"):
        route.measure([broken], ROWS, "title")


@pytest.mark.parametrize(
    ("measured", "at_least", "met"),
    [
        (2.9, False, True),
        (3.0, False, True),
        (3.1, False, False),
        (2.9, True, False),
        (3, True, True),
    ],
)
def test_a_gate_says_on_which_side_of_its_limit_it_is(
    measured: float, at_least: bool, met: bool
) -> None:
    gate = route.Gate("decision", measured, 3, "x", at_least)

    assert met == gate.met
    assert ("ok" if met else "MISSED") == str(gate).split()[-1]
    assert f"{'>=' if at_least else '<='} 3 x" in str(gate)


def test_a_figure_without_a_limit_is_never_missed() -> None:
    figure = route.Gate("expression", 1e9, None, "x")

    assert figure.met
    assert str(figure).endswith("none  not gated")


@pytest.mark.parametrize(("measured", "code"), [(1.0, 0), (9.0, 1)])
def test_one_missed_gate_fails_the_run(
    measured: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, other = route.Gate("good", 1, 3, "x"), route.Gate("other", measured, 3, "s")
    monkeypatch.setattr(route, "pin", lambda: 0)
    monkeypatch.setattr(route, "SECTIONS", {"a": lambda: [other], "b": lambda: [good]})

    assert code == route.main([])
    lines = capsys.readouterr().out.splitlines()
    assert [str(other), str(good)] == lines[-2:]


def test_only_the_named_sections_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(route, "pin", lambda: 0)
    sections = {"a": lambda: [route.Gate("good", 1, 3, "x")], "b": lambda: pytest.fail("b ran")}
    monkeypatch.setattr(route, "SECTIONS", sections)

    assert 0 == route.main(["a"])
    assert "good" in capsys.readouterr().out


def test_calls_are_timed_with_their_arguments_and_without_the_collector() -> None:
    seen = set()

    def work(first: int, second: str) -> None:
        seen.add((first, second, gc.isenabled()))

    samples = timing.time_calls({"work": Call(work, (1, "a"))}, repeats=3)

    assert {(1, "a", False)} == seen
    assert gc.isenabled()
    assert 0 < samples["work"].minimum <= samples["work"].median < 1e-3


def test_a_sample_keeps_the_minimum_and_the_median() -> None:
    assert Sample(1, 2) == Sample.of([9, 1, 2])


def test_a_command_that_fails_is_not_timed(tmp_path: Path) -> None:
    command = {"false": ["false"]}

    with pytest.raises(subprocess.CalledProcessError):
        timing.time_commands(command, 1, str(tmp_path))
    assert 0 < timing.time_commands(command, 1, str(tmp_path), codes=(1,))["false"].minimum
