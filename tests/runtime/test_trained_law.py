"""Text sampled from the trained pair, with its draft, follows the target's exact probabilities."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from dspark.runtime import acceptance
from dspark.runtime.backends.base import HostFloats
from dspark.runtime.choices import SeededChoices
from dspark.runtime.models.block_draft import Anchor
from dspark.runtime.models.rows import Segment
from dspark.runtime.params import SamplingParams
from dspark.runtime.sampling import History, distribution
from tests.runtime import trained

TOKENS, DRAFTS = 4, 3
PARAMS = SamplingParams(max_tokens=TOKENS, temperature=1.0, ignore_eos=True)
NOTHING = History(frozenset())


@dataclass(frozen=True)
class Context:
    """A prompt whose first new token is nearly certain, and whose second is anything but."""

    prompt: list[int]
    first: int
    second: HostFloats


def chances(logits: np.ndarray) -> np.ndarray:
    """The distribution of every row of `logits` [..., V]."""
    rows = [distribution(row, PARAMS, NOTHING) for row in logits.reshape(-1, logits.shape[-1])]
    return np.array(rows).reshape(logits.shape)


def chances_after(prompt: Sequence[int], texts: Sequence[Sequence[int]]) -> np.ndarray:
    """[texts, tokens, V]: what the target says about each token of each text behind the prompt."""
    model = trained.target()
    store = model.new_store(len(texts) + 1, len(prompt))
    head = model.forward([Segment(prompt, 0, [0])], store)
    first = model.backend.host(model.logits(model.backend.take(head.hidden, [len(prompt) - 1])))
    segments = [
        Segment(text[:-1], len(prompt), [0, number]) for number, text in enumerate(texts, 1)
    ]
    rest = model.backend.host(model.logits(model.forward(segments, store).hidden))
    rest = rest.reshape(len(texts), len(texts[0]) - 1, -1)
    return chances(np.concatenate([np.repeat(first[None], len(texts), 0), rest], axis=1))


def draft_chances(context: Context) -> np.ndarray:
    """The distribution of the first draft behind the context's certain token."""
    model, draft = trained.target(), trained.draft("dspark")
    room = len(context.prompt) + draft.config.block_size
    segment = Segment(context.prompt, 0, [0])
    features = model.forward([segment], model.new_store(1, room)).features
    store = draft.new_store(1, room)
    draft.extend(features, [segment], store)
    hidden = draft.block([Anchor(context.first, len(context.prompt), [0])], store)[:, 0]
    assert draft.markov is not None
    latent, _ = draft.markov.step(draft.embedded([context.first]), hidden, None)
    return chances(draft.backend.host(draft.base_logits(hidden) + draft.bias(latent)))[0]


def contexts(count: int) -> list[Context]:
    """Found in the held-out prompts, one a prompt: where the draft is about half right."""
    model = trained.target()
    found: list[tuple[float, Context]] = []
    for prompt in trained.prompts()[:32]:
        rows = model.forward([Segment(prompt, 0, [0])], model.new_store(1, len(prompt))).hidden
        target = chances(model.backend.host(model.logits(rows)))
        candidates: list[tuple[float, Context]] = []
        for at in range(16, len(prompt) - 1):
            certain = float(target[at, prompt[at + 1]])
            # Of what comes then, one token must not have it all, nor a hundred an equal share.
            spread = 1 - float((target[at + 1] ** 2).sum())
            if 0.4 < spread < 0.9:
                candidates.append(
                    (certain, Context(prompt[: at + 1], prompt[at + 1], target[at + 1]))
                )
        if not candidates:
            continue
        certain, context = max(candidates, key=lambda one: one[0])
        agreed = float(np.minimum(context.second, draft_chances(context)).sum())
        if certain > 0.4 and 0.2 < agreed < 0.9:
            found.append((abs(agreed - 0.5), context))
    assert len(found) >= count, "these prompts have too few open places behind certain ones"
    found.sort(key=lambda one: one[0])
    return [context for _, context in found[:count]]


def sampled(context: Context, count: int) -> list[tuple[int, ...]]:
    engine = trained.engine("dspark", drafts=DRAFTS, max_batch=32, pages=320, page_size=16)
    params = [dataclasses.replace(PARAMS, seed=seed) for seed in range(count)]
    return [c.token_ids for c in engine.generate([context.prompt] * count, params)]


Cells = tuple[float, int]


def chi_square(counts: np.ndarray, expected: np.ndarray) -> Cells:
    """The statistic and its degrees of freedom; cells that expect under 5 count as one."""
    large = expected >= 5
    seen = np.append(counts[large], counts[~large].sum())
    wanted = np.append(expected[large], expected[~large].sum())
    kept = wanted >= 5
    assert kept.sum() > 2, "too few cells to tell two distributions apart"
    return float(((seen - wanted)[kept] ** 2 / wanted[kept]).sum()), int(kept.sum()) - 1


def excess(cells: Sequence[Cells]) -> float:
    """All statistics together, over the 0.999 quantile by Wilson and Hilferty: red above 1."""
    freedom = sum(count for _, count in cells)
    share = 2 / (9 * freedom)
    return sum(one for one, _ in cells) / (freedom * (1 - share + 3.09 * math.sqrt(share)) ** 3)


def second_tokens(context: Context, texts: Sequence[tuple[int, ...]]) -> Cells:
    """The first draft's place, at one known prefix: every token is a cell."""
    seconds = [text[1] for text in texts if text[0] == context.first]
    counts = np.bincount(seconds, minlength=len(context.second))
    return chi_square(counts, context.second * len(seconds))


def every_place(context: Context, texts: Sequence[tuple[int, ...]]) -> list[Cells]:
    """Every place of every text: where in the target's distribution its token falls is uniform."""
    random = np.random.default_rng(0)
    target = chances_after(context.prompt, texts)
    out = []
    for place in range(TOKENS):
        rows = target[:, place]
        tokens = np.array([text[place] for text in texts])
        own = np.take_along_axis(rows, tokens[:, None], 1)
        # The likeliest first, so that a text too sharp or too flat shows.
        above = np.where(rows > own, rows, 0).sum(1)
        level = above + random.random(len(texts)) * own[:, 0]
        counts = np.bincount((level * 20).astype(int).clip(0, 19), minlength=20)
        out.append(chi_square(counts, np.full(20, len(texts) / 20)))
    return out


def verdict(places: int, count: int) -> tuple[float, float]:
    seconds: list[Cells] = []
    every: list[Cells] = []
    for context in contexts(places):
        texts = sampled(context, count)
        seconds.append(second_tokens(context, texts))
        every += every_place(context, texts)
    return excess(seconds), excess(every)


def test_k1_k2_sampled_text_has_the_targets_distribution() -> None:
    seconds, every = verdict(2, 400)
    assert seconds < 1
    assert every < 1


@pytest.mark.slow
def test_k1_k2_much_sampled_text_has_the_targets_distribution() -> None:
    seconds, every = verdict(4, 2000)
    assert seconds < 1
    assert every < 1


@pytest.mark.slow
def test_the_chi_square_sees_a_replacement_that_forgets_the_residual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A rejected draft may then come back by the other door.
    monkeypatch.setattr(acceptance, "_residual", lambda p, q, draft: p)  # noqa: ARG005
    seconds, _ = verdict(2, 400)
    assert seconds > 1


@pytest.mark.slow
def test_the_chi_square_sees_the_drafts_own_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeededChoices, "accept", lambda *_: True)
    seconds, every = verdict(2, 400)
    assert seconds > 1
    assert every > 1
