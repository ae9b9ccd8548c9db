"""What goes into a round and what comes out of it, for one request, whoever runs the round."""

from __future__ import annotations

from collections.abc import Sequence

from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.request import Request
from dspark.runtime.sampling import TokenLogprob
from dspark.runtime.scheduler import Work
from dspark.runtime.statistics import EngineStatistics


def drafts_wanted(part: Work, draft: BlockDraft | None, page_size: int) -> int:
    """How many drafts the request gets this round.

    No more than it can still put out besides the target's token, and none where the draft cannot
    start: behind a token it does not know, or before positions that it was not made for or that
    the request has no pages for.
    """
    request = part.request
    if draft is None or not request.drafts or not part.decides or request.put_out == 0:
        return 0
    wanted = min(request.drafts, request.left - 1)
    end = len(request.tokens) - 1 + draft.config.block_size
    room = len(request.held.pages) * page_size
    skipped = request.statistics.acceptance.draft_skipped
    if wanted and end > min(draft.config.max_position_embeddings, room):
        skipped["length"] += 1
        return 0
    if wanted and request.tokens[-1] >= draft.config.vocab_size:
        skipped["vocabulary"] += 1
        return 0
    return wanted


def put_out(
    request: Request,
    drafts: int,
    tokens: Sequence[int],
    logprobs: Sequence[TokenLogprob],
    statistics: EngineStatistics,
) -> None:
    """Puts out what a round with so many drafts came to, and counts it."""
    first = request.put_out == 0
    count = request.take(tokens, logprobs)
    statistics.completion_tokens += count
    if first:
        return
    request.statistics.acceptance.count(drafts, count, last_is_draft=count < len(tokens))
    if drafts:
        statistics.count_drafted_round(count)
