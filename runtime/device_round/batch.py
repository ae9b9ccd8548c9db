"""The sizes of a round on the device, and who takes part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dspark.runtime.request import Request


class Member(NamedTuple):
    """A request, and how many drafts it gets at the most."""

    request: Request
    wanted: int


class Sizes(NamedTuple):
    """What a graph is captured for.

    `requests` are those of the batch, filled up to a few sizes; `drafts` the most that any of them
    gets. `drawn`: whether anything but the likeliest token may be asked for.
    """

    requests: int
    drafts: int
    drawn: bool

    @property
    def width(self) -> int:
        """Rows of a request: the newest token and its drafts."""
        return self.drafts + 1

    def __str__(self) -> str:
        kind = "drawn" if self.drawn else "greedy"
        return f"{self.requests} requests, {self.drafts} drafts, {kind}"


@dataclass(frozen=True, slots=True)
class Batch:
    """The members of a round, in the order of their places on the device."""

    members: Sequence[Member]
    sizes: Sizes


def batch_of(members: Sequence[Member], most: int) -> Batch:
    """The batch of `members`, of whom there are up to `most` in any round.

    Its requests are filled up to a power of two, so that there are few sizes to capture.
    """
    requests = 1
    while requests < len(members):
        requests *= 2
    drawn = any(_is_drawn(member.request) for member in members)
    drafts = max(member.wanted for member in members)
    return Batch(members, Sizes(min(requests, most), drafts, drawn))


def _is_drawn(request: Request) -> bool:
    """Whether more of the logits is needed than their largest."""
    params = request.params
    return not params.greedy or params.processes_logits or params.logprobs is not None
