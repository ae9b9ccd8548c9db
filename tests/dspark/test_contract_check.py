"""The contracts that ship: their own tests, and that no small edit of them goes unnoticed."""

from __future__ import annotations

import json

import pytest

from dspark.cli import main
from dspark.compile import compile_table
from dspark.contract_bench import Bench, problem, run
from dspark.contract_check import Trials, check_contracts, read_shipped, routes_of
from dspark.contract_mutate import Mutant, mutants


@pytest.fixture(scope="module")
def benches() -> tuple[Bench, ...]:
    return read_shipped(routes_of(compile_table()))


def test_every_test_in_a_contract_passes(benches: tuple[Bench, ...]) -> None:
    wrong = [
        (case.place.file, case.place.line, problem(case, run(bench, number, bench.contract, None)))
        for bench in benches
        for number, case in enumerate(bench.cases)
    ]

    assert 400 < len(wrong)
    assert [] == [each for each in wrong if each[2]]


def test_no_mutant_of_a_contract_survives(benches: tuple[Bench, ...]) -> None:
    report = check_contracts(benches)

    assert (3, 0, ()) == (report.contracts, len(report.failures), report.survivors)
    assert 1600 < report.mutants


def test_a_mutant_is_killed_by_one_test_and_survives_without_it(
    benches: tuple[Bench, ...],
) -> None:
    mutant = next(each for each in mutants([b.contract for b in benches]) if "silu" in each.edit)
    assert Trials(benches).kill(mutant)

    spared = []
    for bench in benches:
        kept = [n for n, case in enumerate(bench.cases) if not _notices(bench, n, mutant)]
        cases = tuple(bench.cases[n] for n in kept)
        spared.append(Bench(bench.contract, cases, tuple(bench.tensors[n] for n in kept)))

    assert not Trials(spared).kill(mutant)


def _notices(bench: Bench, number: int, mutant: Mutant) -> bool:
    contract = mutant.edited(bench.contract)
    if contract is None:
        return False
    return bool(problem(bench.cases[number], run(bench, number, contract, None)))


def test_every_field_of_a_contract_is_broken(benches: tuple[Bench, ...]) -> None:
    found = list(mutants([bench.contract for bench in benches]))

    wanted = {"keys", "checks", "pairing", "tensors", "renames", "known", "drafts"}
    assert wanted == {mutant.field for mutant in found}
    for mutant in found:
        assert any(mutant.edited(b.contract) not in (None, b.contract) for b in benches), mutant


def test_the_command_runs_tables_and_contracts_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["check", "--json", "rules/lanes/qwen3-dflash.yaml"])

    report = json.loads(capsys.readouterr().out)
    assert (1, [], []) == (report["contracts"], report["failures"], report["mutants"]["survived"])
    assert 20 < report["tests"]
