"""What the service's tests share: a model of bytes, its tokenizer, and a server on a socket."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import numpy as np
import uvicorn
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dspark.runtime import create_app
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.engine import Engine
from dspark.runtime.serve.chat_template import ChatTemplate
from tests.runtime.tiny import (
    DRAFT,
    TARGET,
    draft_model,
    draft_tensors,
    engine_config,
    target_model,
    target_tensors,
)

MODEL = "bytes"
START, END, EOS = "<|start|>", "<|end|>", "<|eos|>"
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
WAIT = 60.0


def byte_tokenizer() -> Tokenizer:
    """Every byte is a token, two words are, and three special ones are."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate([*alphabet, "th", "the"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("t", "h"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([START, END, EOS])
    return tokenizer


TOKENIZER = byte_tokenizer()
# Two rows of padding behind the tokenizer's ids, as in the published targets.
VOCABULARY = TOKENIZER.get_vocab_size() + 2
EOS_ID = TOKENIZER.token_to_id(EOS)


def byte_engine(draft: bool = True, nan: bool = False, **changes: Any) -> Engine:
    """An engine with random weights over the bytes; its text is noise, and reproducible."""
    target_config = dataclasses.replace(TARGET, vocab_size=VOCABULARY)
    draft_config = dataclasses.replace(
        DRAFT, vocab_size=VOCABULARY, draft_vocab_size=VOCABULARY, mask_token_id=VOCABULARY - 1
    )
    tensors = target_tensors(target_config)
    if nan:
        tensors["model.norm.weight"].fill_(float("nan"))
    target = target_model(TorchCpuBackend(), target_config, tensors)
    return Engine(
        target,
        draft_model(target, draft_config, draft_tensors(draft_config)) if draft else None,
        engine_config(eos_token_ids=frozenset({EOS_ID}), **changes),
        lambda ids: str(TOKENIZER.decode(ids)),
    )


def slowed(engine: Engine, seconds: float) -> Engine:
    """The engine, each of whose passes takes this much longer."""
    step = engine.step

    def slow() -> Any:
        time.sleep(seconds)
        return step()

    engine.step = slow  # type: ignore[method-assign]
    return engine


def texts(count: int, seed: int = 5, longest: int = 40) -> list[str]:
    """Random texts of several scripts."""
    random = np.random.default_rng(seed)
    letters = list("the quick brown fox, äöü ßø €20 日本語 🙂\n")
    return ["".join(random.choice(letters, size=random.integers(1, longest))) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is up."""

    url: str
    engine: Engine
    app: FastAPI
    http: httpx2.Client

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Every sample of /metrics, by name and labels."""
        text = self.http.get("/metrics").text
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float:
        """One sample."""
        return self.metrics()[name, tuple(sorted(labels.items()))]


def eventually(true: Callable[[], bool]) -> None:
    """Returns as soon as it is true; fails if that takes long."""
    until = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


@contextmanager
def served(engine: Engine, **options: Any) -> Iterator[Served]:
    """A real server for the engine on a free port of this machine, until the context ends."""
    settings: dict[str, Any] = {"model": MODEL, "chat_template": ChatTemplate(TEMPLATE)}
    app = create_app(engine, TOKENIZER, **(settings | options))
    with running(app) as url, httpx2.Client(base_url=url, timeout=WAIT) as http:
        yield Served(url, engine, app, http)


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """The address of a real server for the app, until the context ends."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, lifespan="on", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            eventually(lambda: server.started or not thread.is_alive())
            assert thread.is_alive(), "the server did not start"
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(WAIT)
            assert not thread.is_alive(), "the server did not stop"
