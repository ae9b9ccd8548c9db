"""The outcomes as a table and as JSON. Every number in either was measured in this run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.gpu.conduct import Outcome
from benchmarks.gpu.notes import Figure

REHEARSAL = "a rehearsal on the simulator: nothing here ran on a GPU, and no figure was kept"


def lines(outcome: Outcome) -> Iterator[str]:
    """One outcome as lines of text: the step, what it measured, and why it failed."""
    step, took = outcome.step, f"{outcome.seconds:.1f} s"
    yield f"{outcome.status:<8}{step.name:<11}{step.title} ({took})"
    for name, text in outcome.found.facts.items():
        yield f"          {name:<44} {text}"
    for figure in outcome.found.figures:
        yield f"          {figure.name:<44} {_shown(figure)}"
    for text in outcome.texts:
        first, *rest = text.splitlines()
        yield f"    {'!' if outcome.status == 'failed' else '-'}     {first}"
        yield from (f"          | {line}" for line in rest)


def to_json(outcomes: Sequence[Outcome], *, rehearsal: bool) -> dict[str, Any]:
    """Everything that was found; a figure that was not measured is not there, or null."""
    facts = next((each.found.facts for each in outcomes if each.step.name == "doctor"), {})
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rehearsal": REHEARSAL if rehearsal else None,
        "machine": dict(facts),
        "steps": [
            {
                "step": outcome.step.name,
                "title": outcome.step.title,
                "status": outcome.status,
                "seconds": round(outcome.seconds, 1),
                "budget_s": outcome.step.budget,
                "texts": outcome.texts,
                "facts": outcome.found.facts,
                "figures": [
                    {"name": each.name, "value": each.value, "unit": each.unit}
                    for each in outcome.found.figures
                ],
            }
            for outcome in outcomes
        ],
    }


def _shown(figure: Figure) -> str:
    if figure.value is None:
        return f"{'-':>12} {figure.unit}"
    whole = figure.value == int(figure.value) and abs(figure.value) < 1e9
    return f"{figure.value:>12.{0 if whole else 4 if abs(figure.value) < 10 else 1}f} {figure.unit}"
