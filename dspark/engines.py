"""What each engine does with a checkpoint, by its parity pack, and what to type for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dspark.parity_facts import Question
from dspark.parity_pack import RUNS, SWALLOWS, Answer, Command, Pack

SOURCE = "{source}"
"""Stands for the checkpoint in a command of a pack."""

_PLAIN = re.compile(r"[\w./@:+=-]+")


class Try(NamedTuple):
    """One way to start an engine, and what it then does with the draft."""

    command: Command
    answer: Answer

    def typed(self, source: str) -> str:
        """The command, with `source` in it unless a shell would take it apart."""
        return self.command.text.replace(SOURCE, source if _PLAIN.fullmatch(source) else "DRAFT")

    def to_json(self, source: str) -> dict[str, object]:
        answer = self.answer
        return {
            "outcome": answer.outcome,
            "lane": answer.lane or None,
            "rule_id": answer.rule.id,
            "name": answer.rule.name,
            "text": answer.text,
            "type": self.typed(source),
        }


class EngineAnswer(NamedTuple):
    """What one engine does with one checkpoint, in the way that suits the checkpoint best."""

    pack: Pack
    best: Try
    traps: tuple[Try, ...]
    """Ways to start it that swallow the draft, where another way runs it."""

    @property
    def outcome(self) -> str:
        return self.best.answer.outcome

    def to_json(self, source: str) -> dict[str, object]:
        return {
            "pack": self.pack.name,
            "engine": self.pack.engine,
            "version": self.pack.version,
            **self.best.to_json(source),
            "traps": [trap.to_json(source) for trap in self.traps],
        }


def ask_engine(pack: Pack, config: Mapping[str, object], path: str) -> EngineAnswer:
    """The answer of one engine for a draft with this config that is typed as `path`.

    Of the pack's commands those count whose condition the config meets. The first that runs the
    draft is the answer, or else the first, which is the one that fits its kind best.
    """
    tries = []
    for command in pack.commands:
        question = Question(config, command.flags, path)
        cells = dict(zip(pack.facts, pack.cells(question), strict=True))
        if all(condition.accepts(cells[fact]) for fact, condition in command.when.items()):
            tries.append(Try(command, pack.answer(question)))
    best = next((each for each in tries if each.answer.outcome == RUNS), tries[0])
    traps = tuple(each for each in tries if each.answer.outcome == SWALLOWS)
    return EngineAnswer(pack, best, traps if best.answer.outcome == RUNS else ())


def unread(pack: Pack) -> EngineAnswer:
    """The answer where there is no config.json: what the pack says of what it never asked."""
    question = Question({})
    cells = pack.cells(question)
    return EngineAnswer(
        pack, Try(pack.commands[0], pack.answer_of(pack.default, question, cells)), ()
    )


def ask_engines(
    packs: Sequence[Pack], config: Mapping[str, object], path: str
) -> tuple[EngineAnswer, ...]:
    """The answer of each engine, in the order of the packs."""
    return tuple(ask_engine(pack, config, path) for pack in packs)
