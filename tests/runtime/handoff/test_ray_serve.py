"""Two replicas of the tiny pair on a real Ray cluster, and one of them killed under load."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        # `scripts/ray` asks for these tests, so that there a Ray that is missing is a failure.
        importlib.util.find_spec("ray") is None and "DSPARK_RAY" not in os.environ,
        reason="Ray is not installed, which is some 300 MB: scripts/ray runs them with it",
    ),
]

WAIT = 300.0
"""Seconds in which a busy machine with two cores has started everything."""
JSON = {"content-type": "application/json"}
PROMPTS = ["def add(", "import os\n\ndef walk(", "class Queue:\n    def ", "for name in"]


def until(what: Callable[[], Any], seconds: float = WAIT) -> Any:
    """The first true value of `what`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError("it did not come true")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Answer(NamedTuple):
    """What a client got: the text of a whole answer, or the error's code."""

    started: float
    text: str | None
    code: str | None


class Service:
    """The endpoint, as clients see it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)

    def get(self, path: str) -> tuple[int, str]:
        with closing(self.connect()) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def stream(
        self, connection: http.client.HTTPConnection, prompt: str, tokens: int
    ) -> http.client.HTTPResponse:
        """A long answer of which nothing has been read."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "stream": True}
        text = json.dumps(body | {"ignore_eos": True})
        connection.request("POST", "/v1/completions", text, JSON)
        return connection.getresponse()

    def complete(self, prompt: str, *, stream: bool = False, **more: object) -> Answer:
        body = {"model": "tiny", "prompt": prompt, "temperature": 0, "stream": stream, **more}
        started = time.monotonic()
        with closing(self.connect()) as connection:
            connection.request("POST", "/v1/completions", json.dumps(body), JSON)
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status != 200:
            return Answer(started, None, json.loads(text)["error"]["code"])
        if not stream:
            return Answer(started, json.loads(text)["choices"][0]["text"], None)
        *events, done = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        assert "[DONE]" == done
        chunks = [json.loads(event) for event in events]
        codes = [chunk["error"]["code"] for chunk in chunks if "error" in chunk]
        if codes:
            return Answer(started, None, codes[0])
        return Answer(started, "".join(chunk["choices"][0]["text"] for chunk in chunks), None)

    def replicas(self) -> dict[str, int]:
        """The ready replicas, each with its process."""
        try:
            status, text = self.get("/health")
            found = json.loads(text)["replicas"] if status == 200 else []
        except (OSError, ValueError, KeyError):
            return {}
        return {each["replica"]: each["pid"] for each in found if each["ready"]}

    def figures(self, name: str, **labels: str) -> dict[str, float]:
        """A metric of each replica."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {
            sample.labels["replica"]: sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        }


def run(folder: Path, *command: str, **environment: str) -> subprocess.Popen[bytes]:
    log = (folder / f"{Path(command[0]).name}.log").open("wb")
    with log:
        return subprocess.Popen(
            [Path(sys.executable).parent / command[0], *command[1:]],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
            cwd=Path(__file__).parents[3],
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    # The path of a socket in it may have some hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="dspark-ray-", dir="/tmp"))
    config = yaml.safe_load(Path("examples/ray/tiny.yaml").read_text(encoding="utf-8"))
    port, ray_port = free_port(), free_port()
    config["http_options"]["port"] = port
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    patience = {
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "120",
        "RAY_AUTH_MODE": "disabled",
        "OMP_NUM_THREADS": "1",
    }
    head = ["ray", "start", "--head", "--block", "--num-cpus=4", f"--port={ray_port}"]
    head += ["--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}/ray"]
    cluster = run(folder, *head, "--object-store-memory=100000000", **patience)
    running = []
    try:
        address = f"127.0.0.1:{ray_port}"
        until(lambda: "Ray runtime started" in (folder / "ray.log").read_text("utf-8"))
        serve = ["serve", "run", str(folder / "tiny.yaml")]
        running.append(run(folder, *serve, RAY_ADDRESS=address, **patience))
        found = Service(port)
        until(lambda: len(found.replicas()) == 2)
        yield found
    finally:
        for process in (*running, cluster):
            stop(process)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def alone() -> Callable[[str, int], str]:
    """The text that the engine itself gives."""
    from dspark.runtime.load import open_engine
    from dspark.runtime.params import SamplingParams

    loaded = open_engine("examples/tiny/target", "examples/tiny/dspark", max_length=512)

    def text(prompt: str, tokens: int) -> str:
        ids = loaded.tokenizer.encode(prompt).ids
        params = SamplingParams(max_tokens=tokens, temperature=0.0)
        return loaded.engine.generate([ids], params)[0].text

    return text


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_the_engines(
    prompt: str, stream: bool, service: Service, alone: Callable[[str, int], str]
) -> None:
    answer = service.complete(prompt, stream=stream, max_tokens=24)

    assert (alone(prompt, 24), None) == (answer.text, answer.code)


def test_a_stream_comes_as_it_is_made(service: Service) -> None:
    with closing(service.connect()) as connection:
        answer = service.stream(connection, "def f(", 300)
        first = answer.readline()
        begun = time.monotonic()
        rest = answer.read()

    assert first.startswith(b"data: {")
    assert rest.endswith(b"data: [DONE]\n\n")
    assert 0.05 < time.monotonic() - begun


def test_what_is_wrong_is_said_by_the_replica(service: Service) -> None:
    assert "unknown_parameter" == service.complete("a", nonsense=1).code
    assert (404, True) == (
        service.get("/v1/nowhere")[0],
        "not_found" in service.get("/v1/nowhere")[1],
    )


def test_a_conversation_keeps_its_replica_and_others_do_not_follow_it(service: Service) -> None:
    def requests() -> dict[str, float]:
        return service.figures("dspark_engine_requests_total")

    before = requests()
    for turn in range(8):
        assert service.complete("x" * 256 + str(turn), max_tokens=1).text is not None
    one = {replica: count - before[replica] for replica, count in requests().items()}
    for number in range(16):
        assert service.complete(f"def f{number}(", max_tokens=1).text is not None
    both = {
        replica: count - before[replica] - one[replica] for replica, count in requests().items()
    }

    assert [0, 8] == sorted(one.values())
    assert 16 == sum(both.values())
    assert 0 < min(both.values())


def test_a_client_that_hangs_up_frees_its_pages(service: Service) -> None:
    before = sum(service.figures("dspark_engine_completion_tokens_total").values())
    with closing(service.connect()) as connection:
        answer = service.stream(connection, "def g(", 480)
        answer.readline()
        answer.close()

    until(lambda: not any(service.figures("dspark_kv_pages", state="held").values()))
    made = sum(service.figures("dspark_engine_completion_tokens_total").values()) - before
    assert made < 480


def test_a_replica_that_dies_takes_only_its_own_requests_with_it(
    service: Service, alone: Callable[[str, int], str]
) -> None:
    clients, tokens = 10, 120
    expected = {prompt: alone(prompt, tokens) for prompt in PROMPTS}
    answers: list[tuple[str, Answer]] = []
    stopped = threading.Event()

    def client(number: int) -> None:
        turn = number
        while not stopped.is_set():
            turn += 1
            prompt = PROMPTS[turn % len(PROMPTS)]
            answer = service.complete(prompt, stream=turn % 2 == 0, max_tokens=tokens)
            answers.append((prompt, answer))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(answers) >= clients)
        busy = until(lambda: _busiest(service))
        os.kill(busy, signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: sum(answer.started > killed for _, answer in list(answers)) >= 2 * clients)
        until(lambda: len(service.replicas()) == 2 and busy not in service.replicas().values())
    finally:
        stopped.set()
        for thread in threads:
            thread.join()

    lost = [answer for _, answer in answers if answer.code is not None]
    assert {"replica_lost"} == {answer.code for answer in lost}
    assert 1 <= len(lost) <= clients
    # The front hears of the death a moment after it: whoever is sent there until then is in flight.
    assert all(answer.started < killed + 5 for answer in lost)
    assert len(answers) - len(lost) >= 2 * clients
    wrong = [p for p, answer in answers if answer.text not in (None, expected[p])]
    assert [] == wrong


def _busiest(service: Service) -> int | None:
    """The process of the replica that has the most to do, if any has."""
    running, replicas = service.figures("dspark_running"), service.replicas()
    replica = max(running, key=lambda name: running[name], default=None)
    if replica is None or not running[replica]:
        return None
    return replicas.get(replica)
