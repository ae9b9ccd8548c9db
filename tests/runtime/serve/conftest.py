"""One server for all tests that only ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.runtime.serve.parts import WAIT, Served, byte_engine, served


@pytest.fixture(scope="session")
def server() -> Iterator[Served]:
    with served(byte_engine()) as up:
        yield up


@pytest.fixture(scope="session")
def client(server: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=WAIT) as made:
        yield made
