"""The engine in a plain asyncio program: many requests at a time, one of them cut short.

python examples/embed_asyncio.py 'def main():' 'import os' 'class Point:'
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

from dspark import Refused
from dspark.runtime import AsyncEngine, SamplingParams
from dspark.runtime.load import open_engine

TINY = Path(__file__).parent / "tiny"


async def main(target: Path, draft: Path | None, texts: list[str]) -> None:
    """Prints each text with its continuation, as they finish."""
    loaded = open_engine(target, draft, max_length=512)
    encode = loaded.tokenizer.encode

    async def go_on(engine: AsyncEngine, text: str) -> str:
        params = SamplingParams(max_tokens=16, temperature=0.0)
        return "".join([event.text async for event in engine.stream(encode(text).ids, params)])

    async with AsyncEngine(loaded.engine) as engine:
        tasks = {asyncio.create_task(go_on(engine, text)): text for text in texts}
        for task in asyncio.as_completed(tasks):
            print(repr(await task))

        endless = engine.stream(encode(texts[0]).ids, SamplingParams(max_tokens=400))
        # Leaving the block cancels the request and frees its pages at once.
        async with aclosing(endless):
            async for event in endless:
                print(f"the first tokens of another: {event.token_ids}")
                break
    counts = loaded.engine.statistics.acceptance
    print(f"{counts.rounds} rounds, {counts.tokens_per_round:.2f} tokens a round")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument("--target", type=Path, default=TINY / "target")
    parser.add_argument("--draft", type=Path, default=TINY / "dspark")
    options = parser.parse_args()
    try:
        asyncio.run(main(options.target, options.draft, options.texts))
    except Refused as refusal:
        sys.exit(str(refusal))
