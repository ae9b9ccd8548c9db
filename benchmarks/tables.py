"""Made-up tables of any size: the rows every engine is given, and our YAML for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

DEFAULT = "R00000"
"""What a config that no row names gets."""

_ARCHITECTURES = 97  # prime, so that the pairs with model types do not fall into step
_LANES = 8


class Row(NamedTuple):
    """One rule: both facts must match, and in a table of many rows some ask for `markov` too."""

    id: str
    architecture: str
    model_type: str
    lane: str
    """Empty for a refusal."""
    markov: str
    """The cell it asks for; empty where it does not ask."""


class Facts(NamedTuple):
    """One input, by the cells it has."""

    architecture: str
    model_type: str
    markov: str | None = None


def rows(count: int) -> list[Row]:
    """`count` rows: three lanes to one refusal, 97 architectures, every model type once."""
    return [
        Row(
            id=f"{'R' if number % 4 == 3 else 'L'}{number + 1:05}",
            architecture=f"Family{number % _ARCHITECTURES}DSparkModel",
            model_type=f"family_{number:05}",
            lane="" if number % 4 == 3 else f"lane-{number % _LANES}",
            markov="positive" if number % 16 == 12 else "",
        )
        for number in range(count)
    ]


def probes(table: Sequence[Row]) -> dict[str, tuple[Facts, str]]:
    """The inputs that are timed, by name, each with the ID that must decide it."""
    first, last = table[0], table[-1]
    return {
        "first": (Facts(first.architecture, first.model_type), first.id),
        "last": (Facts(last.architecture, last.model_type), last.id),
        "miss": (Facts(first.architecture, "family_unknown"), DEFAULT),
    }


def yaml_text(table: Sequence[Row]) -> str:
    """The rows as an author would write them, with reasons, references and tests."""
    markov = ", markov" if any(row.markov for row in table) else ""
    lanes = sorted({row.lane for row in table if row.lane})
    parts = [
        f"table: made-up\nfacts: [architecture, model_type{markov}]\ndefault: {DEFAULT}\nlanes:\n",
        *(f"  {lane}: drafts of one kind\n" for lane in lanes),
        "rules:\n",
        *(_rule(row) for row in table),
        _DEFAULT_RULE,
    ]
    return "".join(parts)


_DEFAULT_RULE = f"""\
  {DEFAULT}:
    name: unknown
    refuse: "no rule for {{architectures}} with model_type {{model_type}}{{did_you_mean}}"
    help: spell the architecture exactly as the exporter does
    why: What no rule names is refused.
    refs: [docs/adding-a-lane.md]
    tests:
      - hit: {{architectures: [NoModel], model_type: none}}
        says: no rule for
"""


def _rule(row: Row) -> str:
    name = row.model_type.replace("_", "-")
    asked = f", markov: {row.markov}" if row.markov else ""
    rank = ", markov_rank: 256" if row.markov else ""
    config = f"architectures: [{row.architecture}]"
    if row.lane:
        outcome, expected = f"    lane: {row.lane}\n", f"lane: {row.lane}"
    else:
        outcome = (
            f"    refuse: the {name} drafts keep their stages in the target's weights (`mtp.*`),"
            " which no lane for `{architecture}` reads\n"
            f"    help: load the target of {name} without a draft\n"
        )
        expected = f"says: the {name} drafts keep"
    return (
        f"  {row.id}:\n"
        f"    name: {name}\n"
        f"    when: {{architecture: {row.architecture}, model_type: {row.model_type}{asked}}}\n"
        f"{outcome}"
        f"    why: >-\n"
        f"      The exporter of {name} writes this architecture together with its own model type;\n"
        f"      either of them alone says nothing about the layout of the weights.\n"
        f"    refs: [example/{name}-block7, example/{name}-block16]\n"
        f"    tests:\n"
        f"      - hit: {{{config}, model_type: {row.model_type}, block_size: 7{rank}}}\n"
        f"        {expected}\n"
        f"      - miss: {{{config}, model_type: llama{rank}}}\n"
        f"        is: {DEFAULT}\n"
    )
