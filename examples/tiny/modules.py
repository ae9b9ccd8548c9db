"""The text that the pair learns: small Python modules and their notes, written from a seed.

A module opens with a list of its functions and a record with a few fields; what follows is held to
both. So the text has the two properties that make drafting worth measuring: most of it follows from
what was said before, often far before, and the rest is a real choice.
"""

# ruff: noqa: SIM905 - word lists are read and edited as text

from __future__ import annotations

import hashlib
from itertools import accumulate
from random import Random

HELD_OUT_ONE_IN = 16

THINGS = (
    "account address alarm answer apple article badge basket battery beacon bill block board boat "
    "book bottle box branch bridge bucket budget build bus button cable camera card carrier cart "
    "case chair channel chapter claim class client clock cloud coin column contract counter course "
    "crate customer cycle delivery desk device diary dish doctor door driver engine entry error "
    "event exam expense farm field file filter flight folder form frame garden gate group guest "
    "hotel house image invoice item job key label lamp leaf lesson letter level library license "
    "link list loan lock log machine map market meal member message meter metric mirror model "
    "module nation node note notice number object offer office order outlet owner package page "
    "panel parcel part path patient payment permit person phone photo pilot plan plane plant plate "
    "player point policy port print product profile project prompt quote rack radio receipt record "
    "region rental report request result review road robot room route rule sale sample school "
    "score seat segment sensor server session shelf ship shop signal site slot song source spare "
    "stage station step stock store story stream street student survey switch table tag task "
    "team ticket tile token tool topic tour track trade train transfer trip truck unit user valve "
    "vehicle vendor visit voucher wagon wallet warehouse watch wheel window worker zone"
).split()
PLACES = (
    "airport archive bakery bank camp cinema city clinic club college company district factory "
    "festival garage harbour hospital hostel institute island kitchen laboratory mill mine museum "
    "network nursery observatory park plantation post quarry railway ranch refinery reserve "
    "resort restaurant stadium studio theatre tower town university valley village vineyard "
    "workshop yard"
).split()
TEXTS = "name title code status colour owner origin city kind state region brand".split()
NUMBERS = "price weight size count length width score amount rank volume height speed".split()


def plural(word: str) -> str:
    """The word in the plural, as English spells it."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def article(word: str) -> str:
    """The word after "a" or "an"."""
    return ("an " if word[0] in "aeio" else "a ") + word


# Each kind of function: its name, its docstrings, its bodies. `{t}` is the thing, `{ts}` several,
# `{T}` the class, `{a}` a text field, `{n}` a number field. Wordings that come first are commoner.
KINDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "count_{ts}": (
        "({ts}: list[{T}]) -> int",
        ("Return how many {ts} there are.", "Count the {ts}."),
        ("return len({ts})",),
    ),
    "find_{t}": (
        "({ts}: list[{T}], {a}: str) -> {T} | None",
        ("Return the first {t} with the given {a}.", "Look up {at} by its {a}."),
        (
            "for {t} in {ts}:\n    if {t}.{a} == {a}:\n        return {t}\nreturn None",
            "return next(({t} for {t} in {ts} if {t}.{a} == {a}), None)",
        ),
    ),
    "total_{n}": (
        "({ts}: list[{T}]) -> float",
        ("Return the {n} of all {ts} together.", "Add up the {n} of the {ts}."),
        (
            "return sum({t}.{n} for {t} in {ts})",
            "total = 0.0\nfor {t} in {ts}:\n    total += {t}.{n}\nreturn total",
        ),
    ),
    "average_{n}": (
        "({ts}: list[{T}]) -> float",
        ("Return the mean {n} of the {ts}, or zero without any.",),
        ("if not {ts}:\n    return 0.0\nreturn sum({t}.{n} for {t} in {ts}) / len({ts})",),
    ),
    "largest_{n}": (
        "({ts}: list[{T}]) -> {T}",
        ("Return the {t} with the largest {n}.",),
        ("return max({ts}, key=lambda {t}: {t}.{n})",),
    ),
    "smallest_{n}": (
        "({ts}: list[{T}]) -> {T}",
        ("Return the {t} with the smallest {n}.",),
        ("return min({ts}, key=lambda {t}: {t}.{n})",),
    ),
    "sort_by_{n}": (
        "({ts}: list[{T}], reverse: bool = False) -> list[{T}]",
        ("Return the {ts} in order of their {n}.",),
        (
            "return sorted({ts}, key=lambda {t}: {t}.{n}, reverse=reverse)",
            (
                "ordered = list({ts})\n"
                "ordered.sort(key=lambda {t}: {t}.{n}, reverse=reverse)\nreturn ordered"
            ),
        ),
    ),
    "group_by_{a}": (
        "({ts}: list[{T}]) -> dict[str, list[{T}]]",
        ("Return the {ts} of each {a}.", "Group the {ts} by their {a}."),
        (
            (
                "groups: dict[str, list[{T}]] = {{}}\nfor {t} in {ts}:\n"
                "    groups.setdefault({t}.{a}, []).append({t})\nreturn groups"
            ),
        ),
    ),
    "index_by_{a}": (
        "({ts}: list[{T}]) -> dict[str, {T}]",
        ("Return the {ts} by their {a}.",),
        ("return {{{t}.{a}: {t} for {t} in {ts}}}",),
    ),
    "every_{a}": (
        "({ts}: list[{T}]) -> set[str]",
        ("Return every {a} that some {t} has.",),
        ("return {{{t}.{a} for {t} in {ts}}}",),
    ),
    "above_{n}": (
        "({ts}: list[{T}], limit: float) -> list[{T}]",
        ("Return the {ts} whose {n} is above the limit.",),
        (
            "return [{t} for {t} in {ts} if {t}.{n} > limit]",
            "return list(filter(lambda {t}: {t}.{n} > limit, {ts}))",
        ),
    ),
    "below_{n}": (
        "({ts}: list[{T}], limit: float) -> list[{T}]",
        ("Return the {ts} whose {n} is below the limit.",),
        ("return [{t} for {t} in {ts} if {t}.{n} < limit]",),
    ),
    "without_{a}": (
        "({ts}: list[{T}], {a}: str) -> list[{T}]",
        ("Return the {ts} that have another {a}.",),
        ("return [{t} for {t} in {ts} if {t}.{a} != {a}]",),
    ),
    "check_{n}": (
        "({t}: {T}) -> None",
        ("Raise an error if the {n} of the {t} is negative.",),
        ('if {t}.{n} < 0:\n    raise ValueError(f"{n} of {{{t}.{a}}} is negative: {{{t}.{n}}}")',),
    ),
    "format_{t}": (
        "({t}: {T}) -> str",
        ("Return the {t} as a line of text.", "Write {at} on one line."),
        (
            'return f"{{{t}.{a}}}: {{{t}.{n}}}"',
            'return f"{T} {{{t}.{a}}} with {n} {{{t}.{n}:.2f}}"',
        ),
    ),
    "parse_{t}": (
        "(line: str) -> {T}",
        ("Read {at} from a line of text.", "Return the {t} that a line describes."),
        (
            '{a}, {n} = line.split(",")\nreturn {T}({a}.strip(), float({n}))',
            'parts = line.strip().split(",")\nreturn {T}(parts[0], float(parts[1]))',
        ),
    ),
    "load_{ts}": (
        "(path: str) -> list[{T}]",
        ("Read the {ts} from a file, one on each line.",),
        (
            (
                'with open(path, encoding="utf-8") as lines:\n'
                "    return [parse_{t}(line) for line in lines]"
            ),
        ),
    ),
    "save_{ts}": (
        "({ts}: list[{T}], path: str) -> None",
        ("Write the {ts} to a file, one on each line.",),
        (
            (
                'with open(path, "w", encoding="utf-8") as out:\n    for {t} in {ts}:\n'
                '        out.write(format_{t}({t}) + "\\n")'
            ),
        ),
    ),
    "raise_{n}": (
        "({t}: {T}, by: float) -> {T}",
        ("Return the {t} with its {n} raised.",),
        ("return replace({t}, {n}={t}.{n} + by)",),
    ),
    "rename_{t}": (
        "({t}: {T}, {a}: str) -> {T}",
        ("Return the {t} with another {a}.",),
        ("return replace({t}, {a}={a})",),
    ),
    "merge_{ts}": (
        "(first: list[{T}], second: list[{T}]) -> list[{T}]",
        ("Return the {ts} of both lists, each {a} once.",),
        ("merged = {{{t}.{a}: {t} for {t} in [*first, *second]}}\nreturn list(merged.values())",),
    ),
    "split_{ts}": (
        "({ts}: list[{T}], size: int) -> list[list[{T}]]",
        ("Return the {ts} in batches of the given size.",),
        ("return [{ts}[start : start + size] for start in range(0, len({ts}), size)]",),
    ),
    "is_valid_{t}": (
        "({t}: {T}) -> bool",
        ("Return whether the {t} has {aa} and a positive {n}.",),
        ('return {t}.{a} != "" and {t}.{n} > 0',),
    ),
}


def choose(random: Random, options: tuple[str, ...] | list[str]) -> str:
    """One of the options; the second is half as likely as the first, the third a third, ..."""
    weights = list(accumulate(1 / rank for rank in range(1, len(options) + 1)))
    return random.choices(options, cum_weights=weights)[0]


def indented(lines: str, by: str = "    ") -> str:
    """Every line of a text moved to the right."""
    return "\n".join(by + line for line in lines.split("\n"))


def listed(words: list[str]) -> str:
    """Words as a list in a sentence."""
    return ", ".join(words[:-1]) + " and " + words[-1]


def write_document(random: Random, thing: str, place: str) -> str:
    """A module about a thing at a place, or one time in five the notes about such a module."""
    texts, numbers = random.sample(TEXTS, 2), random.sample(NUMBERS, 2)
    fields = [texts[0], numbers[0], texts[1], numbers[1]]
    functions: dict[str, str] = {}
    for kind in random.sample(list(KINDS), random.randint(4, 7)):
        text, number = choose(random, texts), choose(random, numbers)
        words = {"t": thing, "ts": plural(thing), "T": thing.capitalize(), "at": article(thing)}
        words |= {"a": text, "aa": article(text), "n": number}
        signature, says, bodies = KINDS[kind]
        name = kind.format_map(words)
        doc, body = choose(random, says), choose(random, bodies)
        functions[name] = (
            f"def {name}{signature.format_map(words)}:\n"
            f'    """{doc.format_map(words)}"""\n{indented(body.format_map(words))}'
        )
    many = plural(thing)
    if random.random() < 0.2:
        lines = [f"- `{name}`: {code.split(chr(34) * 3)[1]}" for name, code in functions.items()]
        return (
            f"# {many.capitalize()} of the {place}\n\n"
            f"{article(thing).capitalize()} has {listed([article(field) for field in fields])}.\n"
            f"The module has {len(functions)} functions:\n\n" + "\n".join(lines) + "\n"
        )
    record = "\n".join(f"    {f}: {'str' if f in texts else 'float'}" for f in fields)
    return (
        f'"""{many.capitalize()} of the {place}: {listed(list(functions))}."""\n\n'
        "from dataclasses import dataclass, replace\n\n\n"
        f'@dataclass\nclass {thing.capitalize()}:\n    """{article(thing).capitalize()} of the '
        f'{place}."""\n\n{record}\n\n\n' + "\n\n\n".join(functions.values()) + "\n"
    )


def documents(count: int) -> tuple[list[str], list[str]]:
    """The documents to train on, and those held out: about one in sixteen.

    Which side a document is on depends on its thing and place alone, so what is held out is about
    things at places that the other side never has together.
    """
    random = Random(0)
    train: list[str] = []
    held_out: list[str] = []
    for _ in range(count):
        thing, place = random.choice(THINGS), random.choice(PLACES)
        digest = hashlib.sha256(f"{thing} {place}".encode()).digest()
        side = held_out if digest[0] % HELD_OUT_ONE_IN == 0 else train
        side.append(write_document(random, thing, place))
    return train, held_out
