"""How the server holds up under load, and what batching brings; each figure with its limit.

`scripts/bench serve` starts `dspark serve` on the small trained pair, on this machine's loopback
only, prints every figure and exits with 1 if a limit is missed. What is measured: docs/serving.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.route import Gate
from benchmarks.serve_clients import CUT, TURNED_AWAY, Seen, load, settled

TINY = Path(__file__).parents[1] / "examples" / "tiny"
BATCH, QUEUE = 16, 32


@dataclass(frozen=True, slots=True)
class Server:
    """A `dspark serve` that is up."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path


@contextmanager
def serving(*options: str) -> Iterator[Server]:
    """A server on a free port of the loopback, with its log in a file that goes with it."""
    command = "import sys, dspark.cli; sys.exit(dspark.cli.main())"
    words = [
        "serve", "--target", str(TINY / "target"), "--draft", str(TINY / "dspark"),
        "--name", "tiny", "--port", "0", "--max-seq", "512", "--max-batch", str(BATCH),
        "--max-queue", str(QUEUE), *options,
    ]  # fmt: skip
    with (
        tempfile.NamedTemporaryFile() as log,
        subprocess.Popen([sys.executable, "-c", command, *words], stderr=log) as process,
    ):
        try:
            path = Path(log.name)
            yield Server(process, f"http://127.0.0.1:{_port(path, process)}", path)
        finally:
            process.kill()


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    while process.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.endswith("}") and json.loads(line)["event"] == "listening":
                port: int = json.loads(line)["port"]
                return port
        time.sleep(0.1)
    raise SystemExit(f"the server did not start: {log.read_text(encoding='utf-8')}")


def rough_weather(clients: int, seconds: float) -> list[Gate]:
    """Many clients, of whom some hang up and some talk nonsense."""
    with serving() as server:
        seen = asyncio.run(load(server.url, clients, seconds, leave=0.1, malformed=0.05))
        metrics = asyncio.run(settled(server.url))
    _print(f"{clients} clients for {seconds:g} s, 10% hang up, 5% malformed")
    _print(f"  answers: {dict(sorted(seen.answers.items()))}, {seen.tokens} tokens")
    _say("  to the first token", seen.first)
    _say("  between tokens", seen.between)
    failed = sum(count for code, count in seen.answers.items() if code.startswith("5"))
    return [
        Gate("answers with a 5xx", failed, 0, ""),
        Gate("answers cut off", seen.answers[CUT] + seen.answers[TURNED_AWAY], 0, ""),
        Gate("choices under way at most", seen.most_under_way, BATCH + QUEUE, ""),
        Gate("pages held at the end", metrics['dspark_kv_pages{state="held"}'], 0, ""),
    ]


def sudden_end(clients: int, seconds: float) -> list[Gate]:
    """A SIGTERM while everyone is being served."""

    async def main(server: Server) -> Seen:
        loading = asyncio.create_task(load(server.url, clients, seconds * 2))
        await asyncio.sleep(seconds)
        server.process.send_signal(signal.SIGTERM)
        return await loading

    with serving("--drain-timeout", "60") as server:
        seen = asyncio.run(main(server))
        code = server.process.wait(120)
        lost = unfinished(server.log)
    _print(f"a SIGTERM with {clients} clients under way: {dict(sorted(seen.answers.items()))}")
    return [
        Gate("answers cut off by the SIGTERM", seen.answers[CUT], 0, ""),
        Gate("accepted requests that it left unanswered", lost, 0, ""),
        Gate("exit code after the SIGTERM", code, 0, ""),
    ]


def unfinished(log: Path) -> int:
    """How many requests the server had and did not answer, by its own log."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    return sum(
        line["status"] not in (200, 429) or line["code"] == "client_disconnected"
        for line in requests
    )


def batching(seconds: float, clients: int = 16) -> list[Gate]:
    """Tokens a second of many clients, against those of one."""
    rates = []
    with serving() as server:
        asyncio.run(load(server.url, clients, min(seconds, 2.0)))
        for count in (1, clients):
            asyncio.run(settled(server.url))
            started = time.perf_counter()
            seen = asyncio.run(load(server.url, count, seconds))
            rates.append(seen.tokens / (time.perf_counter() - started))
            _print(f"{count} clients: {rates[-1]:.0f} tokens/s")
            _say("  between tokens", seen.between)
    ratio = rates[1] / rates[0]
    return [Gate(f"throughput, {clients} clients over one", ratio, 3, "x", at_least=True)]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures and then every gate; 1 if one is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench serve", description=main.__doc__)
    parser.add_argument("--clients", type=int, default=64, help="of the load test")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the load test")
    options = parser.parse_args(argv)
    gates = rough_weather(options.clients, options.seconds)
    gates += sudden_end(options.clients, min(10.0, options.seconds))
    gates += batching(min(20.0, options.seconds))
    for gate in gates:
        _print(str(gate))
    return 0 if all(gate.met for gate in gates) else 1


def _say(name: str, seconds: Sequence[float]) -> None:
    ordered = sorted(seconds)
    if not ordered:
        _print(f"{name}: none")
        return
    shown = ", ".join(
        f"{label} {ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3:.1f} ms"
        for label, share in (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1.0))
    )
    _print(f"{name}: {shown} ({len(ordered)})")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
