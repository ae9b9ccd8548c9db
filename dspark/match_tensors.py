"""A checkpoint's tensors held against a contract: which is which, what is missing, what is wrong.

Names are compared after the contract's renames. A tensor that is in the file is used, whatever a
flag in the config says; one that may be shared and is absent is the target's. What the contract
does not name is refused, since a tensor nobody reads is an algorithm nobody runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dspark.contract import Canonical, Contract, Finding, TensorSpec, Value
from dspark.dimensions import applies, evaluate
from dspark.errors import Unreadable
from dspark.findings import finding
from dspark.header_json import shown
from dspark.headers import TensorInfo
from dspark.tensors import Tensors

EMBEDDING, HEAD, ID_MAP = "embed_tokens.weight", "lm_head.weight", "d2t"

_LIST_IS_COMPLETE = frozenset(
    {"shard-truncated", "shard-trailing-bytes", "tensor-missing", "tensor-duplicate"}
)
"""What can be wrong with files whose lists of tensors are known all the same."""

ReadIntegers = Callable[[TensorInfo], Sequence[int]]
"""The values of an I64 tensor; raises `Unreadable`."""


class Matched(NamedTuple):
    """The tensors of one checkpoint under the names its contract gives them."""

    tensors: Mapping[str, TensorInfo]
    """Canonical name -> where it lies; its `name` is the one in the file. Ignored ones are out."""
    shared: tuple[str, ...]
    """Canonical names of those that are the target's own."""
    tied: Mapping[str, str]
    """Canonical name -> the tensor of the same checkpoint that stands for it."""
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


class _Expected(NamedTuple):
    spec: TensorSpec
    shape: tuple[int, ...]


def match(
    contract: Contract, canonical: Canonical, found: Tensors, read_integers: ReadIntegers
) -> Matched:
    """The tensors of `found` by canonical name, with every finding about them.

    `canonical` has no findings of its own. Where a file's list of tensors is not known, only the
    findings about the files are given: what such a file holds would be a guess. Raises nothing;
    what `read_integers` raises is a finding.
    """
    container = [finding(each.rule_name, **each.values) for each in found.findings]
    if any(each.rule_name not in _LIST_IS_COMPLETE for each in found.findings):
        return Matched({}, (), {}, tuple(container), ())
    reported = {each.values.get("tensor") for each in found.findings}
    named, duplicates = canonical_names(contract, found.tensors)
    findings = container + duplicates
    warnings: list[Finding] = []
    expected = dict(_expected(contract, canonical.values))
    tensors: dict[str, TensorInfo] = {}
    for name, info in named.items():
        wanted = expected.get(name)
        if wanted is None:
            findings.append(finding("tensor-unexpected", tensor=shown(info.name)))
        elif wanted.spec.need == "ignored":
            warnings.append(finding("ignored-tensor", tensor=shown(info.name)))
        else:
            findings += _wrong(info, wanted)
            tensors[name] = info
    shared, tied = _absent_but_had(expected, canonical.values, tensors)
    for name, wanted in expected.items():
        had = name in tensors or name in shared or name in tied or name in reported
        if not had and _is_needed(wanted.spec, canonical.values):
            findings.append(_missing(name, wanted))
    if ID_MAP in tensors and (HEAD in shared or HEAD in tied):
        # The map belongs to a head of the draft's own: over another head it repoints every id.
        findings.append(finding("tensor-unexpected", tensor=shown(tensors[ID_MAP].name)))
    # Reads data, and only where nothing that a header shows is wrong with it.
    if not findings and ID_MAP in tensors:
        findings += _map_findings(tensors[ID_MAP], canonical.values, read_integers)
    if HEAD in tensors and canonical.values["tie_word_embeddings"] is True:
        warnings.append(finding("tie-flag-ignored", tensor=shown(tensors[HEAD].name)))
    return Matched(tensors, shared, tied, tuple(findings), tuple(warnings))


def canonical_names(
    contract: Contract, tensors: Mapping[str, TensorInfo]
) -> tuple[dict[str, TensorInfo], list[Finding]]:
    """The tensors by canonical name; two spellings of one name are a finding with both."""
    named: dict[str, TensorInfo] = {}
    duplicates = []
    for name, info in tensors.items():
        canonical = name
        for rename in contract.renames:
            if canonical.startswith(rename.prefix):
                canonical = rename.stands_for + canonical.removeprefix(rename.prefix)
        if canonical in named:
            first = named[canonical]
            duplicates.append(
                finding(
                    "tensor-duplicate",
                    tensor=shown(canonical),
                    file=f"`{shown(first.name)}` in `{shown(first.file)}`",
                    other=f"`{shown(name)}` in `{shown(info.file)}`",
                )
            )
        else:
            named[canonical] = info
    return named, duplicates


def integer(values: Mapping[str, Value], key: str) -> int:
    """A canonical value that the contract declares as an integer without a null default."""
    value = values[key]
    assert isinstance(value, int)  # INVARIANT: a config with a finding gets no further
    return value


def _expected(contract: Contract, values: Mapping[str, Value]) -> Iterator[tuple[str, _Expected]]:
    for spec in contract.tensors:
        if not applies(spec.when, values):
            continue
        shape = tuple(evaluate(dim, values) for dim in spec.shape)
        if not spec.repeat:
            yield spec.name, _Expected(spec, shape)
            continue
        for layer in range(integer(values, spec.repeat)):
            yield spec.name.replace("{layer}", str(layer)), _Expected(spec, shape)


def _is_needed(spec: TensorSpec, values: Mapping[str, Value]) -> bool:
    if spec.name == ID_MAP and spec.need == "optional":
        # A head over fewer ids than the tables are indexed by; a padded vocabulary needs no map.
        return values["draft_vocab_size"] != values["vocab_size"]
    return spec.need in ("required", "shared")


def needed_shapes(contract: Contract, values: Mapping[str, Value]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors that a checkpoint of this contract must have."""
    return {
        name: wanted.shape
        for name, wanted in _expected(contract, values)
        if _is_needed(wanted.spec, values)
    }


def _wrong(info: TensorInfo, wanted: _Expected) -> Iterator[Finding]:
    name = shown(info.name)
    if info.dtype not in wanted.spec.dtypes:
        dtypes = " or ".join(wanted.spec.dtypes)
        yield finding("tensor-dtype", tensor=name, expected=dtypes, got=info.dtype)
    if info.shape != wanted.shape:
        values = {"expected": list(wanted.shape), "got": list(info.shape)}
        yield finding("tensor-shape", tensor=name, from_keys=_keys(wanted.spec), **values)


def _missing(name: str, wanted: _Expected) -> Finding:
    return finding("tensor-missing", tensor=name, expected=list(wanted.shape))


def _keys(spec: TensorSpec) -> str:
    return ", ".join(dim.text for dim in spec.shape)


def _absent_but_had(
    expected: Mapping[str, _Expected], values: Mapping[str, Value], tensors: Mapping[str, object]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Which tensors are the target's, and which another tensor of the file stands for.

    An absent head is the target's only together with the embedding: a file that ships its own
    embedding and no head has lost the head, unless it says that the two are one. A head over a
    reduced vocabulary is nobody else's.
    """
    may = [name for name, wanted in expected.items() if wanted.spec.need == "shared"]
    absent = [name for name in may if name not in tensors]
    if HEAD in absent:
        if expected[HEAD].shape != expected[EMBEDDING].shape:
            absent.remove(HEAD)
        elif EMBEDDING not in absent:
            absent.remove(HEAD)
            if values["tie_word_embeddings"] is True:
                return tuple(absent), {HEAD: EMBEDDING}
    return tuple(absent), {}


def _map_findings(
    info: TensorInfo, values: Mapping[str, Value], read_integers: ReadIntegers
) -> Iterator[Finding]:
    """What is wrong with the map of draft ids to target ids, which holds target id - draft id."""
    rows = integer(values, "vocab_size")
    try:
        offsets = read_integers(info)
    except Unreadable as problem:
        yield finding(problem.rule_name, **problem.values)
        return
    first: dict[int, int] = {}
    for draft_id, offset in enumerate(offsets):
        target_id = draft_id + offset
        common = {"tensor": shown(info.name), "index": draft_id}
        if not 0 <= target_id < rows:
            expected = f"offsets to target ids below {rows}"
            got = f"{offset} (target id {target_id})"
            yield finding("tensor-value", expected=expected, got=got, **common)
            return
        if target_id in first:
            expected = "offsets to target ids that differ"
            got = f"{offset} (target id {target_id}, as for entry {first[target_id]})"
            yield finding("tensor-value", expected=expected, got=got, **common)
            return
        first[target_id] = draft_id
