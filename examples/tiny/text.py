"""The text that the pair learns, and the tokenizer: the running interpreter's standard library."""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

END_OF_TEXT = "<|endoftext|>"
BPE_ENTRIES = 1499  # and the end-of-text token: 1500 entries under the 1536 rows of the embedding

# Tables and fixtures rather than programs, and packages that are not the standard library's own.
LEFT_OUT = {
    "encodings",
    "ensurepip",
    "idle_test",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "turtledemo",
}
HELD_OUT_ONE_IN = 16


def library_files() -> tuple[list[str], list[str]]:
    """The sources to train on and those held out, each file one string, in path order.

    A file's side depends on its path alone, so it is the same for every interpreter that has it.
    """
    root = Path(sysconfig.get_path("stdlib"))
    train, held_out = [], []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if LEFT_OUT & set(inside.parts):
            continue
        source = path.read_bytes()
        if len(source) < 200:
            continue
        digest = hashlib.sha256(inside.as_posix().encode()).digest()
        side = held_out if digest[0] % HELD_OUT_ONE_IN == 0 else train
        side.append(source.decode("utf-8", errors="replace"))
    return train, held_out


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE of `BPE_ENTRIES` entries, end-of-text last, as in the Qwen tokenizers."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=BPE_ENTRIES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    """All texts as one stream of ids, each one followed by the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    return torch.cat([torch.tensor([*one.ids, end]) for one in tokenizer.encode_batch(texts)])


def prompts_from(tokenizer: Tokenizer, texts: list[str], count: int, length: int) -> list[str]:
    """`count` prompts of `length` tokens, each from the start of a line somewhere in the texts.

    Only prompts that the tokenizer reads back as the same tokens, so that text stands for them.
    """
    generator = torch.Generator().manual_seed(4)
    prompts: list[str] = []
    while len(prompts) < count:
        text = texts[int(torch.randint(len(texts), (1,), generator=generator))]
        lines = text.splitlines(keepends=True)
        start = int(torch.randint(len(lines), (1,), generator=generator))
        ids = tokenizer.encode("".join(lines[start : start + 100])).ids[:length]
        prompt = tokenizer.decode(ids)
        if len(ids) == length and tokenizer.encode(prompt).ids == ids:
            prompts.append(prompt)
    return prompts


def windows(stream: Tensor, step: int, batch: int, length: int, seed: int) -> Tensor:
    """The `step`-th batch [batch, length + 1] of an endless, seeded, shuffled walk over the stream.

    Neighbouring pieces share one token: what ends one as a label starts the next as an input.
    Every epoch cuts the stream at another offset and visits the pieces in another order.
    """
    pieces = (len(stream) - 1) // length - 1
    epoch, place = divmod(step * batch, pieces)
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    offset = int(torch.randint(length, (1,), generator=generator))
    order = torch.randperm(pieces, generator=generator)
    starts = order[(torch.arange(batch) + place) % pieces] * length + offset
    return stream[starts[:, None] + torch.arange(length + 1)]
