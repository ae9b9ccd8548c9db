"""Faults that hit real users of other engines, each with a test that this runtime does better.

A test names the rows it is about at the beginning of its name: `test_c1_c3_...`. `ROWS` says what
went wrong in each; the first test here asks that none be without a test. Rows of classes that the
router can show (identification, config keys, tensors, quantisation) are tested with the router,
and only in passing here. The rows that need a particular construction are tested in this file.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark.runtime.acceptance import Proposal, accept_sampled
from dspark.runtime.choices import Purpose, SeededChoices
from dspark.runtime.engine import Engine
from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.params import SamplingParams
from dspark.runtime.sampling import History, distribution
from tests.runtime.tiny import (
    DRAFT,
    PLAIN_DRAFT,
    TARGET,
    ScriptedDraft,
    engine_config,
    make_engine,
    random_prompts,
    target_model,
    target_tensors,
)

ROWS = {
    "C1": "taps one layer early: tap L is what goes into layer L, not what comes out",
    "C2": "taps shifted by one to match somebody's numbering",
    "C3": "a tap on the last layer is out of range, or comes after the final norm",
    "C5": "the target has too few layers for the taps, and all other sizes agree",
    "C6": "the anchor's slot drafts in one packaging and not in the other",
    "C7": "candidate n is scored from the hidden state of slot n - 1",
    "C8": "the block stands one position early, so acceptance decays with the context",
    "C9": "more drafts than the block was trained for; or a guard the wrong way round",
    "C11": "the draft's buffers are sized by the rows of the verify pass",
    "C12": "output corrupted at one draft length only",
    "C14": "all hidden states are handed to the projection instead of the taps",
    "C15": "the Markov chain is conditioned on the wrong token",
    "D1": "padded rows: a full vocabulary refused, or an id the target lacks drafted",
    "D2": "the head is never shared because two padded sizes differ",
    "D3": "a draft id conditions the next slot before it is mapped to a target id",
    "D4": "the draft's own head is replaced by the target's",
    "D6": "the map is looked for under its old name, so nothing is mapped",
    "D8": "another map of the same size repoints every id",
    "D9": "whether to map is decided by comparing the draft's vocabulary with itself",
    "H1": "several rows take other kernels than one, and a near tie flips",
    "H2": "a ring of a sliding window cannot be rewound once it is full",
    "H3": "prefill runs in other pieces with a draft than without",
    "H4": "only the worst gap is reported, never how often tokens differ",
    "I1": "the draft's cache is cut too far after each rejection",
    "I3": "all rows of a batch advance by the block, whatever each accepted",
    "I4": "a replacement is drawn from the row behind the rejected position",
    "I6": "a window of kept rows is a constant smaller than the drafts",
    "I7": "rows of dummies, or of requests long gone, poison a live cache",
    "I8": "the draft's context is not restored on a prefix hit",
    "I9": "requests that end at different times break the batch",
    "I10": "a per-position buffer still holds the round before",
    "J1": "the cap counts rounds, and a round puts out several tokens",
    "J2": "the cap is looked at before a stop inside the same round",
    "J3": "tokens behind the end of the text are shown",
    "J5": "counters are updated before the stop is applied",
    "J6": "the last block runs past the cache, or stale drafts are verified there",
    "J8": "a prompt longer than the draft can take crashes instead of going without",
    "K1": "drafts are drawn from a rounded softmax and judged by an exact one",
    "K2": "the target's processed distribution is compared with the draft's raw one",
    "K4": "the likeliest of the processed distribution is taken where one should be drawn",
    "K5": "the parameters of a request are not applied where drafts are verified",
    "K9": "seeds have no effect, or none but the clock's has",
    "L1": "a batch size between those prepared reads past its end",
    "L3": "shapes are chosen by the number of requests, not by the number of rows",
    "L4": "a long run drifts and dies",
    "L5": "an option that is not supported is taken and ignored",
    "M1": "memory for the longest possible context is taken unasked, or runs out",
    "M3": "the draft's pool is a share of the memory that nobody is told of",
}

# What this runtime has no place for, and why.
NOT_HERE = {
    "K7": "a draft here is a chain: there are no trees, and no approximate way to accept",
}

FOLDER = Path(__file__).parent
NAMED = re.compile(r"test_((?:[a-o]\d{1,2}_)+)")


def every_test() -> Iterator[tuple[str, str]]:
    """Every test's file and name."""
    for path in sorted(FOLDER.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield str(path.relative_to(FOLDER)), node.name


def test_no_row_is_without_a_test_and_no_test_names_a_row_that_is_none() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file, name in every_test():
        named = NAMED.match(name)
        for row in named.group(1).upper().split("_")[:-1] if named else ():
            found[row].append(f"{file}::{name}")
    assert not sorted(set(ROWS) - set(found)), "rows without a test"
    classes = {row[0] for row in ROWS}
    others = {row: names for row, names in found.items() if row[0] in classes}
    assert {} == {row: names for row, names in others.items() if row not in ROWS}
    assert not set(ROWS) & set(NOT_HERE)


GREEDY = SamplingParams(max_tokens=40, temperature=0.0)


@pytest.mark.parametrize("k", [1, 2, 4, DRAFT.block_size])
def test_c11_the_draft_runs_its_block_and_the_target_one_row_more_than_drafts(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: dict[str, set[int]] = defaultdict(set)

    def counted(kind: type[Any], name: str) -> None:
        original = getattr(kind, name)

        def call(self: Any, *arguments: Any) -> Any:
            out = original(self, *arguments)
            if name == "block":
                rows["drafted"].add(out.shape[1])
                rows["requests"].add(len(arguments[0]))
            elif all(len(segment.tokens) < 20 for segment in arguments[0]):
                rows["verified"] |= {len(segment.tokens) for segment in arguments[0]}
            return out

        monkeypatch.setattr(kind, name, call)

    counted(BlockDraft, "block")
    counted(Qwen3Target, "forward")
    engine = make_engine(drafts=k)
    # The caps leave room for all drafts in every round that is looked at.
    for prompt in ([3] * 25, [4] * 30):
        engine.submit(prompt, GREEDY)
    for _ in range(5):
        engine.step()
    assert {DRAFT.block_size} == rows["drafted"]
    assert {2} == rows["requests"]
    assert {k + 1} == rows["verified"]


@pytest.mark.parametrize("accepted", range(PLAIN_DRAFT.block_size + 1))
def test_h2_a_full_window_is_rewound(accepted: int) -> None:
    # Window 8, prompt 6, 5 drafts: a round leaves more behind than a ring could spare.
    config = dataclasses.replace(
        TARGET,
        layer_types=("sliding_attention", "full_attention", "sliding_attention"),
        sliding_window=8,
    )
    tensors = target_tensors(config)
    prompts = [prompt[:6] for prompt in random_prompts(8) if len(prompt) >= 6]
    target = target_model(config=config, tensors=tensors)
    settings = engine_config(page_size=4, pages=200)
    alone = Engine(target, None, settings).generate(prompts, GREEDY)
    for prompt, expected in zip(prompts, alone, strict=True):
        # Every second round accepts them all.
        draft = ScriptedDraft(target, lambda call, _: accepted if call % 2 else 5)
        draft.truths = [[*prompt, *expected.token_ids]]
        got = Engine(target, draft, settings).generate([prompt], GREEDY)[0]
        assert expected.token_ids == got.token_ids
        assert got.statistics.acceptance.accepted[4] > 0
    full = make_engine(False).generate(prompts, GREEDY)
    assert [c.token_ids for c in alone] != [c.token_ids for c in full], (
        "this window changes nothing"
    )


def test_k1_text_drawn_with_logits_too_fine_for_bfloat16_is_the_targets() -> None:
    temperature, draws = 0.3, 200_000
    params = SamplingParams(max_tokens=1, temperature=temperature)
    # Neighbours of bfloat16 at 20, which its softmax could not tell apart once divided.
    fine = torch.tensor([20 + step / 8 for step in (0, 1, 2, 3, 4, 5, 6, 7)]).bfloat16()
    assert 8 == len(set(fine.tolist()))
    q = distribution(fine.float().numpy(), params, History(frozenset()))
    logits = np.array([1.0, 0.9, 1.1, 0.7, 1.0, 0.6, 0.9, 0.8], np.float32)
    p = distribution(logits, params, History(frozenset()))

    # What the fault would give: drawn from the rounded softmax, judged by the exact one.
    rounded = torch.softmax(fine / temperature, 0).float().numpy().astype(np.float64)
    rounded /= rounded.sum()
    kept = rounded * np.minimum(1, p / q)
    residual = np.maximum(p - q, 0)
    faulty = kept + (1 - kept.sum()) * residual / residual.sum()
    assert np.abs(faulty - p).sum() / 2 > 0.01

    choices = SeededChoices(1)
    counts = np.zeros(8)
    for place in range(0, 2 * draws, 2):
        draft = choices.pick(q, place, Purpose.DRAFT)
        proposal = Proposal([draft], [q], None)
        counts[accept_sampled(proposal, lambda _: p, choices, place)[0]] += 1
    expected = p.astype(np.float64) * draws
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 24.3, "beyond the 0.999 quantile for seven degrees of freedom"
    assert np.abs(counts / draws - p).sum() / 2 < 0.01


def test_l5_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="devices"):
        engine_config(devices=2)


@pytest.mark.slow
@pytest.mark.parametrize("k", range(1, PLAIN_DRAFT.block_size + 1))
def test_c12_i6_every_length_at_batch_12(k: int) -> None:
    prompts = random_prompts(200, seed=8)
    expected = make_engine(False, max_batch=8, pages=100).generate(prompts, GREEDY)
    got = make_engine(max_batch=12, pages=100, drafts=k).generate(prompts, GREEDY)
    assert [c.token_ids for c in expected] == [c.token_ids for c in got]
