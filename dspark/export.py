"""A compiled table as data for a page that decides by itself: the graph, the rules, the texts."""

from __future__ import annotations

import json

from dspark.cases import source_kind
from dspark.compare import compare_tables
from dspark.compiled import Table
from dspark.condition import sort_cells
from dspark.export_engines import engines
from dspark.facts import (
    ALGORITHM_OF_KEY,
    DRAFT_KEYS,
    FACTS,
    IN_TARGET_KEYS,
    NESTED_KEYS,
    OTHER,
)
from dspark.graph_text import graph_object
from dspark.rule import Case, Rule
from dspark.strict_json import DEEPEST_NESTING, LARGEST_CONFIG

Json = dict[str, object]


def export(table: Table, old: Table | None = None) -> Json:
    """Everything the page shows and decides by; with `old`, what changed since then too."""
    return {
        "table": table_object(table),
        "old": None if old is None else table_object(old),
        "changes": [] if old is None else [one.to_json() for one in compare_tables(old, table)],
        "compared": [fact for fact in FACTS if old and fact in {*old.facts, *table.facts}],
        "other": OTHER,
        "facts": {fact.name: fact.asks for fact in FACTS.values()},
        "constants": constants(),
        "engines": engines(),
    }


def constants() -> Json:
    """What facts are read by."""
    return {
        "draft_keys": DRAFT_KEYS,
        "in_target_keys": IN_TARGET_KEYS,
        "nested_keys": NESTED_KEYS,
        "algorithm_of_key": ALGORITHM_OF_KEY,
        "largest_config": LARGEST_CONFIG,
        "deepest_nesting": DEEPEST_NESTING,
    }


def table_object(table: Table) -> Json:
    """The graph of `graph --format json`, with the rules and messages that its leaves stand for."""
    messages = table.messages()
    return graph_object(table) | {
        "closed": {fact: FACTS[fact].cells for fact in table.facts if FACTS[fact].cells},
        "rules": {rule.id: _rule(rule, table) for rule in table.rules.values()},
        "messages": {name: _rule(rule, table) for name, rule in messages.items()},
    }


def _rule(rule: Rule, table: Table) -> Json:
    return {
        "id": rule.id,
        "name": rule.name,
        "lane": rule.lane,
        "refuse": rule.refuse.text if rule.refuse else "",
        "help": rule.help.text if rule.help else "",
        "why": rule.why,
        "refs": rule.refs,
        "before": sorted(rule.before),
        "when": [
            {
                fact: {
                    "cells": sort_cells(condition.cells),
                    "negated": condition.negated,
                    "text": str(condition),
                }
                for fact, condition in when.items()
            }
            for when in rule.when
        ],
        "default": rule is table.default,
        "tests": len(rule.cases),
        "example": next(filter(None, map(_example, rule.cases)), None),
    }


def _example(case: Case) -> str:
    """The config.json that a test stands for, where it is one that can be pasted."""
    if case.kind != "hit":
        return ""
    kind = source_kind(case.given)
    if kind == "text":
        return str(case.given["text"])
    given = case.given["config"] if kind == "config" else case.given
    return json.dumps(given, indent=2) if kind in ("", "config") else ""
