from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dspark.runtime.sampling import TokenLogprob
from dspark.runtime.serve.logprobs import CompletionLogprobs, chat_logprobs
from dspark.runtime.serve.tokens import Tokens, shown
from tests.runtime.serve.parts import EOS, EOS_ID, TOKENIZER, VOCABULARY

TOKENS = Tokens(TOKENIZER)


@given(st.text())
def test_the_bytes_of_a_texts_tokens_are_the_texts(text: str) -> None:
    (ids,) = TOKENS.encode([text], special=True)

    assert text.encode() == b"".join(TOKENS.bytes_of(token) for token in ids)
    assert text == TOKENS.decode(ids)


def test_special_and_padding_tokens_have_their_bytes_too() -> None:
    assert EOS.encode() == TOKENS.bytes_of(EOS_ID)
    assert b"" == TOKENS.bytes_of(VOCABULARY - 1)
    assert EOS == TOKENS.decode([EOS_ID])


def test_a_tokenizer_of_words_is_read_by_its_decoder() -> None:
    words = Tokenizer(models.WordLevel({"▁caf": 0, "é": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    words.decoder = decoders.Metaspace()

    assert ["caf", "é"] == [Tokens(words).bytes_of(token).decode() for token in (0, 1)]


def test_a_piece_of_a_character_is_written_as_bytes() -> None:
    assert ["a", "é", "bytes:\\xc3", "bytes:\\xe2\\x82"] == [
        shown(data) for data in (b"a", b"\xc3\xa9", b"\xc3", b"\xe2\x82")
    ]


def notes(data: bytes) -> list[TokenLogprob]:
    by_byte = {TOKENS.bytes_of(token): token for token in range(256)}
    return [TokenLogprob(by_byte[bytes([byte])], -0.5, ()) for byte in data]


def test_a_chats_tokens_come_with_their_bytes() -> None:
    entries = chat_logprobs(notes("é".encode()), TOKENS)["content"]

    assert [[0xC3], [0xA9]] == [entry["bytes"] for entry in entries]
    assert ["\ufffd", "\ufffd"] == [entry["token"] for entry in entries]


@given(st.lists(st.binary(max_size=6) | st.text(max_size=4).map(str.encode), max_size=5))
def test_offsets_lead_to_the_tokens_whatever_the_pieces(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    text = data.decode(errors="replace")
    logprobs = CompletionLogprobs(TOKENS)
    parts = [logprobs.add(notes(piece)) for piece in pieces]
    tokens = [token for part in parts for token in part["tokens"]]
    offsets = [at for part in parts for at in part["text_offset"]]

    assert len(data) == len(tokens)
    assert offsets == sorted(offsets)
    for token, at in zip(tokens, offsets, strict=True):
        if not token.startswith("bytes:"):
            assert token == text[at]
