"""Keys that look misspelt: said beside every answer, and of no config that is in order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark
from dspark import noticed as beside
from dspark.canonical import canonicalise
from dspark.contract_reader import load_contract, load_target_contract
from dspark.errors import Refused, Unreadable
from dspark.misspelt import FACT_PATHS, misspelt_keys, read_names
from dspark.noticed import noticed
from dspark.observe import observe_config, observe_gguf
from dspark.routing import default_table
from tests.dspark.test_schemas import problems
from tests.support.configs import BASE, Config, with_keys, without, write_config
from tests.support.handoffs import SERVED, TARGET, write
from tests.support.pairs import TINY, TINY_SHAPES, TINY_TARGET, checkpoint, target_shapes

ROOT = Path(__file__).parents[2]
TABLE = default_table()
LANES = sorted(TABLE.lanes)
OK, REFUSED, UNREADABLE = 0, 3, 4


def renamed(config: Config, **names: str) -> Config:
    """A copy with some keys called otherwise, each of which it must have."""
    assert set(names) <= set(config)
    assert not set(names.values()) & set(config)
    return {names.get(key, key): value for key, value in config.items()}


def noted(config: Mapping[Any, object]) -> list[tuple[object, object]]:
    """The key and the one that was probably meant, of each note beside a decision."""
    warnings = TABLE.route(config).warnings
    assert {"W007"} >= {each.rule_id for each in warnings}
    return [(each.values["key"], each.values["meant"]) for each in warnings]


# ------------------------------------------------------------------------------ what is noted


def test_a_lane_is_told_of_a_key_of_its_contract() -> None:
    config = renamed(BASE, num_hidden_layers="num_hiden_layers")
    assert "qwen3-dspark" == TABLE.route(config).lane

    (warning,) = TABLE.route(config).warnings

    assert ("W007", "misspelt-key", True) == (warning.rule_id, warning.name, warning.warning)
    assert (
        "nothing reads `num_hiden_layers` in the config; did you mean `num_hidden_layers`, which "
        "is not set?"
    ) == warning.message


def test_a_refusal_is_told_of_a_key_that_the_table_reads() -> None:
    config = renamed(BASE, model_type="model_typ", num_hidden_layers="num_hiden_layers")
    assert "R018" == TABLE.route(config).rule_id

    # No lane takes it, so no contract says what else would be read.
    assert [("model_typ", "model_type")] == noted(config)


def test_an_input_that_says_too_little_to_be_read_is_told_of_it() -> None:
    config = renamed(BASE, architectures="architecture")
    assert "E101" == TABLE.route(config).rule_id

    assert [("architecture", "architectures")] == noted(config)


@pytest.mark.parametrize(
    ("place", "key", "meant"),
    [
        ({"dspark_confg": {"x": 1}}, "dspark_confg", "dspark_config"),
        ({"dspark_config": {"dropout_p": 1, "block_sise": 4}}, "block_sise", "block_size"),
        ({"dflash_config": {"markov_rnk": 4}}, "markov_rnk", "markov_rank"),
        ({"rope_parameters": {"rope_thetta": 1e6}}, "rope_thetta", "rope_theta"),
        ({"transformer_layer_config": {"modl_type": "q"}}, "modl_type", "model_type"),
        ({"logit_scal": 3}, "logit_scal", "logit_scale"),
    ],
)
def test_a_key_is_held_against_its_neighbours(place: Config, key: str, meant: str) -> None:
    (within,) = place
    inside = "" if within == key else f"{within}."

    assert [(inside + key, inside + meant)] == noted(without(BASE, "rope_parameters") | place)


@pytest.mark.parametrize(
    "keys",
    [
        {"num_hiden_layers": 5},  # beside the one that is right
        {"num_hiden_layers": None, "num_hidden_layers": None},
        {"pad_token_di": 3},  # of a key that nothing reads either
        {"unrelated": 3},
        {"dflash_config": {"num_hiden_layers": 5}},  # which nobody looks for there
        {"block_sizes": {"block_sise": 4}},  # an object that nobody looks into
    ],
)
def test_what_says_nothing_or_misses_nothing_is_not_noted(keys: Config) -> None:
    assert TABLE.route(BASE | keys).lane is not None

    assert [] == noted(BASE | keys)


def test_a_key_that_is_null_is_not_set() -> None:
    keys = {"num_hidden_layers": None, "num_hiden_layers": 5}

    assert [("num_hiden_layers", "num_hidden_layers")] == noted(BASE | keys)


def test_a_key_that_is_right_as_it_is_is_never_suspected() -> None:
    names = {(): frozenset({"layer_types"})}

    assert ["layer_type"] == list(misspelt_keys({"layer_type": 1}, names))
    assert [] == list(misspelt_keys({"layer_type": 1}, names, {"layer_type"}))
    deep = {(): frozenset({"inner_part"}), ("inner_part",): frozenset({"layer_types"})}
    config = {"inner_part": {"layer_type": 1}}
    assert ["inner_part.layer_type"] == list(misspelt_keys(config, deep))
    assert [] == list(misspelt_keys(config, deep, {"inner_part.layer_type"}))
    assert [] == list(misspelt_keys(config, deep, {"layer_type"}))


def test_what_a_contract_knows_is_right_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = load_contract("qwen3-dspark")
    config = renamed(BASE, layer_types="layer_type")
    assert [("layer_type", "layer_types")] == noted(config)
    aware = lane._replace(known=lane.known | {"layer_type"})
    monkeypatch.setattr("dspark.contract_reader.load_contract", lambda _: aware)
    monkeypatch.setattr(beside, "_read_by", beside._read_by.__wrapped__)

    assert [] == noted(config)
    assert () == canonicalise(aware, config, "qwen3-dspark-native", None).warnings


def test_an_id_that_a_mask_token_is_compared_with_is_not_missed() -> None:
    lane = load_contract("qwen3-dspark")
    assert any("bos_token_id" in check.paths for check in lane.checks)

    # Published, and as close to `bos_token_id` as a slip.
    assert {} == misspelt_keys({"boi_token_id": 1, "boa_token_id": 2}, read_names(lane), lane.known)


@pytest.mark.parametrize("key", sorted(key for key in BASE if key not in ("num_anchors",)))
@given(data=st.data())
def test_any_letter_of_any_key_may_slip(key: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(key) - 1))
    letter = data.draw(st.sampled_from("aeiostz_"))
    slipped = data.draw(
        st.sampled_from(
            [
                key[:place] + key[place + 1 :],
                key[:place] + letter + key[place:],
                key[:place] + letter + key[place + 1 :],
                key[:place] + key[place : place + 2][::-1] + key[place + 2 :],
            ]
        )
    )
    config = renamed(BASE, **{key: slipped}) if slipped not in BASE else BASE
    lane = TABLE.route(config).lane
    contract = load_contract(lane) if lane is not None else None
    read = read_names(contract)[()]
    known = contract.known if contract is not None else frozenset()
    missed = key in read and len(key) >= 8 and config.get(slipped) is not None
    expected = missed and slipped not in read | known and key not in config

    assert ([(slipped, key)] if expected else []) == noted(config)


# ---------------------------------------------------------------------------- what is not noted


def shipped() -> Iterator[tuple[str, Config]]:
    """Every config in this repository that is somebody's and in order."""
    for place in ("tests/corpus", "examples"):
        for file in sorted((ROOT / place).rglob("config.json")):
            yield file.parent.name, json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((ROOT / "rules/parity").glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{file.name}:{number}", json.loads(line)["config"]
    for number, pair in enumerate(SERVED):
        yield f"served {number}", pair.draft
        yield f"served {number} on", pair.target or {}


SHIPPED = list(shipped())


def test_there_are_configs_to_try() -> None:
    names = {name for name, _ in SHIPPED}

    assert {line.name for line in (ROOT / "tests/corpus").iterdir() if line.is_dir()} <= names
    assert {"dflash", "dspark", "dspark-speculators", "target"} <= names
    assert 900 <= len(SHIPPED)
    foreign = {key for _, config in SHIPPED for key in config} - read_names()[()]
    assert 100 <= len(foreign)


def test_no_config_that_ships_is_noted() -> None:
    targets = load_target_contract().contract
    contracts = [None, *map(load_contract, LANES), targets]

    assert [] == [(name, noted(config)) for name, config in SHIPPED if noted(config)]
    # Whichever of the contracts it is held against, as a draft or as a target.
    for contract in contracts:
        names, known = read_names(contract), contract.known if contract else frozenset()
        assert [] == [
            (name, list(found))
            for name, config in SHIPPED
            if (found := misspelt_keys(config, names, known))
        ]


# ------------------------------------------------------------------------------- what is read


class Spied(Mapping[str, object]):
    """A config that takes down where it is looked at."""

    def __init__(self, config: Config, at: tuple[str, ...], seen: set[tuple[str, ...]]) -> None:
        self.at, self.seen = at, seen
        self.config = {
            key: Spied(value, (*at, key), seen) if isinstance(value, dict) else value
            for key, value in config.items()
        }

    def __getitem__(self, key: str) -> object:
        self.seen.add((*self.at, key))
        return self.config[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.config)

    def __len__(self) -> int:
        return len(self.config)


def test_facts_are_read_where_the_list_says() -> None:
    seen: set[tuple[str, ...]] = set()
    for config in (
        {"dflash_config": {"a": 1}, "dspark_config": {"a": 1}},
        {"speculators_model_type": "dspark", "speculators_config": {"a": 1}},
        {"speculators_config": {}, "transformer_layer_config": {"a": 1}},
        {"dspark_markov_rank": 4},
        {},
    ):
        observe_config(Spied(config, (), seen))

    assert FACT_PATHS == seen


def test_a_lane_of_somebody_elses_table_has_no_contract_to_ask() -> None:
    config = {"num_hiden_layers": 3, "model_typ": "qwen3"}
    assert ["num_hiden_layers", "model_typ"] == [
        each.values["key"] for each in noticed("qwen3-dspark", config)
    ]

    (warning,) = noticed("somebody-elses", config)

    assert "model_typ" == warning.values["key"]


def test_what_could_not_be_read_or_has_no_keys_is_noted_nowhere() -> None:
    assert () == TABLE.decide(observe_gguf()).warnings
    assert () == TABLE.unreadable(Unreadable("config-empty"), "x").warnings


def test_a_mapping_may_have_keys_that_no_file_has() -> None:
    config: dict[Any, object] = {**renamed(BASE, model_type="model_typ"), 3: 4, ("a",): 5}

    assert [("model_typ", "model_type")] == noted(config)


# --------------------------------------------------------------------------------- who says so


def test_route_prints_it_under_the_answer(tmp_path: Path, say: Any) -> None:
    config = renamed(BASE, num_hidden_layers="num_hiden_layers")
    place = str(write_config(tmp_path, config))

    code, text = say("route", place)

    assert OK == code
    assert [
        f"{place}: lane qwen3-dspark  [L001 qwen3-dspark-native]",
        (
            "    warning: nothing reads `num_hiden_layers` in the config; did you mean "
            "`num_hidden_layers`, which is not set?  [W007 misspelt-key]"
        ),
    ] == text.splitlines()
    assert "[W007 misspelt-key]" in say("route", "--explain", place)[1]


def test_route_prints_it_under_a_refusal_too(tmp_path: Path, say: Any) -> None:
    place = str(write_config(tmp_path, renamed(BASE, model_type="model_typ")))

    code, text = say("route", place)

    assert REFUSED == code
    assert "[R018 qwen3-dspark-model-type]" in text.splitlines()[0]
    assert "did you mean `model_type`, which is not set?  [W007" in text.splitlines()[-1]


def test_json_has_it_with_what_to_do(tmp_path: Path, say: Any) -> None:
    place = str(write_config(tmp_path, renamed(BASE, model_type="model_typ")))

    _, text = say("route", "--json", place)

    found = json.loads(text)
    assert [] == problems("decision", found)
    (warning,) = found["warnings"]
    assert ("W007", "misspelt-key") == (warning["rule_id"], warning["name"])
    assert {"key": "model_typ", "meant": "model_type"} == warning["values"]
    assert warning["help"].startswith("write `model_type` if that is what was meant")
    assert found == dspark.route(place).to_json()


def test_quiet_looks_for_nothing(tmp_path: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("a key was looked at")

    monkeypatch.setattr("dspark.noticed.noticed", never)

    assert (OK, "") == say("route", "--quiet", str(write_config(tmp_path, BASE)))


@pytest.mark.parametrize(("lane", "reads"), [(True, True), (False, False)])
def test_only_a_lane_needs_its_contract(lane: bool, reads: bool, tmp_path: Path) -> None:
    config = BASE if lane else BASE | {"model_type": "another"}
    place = write_config(tmp_path, config)
    assert lane == (dspark.route(place).lane is not None)
    program = """
import sys
from dspark.cli import main
main(["route", sys.argv[1]])
print(*sorted({"dspark.noticed", "dspark.contract_reader", "dspark.check"} & set(sys.modules)))
"""

    done = subprocess.run(
        [sys.executable, "-c", program, str(place)], check=True, capture_output=True, text=True
    )

    wanted = ["dspark.contract_reader"] if reads else []
    assert [*wanted, "dspark.noticed"] == done.stdout.splitlines()[-1].split()


def test_a_check_says_it_once_beside_what_is_missing(tmp_path: Path, say: Any) -> None:
    config = renamed(BASE, num_hidden_layers="num_hiden_layers") | {"mystery": 1}
    place = str(write_config(tmp_path, config))

    code, text = say("route", "--check", place)

    assert REFUSED == code
    assert "[C001 missing-key]" in text
    assert 1 == text.count("did you mean `num_hidden_layers`, which is not set?  [W007")
    assert 1 == text.count("num_hiden_layers")
    assert "`mystery` is not read by this lane  [W004 unread-key]" in text
    assert "W007" not in say("route", "--check", str(write_config(tmp_path / "in-order", BASE)))[1]


def test_a_check_that_is_refused_by_the_table_says_it(tmp_path: Path, say: Any) -> None:
    place = str(write_config(tmp_path, renamed(BASE, model_type="model_typ")))

    _, text = say("route", "--check", "--json", place)

    assert ["W007"] == [each["rule_id"] for each in json.loads(text)["warnings"]]


def test_a_check_knows_the_keys_of_facts_as_well() -> None:
    # No lane reads it from there; the observation does.
    config = BASE | {"speculators_config": {"algoritm": "dspark"}}

    read = canonicalise(load_contract("qwen3-dspark"), config, "qwen3-dspark-native", None)

    assert ["speculators_config.algoritm"] == [each.values["key"] for each in read.warnings]
    assert [("speculators_config.algoritm", "speculators_config.algorithm")] == noted(config)


def test_a_plan_says_it_of_draft_and_target(tmp_path: Path, say: Any) -> None:
    draft = checkpoint(
        tmp_path / "draft", renamed(TINY, num_target_layers="num_target_layer"), TINY_SHAPES
    )
    shapes = target_shapes(TINY_TARGET)
    target = with_keys(TINY_TARGET, attention_biass=False)
    target.pop("attention_bias", None)
    place = checkpoint(tmp_path / "target", target, shapes)

    code, text = say("plan", str(draft), "--target", str(place))

    assert OK == code
    assert "did you mean `num_target_layers`, which is not set?  [W007" in text
    assert "did you mean `attention_bias`, which is not set?  [W007" in text


@pytest.mark.parametrize(
    ("key", "slipped", "rule_id"),
    [
        ("num_hidden_layers", "num_hiden_layers", "C001"),
        ("model_type", "model_typ", "P002"),
    ],
)
def test_a_target_that_is_refused_is_told_of_it(
    key: str, slipped: str, rule_id: str, tmp_path: Path
) -> None:
    draft = checkpoint(tmp_path / "draft", TINY, TINY_SHAPES)
    target = write(tmp_path / "target", renamed(TINY_TARGET, **{key: slipped}))

    with pytest.raises(Refused) as caught:
        dspark.plan(draft, target=target)

    verdict = caught.value.decision
    assert (rule_id, target) == (verdict.rule_id, verdict.source)
    assert [slipped] == [w.values["key"] for w in verdict.warnings if w.rule_id == "W007"]


def test_a_target_that_contradicts_itself_is_told_of_it(tmp_path: Path) -> None:
    draft = checkpoint(tmp_path / "draft", TINY, TINY_SHAPES)
    target = {"architectures": ["Qwen3DSparkModel", "DSparkDraftModel"], "model_typ": "qwen3"}

    with pytest.raises(Refused) as caught:
        dspark.plan(draft, target=write(tmp_path / "target", target))

    verdict = caught.value.decision
    assert ("E103", "observe") == (verdict.rule_id, verdict.stage)
    assert ["model_typ"] == [each.values["key"] for each in verdict.warnings]


def test_a_hand_off_that_misses_the_key_says_it(tmp_path: Path) -> None:
    draft = renamed(SERVED[0].draft, block_size="blok_size")

    with pytest.raises(Refused) as caught:
        dspark.hand_off(write(tmp_path / "draft", draft), target=write(tmp_path / "target", TARGET))

    assert "X008" == caught.value.decision.rule_id
    assert ["blok_size"] == [each.values["key"] for each in caught.value.decision.warnings]


def test_a_hand_off_of_what_says_too_little_says_it(tmp_path: Path) -> None:
    draft = {"architectures": ["Qwen3DSparkModel", "DSparkDraftModel"], "model_typ": "qwen3"}
    place = write(tmp_path / "draft", draft)
    assert "observe" == dspark.route(place).stage

    with pytest.raises(Refused) as caught:
        dspark.hand_off(place, target=write(tmp_path / "target", TARGET))

    assert ["model_typ"] == [each.values["key"] for each in caught.value.decision.warnings]
