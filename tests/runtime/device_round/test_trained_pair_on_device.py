"""The pair that ships, decoded by our kernels on the simulator, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark.runtime import devices, load
from dspark.runtime.teacher import judge
from tests.runtime import trained
from tests.runtime.cli_answers import Verb
from tests.runtime.device_round.pair import simulator
from tests.runtime.trained import DRAFTS

PROMPT = "def read(path):\n    with open("
TOKENS = 40
# What docs/lossless.md says of text from a GPU: a token that is not the likeliest by float32 lies
# this near to it.
NEAR = 2.0**-4


@pytest.fixture(autouse=True)
def on_the_simulator(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    """`--device cuda` finds a GPU, which is the simulator."""
    monkeypatch.setattr(devices, "troubles", lambda *_: iter(()))
    monkeypatch.setattr(devices, "open_gpu", lambda: simulator(repository).device)
    shared = simulator(repository).device.driver.most_shared
    monkeypatch.setattr(load, "block_shared_memory", lambda: shared)


def said(draft: str | None, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    folder = trained.FOLDER
    verb = Verb("generate", folder / "target", draft and folder / draft, capsys)
    words = "--prompt", PROMPT, "--max-tokens", str(TOKENS), "--json", *words
    document: dict[str, Any] = verb.say(*words).document
    return document


@pytest.mark.slow
def test_verify_finds_no_divergence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Engine with a draft, engine without, and a teacher with a store of its own, on one device."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": PROMPT}) + "\n", encoding="utf-8")
    verb = Verb("verify", trained.FOLDER / "target", trained.FOLDER / "dspark", capsys)

    found = verb.say(
        *("--prompts", str(prompts), "--max-tokens", "12", "--device", "cuda"),
        *("--max-seq", "64", "--json"),
    ).document

    assert found["tokens"] == 12
    assert (1, 0) == (found["same"], found["divergences"])


@pytest.mark.slow
def test_text_is_the_cpus_but_for_near_ties(capsys: pytest.CaptureFixture[str]) -> None:
    alone = said(None, capsys, "--device", "cuda", "--max-seq", "128")
    tokens = alone["token_ids"]
    assert TOKENS == len(tokens)

    prompt = trained.prepared("dspark").tokenizer.encode(PROMPT).ids
    for place, judged in enumerate(judge(trained.target(), prompt, tokens)):
        assert judged.gap <= NEAR, f"token {place}"

    for draft in DRAFTS:
        found = said(draft, capsys, "--device", "cuda", "--max-seq", "128")
        # On one device a draft changes nothing at all.
        assert tokens == found["token_ids"], draft
        expected = said(draft, capsys)["stats"]
        # A draft's context that were wrong by a row would be seen here, and nowhere else.
        assert found["stats"]["rounds"] <= expected["rounds"] + 2
        assert found["stats"]["tokens_per_round"] > 2.5
