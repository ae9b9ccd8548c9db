"""`dspark graph`: a table's decision graph, in a format or as the explorer's page in a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dspark.cli_explore import add_old, open_old
from dspark.output import write
from dspark.verb import OK, Usage, add_rules_option, open_table


def add_graph(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser("graph", help="the decision graph")
    add_rules_option(parser)
    drawn = parser.add_mutually_exclusive_group()
    drawn.add_argument("--format", choices=("text", "mermaid", "dot", "json"), default="text")
    drawn.add_argument("--html", metavar="OUT", help="write the explorer's page to a file")
    add_old(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    table = open_table(arguments.rules)
    if arguments.html is None:
        from dspark.graph_text import graph_text

        if arguments.old is not None:
            raise Usage("--old needs --html: the other formats show one table")
        write([[graph_text(table, arguments.format)]])
        return OK
    from dspark.explorer import explorer_page

    page = explorer_page(table, open_old(arguments))
    try:
        Path(arguments.html).write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Usage(f"cannot write `{arguments.html}`: {reason}") from error
    return OK
