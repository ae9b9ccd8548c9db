"""The tests of a contract at work: what each starts from, what came of it, and what was wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dspark.canonical import canonicalise
from dspark.case_edits import Edits
from dspark.contract import Canonical, Contract, Finding
from dspark.contract_cases import ContractCase, read_cases
from dspark.contract_demands import SHARED
from dspark.contract_reader import Source
from dspark.demands import run_checks
from dspark.dimensions import applies, evaluate, same
from dspark.headers import DTYPE_BITS, TensorInfo
from dspark.match_tensors import Matched, match
from dspark.tensors import SINGLE, Tensors


class Bench(NamedTuple):
    """One contract with its tests, and the tensors each of them starts from."""

    contract: Contract
    cases: tuple[ContractCase, ...]
    tensors: tuple[Tensors | None, ...]
    """By case, derived from the contract as it is written, so that a broken one meets them too."""


class Outcome(NamedTuple):
    """What a contract made of one test's input."""

    canonical: Canonical
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    matched: Matched | None


def read_bench(source: Source) -> Bench:
    """The contract of `source` with its tests; mistakes in them go to its document's report."""
    cases = read_cases(source)
    if source.document.report.diagnostics():
        return Bench(source.contract, cases, (None,) * len(cases))  # nobody will run it
    tensors = []
    for case in cases:
        try:
            found = None if case.tensors is None else _synthesise(source.contract, case)
        except _NoTensor as error:
            found = None
            what = "tensor that this config asks for"
            hint = "name one that the contract requires or may share"
            name = error.args[0]
            source.document.report.add("unknown-name", case.place, what=what, name=name, hint=hint)
        tensors.append(found)
    return Bench(source.contract, cases, tuple(tensors))


def run(bench: Bench, number: int, contract: Contract, canonical: Canonical | None) -> Outcome:
    """What `contract` makes of the input of a test of `bench`; `canonical` if it is known."""
    case, found = bench.cases[number], bench.tensors[number]
    if canonical is None:
        present = None if found is None else frozenset(found.tensors)
        canonical = canonicalise(contract, case.config, case.rule, present)
    if canonical.findings or found is None:
        return Outcome(canonical, canonical.findings, canonical.warnings, None)

    def read_integers(info: TensorInfo) -> Sequence[int]:
        assert case.tensors is not None  # INVARIANT: there are tensors
        return case.tensors.values.get(info.name, (0,) * info.shape[0])

    matched = match(contract, canonical, found, read_integers)
    warnings = canonical.warnings + matched.warnings
    if matched.findings or case.target is None:
        return Outcome(canonical, matched.findings, warnings, matched)
    values = {**canonical.values, SHARED: matched.shared}
    paired = run_checks(
        contract.pairing, values, case.config, case.target, origins=canonical.origins
    )
    return Outcome(canonical, tuple(paired), warnings, matched)


def problem(case: ContractCase, outcome: Outcome) -> str:
    """What the test wanted instead; empty if it got it."""
    for wanted, got in ((case.finds, outcome.findings), (case.warns, outcome.warnings)):
        if Counter(each.name for each in got) != Counter(wanted):
            return f"wanted {_counted(wanted) or 'nothing found'}, got {_listed(got)}"
    said = [each.message for each in (*outcome.findings, *outcome.warnings)]
    for words in case.says:
        if not any(words in message for message in said):
            return f'wanted the words "{words}", got {_listed(outcome.findings)}'
    for key, wanted_value in case.takes.items():
        if key == SHARED:
            got_value: object = outcome.matched.shared if outcome.matched else None
        else:
            got_value = outcome.canonical.values.get(key)
        value = tuple(wanted_value) if isinstance(wanted_value, list) else wanted_value
        if not same(got_value, value) or type(got_value) is not type(value):
            return f"wanted `{key}` to be {value!r}, got {got_value!r}"
    return ""


def _counted(names: Mapping[str, int]) -> str:
    return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in names.items())


def _listed(findings: Sequence[Finding]) -> str:
    shown = "; ".join(f"{each.name}: {each.message}" for each in findings[:3])
    return shown + (f" and {len(findings) - 3} more" if len(findings) > 3 else "") or "nothing"


def _synthesise(contract: Contract, case: ContractCase) -> Tensors | None:
    """The tensors the config asks for, with the test's edits."""
    canonical = canonicalise(contract, case.config, case.rule, None)
    edits = case.tensors
    assert edits is not None  # INVARIANT: the caller has a test with tensors
    infos: dict[str, TensorInfo] = {}
    for spec in contract.tensors:
        if spec.need not in ("required", "shared") or not applies(spec.when, canonical.values):
            continue
        try:
            shape = tuple(evaluate(dim, canonical.values) for dim in spec.shape)
            layers = canonical.values[spec.repeat] if spec.repeat else 1
        except KeyError:
            continue  # the config is one that is refused before any tensor is looked at
        assert isinstance(layers, int)  # INVARIANT: the reader takes integer keys only
        for layer in range(layers):
            name = spec.name.replace("{layer}", str(layer))
            infos[name] = _info(name, spec.dtypes[0], shape)
    return Tensors(_edited(infos, edits), (), ((SINGLE, 0),), 0)


class _NoTensor(Exception):
    """A test edits a tensor that its config does not lead to."""


def _edited(infos: dict[str, TensorInfo], edits: Edits) -> dict[str, TensorInfo]:
    for name in (*edits.drop, *edits.rename, *edits.shape, *edits.dtype):
        if name not in infos:
            raise _NoTensor(name)
    for name in edits.drop:
        del infos[name]
    for name, shape in edits.shape.items():
        infos[name] = _info(name, infos[name].dtype, shape)
    for name in infos if edits.all else edits.dtype:
        dtype = edits.all or edits.dtype[name]
        infos[name] = _info(name, dtype, infos[name].shape)
    for name, (dtype, shape) in edits.add.items():
        infos[name] = _info(name, dtype, shape)
    named = {edits.prefix + edits.rename.get(name, name): info for name, info in infos.items()}
    return {name: _info(name, info.dtype, info.shape) for name, info in named.items()}


def _info(name: str, dtype: str, shape: tuple[int, ...]) -> TensorInfo:
    size = DTYPE_BITS[dtype] // 8
    for extent in shape:
        size *= extent
    return TensorInfo(name, dtype, shape, SINGLE, 0, size)
