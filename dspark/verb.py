"""What every verb shares: its exit codes, mistakes in its call, and the table that decides."""

from __future__ import annotations

import argparse

from dspark.compile import compile_table
from dspark.compiled import Table
from dspark.decision import Decision
from dspark.rule import letter

OK, FAILED, USAGE, REFUSED, UNREADABLE, INVALID_TABLE = range(6)
"""Exit codes, the same for every verb."""

EXIT_CODES = (
    "Exit codes: 0 lane or all good, 1 a test or comparison failed, 2 usage, 3 refused, 4 input "
    "unreadable (an E rule), 5 table invalid. Of several checkpoints the highest code counts."
)


class Usage(Exception):
    """A mistake in how the command was called; its text goes to standard error."""


def exit_code(decision: Decision) -> int:
    """How a verb ends that came to this decision."""
    if letter(decision.rule_id) == "E":
        return UNREADABLE
    return OK if decision.lane is not None else REFUSED


def add_rules_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the table that decides."""
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help="a table to use instead of the shipped one; pack:NAME is an installed rule pack's",
    )


def open_table(path: str | None) -> Table:
    """The table of a rules file, by default the one that ships.

    Raises `Usage` if the file cannot be read, and what `compile_table` raises.
    """
    try:
        return compile_table(path)
    except OSError as error:
        raise Usage(f"cannot read the rules file `{path}`: {error.strerror or error}") from error
