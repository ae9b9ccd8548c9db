"""`dspark engines CHECKPOINT...`: what each engine does with a draft, and what to type."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from dspark.decision import Decision
from dspark.output import write
from dspark.verb import OK, add_rules_option, exit_code, open_table

if TYPE_CHECKING:
    from dspark.render_parity import Asked

_DESCRIPTION = (
    "Says for each engine of the parity packs whether it runs the draft, refuses it, swallows it "
    "(accepts it into the wrong lane), or whether that is unknown; which rule of the pack says so; "
    "and what to type. Only the config is read. Engines that look for words in the path see "
    "CHECKPOINT as it is typed here."
)


def add_engines(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "engines", help="what other engines do with a draft", description=_DESCRIPTION
    )
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object per checkpoint and line")
    form.add_argument("--markdown", action="store_true", help="one table of all checkpoints")
    add_rules_option(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from dspark.render import decision_lines
    from dspark.render_parity import engine_lines, engines_table
    from dspark.routing import decide_source

    table = open_table(arguments.rules)
    asked = []
    code = OK
    for source in arguments.checkpoints:
        stdin = getattr(sys.stdin, "buffer", None) if source == "-" else None
        decision = decide_source(table, source, stdin=stdin)
        if decision.observation is None:
            code = max(code, exit_code(decision))
            if not arguments.json:
                write(decision_lines(decision), sys.stderr if arguments.markdown else None)
                continue
        found = ask(decision)
        if arguments.json:
            write([[json.dumps(to_json(found))]])
        elif not arguments.markdown:
            write(engine_lines(*found))
        asked.append(found)
    if arguments.markdown:
        write([[line] for line in engines_table(asked)])
    return code


def ask(decision: Decision) -> Asked:
    """The answers of every engine for what was decided."""
    from dspark.engines import ask_engines, unread
    from dspark.parity_compile import shipped_packs

    packs = shipped_packs()
    seen = decision.observation
    if seen is None:
        return decision, ()
    if seen.packaging == "gguf":
        return decision, tuple(unread(pack) for pack in packs)
    return decision, ask_engines(packs, seen.config, os.fspath(decision.source))


def to_json(asked: Asked) -> dict[str, object]:
    """The object `--json` prints, one per checkpoint (schema: `engines.schema.json`)."""
    decision, answers = asked
    about = decision.to_json()
    return {
        "source": decision.source,
        "decision": about["decision"],
        "engines": [answer.to_json(decision.source) for answer in answers],
        "table_version": decision.table_version,
    }
