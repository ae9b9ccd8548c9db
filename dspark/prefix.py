"""The IDs of a rule pack under the pack's name, so that a log line says whose rule decided."""

from __future__ import annotations

from collections.abc import Iterable

from dspark.rule import Rule
from dspark.table import Source


def prefixed(source: Source, pack: str) -> Source:
    """The same table with `L001` of the pack `acme` called `acme:L001` throughout."""
    ids = {rule_id: f"{pack}:{rule_id}" for rule_id in (*source.rules, *source.retired)}

    def renamed(rule: Rule) -> Rule:
        return rule._replace(
            id=ids[rule.id],
            before=_all(rule.before, ids),
            cases=tuple(
                # A test may expect one of the shared `E` rules, which no pack owns.
                case._replace(rule_id=ids[rule.id], expected=ids.get(case.expected, case.expected))
                for case in rule.cases
            ),
        )

    return source._replace(
        default=ids.get(source.default, source.default),
        rules={ids[rule_id]: renamed(rule) for rule_id, rule in source.rules.items()},
        retired={
            ids[tomb.id]: tomb._replace(id=ids[tomb.id], use=ids.get(tomb.use, tomb.use))
            for tomb in source.retired.values()
        },
        unread_when=_all(source.unread_when, ids),
        unread_tests=_all(source.unread_tests, ids),
    )


def _all(rule_ids: Iterable[str], ids: dict[str, str]) -> frozenset[str]:
    return frozenset(ids.get(rule_id, rule_id) for rule_id in rule_ids)
