"""Clients of a `dspark serve`, well and badly behaved, and what they see."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx2

PROMPTS = ["def main():", "import os\n", "class Point:\n    ", "for line in lines:", "try:\n    x"]
MALFORMED: list[bytes] = [
    b"{",
    b"[]",
    b'{"model": "tiny", "prompt": "x", "n": 1, "n": 2}',
    b'{"model": "tiny", "prompt": [99999999]}',
    b'{"model": "tiny", "prompt": "x", "temperature": "hot"}',
    b'{"model": "tiny", "prompt": "x", "max_tokens": 100000}',
    b'{"model": "nobody", "prompt": "x"}',
    b'{"model": "tiny", "prompt": "\\ud800"}',
]
CUT, LEFT, TURNED_AWAY = "cut off", "left", "turned away at the end"


@dataclass(slots=True)
class Seen:
    """What the clients saw: answers by status, tokens, and seconds between pieces of a stream."""

    answers: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    most_under_way: float = 0.0


async def load(
    url: str, clients: int, seconds: float, *, leave: float = 0.0, malformed: float = 0.0
) -> Seen:
    """What `clients` see who ask one thing after the other, some of them badly behaved."""
    seen = Seen()
    until = time.perf_counter() + seconds
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=clients)
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=120) as http:
        watching = asyncio.create_task(_watch(http, seen))
        everyone = (
            _client(http, seen, Random(number), until, leave, malformed)
            for number in range(clients)
        )
        await asyncio.gather(*everyone)
        watching.cancel()
    return seen


async def _client(
    http: httpx2.AsyncClient,
    seen: Seen,
    random: Random,
    until: float,
    leave: float,
    malformed: float,
) -> None:
    while time.perf_counter() < until:
        chance = random.random()
        try:
            if chance < malformed:
                await _ask_badly(http, seen, random)
            else:
                await _ask(http, seen, random, leaves=chance < malformed + leave)
        except httpx2.TransportError:
            # Before an answer has begun, only the server's log knows whether it had the request.
            seen.answers[TURNED_AWAY] += 1
            return


async def _ask_badly(http: httpx2.AsyncClient, seen: Seen, random: Random) -> None:
    answer = await http.post(
        "/v1/completions",
        content=random.choice(MALFORMED),
        headers={"content-type": "application/json"},
    )
    seen.answers[str(answer.status_code)] += 1


async def _ask(http: httpx2.AsyncClient, seen: Seen, random: Random, *, leaves: bool) -> None:
    body: dict[str, Any] = {
        "model": "tiny",
        "prompt": random.choice(PROMPTS),
        "max_tokens": random.randrange(16, 65),
        "temperature": random.choice([0, 0.8]),
        "stream": True,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    started = last = time.perf_counter()
    begun, done, tokens = False, False, 0
    leaves_after = random.randrange(1, 16)
    async with http.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            await answer.aread()
            seen.answers[str(answer.status_code)] += 1
            if answer.status_code == 429:
                await asyncio.sleep(float(answer.headers["retry-after"]) * random.random())
            return
        async for line in _lines(answer, seen):
            if line == "data: [DONE]":
                done = True
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if "error" in chunk:
                seen.answers[chunk["error"]["code"]] += 1
                return
            now = time.perf_counter()
            came = len(chunk["choices"][0]["token_ids"])
            if came and begun:
                seen.between += [(now - last) / came] * came
            elif came:
                seen.first.append(now - started)
                begun = True
            last = now
            tokens += came
            seen.tokens += came
            if leaves and tokens >= leaves_after:
                seen.answers[LEFT] += 1
                return
    whole = done and tokens == body["max_tokens"]
    seen.answers["200" if whole else CUT] += 1


async def _lines(answer: httpx2.Response, seen: Seen) -> AsyncIterator[str]:
    try:
        async for line in answer.aiter_lines():
            yield line
    except httpx2.TransportError:
        seen.answers[CUT] += 1
        raise


async def _watch(http: httpx2.AsyncClient, seen: Seen) -> None:
    while True:
        try:
            metrics = await _metrics(http)
        except httpx2.TransportError:
            # The server is going; the clients tell how.
            return
        seen.most_under_way = max(seen.most_under_way, metrics["dspark_under_way"])
        await asyncio.sleep(0.5)


async def _metrics(http: httpx2.AsyncClient) -> dict[str, float]:
    text = (await http.get("/metrics")).text
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


async def settled(url: str) -> dict[str, float]:
    """The metrics once nothing is under way any more."""
    async with httpx2.AsyncClient(base_url=url, timeout=120) as http:
        metrics = await _metrics(http)
        while metrics["dspark_under_way"]:
            await asyncio.sleep(0.1)
            metrics = await _metrics(http)
        return metrics
