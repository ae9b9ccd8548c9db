"""Step 7: the trained pair end to end on the device, and its text beside the CPU backend's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.gpu.bed import Bed, need
from benchmarks.gpu.notes import Notes, Skipped
from dspark import DsparkError

if TYPE_CHECKING:
    from dspark.kernels.launch import Device
    from dspark.runtime.backends.base import Backend
    from dspark.runtime.decode_one import Decoded
    from dspark.runtime.engine import Engine
    from dspark.runtime.models.qwen3 import Qwen3Target

LIMIT = 2.0**-4
"""How far a token's logit may lie below the likeliest one's by the CPU in float32: see
docs/lossless.md."""

LENGTH = 512
Prompts = Sequence[Sequence[int]]


def run(bed: Bed) -> None:
    """Notes how many texts are the CPU's own, and how far the others are from it."""
    need("torch")
    from benchmarks.gpu.pair import random_pair, trained_pair
    from benchmarks.gpu.qwen3_8b import SHAPES
    from dspark.runtime.backends.torch_cpu import TorchCpuBackend
    from dspark.runtime.statistics import Acceptance

    backend = device_backend(bed.device)
    if bed.rehearsal:
        pair = random_pair(*SHAPES[bed.sizes.shape](), "cpu")
        drawn = np.random.default_rng(0).integers(0, pair.target.vocab_size, bed.sizes.context)
        prompts: Prompts = [drawn.tolist()] * bed.sizes.prompts
    else:
        pair = trained_pair()
        prompts = _prompts(bed, pair.target.vocab_size)
    judging = pair.target_on(TorchCpuBackend("float32"), LENGTH, taps=False)
    device = pair.engine(pair.target_on(backend, LENGTH, taps=True), LENGTH)
    beside = pair.target_on(TorchCpuBackend("bfloat16"), LENGTH, taps=False)
    reference = pair.engine(beside, LENGTH)
    count = bed.sizes.new_tokens
    expected = [decoded(reference, prompt, count).token_ids for prompt in prompts]
    acceptance = Acceptance()
    for name, drafts in (("without a draft", 0), ("with the draft", None)):
        compared = Compared()
        for prompt, wanted in zip(prompts, expected, strict=True):
            found = decoded(device, prompt, count, drafts)
            compared.add(judging, prompt, found.token_ids, wanted)
            if drafts is None:
                acceptance.add(found.statistics.acceptance)
        note(bed.notes, name, compared)
    bed.notes.figure("tokens a round, with the draft", acceptance.tokens_per_round, "tokens")
    _open_engine(bed, prompts[0], expected[0])


@dataclass(slots=True)
class Compared:
    """Texts of a device beside those of the CPU in the same format.

    `gaps` are those of tokens that the CPU in float32, asked behind the same text, would not have
    taken; `first` says where texts parted, and by what gap.
    """

    texts: int = 0
    same: int = 0
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    first: list[tuple[int, float]] = field(default_factory=list)

    def add(
        self,
        judging: Qwen3Target,
        prompt: Sequence[int],
        found: Sequence[int],
        expected: Sequence[int],
    ) -> None:
        """Adds the text `found`, where the CPU put out `expected`; every token of it is judged."""
        from dspark.runtime.teacher import judge

        self.texts += 1
        self.tokens += len(found)
        judged = list(judge(judging, prompt, found))
        self.gaps += [each.gap for each in judged if each.diverges]
        if list(found) == list(expected):
            self.same += 1
            return
        pairs = enumerate(zip(found, expected, strict=False))
        shorter = min(len(found), len(expected))
        place = next((at for at, (one, other) in pairs if one != other), shorter)
        self.first.append((place, judged[place].gap if place < len(judged) else 0.0))


def note(notes: Notes, name: str, compared: Compared) -> None:
    """Notes a comparison; a gap beyond `LIMIT` is a failure."""
    notes.figure(f"{name}, texts", compared.texts, "texts")
    notes.figure(f"{name}, texts as the CPU's", compared.same, "texts")
    notes.figure(f"{name}, tokens", compared.tokens, "tokens")
    notes.figure(f"{name}, tokens not the likeliest in float32", len(compared.gaps), "tokens")
    notes.figure(f"{name}, largest gap of these", max(compared.gaps, default=0.0), "logits")
    for place, gap in compared.first:
        notes.figure(f"{name}, texts part at token {place}, by", gap, "logits")
    if max(compared.gaps, default=0.0) > LIMIT:
        notes.trouble(f"{name}: a gap of {max(compared.gaps):.3f} is beyond {LIMIT}")


def device_backend(device: Device) -> Backend:
    """The backend over a device's kernels.

    Raises:
        Skipped: it has not been written.
    """
    if find_spec("dspark.runtime.backends.cuda") is None:
        raise Skipped("this checkout has no `dspark.runtime.backends.cuda`")
    from dspark.runtime.backends.cuda import CudaBackend

    return CudaBackend(device)


def decoded(engine: Engine, prompt: Sequence[int], count: int, drafts: int | None = 0) -> Decoded:
    """`count` tokens behind `prompt`, always the likeliest."""
    from dspark.runtime.decode_one import decode_one
    from dspark.runtime.params import SamplingParams

    params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
    return decode_one(engine, prompt, params, drafts=drafts)


def _prompts(bed: Bed, vocab_size: int) -> Prompts:
    from benchmarks.gpu.pair import TINY

    if find_spec("tokenizers") is None:
        bed.notes.fact("prompts", "drawn, since the package `tokenizers` is not installed")
        drawn = np.random.default_rng(0).integers(0, vocab_size, (bed.sizes.prompts, 64))
        prompts: Prompts = drawn.tolist()
        return prompts
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(TINY / "target" / "tokenizer.json"))
    lines = (TINY / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["prompt"] for line in lines[: bed.sizes.prompts]]
    return [tokenizer.encode(text).ids for text in texts]


def _open_engine(bed: Bed, prompt: Sequence[int], expected: Sequence[int]) -> None:
    """The same through the loader, as users do it, where its packages are installed."""
    from benchmarks.gpu.pair import TINY

    if bed.rehearsal:
        return
    try:
        from dspark.runtime import open_engine

        loaded = open_engine(TINY / "target", TINY / "dspark", device="cuda", max_length=LENGTH)
    except ModuleNotFoundError as error:
        bed.notes.fact("open_engine", f"not tried: the package `{error.name}` is not installed")
        return
    except DsparkError as refused:
        bed.notes.trouble(f"open_engine: {refused}")
        return
    found = decoded(loaded.engine, prompt, len(expected), None).token_ids
    same = sum(one == other for one, other in zip(found, expected, strict=True))
    bed.notes.figure("open_engine, tokens as the CPU's", same, "tokens")
