"""Step 8: decoding in Qwen3-8B's shape, weights drawn, with and without the draft of block 7.

What drawn weights say is nonsense, and hardly a draft is accepted: what is measured is the time of
a step and of a round, not tokens a second with a draft.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.gpu.bandwidth import ceiling
from benchmarks.gpu.bed import Bed, need
from benchmarks.gpu.notes import Notes
from benchmarks.gpu.skinny import captured
from benchmarks.gpu.tiny_pair import device_backend
from dspark.runtime.models.config import DraftConfig, TargetConfig

if TYPE_CHECKING:
    from benchmarks.gpu.pair import Pair

STEP_BYTES, ROUND_BYTES = 15_439_104_000, 19_454_079_758
"""What `dspark.cost` counts for Qwen3-8B behind 2048 positions; a test holds them against it.

It needs a plan, and that packages which a bare machine has not."""


def run(bed: Bed) -> None:
    """Notes tokens a second and the time of a step, by torch and by us, and the time of a round."""
    need("torch")
    from benchmarks.gpu.pair import random_pair

    # Asked for before the minute that the rest takes.
    device_backend(bed.device)
    pair = random_pair(*SHAPES[bed.sizes.shape](), bed.torch_device)
    bed.notes.figure("positions before the first token", bed.sizes.context, "positions")
    _by_torch(bed, pair)
    for taps in (False, True):
        _by_us(bed, pair, taps=taps)
        # An engine and its graphs know each other; their memory is wanted for the next.
        gc.collect()


def _by_torch(bed: Bed, pair: Pair) -> None:
    import torch

    from benchmarks.gpu.torch_qwen3 import TorchQwen3

    count = bed.sizes.new_tokens
    with torch.inference_mode():
        model = TorchQwen3(pair.target, pair.target_tensors, _length(bed))
        model.position.fill_(bed.sizes.context)
        step = captured(bed, model.step)
        model.position.fill_(bed.sizes.context)

        def steps() -> None:
            model.position.fill_(bed.sizes.context)
            for _ in range(count):
                step()

        seconds = bed.seconds(steps, 3) / count
    note_step(bed.notes, "torch in a CUDA graph", seconds, bed)


def _by_us(bed: Bed, pair: Pair, *, taps: bool) -> None:
    from dspark.runtime.decode_one import decode_one
    from dspark.runtime.params import SamplingParams

    # A device of its own: on one whose graphs are in use no second engine finds memory.
    backend = device_backend(bed.another_device())
    engine = pair.engine(pair.target_on(backend, _length(bed), taps=taps), _length(bed))
    params = SamplingParams(max_tokens=bed.sizes.new_tokens, temperature=0.0, ignore_eos=True)
    random = np.random.default_rng(1)
    prompt = random.integers(0, pair.target.vocab_size, bed.sizes.context).tolist()
    # What is compiled, captured or grown at first use is not decoding.
    decode_one(engine, prompt, params)
    found = decode_one(engine, prompt, params)
    seconds, rounds = found.seconds - found.first_s, found.statistics.acceptance.rounds
    if not taps:
        note_step(bed.notes, "ours", seconds / (len(found.token_ids) - 1), bed)
        bed.notes.figure("the prompt, ours", found.first_s, "s")
        return
    bed.notes.figure("rounds with the draft", rounds, "rounds")
    if rounds:
        note_time(bed.notes, "a round with the draft of block 7", seconds / rounds, bed)


def note_step(notes: Notes, whose: str, seconds: float, bed: Bed) -> None:
    """Notes a step of the target alone."""
    notes.figure(f"without a draft, {whose}", 1 / seconds, "tokens/s")
    note_time(notes, f"a step, {whose}", seconds, bed, STEP_BYTES)


def note_time(notes: Notes, what: str, seconds: float, bed: Bed, moved: int = ROUND_BYTES) -> None:
    """Notes a time, and its floor's share of it where both are known."""
    notes.figure(what, seconds * 1e3, "ms")
    most = ceiling(notes)
    if bed.rehearsal:
        return
    if most is None:
        notes.fact(f"{what}, of the floor", "not known: the bandwidth was not measured")
        return
    notes.figure(f"{what}, of the floor", moved / (most * 1e9) / seconds, "")


def _length(bed: Bed) -> int:
    # torch's graph is warmed up with a few steps before the first that counts.
    return bed.sizes.context + bed.sizes.new_tokens + 32


def _qwen3_8b() -> tuple[TargetConfig, DraftConfig]:
    from benchmarks.gpu.pair import draft_config, published, target_config

    target = target_config(published("Qwen__Qwen3-8B"))
    draft = published("deepseek-ai__dspark_qwen3_8b_block7")
    return target, draft_config(draft, target.hidden_size)


def _tiny() -> tuple[TargetConfig, DraftConfig]:
    """The same with everything small, as the simulator needs it."""
    target, draft = _qwen3_8b()
    small = {
        "hidden_size": 64,
        "intermediate_size": 72,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "vocab_size": 96,
        "max_position_embeddings": 512,
    }
    layers = {"num_hidden_layers": 2, "layer_types": ("full_attention",) * 2}
    return (
        dataclasses.replace(target, **small, **layers),
        dataclasses.replace(
            draft,
            **small,
            **layers,
            draft_vocab_size=96,
            target_hidden_size=64,
            mask_token_id=95,
            target_layer_ids=(0, 1),
            block_size=3,
            markov_rank=8,
        ),
    )


SHAPES: Mapping[str, Callable[[], tuple[TargetConfig, DraftConfig]]] = {
    "Qwen3-8B": _qwen3_8b,
    "tiny": _tiny,
}
