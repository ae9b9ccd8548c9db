"""Work for a client that may hang up: when it does, the work ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

from dspark.runtime.serve.errors import client_gone

T = TypeVar("T")


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """What `work` returns; `receive` is the request's, whose body has been read.

    Raises:
        ApiError: 499, the client hung up first; `work` has been cancelled and has ended.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise client_gone()
        return working.result()
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.wait({working, gone})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
