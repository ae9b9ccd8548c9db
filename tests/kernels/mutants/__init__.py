"""Every broken kernel: one line changed, by the file that it is in. `scripts/mutants` runs them."""

from __future__ import annotations

from pathlib import Path

from tests.kernels.mutants import attention, choices, drafts, equivalent, products, rows
from tests.support.kernel_mutation import Mutant

_LISTS = (rows.MUTANTS, products.MUTANTS, attention.MUTANTS, choices.MUTANTS, drafts.MUTANTS)

MUTANTS = [
    Mutant(file, line, broken)
    for files in _LISTS
    for file, changes in files.items()
    for line, broken in changes
]
"""Those that some test must notice."""

EQUIVALENT = {Mutant(*change): reason for change, reason in equivalent.EQUIVALENT.items()}
"""Those that none can, and why."""

KILLERS = Path(__file__).parent / "killers.json"
"""File -> mutant -> the test that noticed it; `scripts/mutants --write` keeps it."""
