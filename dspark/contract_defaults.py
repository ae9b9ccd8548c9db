"""What a key of a contract is where no place fills it, as its author wrote it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from yaml.nodes import MappingNode, Node, ScalarNode

from dspark.contract import Default, Key, Value
from dspark.contract_keys import Declared, texts, unknown
from dspark.document import Document
from dspark.typed import convert, has_type, in_range

Routes = Mapping[str, Collection[str]]
"""Lane -> the names of the routing rules that lead to it."""

_DEFAULTS = ("key", "quotient", "fill", "by_rule", "tensor")


def read_default(
    declared: Declared, keys: Mapping[str, Key], lane: str, routes: Routes | None
) -> Default | None:
    """The default of a key, or None if it is required.

    `keys` are all of the contract's; `routes`, if given, say which rules a default by rule must
    name.
    """
    key, node, document = declared
    if node is None:
        return None
    if not isinstance(node, MappingNode):
        return Default(value=_literal(document, key, node))
    fields = document.fields(node, f"the default of `{key.name}`", _DEFAULTS)
    if len(fields) != 1:
        document.wrong(node, f"the default of `{key.name}`", f"one of {', '.join(_DEFAULTS)}")
        return None
    kind, value = next(iter(fields.items()))
    if kind == "by_rule":
        return Default(by_rule=_by_rule(document, key, value, lane, routes))
    if kind == "tensor":
        if key.type != "boolean":
            _bad_default(document, key, value, "whether a tensor is there")
        return Default(tensor=document.text(value, "`tensor`") or "")
    return _from_keys(document, key, kind, value, keys)


def _from_keys(
    document: Document, key: Key, kind: str, node: Node, keys: Mapping[str, Key]
) -> Default | None:
    named = texts(document, node, f"`{kind}`")
    if len(named) != (1 if kind == "key" else 2):
        document.wrong(node, f"`{kind}`", "one key" if kind == "key" else "a list of two")
        return None
    for name, wanted in _operands(kind, key, named).items():
        _check_operand(document, node, key, name, wanted, keys)
    if kind == "key":
        return Default(key=named[0])
    wanted, what = ("integer", "a quotient") if kind == "quotient" else ("texts", "a list of words")
    if key.type != wanted:
        _bad_default(document, key, node, what)
    first, second = named
    if kind == "quotient":
        return Default(quotient=(first, second))
    return Default(fill=(first, second))


def _operands(kind: str, key: Key, named: Sequence[str]) -> dict[str, str]:
    if kind == "fill":
        return {named[1]: "integer"}
    return dict.fromkeys(named, key.type if kind == "key" else "integer")


def _check_operand(
    document: Document, node: Node, key: Key, name: str, wanted: str, keys: Mapping[str, Key]
) -> None:
    if name not in keys:
        unknown(document, node, "key", name, keys)
    elif wanted and keys[name].type and keys[name].type != wanted:
        _bad_default(document, key, node, f"that of `{name}`, of type `{keys[name].type}`", wanted)


def check_chain(declared: Declared, keys: Mapping[str, Key]) -> None:
    """Reports a default taken from a key that takes its own from a third."""
    default = declared.key.default
    if default is None or declared.default is None:
        return
    used = [default.key, *(default.quotient or ()), *(default.fill or ("", ""))[1:]]
    for name in used:
        other = keys[name].default if name in keys else None
        if other is not None and (other.key or other.quotient or other.fill):
            document = declared.document
            found = f"that of `{name}`, which is a default from another key itself"
            _bad_default(document, declared.key, declared.default, found)


def _literal(document: Document, key: Key, node: Node) -> Value:
    value = document.data(node)
    if value is None or not key.type:
        return None
    if not has_type(value, key.type):
        _bad_default(document, key, node, _shown(node))
        return None
    if not in_range(value, key):
        _bad_default(document, key, node, f"{_shown(node)}, outside its range")
        return None
    return convert(value, key)


def _by_rule(
    document: Document, key: Key, node: Node, lane: str, routes: Routes | None
) -> dict[str, Value]:
    found = {}
    rules = routes.get(lane, ()) if routes is not None else None
    for rule, (rule_node, value) in document.mapping(node, "`by_rule`").items():
        if rules is not None and rule not in rules:
            unknown(document, rule_node, f"rule that leads to `{lane}`", rule, rules)
        literal = _literal(document, key, value)
        if literal is None:
            document.wrong(value, f"the default for `{rule}`", "a value", "null or another type")
        found[rule] = literal
    for rule in rules or ():
        if rule not in found:
            place = document.place(node)
            document.report.add("unlisted-rule", place, rule=rule, lane=lane, key=key.name)
    return found


def _bad_default(document: Document, key: Key, node: Node, found: str, wanted: str = "") -> None:
    wanted = f"type `{wanted or key.type}`"
    document.report.add(
        "bad-default", document.place(node), key=key.name, found=found, wanted=wanted
    )


def _shown(node: Node) -> str:
    return f"`{node.value}`" if isinstance(node, ScalarNode) else "a list"
