"""The command line, whatever the verb: how it ends, and what it does to its streams."""

from __future__ import annotations

import pty
import subprocess
import sys
from os import close, environ, read
from pathlib import Path

import pytest

from dspark.cli import main
from tests.support.configs import BASE, run, with_keys, write_config


def test_no_verb_and_an_unknown_verb_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["rout"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert 2 == stop.value.code
    assert "invalid choice: 'rout'" in capsys.readouterr().err


def test_an_invalid_table_decides_nothing(
    lane: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "drafts.yaml"
    table.write_text("table: x\nfacts: [markow]\nrules: {}\n", encoding="utf-8")

    code = main(["route", "--rules", str(table), str(lane)])

    output = capsys.readouterr().out
    assert 5 == code
    assert f"{table}:2:9: error[D010 unknown-fact]: no fact is called `markow`" in output
    assert "    2 | facts: [markow]" in output
    assert "did you mean `markov`?" in output
    assert "nothing was decided" in output
    assert "lane qwen3-dspark" not in output


def test_a_reader_that_goes_away_is_no_traceback(lane: Path) -> None:
    command = f"{sys.executable} -m dspark.route --json {' '.join([str(lane)] * 400)} | head -n 1"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert (1, "") == (len(done.stdout.splitlines()), done.stderr)


@pytest.mark.parametrize(
    ("redirect", "code", "words"),
    [
        ("- <&-", 4, ""),
        ("{lane} >&-", 0, ""),
        ("{lane} >/dev/full", 2, "dspark: the output cannot be written: no space left on device"),
    ],
)
def test_closed_and_full_streams_are_no_traceback(
    redirect: str, code: int, words: str, lane: Path
) -> None:
    command = f"{sys.executable} -m dspark.route {redirect.format(lane=lane)}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert (code, words) == (done.returncode, done.stderr.strip())


def test_text_that_cannot_be_printed_is_escaped(tmp_path: Path) -> None:
    """A config may hold terminal escapes, and a folder any bytes: neither reaches the terminal."""
    config = with_keys(BASE, architectures=["\x1b[31mred\u202e"])
    place = write_config(tmp_path / "fo\x1blder-ü", config)

    done = run(place, PYTHONIOENCODING="ascii")

    assert (3, b"") == (done.returncode, done.stderr)
    assert b"\x1b" not in done.stdout
    assert b"`\\x1b[31mred\\u202e`" in done.stdout


@pytest.mark.parametrize(
    ("no_color", "terminal", "coloured"),
    [("", "xterm-256color", True), ("1", "xterm-256color", False), ("", "dumb", False)],
)
def test_colour_only_on_a_terminal_that_wants_it(
    refused: Path, no_color: str, terminal: str, coloured: bool
) -> None:
    leader, follower = pty.openpty()
    environment = {**environ, "NO_COLOR": no_color, "TERM": terminal}
    subprocess.run(
        [sys.executable, "-m", "dspark.route", str(refused)],
        stdout=follower,
        env=environment,
        check=False,
    )
    close(follower)
    output = read(leader, 100_000)
    close(leader)

    assert coloured == (b"\x1b[1;31mrefused" in output)
    assert b"R028 eagle3" in output
    assert b"\x1b" not in run(refused).stdout
