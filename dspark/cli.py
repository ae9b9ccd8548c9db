"""`dspark VERB ...`: the router's verbs, and the way to those of the runtime."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from dspark import __version__
from dspark.cli_engines import add_engines, run_engines
from dspark.cli_explore import add_explore, add_old
from dspark.cli_handoff import BadCall, add_handoff, run_handoff
from dspark.cli_parity import NoSuchPack, add_parity, run_parity
from dspark.cli_plan import IdleOption, add_plan, run_plan
from dspark.compile import compile_table, is_pack, read_messages
from dspark.compiled import Table
from dspark.decision import Decision
from dspark.errors import PackError, TableError
from dspark.graph import TooLarge
from dspark.output import Line, OutputLost, flush, progress, tolerate_any_text, write
from dspark.rule import letter

RUNTIME_VERBS = {
    "generate": "decode a prompt",
    "bench": "measure a pair with and without its draft",
    "verify": "hold a pair's text against the target alone",
    "serve": "answer requests in the manner of OpenAI's API",
    "doctor": "what this machine can run, and what to do where it cannot",
}
"""The verbs in `dspark.runtime.cli`, each a module that is imported when its verb is called: what
checks a checkpoint never imports what decodes."""

OK, FAILED, USAGE, REFUSED, UNREADABLE, INVALID_TABLE = range(6)
"""Exit codes, the same for every verb."""


class _Usage(Exception):
    """A mistake in how the command was called; its text goes to standard error."""


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
    except (_Usage, PackError) as mistake:
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


def _parser(called: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dspark",
        description="Decide which lane runs a draft checkpoint, or which rule refuses it.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"dspark {__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")

    route = verbs.add_parser(
        "route", help="decide checkpoints", description=_ROUTE, epilog=_EXIT_CODES
    )
    route.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    _rules_option(route)
    route.add_argument(
        "--json", action="store_true", help="one JSON object per checkpoint and line"
    )
    route.add_argument("--explain", action="store_true", help="evidence, path and near misses")
    route.add_argument("--quiet", action="store_true", help="print nothing; the exit code answers")
    route.add_argument(
        "-r", "--recursive", action="store_true", help="every folder with a config.json under DIR"
    )
    route.add_argument(
        "--check", action="store_true", help="also check config and tensors of what a lane takes"
    )
    route.set_defaults(run=_route)

    plan = add_plan(verbs)
    _rules_option(plan)
    plan.set_defaults(run=_plan)

    check = verbs.add_parser("check", help="prove a table and run its tests and mutants")
    check.add_argument("file", nargs="?", metavar="FILE", help="default: the table that ships")
    check.add_argument("--json", action="store_true", help="the findings as one JSON object")
    check.add_argument(
        "--fix-nothing", action="store_true", help="stated for scripts: check only ever reports"
    )
    check.set_defaults(run=_check)

    explain = verbs.add_parser("explain", help="what a rule says, by ID or name")
    explain.add_argument("rule", metavar="RULE-ID|NAME")
    _rules_option(explain)
    explain.set_defaults(run=_explain)

    diff = verbs.add_parser("diff", help="which configs two tables decide differently")
    diff.add_argument("old", metavar="OLD")
    diff.add_argument("new", metavar="NEW")
    diff.add_argument("--json", action="store_true", help="one JSON object per change and line")
    diff.set_defaults(run=_diff)

    rules = verbs.add_parser("rules", help="list the rules")
    _rules_option(rules)
    rules.add_argument("--json", action="store_true", help="one JSON object per rule and line")
    rules.set_defaults(run=_rules)

    graph = verbs.add_parser("graph", help="the decision graph")
    _rules_option(graph)
    drawn = graph.add_mutually_exclusive_group()
    drawn.add_argument("--format", choices=("text", "mermaid", "dot", "json"), default="text")
    drawn.add_argument("--html", metavar="OUT", help="write the explorer's page to a file")
    add_old(graph)
    graph.set_defaults(run=_graph)

    explore = add_explore(verbs)
    _rules_option(explore)
    explore.set_defaults(run=_explore)

    handoff = add_handoff(verbs)
    _rules_option(handoff)
    handoff.set_defaults(run=_handoff)

    engines = add_engines(verbs)
    _rules_option(engines)
    engines.set_defaults(run=_engines)

    parity = add_parity(verbs)
    _rules_option(parity)
    parity.set_defaults(run=_parity)

    for name, summary in RUNTIME_VERBS.items():
        verb = verbs.add_parser(name, help=summary, epilog=_EXIT_CODES)
        if name == called:
            module = import_module(f"dspark.runtime.cli.{name}")
            module.add_arguments(verb)
            verb.set_defaults(run=module.run)
    return parser


_ROUTE = (
    "CHECKPOINT is a checkpoint folder, a config.json, a .safetensors or .gguf file, a folder of "
    "the hub's cache, - for a config.json on standard input, or, if nothing local has that name, a "
    "repo id owner/name[@revision]. Only the config is read."
)


_EXIT_CODES = (
    "Exit codes: 0 lane or all good, 1 a test or comparison failed, 2 usage, 3 refused, 4 input "
    "unreadable (an E rule), 5 table invalid. Of several checkpoints the highest code counts."
)


def _rules_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help="a table to use instead of the shipped one; pack:NAME is an installed rule pack's",
    )


def _table(path: str | None) -> Table:
    try:
        return compile_table(path)
    except OSError as error:
        raise _Usage(f"cannot read the rules file `{path}`: {error.strerror or error}") from error


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


def _route(arguments: argparse.Namespace) -> int:
    from dspark.find import find_checkpoints

    table = _table(arguments.rules)
    sources: list[str] = arguments.checkpoints
    if arguments.recursive:
        sources = []
        for top in arguments.checkpoints:
            if not os.path.isdir(top):  # noqa: PTH112 - the other one raises for a name too long
                raise _Usage(f"--recursive needs a folder, and `{top}` is none")
            found = list(find_checkpoints(top))
            if not found:
                raise _Usage(f"no folder under `{top}` has a config.json")
            sources += found
    code = OK
    counts: Counter[int] = Counter()
    for source in progress(sources, "routing"):
        stdin = getattr(sys.stdin, "buffer", None) if source == "-" else None
        decision = _decide(table, source, stdin, check=arguments.check)
        code = max(code, _code(decision))
        if arguments.quiet:
            continue
        if arguments.json:
            write([[json.dumps(decision.to_json())]])
            continue
        from dspark.render import decision_lines, explain_lines

        write(explain_lines(decision) if arguments.explain else decision_lines(decision))
        counts[_code(decision)] += 1
    if sum(counts.values()) > 1:
        write([[_tally(counts)]])
    return code


def _tally(counts: Counter[int]) -> str:
    lanes, refused, unreadable = counts[OK], counts[REFUSED], counts[UNREADABLE]
    text = f"{sum(counts.values())} checkpoints: {lanes} in a lane, {refused} refused"
    return f"{text}, {unreadable} unreadable" if unreadable else text


def _decide(table: Table, source: str, stdin: BinaryIO | None, *, check: bool) -> Decision:
    if check:
        from dspark.checked import check_source

        return check_source(table, source, stdin=stdin)
    from dspark.routing import decide_source

    return decide_source(table, source, stdin=stdin)


def _code(decision: Decision) -> int:
    if letter(decision.rule_id) == "E":
        return UNREADABLE
    return OK if decision.lane is not None else REFUSED


def _plan(arguments: argparse.Namespace) -> int:
    try:
        refused = run_plan(arguments, _table(arguments.rules))
    except IdleOption as mistake:
        raise _Usage(mistake) from None
    return OK if refused is None else _code(refused)


def _handoff(arguments: argparse.Namespace) -> int:
    try:
        refused = run_handoff(arguments, _table(arguments.rules))
    except BadCall as mistake:
        raise _Usage(mistake) from None
    return OK if refused is None else _code(refused)


def _check(arguments: argparse.Namespace) -> int:
    from dspark.check import check, is_shipped
    from dspark.contract_check import check_contracts, read_file, read_shipped, routes_of
    from dspark.handoff_check import prove_handoffs
    from dspark.parity_check import check_packs
    from dspark.parity_compile import shipped_packs
    from dspark.render import check_lines, contract_lines
    from dspark.render_parity import pack_lines

    if arguments.file is not None and not is_pack(arguments.file):
        try:
            benches = read_file(Path(arguments.file))
        except OSError as error:
            reason = error.strerror or error
            raise _Usage(f"cannot read the rules file `{arguments.file}`: {reason}") from error
        if benches is not None:
            found = check_contracts(benches, arguments.file)
            lines = [[json.dumps(found.to_json())]] if arguments.json else contract_lines(found)
            write(lines)
            return OK if found.passed else FAILED
    table = _table(arguments.file)
    if not arguments.json:
        # Seconds pass before the rest: say at once what has been proved.
        write([[f"{table.file}: {len(table.rules)} rules, 0 diagnostics, table {table.version}"]])
        flush()
    contracts = read_shipped(routes_of(table)) if is_shipped(table) else ()
    if contracts:
        prove_handoffs(table)
    packs = shipped_packs() if contracts else ()
    report = check(table)
    found = check_contracts(contracts)
    held = check_packs(packs)
    if arguments.json:
        more: dict[str, object] = {}
        if contracts:
            more = {"contracts": found.to_json(), "packs": [each.to_json() for each in held]}
        write([[json.dumps(report.to_json() | more)]])
    else:
        write(check_lines(report))
        write(contract_lines(found) if contracts else [])
        write(pack_lines(held) if packs else [])
    passed = report.passed and found.passed and all(each.passed for each in held)
    return OK if passed else FAILED


def _engines(arguments: argparse.Namespace) -> int:
    unreadable = run_engines(arguments, _table(arguments.rules))
    return max((_code(each) for each in unreadable), default=OK)


def _parity(arguments: argparse.Namespace) -> int:
    try:
        passed = run_parity(arguments, _table(arguments.rules))
    except NoSuchPack as mistake:
        raise _Usage(mistake) from None
    return OK if passed else FAILED


def _explain(arguments: argparse.Namespace) -> int:
    from dspark.cli_explain import NoSuchRule, explain_rule

    try:
        write(explain_rule(_table(arguments.rules), arguments.rule))
    except NoSuchRule as mistake:
        raise _Usage(mistake) from None
    return OK


def _diff(arguments: argparse.Namespace) -> int:
    from dspark.compare import compare_tables
    from dspark.render import difference_lines

    old, new = _table(arguments.old), _table(arguments.new)
    differences = compare_tables(old, new)
    if arguments.json:
        write([json.dumps(change.to_json())] for change in differences)
    elif differences:
        write(difference_lines(differences))
        count = len(differences)
        write([[f"{count} kind{'s' * (count > 1)} of config change{'s' * (count == 1)} decision"]])
    else:
        write([["no config changes decision"]])
    return FAILED if differences else OK


def _rules(arguments: argparse.Namespace) -> int:
    table = _table(arguments.rules)
    rules = [*table.rules.values(), *read_messages().values()]
    lines: list[Line] = []
    for rule in rules:
        if arguments.json:
            record = {"rule_id": rule.id, "name": rule.name, "lane": rule.lane}
            record["message"] = rule.refuse.text if rule.refuse else None
            lines.append([json.dumps(record)])
        else:
            outcome = f"lane {rule.lane}" if rule.lane is not None else "refused"
            lines.append([f"{rule.id}  {rule.name:<34} {outcome}"])
    write(lines)
    return OK


def _graph(arguments: argparse.Namespace) -> int:
    table = _table(arguments.rules)
    if arguments.html is None:
        from dspark.graph_text import graph_text

        if arguments.old is not None:
            raise _Usage("--old needs --html: the other formats show one table")
        write([[graph_text(table, arguments.format)]])
        return OK
    from dspark.explorer import explorer_page

    page = explorer_page(table, _old_table(arguments))
    try:
        Path(arguments.html).write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _Usage(f"cannot write `{arguments.html}`: {reason}") from error
    return OK


def _explore(arguments: argparse.Namespace) -> int:
    from dspark.cli_explore import serve

    old = _old_table(arguments)
    _table(arguments.rules)  # an unreadable file is reported as every verb reports it
    try:
        serve(arguments.rules, old, arguments.port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _Usage(f"cannot serve on port {arguments.port}: {reason}") from error
    return OK


def _old_table(arguments: argparse.Namespace) -> Table | None:
    return None if arguments.old is None else _table(arguments.old)
