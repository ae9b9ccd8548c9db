"""The cost of a round as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from dspark.cost import Cost, Traffic
from dspark.output import Line
from dspark.render import DIM

_NAMES = {
    "step": "a step alone",
    "verify": "verify",
    "extend": "draft context",
    "block": "draft block",
    "walk": "draft steps",
    "round": "a round",
}


def cost_lines(cost: Cost, bandwidth: float | None) -> Iterator[Line]:
    """What each part moves and launches, and with a bandwidth in GB/s the least it takes."""
    floor = "" if bandwidth is None else f"{'floor':>11}"
    yield [
        f"  cost       at {cost.context} positions, batch {cost.batch}, {cost.drafts} drafts",
        ("  (GB: 10^9 bytes)", DIM),
    ]
    yield [f"    {'':14}{'weights':>11}{'caches':>11}{'launches':>10}{floor}"]
    for name, title in _NAMES.items():
        traffic: Traffic = getattr(cost, name)
        line = f"    {title:14}{_gb(traffic.weights)}{_gb(traffic.caches)}"
        line += f"{traffic.launches:10}"
        if bandwidth is not None:
            line += f"{cost.floor_ms(traffic, bandwidth):8.3f} ms"
        yield [line]
    yield [f"    a round moves as much as {cost.break_even:.2f} steps of the target alone"]


def _gb(count: int) -> str:
    return f"{count / 1e9:8.3f} GB"
