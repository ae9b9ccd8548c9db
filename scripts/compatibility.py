"""Writes docs/compatibility.md, what every engine does with every config of the corpus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dspark.cli_engines import ask
from dspark.parity_compile import shipped_packs
from dspark.parity_pack import REFUSES, RUNS, SWALLOWS, UNKNOWN
from dspark.render_parity import Asked, engines_table
from dspark.routing import decide_source, default_table

REPOSITORY = Path(__file__).parent.parent
CORPUS = Path("tests/corpus")
PAGE = REPOSITORY / "docs" / "compatibility.md"

HEAD = """\
# Which engine runs which draft

This page is generated from the [parity packs](../rules/parity) and the published configs in
`tests/corpus/` by `scripts/compatibility.py`; a test fails when it is stale. What a pack is, and
what the words mean: [parity](parity.md). The same for your own draft: `dspark engines CHECKPOINT`.

Each cell has the outcome and the rule of the pack that says so; the rules are explained below the
table. An engine is started in the way that suits the draft best. Engines that look for words in the
path saw the name in the first column.

| Word | Means |
|---|---|
| runs | The draft ends up in a class made for it. |
| refuses | The engine says that it does not take the draft. |
| swallows | The engine accepts the draft into the class of another model, and nothing says so. |
| unknown | The pack does not know. |
"""

_HOW = {
    RUNS: "runs in {lane}",
    SWALLOWS: "swallows it into {lane}",
    REFUSES: "refuses",
    UNKNOWN: "unknown",
}


def compatibility_page() -> str:
    """The text of docs/compatibility.md."""
    asked = [ask(decide_source(default_table(), source)) for source in _corpus()]
    lines = [HEAD, *engines_table(asked), ""]
    for number, pack in enumerate(shipped_packs()):
        lines += [f"## {pack.engine} {pack.version}", "", pack.about, ""]
        lines += _reasons(asked, number)
    return "\n".join(lines).rstrip("\n") + "\n"


def _corpus() -> Iterator[str]:
    """The folders of the corpus as somebody at the top of the repository types them."""
    for config in sorted((REPOSITORY / CORPUS).glob("*/config.json")):
        yield os.path.relpath(config.parent, REPOSITORY)


def _reasons(asked: list[Asked], number: int) -> Iterator[str]:
    """A row for each rule of the engine that comes at this place in the answers."""
    tries = {}
    for _, answers in asked:
        best = answers[number].best
        tries.setdefault((best.answer.rule.id, best.answer.lane, best.command.text), best)
    yield "| Rule | Outcome | Why, or the engine's words | Start it with |"
    yield "|---|---|---|---|"
    for _, found in sorted(tries.items()):
        answer = found.answer
        how = _HOW[answer.outcome].format(lane=answer.lane)
        if answer.outcome == REFUSES and answer.lane:
            how = f"refuses, after {answer.lane} was chosen"
        refuse = answer.rule.refuse
        text = answer.rule.why if refuse is None else _quoted(refuse.text)
        start = f"`{found.typed('DRAFT')}`" if answer.outcome == RUNS else ""
        cells = [f"{answer.rule.id} {answer.rule.name}", how, text, start]
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    yield ""


def _quoted(words: str) -> str:
    # The engine's words may hold backticks themselves.
    return f"“{words.replace('`', '')}”"


if __name__ == "__main__":
    os.chdir(REPOSITORY)
    PAGE.write_text(compatibility_page(), encoding="utf-8")
