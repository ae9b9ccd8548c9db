"""What runs a lane and what runs a target: the model classes, by the names that contracts give."""

from __future__ import annotations

from collections.abc import Mapping

from dspark.runtime.models.block_draft import BlockDraft
from dspark.runtime.models.qwen3 import Qwen3Target

LANES: Mapping[str, type[BlockDraft]] = {
    "qwen3-dspark": BlockDraft,
    "qwen3-dflash": BlockDraft,
}
"""Lane -> the draft's class. A test holds these against `rules/lanes`."""

TARGETS: Mapping[str, type[Qwen3Target]] = {"qwen3": Qwen3Target}
"""Implementation, as a target's contract names it -> the class."""
