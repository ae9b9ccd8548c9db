"""vLLM's own config code answers as its pack says: recorded cases, and random drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.parity_compile import shipped_packs
from dspark.parity_facts import Question
from dspark.parity_pack import UNKNOWN, Pack
from scripts import hold_vllm
from tests.support.vllm_parity import ask_vllm, disagreement, random_questions
from tests.support.vllm_wheel import NoWheel, unpacked

(PACK,) = [pack for pack in shipped_packs() if pack.name == "vllm-0.33.0"]
RANDOM = 500


@pytest.fixture(scope="module")
def vllm() -> Path:
    try:
        return unpacked(PACK.version)
    except NoWheel as problem:
        pytest.skip(f"no vLLM wheel: {problem}")


def differing(pack: Pack, questions: list[Question], folder: Path) -> list[str]:
    answers = ask_vllm(folder, questions)
    found = zip(questions, answers, strict=True)
    return [
        f"{pack.answer(question)} | {other} | {question}"
        for question, observed in found
        if (other := disagreement(pack, pack.answer(question), observed))
    ]


@pytest.mark.slow
def test_vllm_answers_the_recorded_cases_as_they_were_recorded(vllm: Path) -> None:
    assert [] == differing(PACK, [case.question for case in PACK.cases], vllm)


@pytest.mark.slow
def test_vllm_answers_random_drafts_as_the_pack_says(vllm: Path) -> None:
    assert [] == differing(PACK, list(random_questions(2026, RANDOM)), vllm)


def test_the_random_drafts_are_the_same_each_time_and_mostly_answered() -> None:
    questions = list(random_questions(2026, RANDOM))
    outcomes = [PACK.answer(question).outcome for question in questions]

    assert questions == list(random_questions(2026, RANDOM))
    assert questions != list(random_questions(2027, RANDOM))
    assert outcomes.count(UNKNOWN) < RANDOM / 3
    assert min(outcomes.count(each) for each in ("runs", "refuses", "swallows")) > RANDOM / 20
    assert len({PACK.answer(question).rule.id for question in questions}) > 40


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ({"method": "dspark", "class": "Qwen3DSparkModel"}, ""),
        ({"method": "dspark", "class": "DSparkDraftModel"}, "dspark/DSparkDraftModel"),
        ({"method": "eagle3", "class": "Qwen3DSparkModel"}, "eagle3"),
        ({"error": "ValueError: no"}, "ValueError: no"),
    ],
)
def test_another_answer_than_the_packs_is_told(observed: dict[str, str], expected: str) -> None:
    draft = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "block_size": 7,
        "markov_rank": 8,
        "mask_token_id": 3,
    }
    runs = PACK.answer(Question(draft))
    late = PACK.answer(Question({**draft, "markov_rank": None}))
    refuses = PACK.answer(Question(draft, {"method": "dflash"}))
    assert ("runs", "refuses", "refuses") == (runs.outcome, late.outcome, refuses.outcome)

    assert expected == disagreement(PACK, runs, observed)
    # What is refused only with the weights, the config code lets through.
    assert expected == disagreement(PACK, late, observed)
    assert disagreement(PACK, refuses, observed)
    words = "Model architectures ['DFlashQwen3DSparkModel'] are not supported"
    assert "" == disagreement(PACK, refuses, {"error": f"ValueError: {words}"})


def test_the_script_prints_what_has_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hold_vllm, "unpacked", Path)
    monkeypatch.setattr(
        hold_vllm, "ask_vllm", lambda _, questions: [{"error": "gone"} for _ in questions]
    )

    assert 1 == hold_vllm.main(["vllm==0.34.0", "--random", "3"])

    output = capsys.readouterr().out
    assert "qwen3-dspark: runs dspark/Qwen3DSparkModel\n    vLLM: gone\n" in output
    assert "random drafts: " in output


def test_the_script_says_why_it_cannot_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(version: str) -> Path:
        raise NoWheel(f"pip cannot download vllm=={version}: no network")

    monkeypatch.setattr(hold_vllm, "unpacked", none)

    assert 2 == hold_vllm.main(["vllm==0.34.0"])
    assert "pip cannot download vllm==0.34.0: no network" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        hold_vllm.main(["sglang==0.5.23"])
