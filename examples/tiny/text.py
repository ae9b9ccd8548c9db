"""The tokenizer, and the training text as ids."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

END_OF_TEXT = "<|endoftext|>"
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
"""Marks no roles: the target has seen modules and no conversation."""
BPE_ENTRIES = 1499  # and the end-of-text token: 1500 entries under the 1536 rows of the embedding


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


def beginnings(tokenizer: Tokenizer, texts: list[str], length: int) -> list[list[int]]:
    """The first `length` ids of every text that is longer, and that they alone stand for.

    A text cut in the middle of a word may be read back as other ids; those are left out.
    """
    ids = [one.ids[:length] for one in tokenizer.encode_batch(texts) if len(one.ids) > length]
    again = tokenizer.encode_batch(tokenizer.decode_batch(ids))
    return [one for one, read in zip(ids, again, strict=True) if read.ids == one]


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
