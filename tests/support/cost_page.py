"""The tables of docs/performance.md: what a round of the published pairs moves, by its formula."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dspark
from dspark.cost import Cost, cost
from tests.support.pairs import CORPUS, checkpoint, corpus, dspark_shapes

SIZES = ("4B", "8B", "14B")
CONTEXTS = (128, 2048, 32768)
BANDWIDTH = 1000.0
"""GB/s that the floors are shown at, since nobody's card is meant."""

PARTS = {
    "step": "the target alone, one token",
    "verify": "verify",
    "extend": "draft context",
    "block": "draft block",
    "walk": "draft steps",
    "round": "a round",
}
_GENERATED = re.compile(r"(?<=<!-- generated -->\n).*?(?=<!-- end -->)", re.S)


def filled(page: str) -> str:
    """`page` with its generated part as it should be."""
    return _GENERATED.sub("\n" + "\n".join(_tables()) + "\n\n", page)


def _tables() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        plans = {size: _plan(Path(folder), size) for size in SIZES}
    costs = {size: cost(plan, 2048) for size, plan in plans.items()}
    yield "### Bytes and launches, 2048 positions, one request"
    yield ""
    yield "| GB (10^9 bytes) | " + " | ".join(f"{size} | launches" for size in SIZES) + " |"
    yield "|---|" + "---:|---:|" * len(SIZES)
    for name, title in PARTS.items():
        cells = [getattr(costs[size], name) for size in SIZES]
        shown = " | ".join(f"{each.total / 1e9:.3f} | {each.launches}" for each in cells)
        yield f"| {title} | {shown} |"
    yield ""
    yield f"### The floor at {BANDWIDTH:.0f} GB/s"
    yield ""
    yield "| pair | positions | step, ms | round, ms | tokens a round to break even |"
    yield "|---|---:|---:|---:|---:|"
    for size, plan in plans.items():
        for context in CONTEXTS:
            yield _floor(size, cost(plan, context))


def _floor(size: str, found: Cost) -> str:
    step = found.floor_ms(found.step, BANDWIDTH)
    whole = found.floor_ms(found.round, BANDWIDTH)
    return f"| {size} | {found.context} | {step:.2f} | {whole:.2f} | {found.break_even:.2f} |"


def _plan(folder: Path, size: str) -> dspark.LoadPlan:
    config = corpus(f"deepseek-ai__dspark_qwen3_{size.lower()}_block7")
    draft = checkpoint(folder / size, config, dspark_shapes(config, 5))
    return dspark.plan(draft, target=CORPUS / f"Qwen__Qwen3-{size}")
