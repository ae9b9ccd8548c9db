"""The Python door: what is exported, what it returns, and what importing it costs."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dspark
import dspark.compile as compile_module
from dspark.cli import main
from tests.support.configs import BASE, with_keys, without, write_config

EXPORTED = [
    "Decision",
    "Diagnostic",
    "DsparkError",
    "Evidence",
    "FailedTests",
    "HandOff",
    "JsonlSink",
    "LoadPlan",
    "PackError",
    "Refusal",
    "Refused",
    "ReloadingTable",
    "Table",
    "TableError",
    "TargetPlan",
    "Verdict",
    "__version__",
    "compile_table",
    "drafts_in_blocks",
    "engine_warning",
    "hand_off",
    "load_refusal",
    "on_decision",
    "plan",
    "plan_target",
    "require_lane",
    "route",
]


def test_the_exports_are_exactly_these() -> None:
    assert EXPORTED == dspark.__all__
    assert all(getattr(dspark, name) is not None for name in EXPORTED)
    assert set(EXPORTED) <= set(dir(dspark))


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute `rout`"):
        _ = dspark.rout  # type: ignore[attr-defined]


def test_route_returns_what_the_command_line_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write_config(tmp_path, BASE)

    decision = dspark.route(place)
    main(["route", "--json", str(place)])

    assert json.loads(capsys.readouterr().out) == decision.to_json()
    assert ("L001", "qwen3-dspark-native", "qwen3-dspark") == (
        decision.rule_id,
        decision.name,
        decision.lane,
    )
    assert decision.refusal is None
    assert "route" == decision.stage
    assert "markov: positive <- markov_rank = 256" == str(decision.evidence[-1])


def test_route_stays_callable_after_its_module_was_imported() -> None:
    code = (
        "import dspark, dspark.route, sys\n"
        "assert dspark.route(sys.argv[1]).lane == 'qwen3-dspark'\n"
        "from dspark import route\n"
        "assert route(sys.argv[1]).lane == 'qwen3-dspark'\n"
    )
    place = "tests/corpus/deepseek-ai__dspark_qwen3_8b_block7"
    root = Path(__file__).parents[2]

    subprocess.run([sys.executable, "-W", "error", "-c", code, place], cwd=root, check=True)


def test_require_lane_returns_a_lane_or_raises_with_the_decision(tmp_path: Path) -> None:
    lane = write_config(tmp_path / "lane", BASE)
    refused = write_config(tmp_path / "no", {"architectures": ["Qwen3Eagle3Model"]})

    assert "qwen3-dspark" == dspark.require_lane(lane).lane
    with pytest.raises(dspark.Refused, match="R028 eagle3: this is an EAGLE-3 draft") as caught:
        dspark.require_lane(refused)
    assert dspark.route(refused) == caught.value.decision
    assert isinstance(caught.value, dspark.DsparkError)


def test_a_decision_cannot_be_changed() -> None:
    decision = dspark.compile_table().route(BASE)

    with pytest.raises(AttributeError, match="immutable"):
        decision.source = "elsewhere"
    with pytest.raises(AttributeError):
        del decision.rule


def test_decisions_compare_by_what_they_say() -> None:
    table = dspark.compile_table()

    assert table.route(BASE) == table.route(copy.deepcopy(BASE))
    assert hash(table.route(BASE)) == hash(table.route(copy.deepcopy(BASE)))
    assert table.route(BASE) != table.route(with_keys(BASE, markov_rank=0))


def test_a_table_error_holds_every_diagnostic(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("table: t\nfacts: [markow]\ndefault: R9\nrules: {}\n", encoding="utf-8")

    with pytest.raises(dspark.TableError) as caught:
        dspark.compile_table(file)

    names = [diagnostic.name for diagnostic in caught.value.diagnostics]
    assert ["unknown-fact", "unknown-default", "empty-table"] == names[:3]
    assert all(name in str(caught.value) for name in names)
    assert isinstance(caught.value, ValueError)


def test_the_table_version_follows_the_content(tmp_path: Path) -> None:
    shipped = dspark.compile_table()
    text = Path(shipped.file).read_text(encoding="utf-8")
    same, edited = tmp_path / "same.yaml", tmp_path / "edited.yaml"
    same.write_text(text, encoding="utf-8")
    edited.write_text(text + "# reviewed\n", encoding="utf-8")

    assert shipped.version == dspark.compile_table(same).version
    assert shipped.version != dspark.compile_table(edited).version


def test_a_mapping_may_hold_tuples() -> None:
    config = with_keys(BASE, architectures=("Qwen3DSparkModel",))

    decision = dspark.compile_table().route(config)

    assert "L001" == decision.rule_id
    assert "architectures[0]" == decision.evidence[2].key


TABLE = dspark.compile_table()
KEYS = st.sampled_from(sorted(BASE))
CONFIGS = [
    BASE,
    with_keys(BASE, markov_rank=0),
    with_keys(BASE, architectures=["DFlashDraftModel"]),
    {"architectures": ["Qwen3Eagle3Model"]},
    {"model_type": "qwen3"},
]


def test_the_table_version_follows_every_rules_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Path(dspark.compile_table().file)
    copy_of_rules = tmp_path / "rules"
    shutil.copytree(shipped.parent, copy_of_rules)
    monkeypatch.setattr(compile_module, "MESSAGES", copy_of_rules / "messages.yaml")
    monkeypatch.setattr(compile_module, "DRAFTS", copy_of_rules / "drafts.yaml")
    versions = {dspark.compile_table(shipped).version}

    edited = [*copy_of_rules.glob("*.yaml"), *copy_of_rules.glob("*/*.yaml")]
    edited.remove(copy_of_rules / "drafts.yaml")
    # What other engines do decides nothing here.
    edited = [file for file in edited if file.parent.name != "parity"]
    for file in edited:
        file.write_text(file.read_text(encoding="utf-8") + "# reviewed\n", encoding="utf-8")
        versions.add(dspark.compile_table(shipped).version)

    assert len(edited) > 4
    assert 1 + len(edited) == len(versions)


FOLDERS = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 200)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FOLDERS, st.sampled_from(["eagle3", "dspark", "mtp", ""]), st.sampled_from(CONFIGS))
def test_the_path_of_a_checkpoint_never_changes_its_decision(
    tmp_path: Path, name: str, word: str, config: dict[str, object]
) -> None:
    place = write_config(tmp_path / (word + name) / name, config)

    decision = TABLE.route(config).to_json()
    found = dspark.route(place, table=TABLE).to_json()

    assert str(place) == found.pop("source")
    decision.pop("source")
    assert json.dumps(decision) == json.dumps(found)


@given(st.lists(KEYS, unique=True))
def test_without_a_declared_identity_no_lane_is_ever_selected(keys: list[str]) -> None:
    """Absence selects nothing: whatever else is there or not, no architecture means no lane."""
    config = without(BASE, *set(keys) | {"architectures"})

    assert "architectures-missing" == TABLE.route(config).name


def test_importing_and_routing_a_local_path_opens_no_socket_and_loads_nothing_heavy(
    tmp_path: Path,
) -> None:
    place = write_config(tmp_path, BASE)
    code = """
import socket, sys
def deny(*a, **k): raise AssertionError("a socket was opened")
socket.socket.__init__ = deny
socket.create_connection = deny
socket.getaddrinfo = deny
import dspark
assert dspark.route(sys.argv[1]).lane == "qwen3-dspark"
heavy = {"torch", "cupy", "transformers", "huggingface_hub", "jsonschema", "rich", "pydantic"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, str(place)], check=True)


def test_refused_survives_a_process_boundary(tmp_path: Path) -> None:
    """Services move exceptions between processes; what arrives must still say why."""
    refused = write_config(tmp_path / "no", {"architectures": ["Qwen3Eagle3Model"]})
    with pytest.raises(dspark.Refused) as caught:
        dspark.require_lane(refused)

    arrived = pickle.loads(pickle.dumps(caught.value))

    assert str(caught.value) == str(arrived)
    assert caught.value.decision.to_json() == arrived.decision.to_json()
