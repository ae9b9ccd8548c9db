"""`dspark VERB ...`: which verbs there are, and how each of them ends."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from dspark import __version__
from dspark.cli_check import add_check
from dspark.cli_diff import add_diff
from dspark.cli_engines import add_engines
from dspark.cli_explain import add_explain
from dspark.cli_explore import add_explore
from dspark.cli_graph import add_graph
from dspark.cli_handoff import add_handoff
from dspark.cli_parity import add_parity
from dspark.cli_plan import add_plan
from dspark.cli_route import add_route
from dspark.cli_rules import add_rules
from dspark.errors import PackError, TableError
from dspark.graph import TooLarge
from dspark.output import OutputLost, flush, tolerate_any_text, write
from dspark.verb import EXIT_CODES, INVALID_TABLE, OK, USAGE, Usage

RUNTIME_VERBS = {
    "generate": "decode a prompt",
    "bench": "measure a pair with and without its draft",
    "verify": "hold a pair's text against the target alone",
    "serve": "answer requests in the manner of OpenAI's API",
    "doctor": "what this machine can run, and what to do where it cannot",
}
"""The verbs in `dspark.runtime.cli`, each a module that is imported when its verb is called: what
checks a checkpoint never imports what decodes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code."""
    tolerate_any_text()
    words = sys.argv[1:] if argv is None else list(argv)
    arguments = _parser(words[0] if words else None).parse_args(words)
    try:
        code = _run(arguments)
        flush()
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): not our failure, and nothing left to say.
        _discard_output()
        return OK
    except OutputLost as error:
        _discard_output()
        write([[f"dspark: the output cannot be written: {error}"]], sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130
    return code


def _discard_output() -> None:
    """Lets the interpreter's own flush at exit succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.run(arguments)
    except (Usage, PackError) as mistake:
        write([[f"dspark: {mistake}"]], sys.stderr)
        return USAGE
    except TableError as error:
        return _report_table(error, getattr(arguments, "json", False))
    except TooLarge:
        write(
            [["dspark: the two tables multiply into more branches than can be compared"]],
            sys.stderr,
        )
        return INVALID_TABLE
    return code


def _report_table(error: TableError, as_json: bool) -> int:
    from dspark.render import diagnostic_lines

    if as_json:
        document = {"diagnostics": [diagnostic.to_json() for diagnostic in error.diagnostics]}
        write([[json.dumps(document)]])
        return INVALID_TABLE
    for diagnostic in error.diagnostics:
        write(diagnostic_lines(diagnostic))
    count = len(error.diagnostics)
    where = error.origin or "the table"
    write([[f"{count} error{'s' if count > 1 else ''} in {where}; nothing was decided"]])
    return INVALID_TABLE


def _parser(called: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dspark",
        description="Decide which lane runs a draft checkpoint, or which rule refuses it.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"dspark {__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    add_route(verbs)
    add_plan(verbs)
    add_check(verbs)
    add_explain(verbs)
    add_diff(verbs)
    add_rules(verbs)
    add_graph(verbs)
    add_explore(verbs)
    add_handoff(verbs)
    add_engines(verbs)
    add_parity(verbs)
    for name, summary in RUNTIME_VERBS.items():
        verb = verbs.add_parser(name, help=summary, epilog=EXIT_CODES)
        if name == called:
            module = import_module(f"dspark.runtime.cli.{name}")
            module.add_arguments(verb)
            verb.set_defaults(run=module.run)
    return parser
