"""The parity packs as data, for a page that says what each engine would do with a config.

A page has a config and neither flags nor a path. What a pack reads of those is the same for every
config, once a command is chosen; so it is read here, and the page reads the config's keys alone.
"""

from __future__ import annotations

from dspark.condition import sort_cells
from dspark.graph_text import nodes_object
from dspark.parity_compile import shipped_packs
from dspark.parity_facts import FLAG, Asked, Question
from dspark.parity_pack import JOIN, REFUSES, Command, Pack
from dspark.rule import Rule

Json = dict[str, object]


def engines() -> list[Json]:
    """Every parity pack that ships; empty if there is none. Raises `TableError` for a bad one."""
    return [_pack(pack) for pack in shipped_packs()]


def _pack(pack: Pack) -> Json:
    return nodes_object(pack.built.root, pack.facts) | {
        "name": pack.name,
        "engine": pack.engine,
        "version": pack.version,
        "registry": pack.registry,
        "reads": [asked._asdict() for asked in pack.asked if _reads_config(asked)],
        "commands": [_command(command, pack) for command in pack.commands],
        "rules": {rule.id: _rule(rule, pack) for rule in pack.rules.values()},
    }


def _reads_config(asked: Asked) -> bool:
    keys = [place for place in asked.against if not place.startswith(FLAG)]
    return asked.source in ("key", "entry") or bool(keys)


def _command(command: Command, pack: Pack) -> Json:
    question = Question({}, command.flags)
    return {
        "text": command.text,
        "flags": command.flags,
        "when": {
            fact: {"cells": sort_cells(condition.cells), "negated": condition.negated}
            for fact, condition in command.when.items()
        },
        "cells": {
            asked.name: asked.read(question, pack.registry)
            for asked in pack.asked
            if not _reads_config(asked)
        },
    }


def _rule(rule: Rule, pack: Pack) -> Json:
    outcome, _, lane = (rule.lane or REFUSES).partition(JOIN)
    return {
        "id": rule.id,
        "name": rule.name,
        "outcome": outcome,
        "lane": pack.after.get(rule.id, "") if rule.refuse else lane,
        "says": rule.refuse.text if rule.refuse else rule.why,
        "refs": rule.refs,
    }
