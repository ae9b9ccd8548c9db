"""An edit of a pack says which cells it moves."""

from __future__ import annotations

from pathlib import Path

from dspark.parity_facts import Question
from dspark.parity_mutate import edits
from dspark.parity_pack import Pack
from tests.support.packs import small_pack


def _small_questions(pack: Pack) -> list[Question]:
    """Every combination of cells that the small pack could tell apart."""
    return [
        pack.realise({"method": method, "architecture": architecture, "rank": rank})
        for method in ("block", "other", None)
        for architecture in (*pack.registry, "unregistered", "several", None)
        for rank in ("positive", "zero", "invalid", None)
    ]


def test_what_an_edit_moves_is_what_it_says(tmp_path: Path) -> None:
    """Against a slow definition: the regions of an edit hold the cells whose match it changes."""
    pack = small_pack(tmp_path)
    for edit in edits(pack):
        if edit.whole or edit.label.startswith("exchange"):
            continue
        for question in _small_questions(pack):
            cells = dict(zip(pack.facts, pack.cells(question), strict=True))
            added, removed = (
                any(
                    all(c.accepts(cells[f]) for part in region for f, c in part.items())
                    for region in regions
                )
                for regions in (edit.added, edit.removed)
            )
            assert not (added and removed), edit.label
            if edit.label.startswith(("widen", "drop")):
                assert not removed
            if added and len(edit.rule.when) == 1:
                assert not edit.rule.matches(cells), (edit.label, cells)
            if removed:
                assert edit.rule.matches(cells), (edit.label, cells)
