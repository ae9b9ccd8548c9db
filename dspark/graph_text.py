"""The decision graph written down: text, Mermaid, DOT or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from dspark.compiled import Table
from dspark.facts import FACTS, Cell
from dspark.graph import Node, walk
from dspark.rule import Rule

FORMATS = ("text", "mermaid", "dot", "json")


def graph_text(table: Table, form: str) -> str:
    """The graph of `table` in one of `FORMATS`, without a final newline."""
    return {"text": _text, "mermaid": _mermaid, "dot": _dot, "json": _json}[form](table)


def _named(start: Node) -> dict[int, tuple[str, Node]]:
    """id(node) -> (name, node): `n0` is the root, a leaf is named after its rule."""
    names: dict[int, tuple[str, Node]] = {}
    number = 0
    for node in walk(start):
        if isinstance(node, Rule):
            names[id(node)] = (node.id, node)
        else:
            names[id(node)] = (f"n{number}", node)
            number += 1
    return names


def _edges(table: Table, node: Node) -> Iterator[tuple[str, Node]]:
    """(label, child), cells that lead to the same child together, the rest last."""
    if isinstance(node, Rule):
        return
    index, branches, other = node
    groups: dict[int, list[Cell]] = {}
    children: dict[int, Node] = {}
    for cell, child in branches.items():
        groups.setdefault(id(child), []).append(cell)
        children[id(child)] = child
    for key, cells in groups.items():
        yield ", ".join(_word(cell) for cell in cells), children[key]
    closed = FACTS[table.facts[index]].cells
    if closed is None:
        yield "otherwise", other
    else:
        rest = [cell for cell in closed if cell not in branches]
        if rest:
            yield ", ".join(_word(cell) for cell in rest), other


def _word(cell: Cell) -> str:
    return "ABSENT" if cell is None else cell


def _leaf(rule: Rule) -> str:
    return f"lane {rule.lane}" if rule.lane is not None else f"refuse {rule.name}"


def _text(table: Table) -> str:
    names = _named(table.built.root)
    lines = [f"table {table.name} {table.version}: {' -> '.join(table.facts)}"]
    for name, node in names.values():
        if isinstance(node, Rule):
            lines.append(f"{name}  {_leaf(node)}")
            continue
        lines.append(f"{name}  {table.facts[node[0]]}?")
        lines += [f"    {label}: {names[id(child)][0]}" for label, child in _edges(table, node)]
    return "\n".join(lines)


def _mermaid(table: Table) -> str:
    names = _named(table.built.root)
    lines = ["flowchart LR"]
    for name, node in names.values():
        word = _plain(name)
        if isinstance(node, Rule):
            shape = (
                f'(["{name} {node.name}"])' if node.lane is not None else f'["{name} {node.name}"]'
            )
            lines.append(f"  {word}{shape}")
            continue
        lines.append(f'  {word}{{"{table.facts[node[0]]}"}}')
        for label, child in _edges(table, node):
            lines.append(f'  {word} -->|"{_short(label)}"| {_plain(names[id(child)][0])}')
    return "\n".join(lines)


def _dot(table: Table) -> str:
    names = _named(table.built.root)
    lines = ["digraph drafts {", "  rankdir=LR;"]
    for name, node in names.values():
        word = _plain(name)
        if isinstance(node, Rule):
            shape = "box" if node.lane is None else "oval"
            label = json.dumps(f"{name} {node.name}")
            lines.append(f"  {word} [shape={shape}, label={label}];")
            continue
        lines.append(f'  {word} [shape=diamond, label="{table.facts[node[0]]}"];')
        for label, child in _edges(table, node):
            leads = _plain(names[id(child)][0])
            lines.append(f"  {word} -> {leads} [label={json.dumps(_short(label))}];")
    return "\n".join([*lines, "}"])


def _plain(name: str) -> str:
    """A node's name as Mermaid and DOT take one: a rule pack's IDs have punctuation in them."""
    return re.sub(r"\W", "_", name)


def _short(label: str) -> str:
    words = label.split(", ")
    return label if len(words) <= 4 else f"{', '.join(words[:3])} and {len(words) - 3} more"


def _json(table: Table) -> str:
    return json.dumps(graph_object(table), indent=1)


def graph_object(table: Table) -> dict[str, object]:
    """What `--format json` prints."""
    return {
        "table": table.name,
        "table_version": table.version,
        "facts": list(table.facts),
        "architectures": sorted(table.architectures),
        **nodes_object(table.built.root, table.facts),
    }


def nodes_object(start: Node, facts: Sequence[str]) -> dict[str, object]:
    """A graph's nodes by name, and its first; `branches` lists [cell, node], ABSENT as null."""
    names = _named(start)
    nodes: dict[str, object] = {}
    for name, node in names.values():
        if isinstance(node, Rule):
            nodes[name] = {"rule_id": node.id, "name": node.name, "lane": node.lane}
            continue
        index, branches, other = node
        nodes[name] = {
            "fact": facts[index],
            "branches": [[cell, names[id(child)][0]] for cell, child in branches.items()],
            "other": names[id(other)][0],
        }
    return {"root": names[id(start)][0], "nodes": nodes}
