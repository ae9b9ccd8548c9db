from __future__ import annotations

from pathlib import Path

import pytest
from openai import AuthenticationError, OpenAI

from dspark.runtime import InvalidRequest, ServeSettings
from dspark.runtime.serve.keys import read_keys
from tests.runtime.serve.parts import MODEL, byte_engine, served

KEYS = ServeSettings(api_keys=("alpha", "beta"))


def test_only_who_has_a_key_gets_in() -> None:
    with served(byte_engine(False), settings=KEYS) as up:
        for key in KEYS.api_keys:
            with OpenAI(base_url=f"{up.url}/v1", api_key=key, max_retries=0) as client:
                assert [MODEL] == [model.id for model in client.models.list().data]
        for key in ("alph", "alphaa", "gamma", "alpha beta"):
            with (
                OpenAI(base_url=f"{up.url}/v1", api_key=key, max_retries=0) as client,
                pytest.raises(AuthenticationError) as refusal,
            ):
                client.models.list()
            assert "invalid_api_key" == refusal.value.code

        for path, status in (
            ("/v1/models", 401), ("/openapi.json", 401), ("/nowhere", 401),
            ("/health", 200), ("/health/live", 200), ("/health/ready", 200), ("/metrics", 200),
        ):  # fmt: skip
            answer = up.http.get(path)
            assert (path, status) == (path, answer.status_code)
        for header in ("Basic alpha", "alpha", "Bearer", "Bearer \xe4"):
            answer = up.http.get(
                "/v1/models", headers=[("authorization", header.encode("latin-1"))]
            )
            assert 401 == answer.status_code
        assert "Bearer" == answer.headers["www-authenticate"]


def test_an_empty_key_is_none() -> None:
    with pytest.raises(InvalidRequest, match="an API key must not be empty"):
        ServeSettings(api_keys=("",))


def test_a_key_may_hold_a_hash(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nk#1\n  two   # of a team\n #three\n", encoding="utf-8")

    assert ("k#1", "two") == read_keys(file)
