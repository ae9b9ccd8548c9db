"""The draft's half of a round: a block in one pass, then token by token along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dspark.runtime.acceptance import Proposal
from dspark.runtime.backends.base import Array, HostFloats, KvStore
from dspark.runtime.choices import Purpose
from dspark.runtime.confidence import ConfidenceSchedule
from dspark.runtime.models.block_draft import Anchor, BlockDraft
from dspark.runtime.request import Request
from dspark.runtime.sampling import chances, processed
from dspark.runtime.statistics import Skip


@dataclass(slots=True)
class _Walk:
    """One request's drafts so far, as target ids; `broken` once there can be no more."""

    request: Request
    count: int
    tokens: list[int] = field(default_factory=list)
    chances: list[HostFloats | None] = field(default_factory=list)
    survival: list[float] = field(default_factory=list)
    broken: bool = False

    @property
    def open(self) -> bool:
        return not self.broken and len(self.tokens) < self.count

    @property
    def previous(self) -> int:
        return self.tokens[-1] if self.tokens else self.request.tokens[-1]


def propose(
    draft: BlockDraft,
    store: KvStore,
    requests: Sequence[Request],
    counts: Sequence[int],
    schedule: ConfidenceSchedule | None,
) -> list[Proposal]:
    """Up to `counts[i]` drafts, at least 1, for each request.

    The whole block is always run, so the drafts of a smaller count are the first of a larger one.
    `survival` is filled in when there is a schedule to read it and a head to give it.
    """
    anchors = [
        Anchor(request.tokens[-1], len(request.tokens) - 1, request.held.pages)
        for request in requests
    ]
    slots = max(counts)
    hidden = draft.block(anchors, store)[:, :slots]
    width = hidden.shape[-1]
    base = draft.base_logits(hidden.reshape(len(requests) * slots, width))
    base = base.reshape(len(requests), slots, -1)
    walks = [_Walk(request, count) for request, count in zip(requests, counts, strict=True)]
    state: Array | None = None
    for slot in range(slots):
        at = hidden[:, slot]
        logits = base[:, slot]
        embedded = draft.embedded([walk.previous for walk in walks])
        if schedule is not None:
            _note_survival(draft.confidence(at, embedded), walks, schedule, slot)
        if draft.markov is not None:
            latent, state = draft.markov.step(embedded, at, state)
            logits = logits + draft.bias(latent)
        _choose(draft, logits, walks)
    return [Proposal(walk.tokens, walk.chances, _survival(walk, schedule, draft)) for walk in walks]


def _note_survival(
    logits: HostFloats | None, walks: Sequence[_Walk], schedule: ConfidenceSchedule, slot: int
) -> None:
    if logits is None:
        return
    for walk, logit in zip(walks, logits, strict=True):
        if walk.open:
            walk.survival.append(schedule.probability(float(logit), slot))


def _survival(
    walk: _Walk, schedule: ConfidenceSchedule | None, draft: BlockDraft
) -> list[float] | None:
    if schedule is None or not draft.config.enable_confidence_head:
        return None
    return walk.survival[: len(walk.tokens)]


def _choose(draft: BlockDraft, logits: Array, walks: Sequence[_Walk]) -> None:
    """Gives every open walk its next draft, from `logits` [walks, draft vocabulary]."""
    places, best = draft.backend.argmax(logits)
    host: HostFloats | None = None
    for row, walk in enumerate(walks):
        if not walk.open:
            continue
        if not np.isfinite(best[row]):
            # The largest of NaNs is no choice; the drafts before it stand.
            _give_up(walk, "nonfinite")
            continue
        params = walk.request.params
        if params.greedy and not params.processes_logits:
            walk.tokens.append(int(draft.target_ids[places[row]]))
            walk.chances.append(None)
            continue
        if host is None:
            host = draft.backend.host(logits)
        _draw(draft, host[row], walk)


def _draw(draft: BlockDraft, logits: HostFloats, walk: _Walk) -> None:
    """One draft by the request's own parameters, out of target ids."""
    request = walk.request
    over_target = np.full(draft.target_rows, -np.inf, dtype=np.float32)
    over_target[draft.target_ids] = logits
    wanted = processed(over_target, request.params, request.history.followed_by(walk.tokens))
    if wanted.max() == -np.inf:
        # A `logit_bias` of -inf forbids all that the draft knows, so there is nothing to draw from.
        _give_up(walk, "vocabulary")
        return
    drawn_from = chances(wanted, request.params)
    if request.params.greedy:
        walk.tokens.append(int(drawn_from.argmax()))
        walk.chances.append(None)
        return
    place = len(request.tokens) + len(walk.tokens)
    walk.tokens.append(request.choices.pick(drawn_from, place, Purpose.DRAFT))
    walk.chances.append(drawn_from)


def _give_up(walk: _Walk, why: Skip) -> None:
    walk.broken = True
    walk.request.statistics.acceptance.draft_skipped[why] += 1
