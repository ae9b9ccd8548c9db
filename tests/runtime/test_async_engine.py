"""Many tasks, one engine."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest
import torch

from dspark.runtime.async_engine import AsyncEngine
from dspark.runtime.engine import Engine
from dspark.runtime.errors import InvalidRequest, NonFiniteLogits
from dspark.runtime.params import SamplingParams
from dspark.runtime.request import TokenEvent
from tests.runtime.tiny import (
    engine_config,
    make_engine,
    random_prompts,
    target_model,
    target_tensors,
)

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)
PROMPTS = random_prompts(5)


async def collected(service: AsyncEngine, prompt: list[int], params: SamplingParams) -> list[int]:
    return [token async for event in service.stream(prompt, params) for token in event.token_ids]


def test_tasks_get_what_the_engine_would_give() -> None:
    expected = [list(c.token_ids) for c in make_engine(False).generate(PROMPTS, GREEDY)]

    async def main() -> list[list[int]]:
        async with AsyncEngine(make_engine()) as service:
            first = await asyncio.gather(*(collected(service, p, GREEDY) for p in PROMPTS))
            again = await collected(service, PROMPTS[0], GREEDY)
            assert first[0] == again
            return list(first)

    assert expected == asyncio.run(main())


def test_leaving_a_stream_cancels_its_request_only() -> None:
    engine = make_engine()

    async def main() -> list[int]:
        async with AsyncEngine(engine) as service:
            other = asyncio.create_task(collected(service, PROMPTS[1], GREEDY))
            stream = service.stream(PROMPTS[0], dataclasses.replace(GREEDY, max_tokens=200))
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined]
            return await other

    tokens = asyncio.run(main())
    assert 12 == len(tokens)
    assert 0 == engine.pages_held
    assert not engine.busy


def test_a_cancelled_task_cancels_its_request() -> None:
    engine = make_engine()

    async def main() -> None:
        async with AsyncEngine(engine) as service:
            endless = dataclasses.replace(GREEDY, max_tokens=200)
            task = asyncio.create_task(collected(service, PROMPTS[0], endless))
            while not engine.busy:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert 0 == engine.pages_held

    asyncio.run(main())


def test_a_task_cancelled_while_it_submits_leaves_nothing_behind() -> None:
    engine = make_engine()

    async def main() -> None:
        async with AsyncEngine(engine) as service:
            task = asyncio.create_task(collected(service, PROMPTS[0], GREEDY))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not service._queues

    asyncio.run(main())
    assert not engine.busy
    assert 1 == engine.statistics.requests


def test_a_refusal_reaches_its_caller_and_nobody_else() -> None:
    async def main() -> None:
        async with AsyncEngine(make_engine()) as service:
            with pytest.raises(InvalidRequest, match="the prompt has no tokens"):
                await collected(service, [], GREEDY)
            assert 12 == len(await collected(service, PROMPTS[0], GREEDY))

    asyncio.run(main())


def test_an_error_of_the_target_reaches_everyone() -> None:
    tensors = target_tensors()
    tensors["model.norm.weight"].fill_(torch.nan)
    engine = Engine(target_model(tensors=tensors), None, engine_config())

    async def main() -> list[object]:
        async with AsyncEngine(engine) as service:
            tasks = (collected(service, prompt, GREEDY) for prompt in PROMPTS)
            return list(await asyncio.gather(*tasks, return_exceptions=True))

    results = asyncio.run(main())
    assert all(isinstance(result, NonFiniteLogits) for result in results)
    assert 0 == engine.pages_held


def test_leaving_the_context_ends_the_open_streams() -> None:
    engine = make_engine()
    endless = dataclasses.replace(GREEDY, max_tokens=200)

    async def last_event(service: AsyncEngine, begun: asyncio.Event) -> object:
        reason: object = None
        async for event in service.stream(PROMPTS[0], endless):
            begun.set()
            reason = event.finish_reason
        return reason

    async def main() -> None:
        begun = asyncio.Event()
        async with AsyncEngine(engine) as service:
            readers = [asyncio.create_task(last_event(service, begun)) for _ in range(3)]
            await begun.wait()
        assert ["cancelled"] * 3 == await asyncio.wait_for(asyncio.gather(*readers), 10)
        with pytest.raises(InvalidRequest, match="the engine is shutting down"):
            await collected(service, PROMPTS[0], GREEDY)
        assert not service._queues

    asyncio.run(main())
    assert not engine.busy
    assert 0 == engine.pages_held


def test_a_task_that_is_cancelled_again_and_again_leaves_nothing_behind() -> None:
    engine = make_engine()
    step = engine.step
    passing, go_on = threading.Event(), threading.Event()

    def step_slowly() -> list[TokenEvent]:
        passing.set()
        # INVARIANT: the test sets it, or has failed already.
        assert go_on.wait(30)
        return step()

    async def main() -> None:
        async with AsyncEngine(engine) as service:
            endless = dataclasses.replace(GREEDY, max_tokens=200)
            task = asyncio.create_task(collected(service, PROMPTS[0], endless))
            await asyncio.to_thread(passing.wait, 30)
            # As the scopes of anyio do it, on which web frameworks build.
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            assert engine.busy
            go_on.set()
            # Another request gets its turn behind the pass, and behind what was left to do.
            assert 12 == len(await collected(service, PROMPTS[1], GREEDY))
            assert not engine.busy
            assert 0 == engine.pages_held

    engine.step = step_slowly  # type: ignore[method-assign]
    asyncio.run(main())
