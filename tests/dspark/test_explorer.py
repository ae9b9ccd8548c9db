"""The explorer's page as text: whole, self-contained, and safe to put any table's words into."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import dspark
from dspark.cli import main
from dspark.compile import compile_text
from dspark.explorer import PAGE, SCRIPTS, explorer_page

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)
HOSTILE = "</script><script>alert(1)</script><!--{{script}}-->"


def data_of(page: str) -> dict[str, Any]:
    found = DATA.search(page)
    assert found is not None
    loaded: dict[str, Any] = json.loads(found[1])
    return loaded


def parts(page: str, tag: str) -> list[str]:
    return re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)


def test_the_page_is_whole() -> None:
    page = explorer_page(dspark.compile_table())

    assert [] == re.findall(r"\{\{\w+\}\}", page)
    assert {"page.html", "page.css", *SCRIPTS} == {file.name for file in PAGE.iterdir()}
    for name in SCRIPTS:
        assert (PAGE / name).read_text(encoding="utf-8") in page


def test_the_page_asks_for_nothing_from_outside() -> None:
    page = DATA.sub("", explorer_page(dspark.compile_table()))

    assert [] == re.findall(r"""(?:src|href|action)\s*=\s*["'](?!data:,|#)[^"']*""", page)
    assert [] == re.findall(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|\bimport\(", page)


def test_the_browser_may_run_only_what_was_put_in() -> None:
    page = explorer_page(dspark.compile_table())

    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,), (style,) = parts(page, "script"), parts(page, "style")
    for directive, text in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")


def test_words_of_a_table_are_data_and_nothing_else() -> None:
    shipped = Path(dspark.compile_table().file).read_text(encoding="utf-8")
    text = shipped.replace("this is an EAGLE draft", f"this is an EAGLE draft {HOSTILE}", 1)
    assert HOSTILE in text
    table = compile_text(text.replace("{{script}}", "script").encode(), "hostile.yaml")

    page = explorer_page(table, problem=HOSTILE)

    assert 1 == len(parts(page, "script"))
    assert HOSTILE == data_of(page)["problem"]
    assert (
        HOSTILE.replace("{{script}}", "script") in data_of(page)["table"]["rules"]["R027"]["refuse"]
    )


def test_the_graph_command_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rules.html"

    assert 0 == main(["graph", "--html", str(out)])

    assert "" == "".join(capsys.readouterr())
    data = data_of(out.read_text(encoding="utf-8"))
    assert (dspark.compile_table().version, None) == (data["table"]["table_version"], data["old"])


def test_the_page_of_two_tables_holds_what_changed(tmp_path: Path) -> None:
    shipped = Path(dspark.compile_table().file)
    older = tmp_path / "older.yaml"
    text = shipped.read_text(encoding="utf-8")
    case = "      - hit: {architectures: [MedusaLlamaForCausalLM], model_type: llama}\n"
    assert case in text
    text = text.replace(case, "").replace(", MedusaLlamaForCausalLM]", "]", 1)
    older.write_text(text, encoding="utf-8")
    out = tmp_path / "rules.html"

    assert 0 == main(["graph", "--html", str(out), "--old", str(older)])

    data = data_of(out.read_text(encoding="utf-8"))
    assert ["R000", "R032"] == [data["changes"][0][side]["rule_id"] for side in ("old", "new")]
    assert dspark.compile_table(older).version == data["old"]["table_version"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--old", "x.yaml"], "--old needs --html"),
        (
            ["--html", "out.html", "--old", "nowhere.yaml"],
            "cannot read the rules file `nowhere.yaml`",
        ),
        (["--html", "no/such/folder/x.html"], "cannot write `no/such/folder/x.html`"),
        (["--html", "x\0y"], "cannot write"),
    ],
)
def test_mistakes_in_how_the_page_is_asked_for(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert 2 == main(["graph", *arguments])

    assert words in capsys.readouterr().err
