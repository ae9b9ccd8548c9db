"""Text comes in whole characters, and no part of a stop string is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.runtime.text import TextStream


def from_bytes(ids: list[int]) -> str:
    return bytes(ids).decode(errors="replace")


def streamed(data: bytes, stops: tuple[str, ...] = ()) -> tuple[list[str], TextStream]:
    stream = TextStream(from_bytes, stops)
    pieces = []
    for token in data:
        pieces.append(stream.push(token))
        if stream.stopped:
            break
    return [*pieces, stream.finish()], stream


@given(st.text(max_size=30))
def test_pieces_make_up_the_text(text: str) -> None:
    pieces, _ = streamed(text.encode(errors="ignore"))
    assert text.encode(errors="ignore").decode() == "".join(pieces)


def test_a_character_comes_when_it_is_whole() -> None:
    pieces, _ = streamed("aé€".encode())
    assert ["a", "", "é", "", "", "€", ""] == pieces


def test_bytes_that_never_become_a_character_come_at_the_end() -> None:
    pieces, _ = streamed("a€".encode()[:-1])
    assert ["a", "", "", "\ufffd"] == pieces


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_j2_text_ends_before_the_first_stop_string(text: str, stops: list[str]) -> None:
    pieces, stream = streamed(text.encode(), tuple(stops))
    first = min((text.find(stop) for stop in stops if stop in text), default=-1)
    # The first to be complete, not to begin, is what a stream can see first.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    assert stream.stopped == (first >= 0)
    if first < 0:
        assert text == "".join(pieces)
    else:
        seen = text[: min(ends)]
        begin = min(seen.find(stop) for stop in stops if stop in seen)
        assert text[:begin] == "".join(pieces)


def test_a_beginning_of_a_stop_string_is_held_back_and_released() -> None:
    pieces, stream = streamed(b"x<en<end", ("<end>",))
    assert ["x", "", "", "", "<en", "", "", "", "<end"] == pieces
    assert not stream.stopped


@pytest.mark.parametrize("cut", range(1, 5))
def test_j2_a_stop_string_is_seen_wherever_its_tokens_are_split(cut: int) -> None:
    words = ["Hi ", "STOP!"[:cut], "STOP!"[cut:], "rest"]
    stream = TextStream(lambda ids: "".join(words[i] for i in ids), ("STOP!",))
    assert "Hi " == stream.push(0)
    assert "" == stream.push(1)
    assert "" == stream.push(2)
    assert stream.stopped
    assert "" == stream.finish()


def test_j2_a_stop_string_in_front_of_a_broken_character_is_seen_at_once() -> None:
    # Otherwise the token after it would be put out, since only that makes the character whole.
    tokens = [b"one <st", b"op>\xe2\x82", b"\xac two", b"\xe2"]

    def decode(ids: list[int]) -> str:
        return b"".join(tokens[i] for i in ids).decode(errors="replace")

    stream = TextStream(decode, ("<stop>",))
    assert ["one ", ""] == [stream.push(0), stream.push(1)]
    assert stream.stopped
    others = TextStream(decode, ())
    assert ["one <st", "op>", "\u20ac two", ""] == [others.push(i) for i in range(4)]
    assert "\ufffd" == others.finish()


def test_a_tokens_text_may_depend_on_the_one_before_it() -> None:
    # As with tokenizers that drop the space at the beginning of what they decode.
    words = [" one", " two", " three"]
    stream = TextStream(lambda ids: "".join(words[i] for i in ids).lstrip())
    assert ["one", " two", " three"] == [stream.push(i) for i in range(3)]
