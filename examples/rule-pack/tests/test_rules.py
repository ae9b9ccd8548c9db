"""The pack as its users get it: installed, and asked for by name.

What each rule decides is tested beside the rule, in drafts.yaml; `dspark check` runs that.
"""

from __future__ import annotations

import dspark


def test_an_approved_draft_takes_its_lane_under_the_name_of_the_pack() -> None:
    table = dspark.compile_table("pack:acme")

    decision = table.route(
        {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "markov_rank": 256}
        | {"block_size": 7}
    )

    assert ("acme:L001", "qwen3-dspark") == (decision.rule_id, decision.lane)
