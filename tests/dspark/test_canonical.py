"""A config read by its contract, against published configs, reported faults and a naive reader."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dspark
from dspark.canonical import canonicalise
from dspark.contract import Canonical, Contract, Default, Key, KeyPlace
from dspark.contract_reader import load_contract, load_target_contract
from dspark.diagnostics import Place
from tests.support.configs import BASE, Config, with_keys, without

LANE = load_contract("qwen3-dspark")
NATIVE = "qwen3-dspark-native"
SPECULATORS = "qwen3-dspark-speculators"
CORPUS = Path(__file__).parents[1] / "corpus"

OUTCOMES = [
    line.split("\t") for line in (CORPUS / "expected.tsv").read_text(encoding="utf-8").splitlines()
]
WHOLE = [
    name
    for name, outcome, _ in OUTCOMES
    if outcome.startswith("lane:") or name.startswith("Qwen__Qwen3-")
]

LAYERS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
LAYERS += ("num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps", "hidden_act")
LAYERS += ("max_position_embeddings", "rope_parameters", "model_type")
SPECULATOR: Config = {
    "speculators_model_type": "dspark",
    "block_size": 8,
    "aux_hidden_state_layer_ids": [2, 10, 18, 26, 34],
    "mask_token_id": 151669,
    "markov_rank": 256,
    "transformer_layer_config": {key: BASE[key] for key in LAYERS},
}


def read(config: Config, rule: str = NATIVE, present: frozenset[str] | None = None) -> Canonical:
    return canonicalise(LANE, config, rule, present)


def found(canonical: Canonical) -> list[str]:
    return [each.name for each in canonical.findings]


def test_the_official_draft_is_read_whole() -> None:
    canonical = read(BASE)

    assert ([], []) == (found(canonical), list(canonical.warnings))
    assert set(LANE.keys) | {"drafts_per_round"} == set(canonical.values) == set(canonical.origins)
    assert 7 == canonical.values["drafts_per_round"]
    assert 1e6 == canonical.values["rope_theta"]
    assert "rope_parameters.rope_theta" == canonical.origins["rope_theta"]
    assert f"default of {NATIVE}" == canonical.origins["sample_from_anchor"]
    assert "default: vocab_size" == canonical.origins["draft_vocab_size"]
    assert "computed" == canonical.origins["drafts_per_round"]


@pytest.mark.parametrize("name", WHOLE)
def test_a_published_config_that_is_whole_is_taken(name: str) -> None:
    config = json.loads((CORPUS / name / "config.json").read_text(encoding="utf-8"))
    decision = dspark.route(CORPUS / name)
    if decision.lane is not None:
        contract = load_contract(decision.lane)
    elif config.get("architectures") == ["Qwen3ForCausalLM"]:
        contract = load_target_contract().contract
    else:
        raise AssertionError("no lane and no target")

    canonical = canonicalise(contract, config, decision.name, None)

    # The two Speculators files of the corpus are excerpts; what they lack is all that is found.
    excerpt = "transformer_layer_config" in config
    assert ({"missing-key"} if excerpt else set()) == set(found(canonical))
    assert () == canonical.warnings


@pytest.mark.parametrize(
    ("config", "wanted", "words"),
    [
        pytest.param(
            without(BASE, "target_layer_ids"), "missing-key", "`target_layer_ids`", id="B1"
        ),
        pytest.param(without(BASE, "block_size"), "missing-key", "`block_size`", id="B1-block"),
        pytest.param(without(BASE, "markov_rank"), "missing-key", "`markov_rank`", id="B1-rank"),
        pytest.param(without(BASE, "mask_token_id"), "missing-key", "`mask_token_id`", id="B2"),
        pytest.param(
            with_keys(BASE, mask_token_id=None), "missing-key", "`mask_token_id`", id="B2-null"
        ),
        pytest.param(
            with_keys(BASE, dflash_config={"target_layer_ids": [1, 9]}),
            "conflicting-keys",
            "`dflash_config.target_layer_ids` is `[1, 9]`",
            id="B6",
        ),
        pytest.param(
            with_keys(BASE, mask_token_id=151936),
            "out-of-range",
            "less than `vocab_size` (151936)",
            id="B11-rows",
        ),
        pytest.param(with_keys(BASE, mask_token_id=-1), "out-of-range", "`-1`", id="B11-negative"),
        pytest.param(with_keys(BASE, block_size=0), "out-of-range", "1 to 64", id="B11-none"),
        pytest.param(
            with_keys(BASE, block_size=1000000), "out-of-range", "`1000000`", id="B11-huge"
        ),
        pytest.param(
            with_keys(BASE, block_size=1, sample_from_anchor=False),
            "inconsistent-config",
            "leaves a draft where `sample_from_anchor` is `false`",
            id="no-draft-left",
        ),
        pytest.param(
            with_keys(BASE, block_size=2**63), "out-of-range", "9223372036854775808", id="N6"
        ),
        pytest.param(
            with_keys(BASE, vocab_size=151936.0),
            "bad-type",
            "`151936.0`, which is not an integer",
            id="N6-float",
        ),
        pytest.param(with_keys(BASE, block_size=True), "bad-type", "`true`", id="true-is-not-1"),
        pytest.param(
            with_keys(BASE, dspark_block_size=8),
            "conflicting-keys",
            "`dspark_block_size` is `8`",
            id="A11",
        ),
        pytest.param(
            with_keys(BASE, quantization_config={"quant_method": "awq"}),
            "quantized-draft",
            "awq",
            id="F2",
        ),
        pytest.param(
            with_keys(BASE, quantization={"bits": 4}),
            "quantized-draft",
            "`quantization`",
            id="F2-mlx",
        ),
        pytest.param(
            with_keys(BASE, rope_theta=10000),
            "conflicting-keys",
            "`rope_parameters.rope_theta` is `1000000` and `rope_theta` is `10000`",
            id="G1-differ",
        ),
        pytest.param(
            without(BASE, "rope_parameters"), "missing-key", "rope_theta", id="G1-neither"
        ),
        pytest.param(
            with_keys(BASE, rope_parameters={"rope_theta": 1e6, "rope_type": "llama3"}),
            "unsupported-rope",
            "`llama3`",
            id="G3",
        ),
        pytest.param(
            with_keys(BASE, is_neox_style=False), "unsupported-rope", "`is_neox_style`", id="G4"
        ),
        pytest.param(
            with_keys(BASE, layer_types="sliding_attention"),
            "bad-type",
            "a list of strings",
            id="G7",
        ),
        pytest.param(
            with_keys(BASE, layer_types=["sliding_attention"] * 5),
            "missing-key",
            "`sliding_window`",
            id="G6-no-window",
        ),
        pytest.param(
            with_keys(BASE, hidden_size=4097, head_dim=None),
            "missing-key",
            "no multiple of",
            id="E12-inexact",
        ),
        pytest.param(
            with_keys(BASE, target_layer_ids=[9, 1]),
            "inconsistent-config",
            "increasing",
            id="taps-fall",
        ),
    ],
)
def test_a_reported_fault_is_refused_by_name(config: Config, wanted: str, words: str) -> None:
    (finding,) = read(config).findings

    assert wanted == finding.name
    assert words in finding.message


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        pytest.param(
            with_keys(BASE, mask_token_id=151935), "mask_token_id", 151935, id="B11-last-row"
        ),
        pytest.param(with_keys(BASE, block_size=1), "drafts_per_round", 1, id="B11-one"),
        pytest.param(
            with_keys(without(BASE, "block_size"), dflash_config={"block_size": 7}),
            "block_size",
            7,
            id="B8",
        ),
        pytest.param(
            with_keys(without(BASE, "rope_parameters"), rope_theta=1000000),
            "rope_theta",
            1e6,
            id="G1-top",
        ),
        pytest.param(with_keys(BASE, rope_theta=1000000), "rope_theta", 1e6, id="G1-equal"),
        pytest.param(with_keys(BASE, hidden_size=2560, head_dim=128), "head_dim", 128, id="E12"),
        pytest.param(
            with_keys(BASE, hidden_size=2560, head_dim=None), "head_dim", 80, id="E12-null"
        ),
        pytest.param(
            with_keys(
                BASE,
                layer_types=["sliding_attention"] * 4 + ["full_attention"],
                sliding_window=2048,
            ),
            "sliding_window",
            2048,
            id="G6",
        ),
        pytest.param(
            with_keys(BASE, target_layer_ids=[-1, 35]), "target_layer_ids", (-1, 35), id="C3"
        ),
        pytest.param(
            with_keys(BASE, target_hidden_size=None),
            "target_hidden_size",
            4096,
            id="null-is-absent",
        ),
        pytest.param(
            with_keys(
                BASE,
                rope_parameters={
                    "rope_theta": 1e6,
                    "rope_type": "yarn",
                    "factor": 4,
                    "original_max_position_embeddings": 32768,
                },
            ),
            "rope_factor",
            4.0,
            id="G3-yarn",
        ),
    ],
)
def test_what_is_right_is_taken(config: Config, key: str, value: object) -> None:
    canonical = read(config)

    assert [] == found(canonical)
    assert (value, type(value)) == (canonical.values[key], type(canonical.values[key]))


@pytest.mark.parametrize(
    ("config", "rule", "drafts"),
    [
        (BASE, NATIVE, 7),
        (SPECULATOR, SPECULATORS, 7),
        (with_keys(SPECULATOR, sample_from_anchor=True), SPECULATORS, 8),
        (with_keys(SPECULATOR, sample_from_anchor=False), SPECULATORS, 7),
    ],
)
def test_c6_the_exporter_decides_how_many_are_drafted(
    config: Config, rule: str, drafts: int
) -> None:
    canonical = read(config, rule)

    assert ([], drafts) == (found(canonical), canonical.values["drafts_per_round"])
    assert (1, 9, 17, 25, 33) == canonical.values["target_layer_ids"]


@pytest.mark.parametrize(("tokens", "wanted"), [(7, []), (8, ["inconsistent-config"])])
def test_speculators_must_not_ask_for_more_drafts_than_there_are(
    tokens: int, wanted: list[str]
) -> None:
    asked = {"proposal_methods": [{"speculative_tokens": tokens}]}

    assert wanted == found(read(with_keys(SPECULATOR, speculators_config=asked), SPECULATORS))


def test_b9_a_confidence_head_on_no_markov_head_names_both_keys() -> None:
    config = with_keys(BASE, markov_rank=0, enable_confidence_head=False)
    canonical = canonicalise(load_contract("qwen3-dflash"), config, "qwen3-dflash-native", None)

    (finding,) = [each for each in canonical.findings if each.name == "inconsistent-config"]
    assert "`confidence_head_with_markov` is `true`" in finding.message
    assert "where `markov_rank` is `0`" in finding.message


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        (None, None),
        (frozenset({"fc.weight"}), False),
        (frozenset({"confidence_head.proj.weight"}), True),
        (frozenset({"model.confidence_head.proj.weight"}), True),
    ],
)
def test_a_head_may_be_declared_by_its_tensors(
    present: frozenset[str] | None, wanted: bool | None
) -> None:
    config = without(BASE, "enable_confidence_head")

    assert wanted is read(config, present=present).values["enable_confidence_head"]


def test_everything_that_is_wrong_is_found_at_once() -> None:
    config = with_keys(BASE, block_size=0, hidden_act="gelu", head_dim="128", rope_theta=1)
    config = without(config, "mask_token_id")

    wanted = [
        "bad-type",
        "out-of-range",
        "missing-key",
        "conflicting-keys",
        "unsupported-activation",
    ]
    assert sorted(wanted) == sorted(found(read(config)))


@pytest.mark.parametrize("holder", ["rope_parameters", "transformer_layer_config", "dflash_config"])
def test_a_holder_that_is_no_object_is_one_finding(holder: str) -> None:
    canonical = read(with_keys(BASE, **{holder: 7}))

    assert [("bad-type", holder)] == [
        (each.name, each.values["key"]) for each in canonical.findings
    ]


def test_neither_the_config_nor_the_contract_is_changed() -> None:
    before = copy.deepcopy((BASE, SPECULATOR))

    read(BASE)
    read(SPECULATOR, SPECULATORS)

    assert before == (BASE, SPECULATOR)
    assert read(BASE) == read(BASE)


# ------------------------------------------------------------- a small contract, and a naive reader

NOWHERE = Place("contract.yaml", 1, 1)


def key(name: str, kind: str, default: Default | None, *places: KeyPlace) -> Key:
    ranged = kind in ("integer", "number", "integers")
    return Key(name, kind, (-2, 9) if ranged else None, places, default, NOWHERE)


def at(path: str, minus: int = 0, negate: bool = False) -> KeyPlace:
    return KeyPlace(tuple(path.split(".")), minus, negate)


SMALL = Contract(
    name="small",
    model="none",
    keys={
        each.name: each
        for each in (
            key("i", "integer", None, at("i"), at("o.i"), at("j", minus=1)),
            key("n", "number", Default(value=2.5), at("n"), at("o.n")),
            key("b", "boolean", Default(value=None), at("b"), at("c", negate=True)),
            key("t", "text", None, at("t"), at("o.t")),
            key("l", "integers", Default(value=None), at("l"), at("m", minus=1)),
        )
    },
    checks=(),
    pairing=(),
    tensors=(),
    renames=(),
    known=frozenset(),
    drafts=None,
    file="contract.yaml",
)

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 12),
    st.integers(2**62, 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["", "7", "x"]),
    st.lists(st.one_of(st.integers(-4, 12), st.booleans(), st.floats(0, 3)), max_size=3),
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys("ijnbctlm", VALUES)
    | {"o": st.one_of(VALUES, st.dictionaries(st.sampled_from("int"), VALUES))},
)


def naive(config: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """What each key of SMALL is, and which keys have a finding, read the slow obvious way."""
    values: dict[str, Any] = {}
    broken = set()
    for name, each in SMALL.keys.items():
        seen: list[Any] = []
        for place in each.places:
            holder: Any = config
            if len(place.path) == 2:
                holder = config.get("o")
                if holder is None:
                    continue
                if not isinstance(holder, dict):
                    broken.add(name)
                    continue
            raw = holder.get(place.path[-1])
            if raw is None:
                continue
            value = _naive_value(each.type, raw, place)
            if value is None:
                broken.add(name)
            else:
                seen.append(value)
        if any(value != seen[0] for value in seen):
            broken.add(name)
        if name in broken:
            continue
        if seen:
            values[name] = seen[0]
        elif each.default is None:
            broken.add(name)
        else:
            values[name] = each.default.value
    return values, broken


def _naive_value(kind: str, raw: Any, place: KeyPlace) -> Any:
    if kind == "boolean":
        return None if type(raw) is not bool else (raw != place.negate)
    if kind == "text":
        return raw if type(raw) is str else None
    if kind == "number":
        return float(raw) if type(raw) in (int, float) and -2 <= raw <= 9 else None
    if kind == "integer":
        fits = type(raw) is int and -2 <= raw - place.minus <= 9
        return raw - place.minus if fits else None
    if type(raw) is not list or not raw:
        return None
    entries = [_naive_value("integer", entry, place) for entry in raw]
    return None if None in entries else tuple(entries)


@settings(max_examples=400, deadline=None)
@given(CONFIGS)
def test_any_config_is_read_as_the_naive_reader_reads_it(config: dict[str, Any]) -> None:
    values, broken = naive(config)

    canonical = canonicalise(SMALL, config, "any-rule", None)

    assert values == canonical.values
    assert {name: type(value) for name, value in values.items()} == {
        name: type(value) for name, value in canonical.values.items()
    }
    assert bool(broken) == bool(canonical.findings)
    assert set(canonical.origins) == set(values)
