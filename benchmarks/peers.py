"""Other ways to decide the same rows: a bare dict look-up, and packaged rule engines.

Each engine is given the facts in the form it likes best, prepared outside the timed call, and each
of its paths that could be the fastest is an entry here. Only tables whose rows do not ask for
`markov` can be given to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks.tables import DEFAULT, Facts, Row
from benchmarks.timing import Call


class Peer(NamedTuple):
    """One path through one engine, loaded with a table."""

    name: str
    call: Callable[[Facts], Call]
    """The call that decides these facts; everything that can be prepared has been."""
    answer: Callable[[Any], str]
    """The rule's ID in what the call returns; not part of what is timed."""


def disagreements(peer: Peer, wanted: Mapping[str, tuple[Facts, str]]) -> list[str]:
    """What a peer gets wrong, as lines of text; it may only be timed when this is empty."""
    wrong = []
    for name, (facts, rule_id) in wanted.items():
        function, arguments = peer.call(facts)
        got = peer.answer(function(*arguments))
        if got != rule_id:
            wrong.append(f"{peer.name}, {name}: {got} instead of {rule_id}")
    return wrong


def floor(table: Sequence[Row]) -> Peer:
    """Two dict look-ups: what deciding costs when nothing else is asked of it."""
    index: dict[str, dict[str, str]] = {}
    for row in table:
        index.setdefault(row.model_type, {})[row.architecture] = row.id
    nothing: dict[str, str] = {}

    def look_up(architecture: str, model_type: str) -> str:
        return index.get(model_type, nothing).get(architecture, DEFAULT)

    return Peer("two dict look-ups", lambda facts: Call(look_up, tuple(facts[:2])), str)


ZEN_EXPRESSION = "zen: one hand-written expression"


def zen(table: Sequence[Row]) -> list[Peer]:
    """ZEN: a decision table behind a static loader or on its own, and one expression."""
    engine_module = import_module("zen")
    content = _zen_graph(table)
    engine = engine_module.ZenEngine({"loader": {"type": "static", "content": {"drafts": content}}})
    own = engine_module.ZenEngine().create_decision(json.dumps(content))
    expression = engine_module.compile_expression(_conditional(table, "and"))

    def of_response(response: Mapping[str, Any]) -> str:
        return str(response["result"]["rule"])

    return [
        Peer(
            "zen: static loader, dict",
            lambda facts: Call(engine.evaluate, ("drafts", _mapping(facts))),
            of_response,
        ),
        Peer(
            "zen: static loader, JSON text",
            lambda facts: Call(engine.evaluate, ("drafts", json.dumps(_mapping(facts)))),
            of_response,
        ),
        Peer(
            "zen: static loader, JSON bytes",
            lambda facts: Call(engine.evaluate, ("drafts", json.dumps(_mapping(facts)).encode())),
            of_response,
        ),
        Peer(
            "zen: create_decision",
            lambda facts: Call(own.evaluate, (_mapping(facts),)),
            of_response,
        ),
        # No table: the caller would write, and keep right, one conditional for all rules.
        Peer(ZEN_EXPRESSION, lambda facts: Call(expression.evaluate, (_mapping(facts),)), str),
    ]


def cel(table: Sequence[Row]) -> list[Peer]:
    """cel-python: one conditional expression, compiled and interpreted."""
    celpy = import_module("celpy")
    peers = []
    for name, runner in (
        ("compiled", celpy.CompiledRunner),
        ("interpreted", celpy.InterpretedRunner),
    ):
        environment = celpy.Environment(runner_class=runner)
        program = environment.program(environment.compile(_conditional(table, "&&")))
        peers.append(
            Peer(
                f"cel-python: {name}",
                lambda facts, evaluate=program.evaluate: Call(  # type: ignore[misc]
                    evaluate, (celpy.json_to_cel(_mapping(facts)),)
                ),
                str,
            )
        )
    return peers


def regorus(table: Sequence[Row]) -> list[Peer]:
    """regorus: the rows as a data document, and as a chain of `else`."""
    make = import_module("regorus").Engine
    index: dict[str, dict[str, str]] = {}
    for row in table:
        index.setdefault(row.model_type, {})[row.architecture] = row.id
    by_data = make()
    by_data.add_policy(
        "drafts.rego",
        f'package drafts\ndefault decision := "{DEFAULT}"\n'
        "decision := data.rows[input.model_type][input.architecture]\n",
    )
    by_data.add_data({"rows": index})
    by_chain = make()
    arms = [
        f'decision := "{row.id}" if {{ input.architecture == "{row.architecture}"; '
        f'input.model_type == "{row.model_type}" }}'
        for row in table
    ]
    chain = "\nelse := ".join([arms[0], *(arm.removeprefix("decision := ") for arm in arms[1:])])
    by_chain.add_policy(
        "drafts.rego",
        f'package drafts\nimport rego.v1\ndefault decision := "{DEFAULT}"\n{chain}\n',
    )
    peers = []
    for name, engine in (("data map", by_data), ("else chain", by_chain)):
        # Both setters exist; which of them is faster depends on the input's size.
        for form, set_input, prepare in (
            ("dict", engine.set_input, _mapping),
            ("JSON text", engine.set_input_json, lambda facts: json.dumps(_mapping(facts))),
        ):
            peers.append(_regorus_peer(f"regorus: {name}, {form}", engine, set_input, prepare))
    return peers


def _regorus_peer(
    name: str,
    engine: Any,
    set_input: Callable[[Any], None],
    prepare: Callable[[Facts], object],
) -> Peer:
    evaluate = engine.eval_rule

    def decide(prepared: object) -> object:
        set_input(prepared)
        return evaluate("data.drafts.decision")

    return Peer(name, lambda facts: Call(decide, (prepare(facts),)), str)


def json_logic(table: Sequence[Row]) -> list[Peer]:
    """json-logic: one `if` with a branch per row."""
    logic: list[object] = []
    for row in table:
        same_architecture = {"===": [{"var": "architecture"}, row.architecture]}
        same_type = {"===": [{"var": "model_type"}, row.model_type]}
        logic += [{"and": [same_type, same_architecture]}, row.id]
    evaluate = import_module("json_logic").jsonLogic
    rule = {"if": [*logic, DEFAULT]}
    return [Peer("json-logic", lambda facts: Call(evaluate, (rule, _mapping(facts))), str)]


ENGINES: dict[str, Callable[[Sequence[Row]], list[Peer]]] = {
    "zen-engine": zen,
    "cel-python": cel,
    "celine-regorus": regorus,
    "json-logic-qubit": json_logic,
}
"""Distribution name -> its paths."""


def _mapping(facts: Facts) -> dict[str, str]:
    return {"architecture": facts.architecture, "model_type": facts.model_type}


def _conditional(table: Sequence[Row], both: str) -> str:
    text = f'"{DEFAULT}"'
    for row in reversed(table):
        same_type = f'model_type == "{row.model_type}"'
        same_architecture = f'architecture == "{row.architecture}"'
        text = f'{same_type} {both} {same_architecture} ? "{row.id}" : {text}'
    return text


def _zen_graph(table: Sequence[Row]) -> dict[str, object]:
    columns = [
        {"id": field, "name": field, "field": field} for field in ("architecture", "model_type")
    ]
    rules: list[dict[str, str]] = [
        {
            "_id": row.id,
            "architecture": f'"{row.architecture}"',
            "model_type": f'"{row.model_type}"',
            "rule": f'"{row.id}"',
        }
        for row in table
    ]
    rules.append({"_id": DEFAULT, "architecture": "", "model_type": "", "rule": f'"{DEFAULT}"'})
    return {
        "nodes": [
            {"id": "in", "name": "in", "type": "inputNode"},
            {
                "id": "table",
                "name": "table",
                "type": "decisionTableNode",
                "content": {
                    "hitPolicy": "first",
                    "inputs": columns,
                    "outputs": [{"id": "rule", "name": "rule", "field": "rule"}],
                    "rules": rules,
                },
            },
            {"id": "out", "name": "out", "type": "outputNode"},
        ],
        "edges": [
            {"id": "1", "sourceId": "in", "targetId": "table", "type": "edge"},
            {"id": "2", "sourceId": "table", "targetId": "out", "type": "edge"},
        ],
    }
