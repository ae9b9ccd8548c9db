"""A pack decides by its first rule that matches, and says what the engine does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.parity_compile import shipped_packs
from dspark.parity_facts import Question
from dspark.parity_pack import OUTCOMES, Pack
from tests.support.packs import small_pack
from tests.support.vllm_parity import random_questions

PACKS = {pack.name: pack for pack in shipped_packs()}


def naive(pack: Pack, question: Question) -> str:
    """The first rule in the file that matches, by definition."""
    cells = dict(zip(pack.facts, pack.cells(question), strict=True))
    return next((r.id for r in pack.rules.values() if r.matches(cells)), pack.default.id)


@given(st.sampled_from(sorted(PACKS)), st.integers(0, 10**6), st.data())
def test_the_graph_decides_as_the_first_rule_that_matches(
    name: str, seed: int, data: st.DataObject
) -> None:
    pack = PACKS[name]
    (question,) = random_questions(seed, 1)
    facts = data.draw(st.lists(st.sampled_from(pack.asked), max_size=4))
    chosen = {
        asked.name: data.draw(st.sampled_from(asked.cells() or ("qwen3", None)))
        for asked in facts
        if asked.source != "entry"
    }
    bent = pack.realise(chosen, question)

    assert naive(pack, bent) == pack.answer(bent).rule.id


@pytest.mark.parametrize("pack", PACKS.values(), ids=list(PACKS))
def test_every_rule_decides_something_and_says_where_that_was_seen(pack: Pack) -> None:
    decided = set(pack.built.winners)

    assert set(pack.rules) - {pack.default.id} <= decided
    for rule in pack.rules.values():
        assert rule.refs, rule.id
        assert rule.why or rule.refuse, rule.id


def test_an_answer_is_one_line(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    block = {"architectures": ["BlockModel"]}

    assert [
        "refuses  [X001 no-rank]: BlockModel needs a rank",
        "runs in block  [X002 block-draft]",
        "swallows in plain  [X003 taken-for-plain]: nothing else is asked",
        "unknown  [X000 not-read]: the rest was not read",
    ] == [
        str(pack.answer(Question(block, {"method": "block"}))),
        str(pack.answer(Question({**block, "rank": 8}, {"method": "block"}))),
        str(pack.answer(Question(block))),
        str(pack.answer(Question({}))),
    ]


def test_a_refusal_after_a_lane_names_it() -> None:
    pack = PACKS["sglang-0.5.23"]
    nested = {
        "architectures": ["DSparkDraftModel"],
        "model_type": "qwen3",
        "dflash_config": {"markov_rank": 256, "markov_head_type": "vanilla", "mask_token_id": 3},
    }

    answer = pack.answer(Question(nested, {"algorithm": "DSPARK"}))

    assert ("refuses", "dspark/DSparkDraftModel") == (answer.outcome, answer.lane)
    assert "got markov_rank=0" in answer.text
    top = {**nested, "markov_rank": 256}
    assert "runs" == pack.answer(Question(top, {"algorithm": "DSPARK"})).outcome


def test_the_four_outcomes_are_all_there_are() -> None:
    seen = {case.outcome for pack in PACKS.values() for case in pack.cases}

    assert set(OUTCOMES) == seen
