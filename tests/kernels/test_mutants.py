"""What `scripts/mutants` breaks, and whether it tells what is noticed from what is not."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import pytest

from dspark.kernels.signatures import FOLDER
from scripts import kernel_mutants
from scripts.kernel_mutants import Job, Outcome, Pool, examine, problem, updated
from tests.kernels.mutants import EQUIVALENT, KILLERS, MUTANTS
from tests.support.kernel_mutation import TESTS, TEXTS, Mutant, Verdict, about

KNOWN = "id >= 0 && id < entries"


def test_every_mutant_is_a_change_of_its_file() -> None:
    every = [*MUTANTS, *EQUIVALENT]

    assert [] == [each for each in every if each.line not in TEXTS[each.file]]
    assert [] == [each for each in every if each.line == each.broken]
    assert len(every) == len({(each.file, str(each)) for each in every})


def test_every_source_has_tests_and_mutants() -> None:
    assert {file.name for file in FOLDER.glob("*.cu")} == set(TESTS)
    assert set(TEXTS) == {each.file for each in MUTANTS}
    assert [] == [test for file in TEXTS for test in about(file) if not Path(test).is_file()]


def test_every_mutant_was_noticed_by_a_test_that_is_about_its_file() -> None:
    killers = json.loads(KILLERS.read_text("utf-8"))

    assert {each.file: [] for each in MUTANTS}.keys() == killers.keys()
    for file, found in killers.items():
        assert [str(each) for each in MUTANTS if each.file == file] == list(found)
        assert {test.partition("::")[0] for test in found.values()} <= set(about(file))


def test_a_headers_tests_are_those_of_all_that_include_it() -> None:
    assert ("tests/kernels/test_gemm.py",) == about("gemm.cuh")
    assert set(about("sampling.cu") + about("round.cu")) == set(about("choices.cuh"))
    assert set(about("best.cuh")) > set(about("choices.cuh") + about("gemm.cuh"))


def outcome(mutant: Mutant | None, failed: str | None = None, fault: str = "") -> Outcome:
    return Outcome(Job(mutant, ("test_x.py",)), Verdict(failed, fault), "")


def test_what_is_a_problem() -> None:
    harmless = next(iter(EQUIVALENT))

    assert "nobody notices" == problem(outcome(MUTANTS[0]))
    assert "" == problem(outcome(MUTANTS[0], failed="test_x"))
    assert "it does not compile" == problem(outcome(MUTANTS[0], "test_x", "it does not compile"))
    assert "test_x fails unbroken" == problem(outcome(None, failed="test_x"))
    assert "" == problem(outcome(None)) == problem(outcome(harmless))
    assert "not equivalent" in problem(outcome(harmless, failed="test_x"))


def test_killers_of_what_is_gone_are_forgotten() -> None:
    first, second = MUTANTS[:2]
    old = {first.file: {"gone": "test_a", str(second): "test_b", str(first): "test_c"}, "x.cu": {}}

    new = updated(old, {first: "test_d"})

    assert {first.file: {str(first): "test_d", str(second): "test_b"}} == new
    assert [str(first), str(second)] == list(new[first.file])


def test_a_name_of_no_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == kernel_mutants.main(["nothing.cu"])
    assert "there are mutants of attention.cu, " in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_noticed_is_told_from_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed, harmless, no_code, crashes, hangs = (
        Mutant("rows.cu", KNOWN, broken)
        for broken in (
            "id >= 0 && id <= entries",
            "0 <= id && id < entries",
            "id >= 0 &&",
            "(__builtin_trap(), true)",
            "[] { for (;;) {} return true; }()",
        )
    )
    # Neither notices by itself: the one does not look at ids, the other is gone.
    recorded = {
        "rows.cu": {
            str(noticed): "tests/kernels/test_rows.py::test_silu_mul[seed0]",
            str(harmless): "tests/kernels/test_rows.py::test_gone",
        }
    }
    pool = Pool(tmp_path, 2)

    found = {
        each.job.mutant: each
        for each in examine(pool, [noticed, harmless, no_code, crashes], recorded)
    }
    monkeypatch.setattr("scripts.kernel_mutants.PATIENCE_S", 2.0)
    (late,) = pool.run(deque([Job(hangs, about("rows.cu"))]))

    seen_by = "tests/kernels/test_rows.py::test_an_id_that_is_not_there_is_seen[seed0]"
    assert seen_by == found[noticed].verdict.failed
    problems = {each: problem(outcome) for each, outcome in found.items()}
    assert {
        None: "",
        noticed: "",
        harmless: "nobody notices",
        no_code: "it does not compile",
        crashes: "it ended with -4",
    } == problems
    assert "error: expected primary-expression" in found[no_code].log
    assert "it takes more than 2 s" == problem(late)
    assert ["unbroken"] == [each.name for each in tmp_path.iterdir()]
