"""Every accept pattern of two requests at once, by drafts that are as right as a test says."""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from dspark.kernels.arrays import DeviceArray
from dspark.runtime.device_round.batch import Sizes, batch_of
from dspark.runtime.device_round.state import State
from dspark.runtime.device_round.walk import Walk
from dspark.runtime.engine import Engine
from dspark.runtime.params import SamplingParams
from tests.runtime.device_round.pair import TARGET_CONFIG, engine, round_of, simulator

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [100, 3, 44] * 7]
DRAFTS = 4
PATTERNS = list(product(range(DRAFTS + 1), repeat=2))
LENGTH = sum(accepted + 1 for accepted, _ in PATTERNS) + 1 + DRAFTS
GREEDY = SamplingParams(max_tokens=LENGTH, temperature=0.0, ignore_eos=True)
assert len(PATTERNS) == 25


class ScriptedWalk(Walk):
    """Drafts what the array `script` holds, whatever the block says."""

    def run(
        self, state: State, sizes: Sizes, hidden: DeviceArray, base: DeviceArray
    ) -> DeviceArray | None:
        assert (hidden.shape[0], base.shape[0]) == (sizes.requests * sizes.drafts,) * 2
        shape = sizes.requests, sizes.width
        script = self._backend.scratch.empty("script", shape, "i32")
        arguments = script, state.answer.tokens, *shape
        self._backend.device.kernel("put_script")(1, 32, arguments)
        if state.drawing is None:
            return None
        return self._backend.scratch.empty("no chances at all", (*shape, self._vocab), "f32")


def scripted(repository: Path, monkeypatch: pytest.MonkeyPatch, mode: str = "fast") -> Engine:
    monkeypatch.setattr("dspark.runtime.device_round.round.Walk", ScriptedWalk)
    return engine(simulator(repository, mode), drafts=DRAFTS)


@pytest.fixture(scope="module")
def truths(repository: Path) -> list[list[int]]:
    """What the target puts out alone."""
    plain = engine(simulator(repository), None)
    return [list(each.token_ids) for each in plain.generate(PROMPTS, GREEDY)]


@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_i3_every_pattern_is_accepted_as_it_is_and_the_text_stays(
    truths: list[list[int]], repository: Path, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    made = scripted(repository, monkeypatch, "checked" if reverse else "fast")
    scratch = round_of(made)._backend.scratch
    ids = [made.submit(prompt, GREEDY) for prompt in PROMPTS]
    text: dict[int, list[int]] = {request: [] for request in ids}

    def step() -> list[int]:
        counts = []
        for event in made.step():
            text[event.request_id] += event.token_ids
            counts.append(len(event.token_ids))
        return counts

    assert [1, 1] == step()
    for right in reversed(PATTERNS) if reverse else PATTERNS:
        rows = []
        for request, truth, count in zip(ids, truths, right, strict=True):
            at = len(text[request])
            drafts = truth[at : at + DRAFTS]
            wrong = [(token + 1) % TARGET_CONFIG.vocab_size for token in drafts]
            rows.append([-7, *drafts[:count], *wrong[count:]])
        scratch.filled("script", rows)

        assert [count + 1 for count in right] == step(), right

    for request, truth in zip(ids, truths, strict=True):
        assert truth[: len(text[request])] == text[request]
        assert len(text[request]) == LENGTH - DRAFTS
    graphs = round_of(made).graphs
    # The first round has no drafts, and the second is the first of its size.
    assert (2, len(PATTERNS) - 1, 1) == (graphs.eager, graphs.replayed, graphs.captured)


def test_a_greedy_request_among_drawn_ones_is_held_to_its_choice(
    truths: list[list[int]], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its drafts have no chances to be divided by; what lies where those would be is no number."""
    made = scripted(repository, monkeypatch)
    params = dataclasses.replace(GREEDY, logprobs=0)
    request = made.submit(PROMPTS[0], params)
    assert 1 == len(made.step()[0].token_ids)
    drafts = truths[0][1 : DRAFTS + 1]
    round_of(made)._backend.scratch.filled("script", [[-7, *drafts]])

    (event,) = made.step()

    assert request == event.request_id
    assert truths[0][1 : DRAFTS + 2] == list(event.token_ids)


def test_a_batch_is_filled_up_to_few_sizes() -> None:
    member = SimpleNamespace(request=SimpleNamespace(params=GREEDY), wanted=2)
    sizes = [batch_of([member] * count, 12).sizes for count in range(1, 13)]  # type: ignore[list-item]
    assert [1, 2, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12] == [each.requests for each in sizes]
    assert {2} == {each.drafts for each in sizes}
