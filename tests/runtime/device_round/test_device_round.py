"""Rounds on the device against the host's: texts, drafts, draws, and what must not leak."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark.kernels.errors import AllocatedUnderGraph, GraphError
from dspark.kernels.host_driver import HostDriver
from dspark.kernels.launch import Device
from dspark.kernels.shared_memory import step_requests
from dspark.runtime.backends.cuda import CudaBackend
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.device_round.limits import sizes_without_kernel
from dspark.runtime.device_round.program import Program
from dspark.runtime.device_round.settings import MOST_BIASES
from dspark.runtime.device_round.state import State
from dspark.runtime.errors import InvalidRequest, NonFiniteLogits, WeightError
from dspark.runtime.models.rows import Segment
from dspark.runtime.params import SamplingParams
from dspark.runtime.propose import propose
from dspark.runtime.request import Request
from tests.runtime.device_round.pair import (
    DRAFT_CONFIG,
    NO_HEADS,
    TARGET_CONFIG,
    TARGET_TENSORS,
    engine,
    models,
    round_of,
    rounded,
    simulator,
)
from tests.runtime.tiny import draft_tensors, target_tensors

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [100, 3, 44] * 9, [77]]
BLOCK = DRAFT_CONFIG.block_size
SM_89, ENOUGH = 101_376, 232_448
"""Bytes of shared memory that a block may have."""

COUNT = 9
SLOW_LENGTHS = [pytest.param(drafts, marks=pytest.mark.slow) for drafts in range(3, BLOCK)]


def greedy(count: int, **changes: Any) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True, **changes)


def texts(completions: Sequence[Any]) -> list[list[int]]:
    return [list(each.token_ids) for each in completions]


# ------------------------------------------------------------------------------------- greedy


@pytest.fixture(scope="module")
def plain(repository: Path) -> list[list[int]]:
    """What the target puts out alone, on the device."""
    made = engine(simulator(repository), None)
    return texts(made.generate(PROMPTS, greedy(COUNT)))


@pytest.mark.parametrize(
    "drafts", [0, pytest.param(1, marks=pytest.mark.slow), 2, *SLOW_LENGTHS, BLOCK]
)
def test_l3_greedy_text_is_the_targets_own(
    drafts: int, plain: list[list[int]], repository: Path
) -> None:
    made = engine(simulator(repository, "checked" if drafts == 3 else "fast"), drafts=drafts)

    assert plain == texts(made.generate(PROMPTS, greedy(COUNT)))

    verified = made.statistics.acceptance.verified
    assert drafts == len(verified)
    assert sorted(verified, reverse=True) == verified
    assert all(verified)
    graphs = round_of(made).graphs
    assert graphs.eager >= drafts + 1
    assert graphs.replayed >= graphs.captured > 0
    counts = made.statistics
    assert (graphs.replayed, graphs.eager) == (counts.graph_rounds, counts.eager_rounds)
    assert counts.passes == graphs.eager + graphs.replayed
    assert 0 == made.pages_held


def test_requests_join_leave_and_are_cancelled_at_any_round(
    plain: list[list[int]], repository: Path
) -> None:
    """Places on the device change hands; prompts are read in pieces beside it."""
    made = engine(simulator(repository), prefill_tokens=5, max_batch=3)
    first = made.submit(PROMPTS[1], greedy(COUNT))
    found: dict[int, list[int]] = {first: []}
    third = -1
    for step in range(60):
        if step == 6:
            found[made.submit(PROMPTS[0], greedy(COUNT))] = []
            third = made.submit([9, 9, 1], greedy(COUNT))
            found[third] = []
        if step == 9:
            made.cancel(third)
            found[made.submit(PROMPTS[2], greedy(COUNT))] = []
        if step > 9 and not made.busy:
            break
        for event in made.step():
            found[event.request_id] += event.token_ids
    found.pop(third)

    assert [plain[1], plain[0], plain[2]] == list(found.values())
    assert 0 == made.pages_held


def test_i8_a_known_prompt_is_taken_over_with_its_draft_context(repository: Path) -> None:
    """Drafts behind a prefix that was kept are those behind one that was read."""
    prompt = [int(at * 11 % 130) for at in range(35)]
    walks: list[list[int]] = []
    made = engine(simulator(repository))
    for _ in range(2):
        request = made.submit(prompt, greedy(8))
        held = made._requests[request]
        for _ in range(3):
            made.step()
        whole = made._round._backend.scratch.empty("answer", (2 * 6 + 2,), "i32")
        walks.append(made._round._backend.device.read(whole)[:6].tolist())
        assert held.statistics.acceptance.rounds == 2
        made.cancel(request)
    assert held.statistics.cached_tokens == 32
    assert walks[0] == walks[1]


# ------------------------------------------------------------------------------------- drafts

HEADS: dict[str, dict[str, Any]] = {
    "vanilla": {"markov_head_type": "vanilla"},
    "gated": {"markov_head_type": "gated"},
    "rnn": {"markov_head_type": "rnn"},
    "none": NO_HEADS,
    "a slot less": {"sample_from_anchor": False},
    "fewer ids": {"draft_vocab_size": 112},
    "scaled": {"logit_scale": 0.25},
}


@pytest.mark.parametrize("drafts", [BLOCK - 1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", HEADS)
def test_drafts_are_those_of_float64(kind: str, drafts: int, repository: Path) -> None:
    config = dataclasses.replace(DRAFT_CONFIG, **HEADS[kind])
    weights = rounded(draft_tensors(config, seed=11))
    if config.draft_vocab_size < config.vocab_size:
        kept = torch.arange(config.vocab_size)[config.vocab_size - config.draft_vocab_size :]
        weights["d2t"] = kept - torch.arange(config.draft_vocab_size)
    backend = simulator(repository, "checked" if drafts == 2 else "fast")
    made = engine(backend, config, draft_weights=weights, drafts=drafts)
    ids = [made.submit(prompt, greedy(9)) for prompt in PROMPTS]
    made.step()
    requests = [made._requests[each] for each in ids]
    tokens = [list(each.tokens) for each in requests]
    assert [1, 1, 1] == [each.put_out for each in requests]
    made.step()

    shape = 4, drafts + 1
    whole = round_of(made)._backend.scratch.empty("answer", (2 * 4 * (drafts + 1) + 8,), "i32")
    found = round_of(made)._backend.device.read(whole)[: 4 * (drafts + 1)].reshape(shape)
    expected = proposals(config, weights, tokens, requests, drafts)
    assert expected == [row.tolist() for row in found[:3, 1:]]


def proposals(
    config: Any, weights: Any, tokens: list[list[int]], requests: list[Request], drafts: int
) -> list[list[int]]:
    """What float64 drafts behind `tokens`, each of a request of its own."""
    target, draft = models(ReferenceBackend(), config, draft_weights=weights)
    assert draft is not None
    made = []
    for mine, request in zip(tokens, requests, strict=True):
        store, draft_store = target.new_store(8, 16), draft.new_store(8, 16)
        segment = Segment(mine[:-1], 0, range(8))
        passed = target.forward([segment], store)
        draft.extend(passed.features, [segment], draft_store)
        asked = dataclasses.replace(
            request,
            tokens=mine,
            table=dataclasses.replace(request.held, pages=list(range(8))),
        )
        (found,) = propose(draft, draft_store, [asked], [drafts], None)
        made.append(list(found.tokens))
    return made


# --------------------------------------------------------------------------------------- drawn

DRAWN: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.9},
    "cuts": {"temperature": 1.3, "top_k": 30, "top_p": 0.8, "min_p": 0.01},
    "penalties": {
        "temperature": 0.7,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
    },
    "bias": {"temperature": 0.6, "logit_bias": {3: 4.0, 9: -float("inf")}},
    "greedy with penalties": {"temperature": 0.0, "repetition_penalty": 1.3},
    "greedy": {"temperature": 0.0},
}


@pytest.mark.parametrize("schedule", [False, True])
@pytest.mark.parametrize("mode", ["fast", pytest.param("checked", marks=pytest.mark.slow)])
def test_the_same_seed_draws_what_the_host_draws(
    mode: str, schedule: bool, repository: Path
) -> None:
    """Requests of every kind in one batch; a wrong number anywhere changes what follows."""
    wanted = [
        SamplingParams(max_tokens=7, seed=number, ignore_eos=True, **each)
        for number, each in enumerate(DRAWN.values())
    ]
    prompts = [[number + 1, 40 - number, 7] for number in range(len(wanted))]
    changes: dict[str, Any] = {"max_batch": 8}
    if schedule:
        rates = ((1, 100.0), (8, 60.0), (40, 20.0))
        changes["schedule"] = ConfidenceSchedule(rates, (1.5, 0.5))
    made = engine(simulator(repository, mode), **changes)

    found = made.generate(prompts, wanted)

    host = engine(TorchCpuBackend("float32"), **changes)
    expected = host.generate(prompts, wanted)
    same = [mine == theirs for mine, theirs in zip(texts(found), texts(expected), strict=True)]
    # bfloat16 moves logits by a hundredth: a draw that fell near a border may land beside it.
    assert sum(same) >= len(wanted) - 1, same
    ours, theirs = made.statistics.acceptance, host.statistics.acceptance
    assert np.abs(np.subtract(ours.verified, theirs.verified)).max() <= 3
    if schedule:
        # The schedule verified fewer than there were, or it was not there.
        assert ours.verified[0] > ours.verified[-1]


def test_k1_what_was_accepted_is_what_chance_gives(repository: Path) -> None:
    """A draft that is the target's own distribution is always kept: q is p to the last bit."""
    one = ("full_attention",)
    config = dataclasses.replace(TARGET_CONFIG, num_hidden_layers=1, layer_types=one)
    # Layers that add nothing, so that logits follow from the newest token alone.
    tensors = {
        name: torch.zeros_like(tensor) if "o_proj" in name or "down_proj" in name else tensor
        for name, tensor in TARGET_TENSORS.items()
        if "layers.1." not in name
    }
    draft = dataclasses.replace(
        DRAFT_CONFIG,
        **NO_HEADS,
        hidden_size=TARGET_CONFIG.hidden_size,
        target_layer_ids=(0,),
        rms_norm_eps=config.rms_norm_eps,
    )
    weights = rounded(draft_tensors(draft))
    for name in weights:
        if "o_proj" in name or "down_proj" in name:
            weights[name] = torch.zeros_like(weights[name])
    weights["lm_head.weight"] = tensors["lm_head.weight"]
    weights["norm.weight"] = tensors["model.norm.weight"]
    # Every slot of the block sees its own token: the anchor's slot is then the target's word.
    weights["embed_tokens.weight"] = tensors["model.embed_tokens.weight"]
    made = engine(
        simulator(repository),
        draft,
        target=config,
        target_weights=tensors,
        draft_weights=weights,
        drafts=1,
    )
    params = [SamplingParams(max_tokens=9, seed=seed, ignore_eos=True) for seed in range(3)]

    made.generate([[3], [50, 4], [8, 8, 8]], params)

    acceptance = made.statistics.acceptance
    assert acceptance.verified[0] > 8
    assert acceptance.verified == acceptance.accepted


def test_logprobs_are_the_targets(repository: Path) -> None:
    params = greedy(6, logprobs=3)
    (found,) = engine(simulator(repository)).generate([PROMPTS[0]], params)

    (expected,) = engine(TorchCpuBackend("float32")).generate([PROMPTS[0]], params)

    assert texts([expected]) == texts([found])
    for mine, theirs in zip(found.logprobs, expected.logprobs, strict=True):
        assert mine.token_id == theirs.token_id
        assert mine.logprob == pytest.approx(theirs.logprob, abs=0.05)
        assert {token for token, _ in mine.top[:1]} == {token for token, _ in theirs.top[:1]}


def test_confidence_is_recorded_as_the_host_records_it(repository: Path) -> None:
    schedule = ConfidenceSchedule(((1, 100.0), (64, 99.0)))
    recorded = []
    for backend in (simulator(repository), TorchCpuBackend("float32")):
        made = engine(backend, schedule=schedule)
        rounds = made.record_confidence()
        made.generate(PROMPTS[:1], greedy(4))
        recorded.append(rounds)
    ours, theirs = recorded
    assert len(ours) == len(theirs) > 0
    for mine, right in zip(ours, theirs, strict=True):
        assert mine.accepted == right.accepted
        assert mine.chances == pytest.approx(right.chances, abs=0.02)


# ------------------------------------------------------------------------- what goes wrong


def test_f5_a_draft_without_numbers_is_counted_and_changes_no_text(
    plain: list[list[int]], repository: Path
) -> None:
    weights = rounded(draft_tensors(DRAFT_CONFIG))
    weights["norm.weight"] = torch.full_like(weights["norm.weight"], torch.nan)
    made = engine(simulator(repository), draft_weights=weights)

    assert plain == texts(made.generate(PROMPTS, greedy(COUNT)))

    acceptance = made.statistics.acceptance
    # In every round but the last of each, which has no use for drafts.
    assert 3 * (COUNT - 2) == acceptance.draft_skipped["nonfinite"]
    assert [] == acceptance.verified
    assert ["draft_nonfinite"] == list(made.statistics.health)


@pytest.mark.parametrize("params", [greedy(4), SamplingParams(max_tokens=4, seed=1)])
def test_f5_a_target_without_numbers_is_an_error(params: SamplingParams, repository: Path) -> None:
    tensors = dict(TARGET_TENSORS)
    tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], torch.nan)
    made = engine(simulator(repository), target_weights=tensors)
    with pytest.raises(NonFiniteLogits, match="the target's logits are not finite numbers"):
        made.generate(PROMPTS, params)


def test_l1_rows_that_fill_up_a_batch_touch_no_page(repository: Path) -> None:
    """Three requests in a batch of four: pages that nobody holds keep every bit."""
    made = engine(simulator(repository))
    for prompt in PROMPTS:
        made.submit(prompt, greedy(30))
    for _ in range(3):
        made.step()
    held = {page for each in made._requests.values() for page in each.held.pages}
    free = sorted(set(range(made.config.pages)) - held)
    assert len(free) > 40
    device, stores = round_of(made)._backend.device, made._models
    assert stores.draft_store is not None
    arrays = [
        array
        for store in (stores.target_store, stores.draft_store)
        for array in (*store.keys, *store.values)
    ]

    def content() -> list[np.ndarray]:
        return [device.read(array)[free] for array in arrays]

    before = content()
    for _ in range(4):
        made.step()

    for mine, theirs in zip(before, content(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert all((each == 0xFFFF).all() for each in before)


def test_a_length_that_was_baked_into_a_graph_is_seen(
    plain: list[list[int]], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were a length handed over by value, a replay would stay where its capture was."""
    real = Program.run

    def baked(self: Program, state: State, sizes: Any) -> None:
        device, scratch = self._backend.device, self._backend.scratch
        if device.capturing:
            copy = scratch.empty("baked lengths", state.lengths.shape, "i32")
            state = dataclasses.replace(state, lengths=copy)
        else:
            copy = scratch.empty("baked lengths", state.lengths.shape, "i32")
            device.write(copy, device.read(state.lengths))
        real(self, state, sizes)

    monkeypatch.setattr(Program, "run", baked)
    made = engine(simulator(repository))
    assert plain != texts(made.generate(PROMPTS, greedy(COUNT)))
    assert round_of(made).graphs.replayed > 0


def test_a_graph_outlives_no_array_of_its_own(repository: Path) -> None:
    """A longer prompt needs larger arrays; the graphs go, and come again."""
    made = engine(simulator(repository))
    made.generate(PROMPTS[2:], greedy(10))
    graphs = round_of(made).graphs
    captured, backend = graphs.captured, round_of(made)._backend
    assert captured >= 1
    with pytest.raises(AllocatedUnderGraph, match="1 requests, "):
        backend.device.empty((3,), "f32")

    found = made.generate(PROMPTS[1:2], greedy(10))

    assert graphs.captured > captured
    assert texts(found) == texts(engine(simulator(repository)).generate(PROMPTS[1:2], greedy(10)))


def test_a_round_of_many_rows_stays_with_our_kernels(
    plain: list[list[int]], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library's product cannot be captured; prompts of so many rows go to it all the same."""
    monkeypatch.setattr("dspark.runtime.backends.cuda_products.WIDE", 7)
    made = engine(simulator(repository))

    found = texts(made.generate(PROMPTS, greedy(COUNT)))

    assert round_of(made).graphs.replayed > 0
    assert [plain[0], plain[2]] == [found[0], found[2]]


def test_without_torch_on_the_device_prompts_go_through_our_kernels(
    plain: list[list[int]], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dspark.runtime.backends.cuda_products.WIDE", 7)
    monkeypatch.setattr(HostDriver, "has_library", False)
    monkeypatch.delattr(HostDriver, "library_stream")
    assert plain == texts(engine(simulator(repository)).generate(PROMPTS, greedy(COUNT)))


def test_a_capture_lets_no_library_in(repository: Path) -> None:
    device = simulator(repository).device
    with (
        pytest.raises(GraphError, match="a library is called inside the capture of `g`"),
        device.capture("g"),
    ):
        device.library_stream()


# ---------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("changes", "key", "expected"),
    [
        ({"head_dim": 48}, "head_dim", "heads of 64, 80, 96, 128"),
        ({"vocab_size": 137}, "vocab_size", "multiples of 8"),
        ({"hidden_size": 76}, "hidden_size", "multiples of 8"),
        ({"intermediate_size": 100}, "intermediate_size", "multiples of 8"),
        (
            {"num_attention_heads": 44},
            "num_attention_heads",
            "up to 21 query heads to a key head at 6 rows",
        ),
    ],
)
def test_a_size_without_a_kernel_is_named(changes: dict[str, Any], key: str, expected: str) -> None:
    config = dataclasses.replace(TARGET_CONFIG, **changes)

    (found,) = sizes_without_kernel(config, DRAFT_CONFIG, 4, ENOUGH)

    assert ("size-without-kernel", key) == (found.name, found.values["key"])
    assert (getattr(config, key), expected) == (found.values["got"], found.values["expected"])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"draft_vocab_size": 130}, "draft_vocab_size"),
        ({"markov_rank": 12}, "markov_rank"),
        ({"head_dim": 32}, "head_dim"),
        ({"block_size": 16}, "block_size"),
    ],
)
def test_a_drafts_size_without_a_kernel_is_named(changes: dict[str, Any], key: str) -> None:
    config = dataclasses.replace(DRAFT_CONFIG, **changes)
    found = sizes_without_kernel(TARGET_CONFIG, config, 4, ENOUGH)
    assert key in [each.values["key"] for each in found]


def test_sizes_with_kernels_have_no_trouble() -> None:
    assert [] == list(sizes_without_kernel(TARGET_CONFIG, DRAFT_CONFIG, 4, ENOUGH))
    assert [] == list(sizes_without_kernel(TARGET_CONFIG, None, 400, ENOUGH))
    (rows,) = sizes_without_kernel(TARGET_CONFIG, DRAFT_CONFIG, 86, ENOUGH)
    assert "up to 512 rows a round, 6 for each request" == rows.values["expected"]


@pytest.mark.parametrize(
    ("of_target", "of_draft", "max_batch", "key", "expected"),
    [
        ({}, {"markov_rank": 6272}, 8, None, ""),
        ({}, {"markov_rank": 6280}, 8, "markov_rank", "ranks of up to 6272"),
        ({}, {"markov_rank": 3072}, 9, None, ""),
        ({}, {"markov_rank": 3080}, 8, None, ""),
        ({}, {"markov_rank": 3080}, 9, "max_batch", "up to 8 requests at a `markov_rank` of 3080"),
        ({"hidden_size": 50624}, {"hidden_size": 50624}, 4, None, ""),
        ({"hidden_size": 50632}, {}, 4, "hidden_size", "sizes of up to 50624"),
        ({}, {"hidden_size": 50632}, 4, "hidden_size", "sizes of up to 50624"),
    ],
)
def test_what_a_block_may_share_is_a_limit(
    of_target: dict[str, Any],
    of_draft: dict[str, Any],
    max_batch: int,
    key: str | None,
    expected: str,
) -> None:
    target = dataclasses.replace(TARGET_CONFIG, **of_target)
    draft = dataclasses.replace(DRAFT_CONFIG, **of_draft)

    found = list(sizes_without_kernel(target, draft, max_batch, SM_89))

    assert [(key, expected, SM_89)] * (key is not None) == [
        (each.values["key"], each.values["expected"], each.values["shared"]) for each in found
    ]
    # Of a GPU with more, none of these is too wide.
    assert [] == list(sizes_without_kernel(target, draft, max_batch, ENOUGH))


@pytest.mark.parametrize(("requests", "rank"), [(4, 6272), (9, 3072)])
def test_the_highest_rank_is_launched_and_the_next_is_not(
    requests: int, rank: int, repository: Path
) -> None:
    """By a device that refuses a launch of more than it has, whatever was checked before."""
    config = dataclasses.replace(DRAFT_CONFIG, markov_rank=rank)
    host = HostDriver(repository / "build" / "kernels-host", "fast", most_shared=SM_89)
    made = engine(CudaBackend(Device(host)), config, max_batch=requests)
    made.generate([[5, 6, 7]] * requests, greedy(3))
    assert f"markov_step_{step_requests(requests)}" in [name for name, _ in host.reports]

    config = dataclasses.replace(config, markov_rank=rank + 8)
    with pytest.raises(WeightError, match="with 101376 bytes of shared memory a block the kernels"):
        engine(CudaBackend(Device(host)), config, max_batch=requests)


def test_l5_an_engine_is_not_made_for_what_no_kernel_takes(repository: Path) -> None:
    with pytest.raises(WeightError, match="`max_batch` is `90`, and the kernels take up to 512"):
        engine(simulator(repository), max_batch=90)


def test_more_biases_than_there_is_room_for_are_refused(repository: Path) -> None:
    config = dataclasses.replace(TARGET_CONFIG, vocab_size=1104)
    tensors = rounded(target_tensors(config))
    made = engine(simulator(repository), None, target=config, target_weights=tensors)
    biases = dict.fromkeys(range(MOST_BIASES + 1), 1.0)
    with pytest.raises(InvalidRequest, match="names 1025 tokens, and this device takes up to 1024"):
        made.submit([1], greedy(2, logit_bias=biases))
    assert not made.busy
