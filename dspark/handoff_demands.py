"""Whether an engine would run a draft as it was trained: the demands of a recipe on configs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from dspark.contract import Finding
from dspark.dimensions import same
from dspark.findings import catalogue, finding, phrase
from dspark.handoff_table import Demand, Tokens, Where
from dspark.messages import plain, quoted
from dspark.places import Blocked, look_up, steps

Config = Mapping[str, object]

OWN = "draft."
"""In front of the name of a key of the draft's own config, where a demand compares with one."""

_TEXT = ("text_config", "thinker_config.text_config")
"""Where a multimodal target keeps the config of its language model."""
_HEADS = ("num_attention_heads", "transformer_layer_config.num_attention_heads")
_KV_HEADS = ("num_key_value_heads", "transformer_layer_config.num_key_value_heads")


def value(config: Config, dotted: str) -> object:
    """The value at a dotted key, None where it is absent, null, or cannot be reached."""
    found = look_up(config, steps(dotted))
    return None if isinstance(found, Blocked) else found


def language_model(config: Config) -> Config:
    """The config of a target's language model, wherever its config keeps that."""
    nested = next((found for key in _TEXT if isinstance(found := value(config, key), Mapping)), {})
    return {**nested, **{key: each for key, each in config.items() if each is not None}}


def unmet(
    demands: Sequence[Demand], draft: Config, target: Config, *, name: str, version: str
) -> list[Finding]:
    """Every demand that is not met, in their order.

    `name` is what the engine is given to open, `version` the engine's own.
    """
    found: list[Finding] = []
    contradicted: set[object] = set()
    target = language_model(target)
    for demand in demands:
        if demand.unless is None or not holds(demand.unless, draft):
            for values in _CHECKS[demand.kind](demand, draft, target, name):
                # What the draft says against itself, it need not be told of its target too.
                if demand.other and values["key"] in contradicted:
                    continue
                found.append(worded(demand.finding, version=version, **values))
                if demand.other.startswith(OWN):
                    contradicted.add(values["key"])
    return found


def worded(name: str, **values: object) -> Finding:
    """The finding called `name` with those of the values that its message quotes."""
    quotes = catalogue().entries[name].forms[0].placeholders
    return finding(name, **{key: each for key, each in values.items() if key in quotes})


def holds(where: Where, config: Config) -> bool:
    """Whether the key has one of the values."""
    return _is_one_of(value(config, where.key), where.values)


def drafted(tokens: Tokens, config: Config) -> tuple[int | None, list[Finding]]:
    """How many tokens the draft proposes at a time, None if the config does not say."""
    place = _first(tokens.places, config)
    if place is None:
        return None, []
    width = value(config, place)
    if type(width) is not int:
        expected, got = phrase("integer"), json.dumps(width)
        return None, [finding("bad-type", key=place, expected=expected, got=got)]
    fewer = tokens.less_where is None or holds(tokens.less_where, config)
    less = tokens.less if fewer else 0
    if width - less < 1:
        return None, [finding("out-of-range", key=place, expected=f"{less + 1} or more", got=width)]
    return width - less, []


def shared_heads(size: int, models: Mapping[str, Config]) -> list[Finding]:
    """The models whose attention heads, or key-value heads, `size` GPUs cannot share evenly."""
    found = []
    for model, config in models.items():
        heads, kv_heads = (_number(keys, language_model(config)) for keys in (_HEADS, _KV_HEADS))
        said = {"size": size, "model": model}
        if heads is not None and heads % size:
            found.append(finding("handoff-heads-do-not-divide", heads=heads, **said))
        # Fewer key-value heads than GPUs are copied, each as many times.
        elif kv_heads is not None and kv_heads % size and size % kv_heads:
            found.append(finding("handoff-heads-do-not-divide", kv_heads=kv_heads, **said))
    return found


Wrong = Iterator[dict[str, object]]


def _present(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    if _first(demand.keys, draft) is None:
        yield {"expected": _listed(demand.keys)}


def _not_null(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    for key in demand.keys:
        if key in draft and draft[key] is None:
            yield {"key": key, "got": "null", "expected": phrase("absent")}


def _one_of(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    for key in demand.keys:
        got = value(draft, key)
        if got is not None and not _is_one_of(got, demand.values):
            yield {"key": key, "got": got, "expected": _listed(demand.values)}


def _equals(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    key = _first(demand.keys, draft)
    wanted = _other(demand, draft, target)
    if key is not None and wanted is not None and not _is_one_of(value(draft, key), (wanted,)):
        yield {"key": key, "got": value(draft, key), "expected": _called(demand, wanted)}


def _below(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    yield from _bounded(demand, draft, target, 1, "each-below")


def _at_most(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    yield from _bounded(demand, draft, target, 0, "at-most")


def _at_least(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    key = _first(demand.keys, draft)
    limit = _other(demand, draft, target)
    if key is None or type(limit) is not int:
        return
    got = value(draft, key)
    if type(got) is not int or got < limit:
        expected = phrase("at-least", other=_called(demand, limit))
        yield {"key": key, "got": got, "expected": expected}


def _increasing(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    key = _first(demand.keys, draft)
    ids = value(draft, key) if key is not None else None
    if not isinstance(ids, list | tuple) or any(type(each) is not int for each in ids):
        return  # what its entries are is the bounds' to say
    if list(ids) != sorted(set(ids)):
        yield {"key": key, "got": ids, "expected": phrase("increasing")}


def _bounded(demand: Demand, draft: Config, target: Config, less: int, words: str) -> Wrong:
    key = _first(demand.keys, draft)
    limit = _other(demand, draft, target)
    if key is None or type(limit) is not int:
        return
    ids = value(draft, key)
    entries = ids if isinstance(ids, list | tuple) else [ids]
    own = demand.other.startswith(OWN)
    # Counted from before the first layer, which is where the embeddings are.
    least = -less if demand.least is None else demand.least
    if any(each > limit - less if type(each) is int else not own for each in entries):
        yield {"key": key, "got": ids, "expected": phrase(words, other=_called(demand, limit))}
    elif own:
        return  # what else an entry has to be is asked beside the target's number
    elif not entries:
        yield {"key": key, "got": ids, "expected": phrase("entries")}
    elif any(type(each) is int and each < least for each in entries):
        expected = phrase("each-in-range", least=least, greatest=limit - less)
        yield {"key": key, "got": ids, "expected": expected}


def _target(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    (fact,) = demand.keys
    if fact == "architecture":
        listed = target.get("architectures")
        entries = listed if isinstance(listed, list | tuple) else []
    else:
        entries = [target.get(fact)]
    wanted = demand.values
    if not any(_is_one_of(each, wanted) if wanted else each is not None for each in entries):
        got = ", ".join(quoted(entry) for entry in entries) or "absent"
        yield {"key": fact, "got": got, "expected": _listed(wanted) if wanted else phrase("set")}


def _captured(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    listed = target.get("architectures")
    # The engine takes the first that it registers, and it registers all that are listed here.
    first = listed[0] if isinstance(listed, list | tuple) and listed else None
    if first in demand.values:
        yield {"got": quoted(first)}


def _name_without(demand: Demand, draft: Config, target: Config, name: str) -> Wrong:  # noqa: ARG001
    word = next((word for word in demand.keys if word in name.lower()), None)
    if word is not None:
        yield {"got": word}


_CHECKS = {
    "present": _present,
    "not-null": _not_null,
    "one-of": _one_of,
    "equals": _equals,
    "below": _below,
    "at-most": _at_most,
    "at-least": _at_least,
    "increasing": _increasing,
    "target": _target,
    "captured": _captured,
    "name-without": _name_without,
}


def _first(keys: Sequence[str], config: Config) -> str | None:
    return next((key for key in keys if value(config, key) is not None), None)


def _number(keys: Sequence[str], config: Config) -> int | None:
    key = _first(keys, config)
    got = value(config, key) if key is not None else None
    return got if type(got) is int else None


def _is_one_of(got: object, values: Sequence[object]) -> bool:
    return any(same(got, each) for each in values)


def _listed(values: Sequence[object]) -> str:
    words = [quoted(each) for each in values]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _other(demand: Demand, draft: Config, target: Config) -> object:
    if demand.other.startswith(OWN):
        return value(draft, demand.other.removeprefix(OWN))
    return value(target, demand.other)


def _called(demand: Demand, wanted: object) -> str:
    own = demand.other.startswith(OWN)
    name = "key" if own else "target-key"
    return phrase(name, value=plain(wanted), other=demand.other.removeprefix(OWN))
