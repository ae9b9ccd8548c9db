"""`dspark verify`, through the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from dspark.runtime import round as round_module
from dspark.runtime.losslessness import Losslessness
from dspark.runtime.models.rows import Segment
from dspark.runtime.teacher import judge
from tests.runtime.cli_answers import Verb, validate
from tests.runtime.tiny import TARGET, random_prompts, target_model
from tests.support.real_pairs import write_draft, write_target


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verb:
    target, draft = write_target(tmp_path / "target"), write_draft(tmp_path / "draft")
    return Verb("verify", target, draft, capsys)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    lines = [f'{{"prompt": "w{number} w2"}}\n' for number in range(3)]
    (tmp_path / "prompts.jsonl").write_text("".join(lines), encoding="utf-8")
    return str(tmp_path / "prompts.jsonl")


@pytest.fixture
def gullible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draft is accepted, whatever the target says."""

    def accept(drafts: Sequence[int], best: Sequence[int]) -> list[int]:
        return [*drafts, best[len(drafts)]]

    assert hasattr(round_module, "accept_greedy")
    monkeypatch.setattr(round_module, "accept_greedy", accept)


def test_a_lossless_pair_passes(verb: Verb, prompts: str) -> None:
    said = verb.say("--prompts", prompts, "--max-tokens", "16")
    document = verb.say("--prompts", prompts, "--max-tokens", "16", "--json").document
    validate("verify", document)

    assert (0, "") == (said.code, said.err)
    lines = said.out.splitlines()
    assert f"3 prompts, {document['tokens']} tokens (float32 on cpu)" == lines[0]
    assert "0 tokens diverge from the target alone (0.0000%)" == lines[1]
    assert "3 of 3 texts are the same without the draft" == lines[2]
    assert lines[3].startswith("nearest tie: the second choice was ")
    assert 0 == document["largest_gap"] == sum(each["count"] for each in document["gaps"])
    assert 0 < document["smallest_margin"]


@pytest.mark.usefixtures("gullible")
def test_a_divergence_is_counted_and_fails_in_float32(verb: Verb, prompts: str) -> None:
    said = verb.say("--prompts", prompts, "--max-tokens", "16", "--json")
    document = said.document
    validate("verify", document)

    assert (1, "") == (said.code, said.err)
    assert 3 < document["divergences"] <= document["tokens"]
    assert 0 == document["same"]
    assert document["divergences"] == sum(each["count"] for each in document["gaps"])
    assert 0 < document["largest_gap"]


@pytest.mark.usefixtures("gullible")
def test_a_divergence_is_reported_in_bfloat16(verb: Verb, prompts: str) -> None:
    said = verb.say("--prompts", prompts, "--max-tokens", "16", "--dtype", "bfloat16")

    assert (0, "") == (said.code, said.err)
    assert "0 of 3 texts are the same without the draft" in said.out
    assert "largest gap of a divergence: " in said.out
    assert " with a gap below " in said.out


def test_the_schema_refuses_what_is_not_printed(verb: Verb, prompts: str) -> None:
    document = verb.say("--prompts", prompts, "--max-tokens", "2", "--json").document
    for part in (document, document["gaps"][0]):
        for key in list(part):
            value = part.pop(key)
            with pytest.raises(Exception, match="is a required property"):
                validate("verify", document)
            part[key] = value
    with pytest.raises(Exception, match="surprise"):
        validate("verify", document | {"surprise": 1})


def test_a_pair_is_refused_as_by_every_verb(verb: Verb, prompts: str) -> None:
    said = verb.say("--prompts", prompts, "--device", "cuda")

    assert 3 == said.code
    assert "B003 device-unavailable" in said.err


def test_the_target_judges_a_token_as_one_pass_over_the_text_does() -> None:
    target = target_model(taps=())
    prompt, text = random_prompts(1, longest=400)[0], random_prompts(1, seed=9)[0]
    # Longer than a chunk of the prompt, so that the chunks meet.
    prompt = (prompt * 300)[:280]
    ids = [*prompt, *text]
    with torch.inference_mode():
        store = target.new_store(12, 32)
        hidden = target.forward([Segment(ids, 0, list(range(12)))], store).hidden
        logits = target.backend.host(target.logits(hidden))[len(prompt) - 1 : -1]

    judged = list(judge(target, prompt, text))

    assert len(text) == len(judged) > 5
    for row, token, found in zip(logits, text, judged, strict=True):
        ranked = np.sort(row)
        assert (token, int(row.argmax())) == (found.token, found.likeliest)
        assert float(ranked[-1] - row[token]) == found.gap
        assert float(ranked[-1] - ranked[-2]) == found.margin
        assert (token != int(row.argmax())) is found.diverges
    assert TARGET.vocab_size > max(ids)


def test_gaps_are_counted_by_size() -> None:
    found = Losslessness(gaps=[0.0, 5e-5, 1e-4, 0.05, 2.0, 99.0])

    assert {1e-4: 2, 1e-3: 1, 1e-2: 0, 0.1: 1, 1.0: 0, 10.0: 1, None: 1} == dict(found.histogram())
    assert 99.0 == found.largest_gap
    assert 6 == found.divergences
    assert not found.lossless
    assert Losslessness().lossless
    assert not Losslessness(prompts=2, same=1).lossless
