"""`dspark serve` as a process: from its first line to its last, whatever is under way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.runtime.serve.parts import WAIT, eventually

TINY = Path(__file__).parents[3] / "examples" / "tiny"
COMMAND = "import sys, dspark.cli; sys.exit(dspark.cli.main())"
BODY: dict[str, Any] = {"model": "tiny", "prompt": "def main():", "ignore_eos": True}


@contextmanager
def serve(*options: str) -> Iterator[tuple[subprocess.Popen[str], str, list[dict[str, Any]]]]:
    """The process, its address and the lines of its log so far."""
    words = ["serve", "--target", str(TINY / "target"), "--port", "0", "--max-seq", "512"]
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words, "--name", "tiny", *options],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(json.loads(line))
                if lines[-1]["event"] == "listening":
                    break
            yield process, f"http://127.0.0.1:{lines[-1]['port']}", lines
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and what else was logged."""
    _, rest = process.communicate(timeout=WAIT)
    return process.returncode, [json.loads(line) for line in rest.splitlines()]


def ask(url: str, tokens: int, stream: bool) -> tuple[int, str]:
    body = BODY | {"max_tokens": tokens, "stream": stream}
    answer = httpx2.post(f"{url}/v1/completions", json=body, timeout=WAIT)
    return answer.status_code, answer.text


def under_way(url: str) -> float:
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("dspark_under_way "))


def asked(pool: ThreadPoolExecutor, url: str, tokens: int) -> list[Future[tuple[int, str]]]:
    answers = [pool.submit(ask, url, tokens, place % 2 == 0) for place in range(6)]
    eventually(lambda: under_way(url) == 6)
    return answers


def test_a_sigterm_lets_what_is_under_way_finish() -> None:
    with (
        serve("--draft", str(TINY / "dspark"), "--max-batch", "4") as (process, url, lines),
        ThreadPoolExecutor(6) as pool,
    ):
        assert ["loaded", "listening"] == [line["event"] for line in lines]
        answers = asked(pool, url, 48)
        process.send_signal(signal.SIGTERM)
        results = [answer.result() for answer in answers]
        code, rest = ended(process)

    assert 0 == code
    for place, (status, text) in enumerate(results):
        assert 200 == status
        if place % 2 == 0:
            *_, last, done = text.strip().split("\n\n")
            assert "data: [DONE]" == done
            choice = json.loads(last.removeprefix("data: "))["choices"][0]
        else:
            choice = json.loads(text)["choices"][0]
            assert 48 == json.loads(text)["usage"]["completion_tokens"]
        assert "length" == choice["finish_reason"]
    events = [line["event"] for line in rest]
    assert ["draining", "stopped"] == [event for event in events if event != "request"]
    served = [line for line in rest if line["event"] == "request"]
    assert [48] * 6 == [line["completion_tokens"] for line in served]
    # Every line tells which table decided, and by which rule, and none what was written.
    assert {("L001", lines[0]["table_version"])} == {
        (line["rule_id"], line["table_version"]) for line in [*lines, *rest]
    }
    assert not any("main" in json.dumps(line) for line in served)


def test_what_does_not_finish_in_time_is_told_so() -> None:
    with (
        serve("--drain-timeout", "0.3", "--log-text") as (process, url, _),
        ThreadPoolExecutor(6) as pool,
    ):
        answers = asked(pool, url, 480)
        process.send_signal(signal.SIGTERM)
        results = [answer.result() for answer in answers]
        code, rest = ended(process)

    assert 0 == code
    for place, (status, text) in enumerate(results):
        assert "server_stopping" in text
        assert (200 if place % 2 == 0 else 503) == status
        assert text.endswith("data: [DONE]\n\n") == (place % 2 == 0)
    served = [line for line in rest if line["event"] == "request"]
    assert ["server_stopping"] * 6 == [line["code"] for line in served]
    # It was asked for here.
    assert [[BODY["prompt"]]] * 6 == [line["prompts"] for line in served]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--target", "nowhere"], 4, "E014"),
        (["--target", "{tiny}/target", "--draft", "{tiny}/target"], 3, "refused"),
        (["--target", "{tiny}/target", "--port", "70000"], 2, "is not a port"),
        (["--target", "{tiny}/target", "--port", "{port}"], 2, "address already in use"),
        (["--target", "{tiny}/target", "--api-key-file", "{empty}"], 2, "there is no key in"),
        (["--target", "{tiny}/target", "--api-key-file", "nowhere"], 2, "cannot read the key file"),
        (["--target", "{tiny}/target", "--chat-template", "nowhere"], 2, "cannot read `nowhere`"),
        (["--target", "{tiny}/target", "--request-timeout", "nan"], 2, "is not a number of"),
        (["--target", "{tiny}/target", "--host", ""], 2, "0.0.0.0 is how to say every address"),
        (["--target", "{tiny}/target", "--host", "é..x"], 2, "is no name of a host"),
    ],
)
def test_what_cannot_be_served_is_said_before_a_weight_is_read(
    options: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import socket

    from dspark.cli import main
    from dspark.runtime import prepared

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a weight was read")

    monkeypatch.setattr(prepared, "read_tensors", never)
    empty = tmp_path / "keys"
    empty.write_text("# none\n\n", encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        values = {"tiny": TINY, "empty": empty, "port": taken.getsockname()[1]}
        words = [option.format(**values) for option in options]
        try:
            found = main(["serve", *words])
        except SystemExit as exit_:
            found = int(str(exit_.code))

    said = capsys.readouterr()
    assert code == found
    assert message in said.err + said.out
