"""Log-probabilities in the two shapes of OpenAI's API, one entry a token."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from dspark.runtime.sampling import TokenLogprob
from dspark.runtime.serve.tokens import Tokens, shown


def chat_logprobs(notes: Sequence[TokenLogprob], tokens: Tokens) -> dict[str, Any]:
    """`logprobs` of a chat choice: each token with its bytes and the likeliest in its place."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        data = tokens.bytes_of(token)
        text = data.decode(errors="replace")
        return {"token": text, "logprob": logprob, "bytes": list(data)}

    return {
        "content": [
            entry(note.token_id, note.logprob)
            | {"top_logprobs": [entry(*alternative) for alternative in note.top]}
            for note in notes
        ],
        "refusal": None,
    }


class CompletionLogprobs:
    """`logprobs` of one completion choice, as its tokens come; offsets count from its text."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        # A token may end within a character, so offsets cannot be added up token by token.
        self._text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def add(self, notes: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The entries of the next tokens."""
        offsets = [self._place(self._tokens.bytes_of(note.token_id)) for note in notes]
        return {
            "tokens": [self._name(note.token_id) for note in notes],
            "token_logprobs": [note.logprob for note in notes],
            "top_logprobs": [
                {self._name(token): value for token, value in note.top} for note in notes
            ],
            "text_offset": offsets,
        }

    def _place(self, data: bytes) -> int:
        """Where the token's text begins; a piece of a character is where the character is."""
        before = self._offset
        self._offset += len(self._text.decode(data))
        try:
            return self._offset - len(data.decode())
        except UnicodeDecodeError:
            return before

    def _name(self, token: int) -> str:
        return shown(self._tokens.bytes_of(token))
