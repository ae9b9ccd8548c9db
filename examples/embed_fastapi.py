"""The engine inside your own FastAPI app: your routes, and OpenAI's API under a prefix.

    python examples/embed_fastapi.py --port 8000
    curl -N localhost:8000/continue -d 'def main():'
    curl localhost:8000/ai/v1/models

Both share one engine, its batch and its cache.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

from dspark import Refused
from dspark.runtime import (
    AsyncEngine,
    InvalidRequest,
    SamplingParams,
    create_app,
    read_chat_template,
)
from dspark.runtime.load import open_engine

TINY = Path(__file__).parent / "tiny"


def build(target: Path, draft: Path | None) -> FastAPI:
    """The app. A refused pair raises `dspark.Refused` here, before a weight is read."""
    loaded = open_engine(target, draft, max_length=512)
    engine = AsyncEngine(loaded.engine)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # A mounted app is never told to start, so whoever mounts it runs the engine.
        async with engine:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/continue")
    async def go_on(request: Request) -> StreamingResponse:
        """Continues the text of the body, as it is decoded."""
        prompt = loaded.tokenizer.encode((await request.body()).decode()).ids
        events = engine.stream(prompt, SamplingParams(max_tokens=64, temperature=0.0))
        try:
            # The first event before the answer begins: until then it can still be an error.
            first = await anext(events)
        except InvalidRequest as mistake:
            raise HTTPException(400, str(mistake)) from None

        async def text() -> AsyncIterator[str]:
            # Closing the events cancels the request, also when the client hangs up.
            async with aclosing(events):
                yield first.text
                async for event in events:
                    yield event.text

        return StreamingResponse(text(), media_type="text/plain")

    service = create_app(
        engine,
        loaded.tokenizer,
        model="tiny",
        chat_template=read_chat_template(loaded.folder),
        decision=loaded.decision,
    )
    app.mount("/ai", service)
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path, default=TINY / "target")
    parser.add_argument("--draft", type=Path, default=TINY / "dspark")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    try:
        served = build(options.target, options.draft)
    except Refused as refusal:
        sys.exit(str(refusal))
    uvicorn.run(served, port=options.port)
