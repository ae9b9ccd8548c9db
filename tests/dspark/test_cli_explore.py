"""`dspark explore`: one page, for this machine alone, as new as the rules file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

import dspark
from dspark.cli import main
from dspark.cli_explore import page_server


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "drafts.yaml"
    file.write_bytes(Path(dspark.compile_table().file).read_bytes())
    return file


@contextmanager
def served(rules: Path) -> Iterator[int]:
    with page_server(str(rules), None, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def get(
    port: int, path: str = "/", host: str = "", method: str = "GET"
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response, body


def test_the_page_is_served_with_an_edit_of_the_rules_in_it(rules: Path) -> None:
    with served(rules) as port:
        response, body = get(port)
        assert 200 == response.status
        assert "text/html; charset=utf-8" == response.headers["Content-Type"]
        assert dspark.compile_table(rules).version in body

        rules.write_text(rules.read_text(encoding="utf-8") + "# edited\n", encoding="utf-8")
        edited = dspark.compile_table(rules).version
        assert edited not in body
        assert edited in get(port)[1]


def test_a_version_that_does_not_compile_is_told_and_not_shown(rules: Path) -> None:
    good = dspark.compile_table(rules).version
    with served(rules) as port:
        rules.write_text("table: [\n", encoding="utf-8")
        _, body = get(port)

    assert good in body
    assert "error[D001 yaml-syntax]" in body


def test_a_table_whose_tests_fail_can_still_be_looked_at(rules: Path) -> None:
    text = rules.read_text(encoding="utf-8")
    rules.write_text(text.replace("is: L005", "is: L006", 1), encoding="utf-8")
    assert text != rules.read_text(encoding="utf-8")

    with served(rules) as port:
        assert dspark.compile_table(rules).version in get(port)[1]


def test_there_is_one_page_and_no_other_site_may_read_it(rules: Path) -> None:
    with served(rules) as port:
        assert 404 == get(port, "/drafts.yaml")[0].status
        assert 403 == get(port, host=f"example.org:{port}")[0].status
        assert 200 == get(port, host=f"localhost:{port}")[0].status
        head, body = get(port, method="HEAD")
        assert (200, "") == (head.status, body)
        assert 501 == get(port, method="POST")[0].status


def test_the_command_says_where_and_ends_on_ctrl_c() -> None:
    code = "import sys, dspark.cli; sys.exit(dspark.cli.main(['explore', '--port', '0']))"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as explore:
        assert explore.stdout is not None
        line = explore.stdout.readline()
        place = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/  \(Ctrl-C ends it\)\n", line)
        assert place is not None, line
        assert 200 == get(int(place[1]))[0].status
        os.kill(explore.pid, signal.SIGINT)
        assert 0 == explore.wait(timeout=30)


def test_a_port_that_is_taken_is_said(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(rules) as port:
        assert 2 == main(["explore", "--rules", str(rules), "--port", str(port)])

    assert f"cannot serve on port {port}: address already in use" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "x", "٣"])
def test_a_port_is_a_number(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["explore", f"--port={port}"])

    assert 2 == stopped.value.code
    assert f"`{port}` is not a port" in capsys.readouterr().err


def test_a_rules_file_that_does_not_compile_at_first_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("table: [\n", encoding="utf-8")

    assert 5 == main(["explore", "--rules", str(broken), "--port", "0"])

    assert "error[D001 yaml-syntax]" in capsys.readouterr().out
