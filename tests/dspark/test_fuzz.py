"""Damaged configs by the thousand: always a decision, never an exception, never a hang."""

from __future__ import annotations

import copy
import io
import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dspark
from dspark.routing import decide_source

CORPUS = sorted((Path(__file__).parent.parent / "corpus").glob("*/config.json"))
SEEDS = [path.read_bytes() for path in CORPUS]
VALUES: list[Any] = [
    None, True, False, 0, -1, 7, 2**63, 10**400, 1.5, 1e308, "", "qwen3", "Qwen3DSparkModel",
    "\x00", "é" * 5, "\ud7ff", [], [None], ["Qwen3DSparkModel"], ["A", "B"], {},
    {"model_type": "qwen3"},
    [[[]]], {"a": {"b": {}}}, "x" * 5000,
]  # fmt: skip
KEYS = [
    "architectures", "architecture", "model_type", "markov_rank", "block_size", "dflash_config",
    "dspark_config", "projector_type", "speculators_model_type", "speculators_config",
    "transformer_layer_config", "dspark_block_size", "dspark_markov_rank", "selector_rank", "x", "",
]  # fmt: skip
SECONDS_PER_CASE = 5


@contextmanager
def no_hang(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError("a config took too long to decide")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def damage_bytes(data: bytes, chance: random.Random) -> bytes:
    """One to five edits of the bytes: flips, cuts, repeats, insertions, foreign parts."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(6)
        if kind == 0 and out:
            out[at % len(out)] = chance.randrange(256)
        elif kind == 1:
            del out[at : at + chance.randint(1, 40)]
        elif kind == 2:
            out[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
        elif kind == 3:
            out[at:at] = out[max(0, at - 60) : at]
        elif kind == 4:
            out[at:at] = chance.choice([b"NaN", b"9" * 5000, b"[" * 200, b"\xef\xbb\xbf", b"\x00"])
        else:
            out = out[:at]
    return bytes(out)


def damage_structure(data: bytes, chance: random.Random) -> bytes:
    """One to four keys set, moved or removed at a random depth, written as JSON again."""
    config = json.loads(data)
    for _ in range(chance.randint(1, 4)):
        place = config
        inner = [value for value in place.values() if isinstance(value, dict)]
        if inner and chance.random() < 0.4:
            place = chance.choice(inner)
        key = chance.choice(KEYS + list(place))
        if chance.random() < 0.25:
            place.pop(key, None)
        else:
            place[key] = copy.deepcopy(chance.choice(VALUES))
    return json.dumps(config).encode()


def run_cases(count: int, seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    table = dspark.compile_table()
    seen: dict[str, int] = {}
    for number in range(count):
        damage = damage_bytes if number % 2 else damage_structure
        data = damage(chance.choice(SEEDS), chance)
        with no_hang(SECONDS_PER_CASE):
            decision = decide_source(table, "-", stdin=io.BytesIO(data))
            json.dumps(decision.to_json())
            decision.summary().encode("utf-8")
        assert (decision.lane is None) != (decision.refusal is None), data
        seen[decision.name] = seen.get(decision.name, 0) + 1
    return seen


def test_damaged_configs_get_a_decision() -> None:
    seen = run_cases(3_000, seed=20_26)

    # The damage must reach both halves, or this proves little: parsing and routing.
    assert {"config-invalid-json", "config-not-utf8", "number-out-of-range"} <= seen.keys()
    assert {"qwen3-dspark-native", "unknown-architecture", "architectures-bad-type"} <= seen.keys()


@pytest.mark.slow
def test_a_hundred_thousand_damaged_configs_get_a_decision() -> None:
    seen = run_cases(100_000, seed=11)

    assert 100_000 == sum(seen.values())
    assert 30 < len(seen), seen
