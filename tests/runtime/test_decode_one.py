"""One prompt alone on an engine, and what is said of it."""

from __future__ import annotations

import pytest

from dspark.runtime.decode_one import decode_one
from dspark.runtime.params import SamplingParams
from tests.runtime.tiny import make_engine

PARAMS = SamplingParams(max_tokens=9, temperature=0.0)
PROMPT = [5, 17, 3]


def words(ids: list[int]) -> str:
    return " ".join(map(str, ids))


@pytest.mark.parametrize("drafts", [None, 0, 2])
def test_it_is_what_the_engine_generates(drafts: int | None) -> None:
    engine = make_engine(decode=words)
    expected = engine.generate([PROMPT], PARAMS, drafts=drafts)[0]
    pieces: list[str] = []

    found = decode_one(engine, PROMPT, PARAMS, drafts=drafts, show=pieces.append)

    assert (expected.text, expected.token_ids, expected.finish_reason) == (
        found.text,
        found.token_ids,
        found.finish_reason,
    )
    assert expected.statistics.acceptance == found.statistics.acceptance
    assert found.text == "".join(pieces)
    assert 0 < found.first_s <= found.seconds
    assert 9 == len(found.token_ids) == found.statistics.completion_tokens


def test_a_reader_that_goes_away_leaves_no_request_behind() -> None:
    engine = make_engine(decode=words)

    def gone(_: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        decode_one(engine, PROMPT, PARAMS, show=gone)

    assert not engine.busy
    assert 0 == engine.pages_held
