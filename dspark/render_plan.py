"""A load plan as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dspark.budget import shown_size
from dspark.messages import plain
from dspark.output import Line
from dspark.render import DIM, LANE, NAME, warning_lines

if TYPE_CHECKING:
    from dspark.load_plan import LoadPlan


def plan_lines(plan: LoadPlan) -> Iterator[Line]:
    """What runs, how far, and what it takes."""
    most = plan.num_speculative_tokens.most
    yield [
        (plain(plan.draft.source, 200), NAME),
        " on ",
        (plain(plan.target.source, 200), NAME),
        ": ",
        (f"lane {plan.lane}", LANE),
        f"  [{plan.rule_id} {plan.rule_name}]",
    ]
    yield [f"  drafts     {plan.drafts_per_round} a round; num_speculative_tokens 1 to {most}"]
    yield [f"  sequences  {plan.batch} x {plan.max_seq} tokens", _until(plan)]
    if plan.shared:
        yield [f"  shared     {', '.join(plan.shared)} of the target"]
    for name, other in plan.tied.items():
        yield [f"  tied       {name} is {other}"]
    sizes = plan.bytes
    source = "" if sizes.target_weights_from == "headers" else "  (by its config)"
    weights = f"draft {shown_size(sizes.draft_weights)}, target {shown_size(sizes.target_weights)}"
    yield [f"  weights    {weights}{source}"]
    yield [
        f"  caches     draft {shown_size(sizes.draft_kv)}, target {shown_size(sizes.target_kv)}",
        (f"  ({sizes.draft_kv_per_token} and {sizes.target_kv_per_token} B a token)", DIM),
    ]
    yield [f"  logits     {shown_size(sizes.logits)}"]
    yield [f"  total      {shown_size(sizes.total)} on {plan.device}, {_room(plan)}"]
    yield from warning_lines(plan.warnings)


def _until(plan: LoadPlan) -> str:
    if plan.draft_positions == plan.max_seq:
        return ""
    return f"; drafted up to {plan.draft_positions}, then decoded by the target alone"


def _room(plan: LoadPlan) -> str:
    if plan.memory is None:
        return "whose memory is not known (--memory)"
    return f"of {shown_size(plan.memory)}: it fits"
