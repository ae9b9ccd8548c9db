"""The rule explorer: one page that shows a table, and decides configs by it on its own."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path

from dspark.compiled import Table
from dspark.export import Json, export

PAGE = Path(__file__).with_name("page")
SCRIPTS = ("strict_json.js", "decide.js", "engines.js", "dom.js", "graph.js", "views.js", "page.js")


def explorer_page(table: Table, old: Table | None = None, problem: str = "") -> str:
    """The page as one HTML text that loads nothing and sends nothing.

    With `old`, it also shows what `table` decides differently. `problem` is shown on top: why a
    newer version of the rules file is not the one on the page.
    """
    return assemble(export(table, old) | {"problem": problem}, f"{table.name} {table.version}")


def assemble(data: Json, title: str) -> str:
    """The page around the data of a table."""
    script = "".join(_source(name) for name in SCRIPTS)
    style = _source("page.css")
    # The browser is told to run and to load nothing but what this function has put in.
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}"
    parts = {
        "policy": f"{policy}; img-src data:; base-uri 'none'; form-action 'none'",
        "title": escape(title),
        "style": style,
        "data": json.dumps(data).replace("<", "\\u003c"),  # a message may say `</script>`
        "script": script,
    }
    # In one pass: what has been put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _source("page.html"))


def _source(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
