"""Text to token ids and back, and what a single token looks like."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Tokens:
    """The target's tokenizer as the service needs it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._byte_level = _is_byte_level(tokenizer)
        self._added = {
            token: added.content for token, added in tokenizer.get_added_tokens_decoder().items()
        }

    def encode(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        """The ids of each text; `special` adds what the tokenizer puts around every text."""
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=special)
        return [list(one.ids) for one in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token stands for, which need not be whole characters.

        Empty for an id that pads the vocabulary and stands for nothing.
        """
        added = self._added.get(token)
        if added is not None:
            return added.encode()
        name = self._tokenizer.id_to_token(token)
        if name is None:
            return b""
        letters = _byte_alphabet()
        if self._byte_level and all(character in letters for character in name):
            return bytes(letters[character] for character in name)
        return self.decode([token]).encode()


def shown(data: bytes) -> str:
    r"""A token's text; what is no whole character is written as `bytes:\xe2\x82`.

    That is how OpenAI's completions write it, so that no two such tokens look alike.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    if tokenizer.decoder is None:
        return False
    state = json.loads(tokenizer.decoder.__getstate__())
    steps = state.get("decoders", [state])
    return any(step["type"] == "ByteLevel" for step in steps)


@cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letters for bytes: printable Latin-1 stands for itself, the rest follows from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}
