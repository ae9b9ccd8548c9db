"""The plugin in a vLLM of a few lines: what it wraps, when it speaks, and what it leaves alone.

`test_vllm.py` holds it against the real one.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dspark.runtime.handoff import vllm_plugin
from tests.support.handoffs import DSPARK, TARGET, Config, named, write

Choose = Callable[[Any], None]


class Engine:
    """A `SpeculativeConfig` class that does what a test says, with the plugin around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, version: str) -> None:
        self.folder = folder
        self.target = write(folder / "target", TARGET)
        self.made = 0
        self.choose: Choose = picks_nothing

        def post_init(config: Any) -> str:
            self.made += 1
            self.choose(config)
            return "made"

        self.kind = type("SpeculativeConfig", (SimpleNamespace,), {"__post_init__": post_init})
        vllm, config = ModuleType("vllm"), ModuleType("vllm.config")
        vllm.__version__, config.SpeculativeConfig = version, self.kind  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "vllm", vllm)
        monkeypatch.setitem(sys.modules, "vllm.config", config)

    def make(self, draft: Config | str | None, **given: Any) -> Any:
        model = draft if isinstance(draft, str) else draft and write(self.folder / "draft", draft)
        target = SimpleNamespace(model=self.target, revision=None)
        values = {"method": None, "revision": None, "num_speculative_tokens": 5} | given
        config = self.kind(model=model, target_model_config=target, **values)
        assert "made" == config.__post_init__()
        return config


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    engine = Engine(monkeypatch, tmp_path, "0.33.1")
    vllm_plugin.register()
    return engine


def picks_nothing(config: Any) -> None:
    del config


def picks(method: str) -> Choose:
    def choose(config: Any) -> None:
        config.method = method

    return choose


def fails(method: str) -> Choose:
    def choose(config: Any) -> None:
        config.method = method
        raise ValueError("no class is called DFlashQwen3DSparkModel")

    return choose


def refused(engine: Engine, draft: Config | str | None, **given: Any) -> str:
    with pytest.raises(vllm_plugin.DraftRefused) as caught:
        engine.make(draft, **given)
    text = str(caught.value)
    assert text.startswith(f"{caught.value.decision.rule_id} ")
    assert f"table {caught.value.decision.table_version}" in text
    return text


def test_it_is_registered_where_vllm_looks(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    module, _, name = project["entry-points"]["vllm.general_plugins"]["dspark"].partition(":")

    assert vllm_plugin.register is getattr(import_module(module), name)


def test_a_draft_that_belongs_is_left_to_the_engine(engine: Engine) -> None:
    assert "dspark" == engine.make(DSPARK, method="dspark").method
    assert 1 == engine.made


def test_it_refuses_before_the_engine_looks(engine: Engine) -> None:
    text = refused(engine, named("DSparkDraftModel", "llama"), method="dspark")

    assert 0 == engine.made
    assert text.startswith("X001 handoff-catch-all: ")
    assert "routed by R005" in text


def test_a_target_without_stages_is_no_draft(engine: Engine) -> None:
    assert "X001 " in refused(engine, None, method="dspark")
    assert 0 == engine.made


def test_another_method_of_the_same_kind_is_refused_before_the_engine_looks(engine: Engine) -> None:
    assert "X020 " in refused(engine, DSPARK, method="dflash")
    assert 0 == engine.made


def test_more_tokens_than_the_draft_has_are_refused(engine: Engine) -> None:
    assert "X009 " in refused(engine, DSPARK, method="dspark", num_speculative_tokens=6)


def test_a_number_that_the_engine_fills_in_is_looked_at_too(engine: Engine) -> None:
    def choose(config: Any) -> None:
        config.num_speculative_tokens = 6

    engine.choose = choose

    assert "X009 " in refused(engine, DSPARK, method="dspark", num_speculative_tokens=None)


def test_the_engine_may_find_the_method_itself(engine: Engine) -> None:
    engine.choose = picks("dspark")

    assert "dspark" == engine.make(DSPARK).method


@pytest.mark.parametrize("method", ["draft_model", "dflash", "eagle3"])
def test_a_method_that_the_engine_guessed_wrong_is_refused(method: str, engine: Engine) -> None:
    engine.choose = picks(method)

    text = refused(engine, DSPARK)

    assert f"chose method `{method}` for this draft, which runs under `dspark`" in text


def test_a_refused_draft_that_is_taken_for_a_model_is_refused(engine: Engine) -> None:
    engine.choose = picks("draft_model")

    assert "X001 " in refused(engine, named("DSparkDraftModel", "llama"))


def test_an_error_about_a_made_up_name_is_put_in_our_words(engine: Engine) -> None:
    engine.choose = fails("dflash")

    assert "X020 " in refused(engine, DSPARK)


def test_an_error_about_something_else_stays_as_it_is(engine: Engine) -> None:
    for method, draft in (("dspark", DSPARK), ("draft_model", DSPARK), ("eagle3", TARGET)):
        engine.choose = fails(method)
        with pytest.raises(ValueError, match="no class is called") as caught:
            engine.make(draft)
        assert ValueError is caught.type


@pytest.mark.parametrize("method", ["eagle", "eagle3", "mtp", "ngram", "suffix", "draft_model"])
@pytest.mark.parametrize("draft", [DSPARK, TARGET, "ngram", "owner/draft", "pkg.Proposer", None])
def test_every_other_method_is_left_alone(
    method: str, draft: Config | str | None, engine: Engine
) -> None:
    assert method == engine.make(draft, method=method).method


@pytest.mark.parametrize("draft", [TARGET, named("LlamaForCausalLMEagle3"), "ngram", "owner/x"])
def test_what_is_no_block_draft_is_left_alone_without_a_method(
    draft: Config | str, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.choose = picks("draft_model")

    assert "draft_model" == engine.make(draft).method
    assert [] == caplog.records


def test_what_only_the_engine_can_read_is_let_through_with_a_warning(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.make("s3://bucket/draft", method="dspark")

    (record,) = caplog.records
    assert (logging.WARNING, "vllm.dspark") == (record.levelno, record.name)
    assert "the draft was not judged: E" in record.getMessage()


def test_a_broken_file_on_this_disk_is_refused(engine: Engine) -> None:
    draft = write(engine.folder / "draft", DSPARK)
    (engine.folder / "draft/config.json").write_text("{", encoding="utf-8")

    assert "E002 " in refused(engine, draft, method="dspark")


def test_a_config_without_a_target_is_left_to_the_engine(engine: Engine) -> None:
    config = engine.kind(
        model=None,
        method="dspark",
        revision=None,
        num_speculative_tokens=5,
        target_model_config=None,
    )

    assert "made" == config.__post_init__()


def test_registering_again_changes_nothing(engine: Engine) -> None:
    wrapped = engine.kind.__post_init__

    vllm_plugin.register()

    assert wrapped is engine.kind.__post_init__


def test_an_unknown_version_is_named_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(monkeypatch, tmp_path, "0.34.0")
    original = engine.kind.__post_init__

    vllm_plugin.register()

    assert original is engine.kind.__post_init__
    (record,) = caplog.records
    assert "handoff-version-unknown: vLLM 0.34.0 is none that" in record.getMessage()


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, dspark.runtime.handoff.vllm_plugin;"
        "heavy = {'torch', 'numpy', 'vllm', 'jsonschema', 'huggingface_hub'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()
