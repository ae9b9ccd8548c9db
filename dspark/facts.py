"""The closed list of facts a rule may look at, and the cells each fact can take.

A *fact* is one question about a checkpoint; its *cell* is the answer: a string, or `None` for
ABSENT. A *closed* fact lists every cell it can take. An *open* fact can take any string, so the
analysis treats all the strings that no rule names as one cell, OTHER. A path, a repo id or a
folder name is never a fact: the same config must get the same decision wherever it lies.
"""

from __future__ import annotations

from typing import NamedTuple

Cell = str | None
"""A fact's answer: a string, or None for ABSENT."""

ABSENT: Cell = None


class Fact(NamedTuple):
    """One question a rule may ask."""

    name: str
    asks: str
    cells: tuple[Cell, ...] | None
    """Every cell of a closed fact, ABSENT among them if it can be absent; None for an open fact."""


FACTS: dict[str, Fact] = {
    fact.name: fact
    for fact in (
        Fact(
            "packaging",
            "which layout the file is written in",
            ("flat", "nested", "speculators", "in-target", "gguf"),
        ),
        Fact(
            "algorithm",
            "which drafting algorithm the file names itself (`speculators_model_type`, "
            "`projector_type`, or a key only one algorithm has)",
            None,
        ),
        Fact("architecture", "one entry of `architectures`", None),
        Fact("model_type", "`model_type` of the draft's own layers", None),
        Fact(
            "markov",
            "whether `markov_rank` declares a Markov head",
            ("positive", "zero", "invalid", ABSENT),
        ),
    )
}

OTHER = "SomethingElse"
"""Stands for every string that no rule names, in witnesses; no rule may name it."""

ALONE = ("packaging", "gguf")
"""The cell that leaves every other fact ABSENT: a GGUF file has no config.json to read.

A table that asks this fact asks it first, so that no path through the graph can know better.
"""

DRAFT_KEYS = ("mask_token_id", "target_layer_ids", "markov_rank")
"""Keys only a draft has, written bare: their presence says `flat` and not `in-target`. `block_size`
is not among them: other parts of a target's config use that word too."""

IN_TARGET_KEYS = (
    "dspark_block_size",
    "dspark_target_layer_ids",
    "dspark_noise_token_id",
    "dspark_markov_rank",
)
"""Keys a target config carries when the draft's stages live inside the target's own weights."""

NESTED_KEYS = ("dflash_config", "dspark_config")
"""Objects SpecForge and z-lab nest the draft's own keys in, the first one found first."""

ALGORITHM_OF_KEY = {
    "selector_rank": "dflash2",
    "selector_top_k": "dflash2",
    "conv_kernel_size": "dflash2",
    "conv_group_size": "dflash2",
    "gru_hidden_dim": "domino",
    "pure_draft_prefix_len": "domino",
}
"""Keys only one algorithm has. A file that carries one is that algorithm, whatever its name says:
an older lane would load it and only acceptance would suffer."""
