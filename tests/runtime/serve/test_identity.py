"""Text through HTTP is the engine's, token for token, whoever else is served at the time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from dspark.runtime.load import open_engine
from dspark.runtime.params import SamplingParams
from dspark.runtime.serve.tokens import Tokens
from tests.runtime.serve.parts import (
    MODEL,
    TOKENIZER,
    WAIT,
    Served,
    byte_engine,
    running,
    served,
    texts,
)

TINY = Path(__file__).parents[3] / "examples" / "tiny"


def through_http(http: httpx2.Client, prompt: Any, stream: bool, **options: Any) -> list[int]:
    body = {"prompt": prompt, "stream": stream, "return_token_ids": True} | options
    answer = http.post("/v1/completions", json=body)
    assert 200 == answer.status_code, answer.text
    if not stream:
        ids: list[int] = answer.json()["choices"][0]["token_ids"]
        return ids
    events = answer.text.strip().split("\n\n")
    assert "data: [DONE]" == events[-1]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    return [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]]


def all_through_http(http: httpx2.Client, prompts: list[list[int]], **options: Any) -> Any:
    def one(place: int) -> list[int]:
        return through_http(http, prompts[place], place % 2 == 0, **options)

    with ThreadPoolExecutor(16) as clients:
        return list(clients.map(one, range(len(prompts))))


def test_tokens_are_the_engines_and_the_targets() -> None:
    prompts = [list(text.encode()) for text in texts(16)]
    params = SamplingParams(max_tokens=12, temperature=0.0)
    alone = [list(c.token_ids) for c in byte_engine(False).generate(prompts, params)]
    drafted = [list(c.token_ids) for c in byte_engine().generate(prompts, params)]

    with served(byte_engine()) as up:
        found = all_through_http(up.http, prompts, model=MODEL, max_tokens=12, temperature=0)

    assert alone == drafted == found


def test_sampled_tokens_are_the_engines_too(server: Served) -> None:
    prompts = [list(text.encode()) for text in texts(8, seed=6)]
    params = SamplingParams(max_tokens=12, temperature=0.9, top_p=0.95, seed=4)
    expected = [list(c.token_ids) for c in byte_engine().generate(prompts, params)]

    found = all_through_http(
        server.http, prompts, model=MODEL, max_tokens=12, temperature=0.9, top_p=0.95, seed=4
    )

    assert expected == found


def test_no_chunk_holds_a_part_of_a_character(client: OpenAI) -> None:
    letter = "ä"
    by_byte = {Tokens(TOKENIZER).bytes_of(token)[0]: token for token in range(256)}
    pieces, ids = [], []
    for chunk in client.completions.create(
        model=MODEL,
        prompt="the",
        max_tokens=60,
        temperature=2,
        seed=1,
        stream=True,
        # So strong that nothing but the bytes of the letter is written, in any order.
        logit_bias={str(by_byte[byte]): 60 for byte in letter.encode()},
        extra_body={"return_token_ids": True},
    ):
        (choice,) = chunk.choices
        pieces.append(choice.text)
        ids += choice.token_ids  # type: ignore[attr-defined]

    assert TOKENIZER.decode(ids) == "".join(pieces)
    assert "".join(pieces).count(letter) > 3


@pytest.mark.slow
def test_a_hundred_prompts_of_sixteen_clients_on_the_trained_pair() -> None:
    from dspark.runtime import create_app

    lines = (TINY / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    pair = open_engine(TINY / "target", TINY / "dspark", max_length=512)
    encoded = pair.tokenizer.encode_batch([json.loads(line)["prompt"] for line in lines])
    prompts = [one.ids[:24] for one in encoded]
    prompts = (prompts + [ids[4:] for ids in prompts if len(ids) > 8])[:100]
    assert 100 == len(prompts)
    params = SamplingParams(max_tokens=24, temperature=0.0)
    target = open_engine(TINY / "target", None, max_length=512)
    alone = [list(c.token_ids) for c in target.engine.generate(prompts, params)]
    direct = pair.engine.generate(prompts, params)
    assert alone == [list(c.token_ids) for c in direct]
    counts = pair.engine.statistics.acceptance
    expected = (counts.rounds, counts.round_tokens, list(counts.verified), list(counts.accepted))
    assert counts.tokens_per_round > 1.2

    again = open_engine(TINY / "target", TINY / "dspark", max_length=512)
    app = create_app(again.engine, again.tokenizer, model="tiny", decision=again.decision)
    with running(app) as url, httpx2.Client(base_url=url, timeout=WAIT * 5) as http:
        found = all_through_http(http, prompts, model="tiny", max_tokens=24, temperature=0)
        up = Served(url, again.engine, app, http)
        metrics = (
            up.metric("dspark_rounds_total"),
            up.metric("dspark_round_tokens_total"),
            [up.metric("dspark_drafts_verified_total", position=str(p)) for p in range(1, 8)],
            [up.metric("dspark_drafts_accepted_total", position=str(p)) for p in range(1, 8)],
        )

    assert alone == found
    assert expected == metrics
