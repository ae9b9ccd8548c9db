"""The facts of a parity pack as its author wrote them: what an engine reads, and how."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from yaml.nodes import Node

from dspark.document import Document
from dspark.parity_facts import ENTRIES, SHAPES, Asked
from dspark.spelling import did_you_mean

SOURCES = ("key", "flag", "words", "entry")
FACT_KEYS = (*SOURCES, "as", "against", "firm", "same", "of", "absent")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def read_facts(document: Document, node: Node | None) -> Iterator[Asked]:
    """The facts under `node`; what is no way to read one is reported and left out."""
    for name, (key, value) in document.mapping(node, "`facts`").items():
        what = f"the fact `{name}`"
        fields = document.fields(value, what, FACT_KEYS)
        sources = [each for each in SOURCES if each in fields]
        if len(sources) == 2 and sources[1] == "words":
            sources.pop()  # words in a key's value, or where a flag is silent
        if not _NAME.fullmatch(name) or len(sources) != 1:
            wanted = f"one of {', '.join(SOURCES)} under a plain name"
            document.wrong(key, what, wanted, "something else")
            continue
        asked = _fact(document, name, sources[0], fields)
        words, known = (asked.places, ENTRIES) if asked.source == "entry" else ((), ())
        for word, listed in [*((each, known) for each in words), (asked.shape, tuple(SHAPES))]:
            if word not in listed:
                hint = did_you_mean(word, listed) or f"use one of {', '.join(listed)}"
                place, label = document.place(key), "way to read a fact"
                document.report.add("unknown-name", place, what=label, name=word, hint=hint)
                break
        else:
            yield asked


def _fact(document: Document, name: str, source: str, fields: Mapping[str, Node]) -> Asked:
    lists = {
        key: tuple(document.texts(fields.get(key), f"`{key}`"))
        for key in (source, "against", "firm", "of")
        if key != "words"
    }
    maps = {
        key: {
            word: document.text(cell, f"the cell of `{word}`") or ""
            for word, (_, cell) in document.mapping(fields.get(key), f"`{key}`").items()
        }
        for key in ("words", "same")
    }
    texts = {
        key: document.text(fields[key], f"`{key}`") for key in ("as", "absent") if key in fields
    }
    return Asked(
        name=name,
        source=source,
        places=lists.get(source, ()),
        shape=texts.get("as") or "text",
        against=lists["against"],
        words=maps["words"],
        firm=lists["firm"],
        same=maps["same"],
        of=lists["of"],
        absent=texts.get("absent"),
    )
