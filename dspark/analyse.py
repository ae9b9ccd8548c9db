"""What the graph proves about a table: no overlap, no gap, no dead or shadowed rule.

Everything here reads the one enumeration that `graph.build` makes; each problem comes with a
config.json that shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from dspark.diagnostics import Note, Report
from dspark.facts import NESTED_KEYS, Cell
from dspark.graph import Built
from dspark.messages import Template
from dspark.rule import Rule
from dspark.spelling import nearest
from dspark.table import Source


def witness(facts: Sequence[str], cells: Sequence[Cell]) -> dict[str, object] | None:
    """A config.json with exactly these cells; None where no JSON file can have them (GGUF).

    Facts past the end of `cells` are free.
    """
    cell = dict(zip(facts, cells, strict=False))
    packaging = cell.get("packaging", "flat")
    algorithm = cell.get("algorithm")
    if packaging == "gguf":
        return None
    config: dict[str, object] = {}
    if cell.get("architecture") is not None:
        config["architectures"] = [cell["architecture"]]
    nested: dict[str, object] = {}
    if packaging == "speculators":
        if algorithm is not None:
            config["speculators_model_type"] = algorithm
        else:
            config["speculators_config"] = {}
        if cell.get("model_type") is not None:
            config["transformer_layer_config"] = {"model_type": cell["model_type"]}
    else:
        if cell.get("model_type") is not None:
            config["model_type"] = cell["model_type"]
        if algorithm is not None:
            (nested if packaging == "nested" else config)["projector_type"] = algorithm
    rank = {"positive": 256, "zero": 0, "invalid": -1}.get(cell.get("markov") or "")
    if packaging == "in-target":
        config["dspark_block_size"] = 5
        if rank is not None:
            config["dspark_markov_rank"] = rank
    elif rank is not None:
        config["markov_rank"] = rank
    if packaging == "nested":
        # An empty object says nothing; this key is in every nested file and decides nothing.
        config[NESTED_KEYS[0]] = nested or {"mask_token_id": 0}
    return config


def show(facts: Sequence[str], cells: Sequence[Cell]) -> str:
    """The witness as one line of JSON, or the empty string."""
    config = witness(facts, cells)
    return "" if config is None else json.dumps(config)


Shown = Callable[[Sequence[str], Sequence[Cell]], str]
"""What writes down an input that has given cells."""


def prove(source: Source, built: Built, report: Report, show: Shown = show) -> None:
    """Reports every overlap, gap, shadowed and dead rule, unused fact, lane and `before`."""
    facts = tuple(source.facts)
    for clash in built.clashes:
        first, second = clash.first, clash.second
        report.add(
            "overlap",
            second.place,
            id=second.id,
            outcome=_says(second),
            other=first.id,
            other_outcome=_says(first),
            hint=_hint(first, second),
            notes=(Note(first.place, _says(first)),),
            witness=show(facts, clash.cells),
        )
    # A rule in a reported overlap may look dead only because the other one was shown first.
    clashing = {rule.id for clash in built.clashes for rule in (clash.first, clash.second)}
    silent = {source.default, *built.winners, *clashing, *source.unread_when}
    for rule in source.rules.values():
        if rule.id in silent:
            continue
        over = built.matched.get(rule.id)
        if over is None:
            report.add("dead-rule", rule.place, id=rule.id)
        else:
            others = ", ".join(f"`{other}`" for other in over)
            notes = tuple(Note(source.rules[o].place, "goes first") for o in over)
            proof = show(facts, next(iter(over.values())))
            report.add(
                "shadowed-rule", rule.place, id=rule.id, others=others, notes=notes, witness=proof
            )
    if not source.default and "" in built.winners:
        report.add("gap", source.place, witness=show(facts, built.winners[""]))
    elif not source.default:
        report.add("missing-table-key", source.place, key="default", what="the table")
    _unused(source, built, report)


def _hint(first: Rule, second: Rule) -> str:
    if first.id in second.before or second.id in first.before:
        return "their `before` lists go round in a circle: break it"
    order = f"write `before: [{first.id}]` under `{second.id}` if it is meant to go first"
    return f"narrow one of them, or {order}"


def _unused(source: Source, built: Built, report: Report) -> None:
    # A misspelt lane is reported where it stands; the one it was meant to be is not unused too.
    named = {rule.lane for rule in source.rules.values() if rule.lane is not None}
    used_lanes = named | {nearest(lane, frozenset(source.lanes)) for lane in named}
    for lane, place in source.lanes.items():
        if lane not in used_lanes:
            report.add("unused-lane", place, lane=lane)
    used_facts = {fact for rule in source.rules.values() for when in rule.when for fact in when}
    for fact, place in source.facts.items():
        if fact not in used_facts and not source.unread_when:
            report.add("unused-fact", place, fact=fact)
    for rule in source.rules.values():
        for other in sorted(rule.before & source.rules.keys()):
            read = not {rule.id, other} & source.unread_when
            if read and (rule.id, other) not in built.preceded:
                report.add("idle-before", rule.place, id=rule.id, other=other)


def prove_messages(rules: Mapping[str, Rule], report: Report) -> None:
    """Reports refusals that read alike: a gate must see which one it got."""
    refusals = [(rule, rule.refuse.skeleton()) for rule in rules.values() if rule.refuse]
    texts = Texts([words for _, words in refusals])
    for number, (rule, words) in enumerate(refusals):
        for other_number in texts.holding(words):
            other, other_words = refusals[other_number]
            if other_number == number:
                continue
            if other_words != words:
                report.add(
                    "contained-message",
                    rule.place,
                    id=rule.id,
                    other=other.id,
                    words=words,
                    notes=(Note(other.place, "says it too"),),
                )
            elif other_number < number:
                notes = (Note(other.place, "says it too"),)
                report.add("duplicate-message", rule.place, id=rule.id, other=other.id, notes=notes)


def prove_cases(source: Source, report: Report) -> None:
    """Reports rules that no test hits, and refusals no test can tell from another."""
    rules = source.rules
    refusals = [(rule, rule.refuse.skeleton()) for rule in rules.values() if rule.refuse]
    texts = Texts([words for _, words in refusals])
    for rule in rules.values():
        if rule.id in source.unread_tests:
            continue
        hits = [case for case in rule.cases if case.kind == "hit"]
        if not hits:
            report.add("no-hit-test", rule.place, id=rule.id)
        elif rule.lane is not None:
            if not any(case.lane for case in hits):
                report.add(
                    "nothing-said", rule.place, id=rule.id, key="lane", of="lane it leads to"
                )
        elif rule.refuse is not None:
            said = [case for case in hits if case.says]
            # A phrase with a quoted value in it proves the value; the words must be proved too.
            if not any(case.says in rule.refuse.skeleton() for case in said):
                report.add("nothing-said", rule.place, id=rule.id, key="says", of="message's words")
            for case in said:
                for number in texts.holding(case.says):
                    other, words = refusals[number]
                    # Two messages of which one holds the other are reported as that.
                    if other is not rule and rule.refuse.skeleton() not in words:
                        report.add(
                            "said-by-another",
                            case.place,
                            id=rule.id,
                            says=case.says,
                            other=other.id,
                            notes=(Note(other.place, "says it too"),),
                        )


class Texts:
    """Many texts, searched for a phrase without reading all of them each time."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.by_word: dict[str, list[int]] = {}
        for number, text in enumerate(texts):
            for word in set(text.split()):
                self.by_word.setdefault(word, []).append(number)

    def holding(self, phrase: str) -> list[int]:
        """The numbers of the texts that hold `phrase` whole."""
        # Only the inner words must stand whole in a text that holds the phrase: the outer two may
        # be parts of longer ones there.
        inner = phrase.split()[1:-1]
        if inner:
            rarest = min((self.by_word.get(word, []) for word in inner), key=len)
            return [number for number in rarest if phrase in self.texts[number]]
        return [number for number, text in enumerate(self.texts) if phrase in text]


def _says(rule: Rule) -> str:
    if rule.lane is not None:
        return f"takes it into lane `{rule.lane}`"
    text = rule.refuse if rule.refuse is not None else Template("", ())
    return f'refuses it: "{text.text}"'
