"""Runs the tests that stand in contracts, and breaks the contracts to see them fail."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dspark.compiled import Table
from dspark.contract import Canonical
from dspark.contract_bench import Bench, problem, read_bench, run
from dspark.contract_cases import ContractCase
from dspark.contract_defaults import Routes
from dspark.contract_mutate import Mutant, mutants
from dspark.contract_reader import (
    GUIDE,
    TARGETS,
    Source,
    contract_kind,
    lane_file,
    load_contract,
    load_target_contract,
    read_contract,
    target_file,
)
from dspark.diagnostics import Place, Report
from dspark.document import Document
from dspark.errors import TableError
from dspark.findings_check import is_findings, prove, prove_findings
from dspark.routing import default_table


class ContractFailure(NamedTuple):
    """A test that did not get what it asks for."""

    case: ContractCase
    problem: str


class ContractReport(NamedTuple):
    """What the tests and mutants of contracts came to."""

    contracts: int
    tests: int
    failures: tuple[ContractFailure, ...]
    mutants: int
    survivors: tuple[Mutant, ...]

    @property
    def passed(self) -> bool:
        return not (self.failures or self.survivors)

    def to_json(self) -> dict[str, object]:
        return {
            "contracts": self.contracts,
            "tests": self.tests,
            "failures": [
                {"file": f.case.place.file, "line": f.case.place.line, "problem": f.problem}
                for f in self.failures
            ],
            "mutants": {
                "killed": self.mutants - len(self.survivors),
                "survived": [
                    {"file": m.place.file, "line": m.place.line, "edit": m.edit}
                    for m in self.survivors
                ],
            },
        }


def routes_of(table: Table) -> dict[str, list[str]]:
    """Lane -> the names of the rules of a routing table that lead to it."""
    found: dict[str, list[str]] = {lane: [] for lane in table.lanes}
    for rule in table.rules.values():
        if rule.lane is not None:
            found[rule.lane].append(rule.name)
    return found


def read_shipped(routes: Routes) -> tuple[Bench, ...]:
    """Every contract that ships with its tests, for the lanes that `routes` lead to.

    Raises `TableError` with every mistake in any of them and in the findings.
    """
    reports = []
    benches = []
    sources: list[Source] = []
    files = [(target_file(family), family) for family in TARGETS]
    files += [(lane_file(lane), lane) for lane in routes]
    for file, name in files:
        report = Report()
        reports.append(report)
        if not file.is_file():
            report.add("no-contract", Place(os.fspath(file), 1, 1), lane=name)
            continue
        document = Document(file.read_bytes(), os.fspath(file), report, GUIDE)
        keys = sources[0].contract.keys if sources else None
        sources.append(read_contract(document, routes=routes, target_keys=keys))
        benches.append(read_bench(sources[-1]))
    reports.append(prove_findings([source.contract for source in sources]))
    _raise_any(reports)
    return tuple(benches)


def read_file(file: Path) -> tuple[Bench, ...] | None:
    """The contract in a lane's or a target's file with its tests; None for a file of another kind.

    The lanes are those of the routing table that ships. Raises `TableError` with every mistake in
    the file, and OSError if it cannot be read. A file of findings has no contract.
    """
    report = Report()
    document = Document(file.read_bytes(), os.fspath(file), report, GUIDE)
    kind = contract_kind(document)
    if not kind and not is_findings(document):
        return None
    routes = routes_of(default_table())
    if not kind:
        shipped = [load_contract(lane) for lane in routes]
        prove(document, [load_target_contract().contract, *shipped])
        _raise_any([report])
        return ()
    keys = None if kind == "target" else load_target_contract().contract.keys
    source = read_contract(document, routes=routes, target_keys=keys)
    bench = read_bench(source)
    _raise_any([report])
    return (bench,)


def _raise_any(reports: Sequence[Report]) -> None:
    # A part is read with every file that includes it, and so are its mistakes.
    found = dict.fromkeys(each for report in reports for each in report.diagnostics())
    if found:
        raise TableError(tuple(found))


def check_contracts(benches: Sequence[Bench], file: str = "") -> ContractReport:
    """Runs every test of `benches`, then every mutant of their contracts until a test is red.

    With a `file`, only what stands in it is broken: the tests of a part are in several files.
    """
    failures = []
    for bench in benches:
        for number, case in enumerate(bench.cases):
            wrong = problem(case, run(bench, number, bench.contract, None))
            if wrong:
                failures.append(ContractFailure(case, wrong))
    tests = sum(len(bench.cases) for bench in benches)
    if failures:
        # A test that fails already would count every mutant it looks at as noticed.
        return ContractReport(len(benches), tests, tuple(failures), 0, ())
    contracts = [bench.contract for bench in benches]
    found = list(mutants(contracts))
    if file:
        # What is merged from several files cannot be said to stand in one of them.
        merged = ("known", "renames")
        found = [each for each in found if each.place.file == file and each.field not in merged]
    trials = Trials(benches)
    survivors = [mutant for mutant in found if not trials.kill(mutant)]
    return ContractReport(len(benches), tests, (), len(found), tuple(survivors))


class _Trial(NamedTuple):
    """One test of one bench, with what its config was read as."""

    bench: Bench
    number: int
    canonical: Canonical

    @property
    def case(self) -> ContractCase:
        return self.bench.cases[self.number]


class Trials:
    """The tests of every bench, tried on mutants, those that share rare words with it first."""

    def __init__(self, benches: Sequence[Bench]) -> None:
        self.benches = benches
        self.trials = [
            _Trial(bench, number, run(bench, number, bench.contract, None).canonical)
            for bench in benches
            for number in range(len(bench.cases))
        ]
        self.holding: dict[str, list[int]] = {}
        for number, trial in enumerate(self.trials):
            for word in trial.case.words:
                self.holding.setdefault(word, []).append(number)

    def kill(self, mutant: Mutant) -> bool:
        """Whether some test is red on the contracts with the mutant's edit, or cannot be run."""
        edited = {id(bench): mutant.edited(bench.contract) for bench in self.benches}
        later = mutant.field in ("tensors", "pairing")
        for trial in self._in_order(mutant):
            contract = edited[id(trial.bench)]
            if contract is None or (later and trial.case.tensors is None):
                continue
            known = trial.canonical if later else None
            try:
                outcome = run(trial.bench, trial.number, contract, known)
            except (KeyError, AssertionError):
                # The reader refuses such a contract: a size that has no value, for one.
                return True
            if problem(trial.case, outcome):
                return True
        return False

    def _in_order(self, mutant: Mutant) -> Iterator[_Trial]:
        kinship = dict.fromkeys(range(len(self.trials)), 0.0)
        for word in mutant.words:
            holding = self.holding.get(word, ())
            for number in holding:
                kinship[number] += 1 / len(holding)
        for number in sorted(kinship, key=kinship.__getitem__, reverse=True):
            yield self.trials[number]
