"""The official client, unmodified, against a real server."""

from __future__ import annotations

from typing import Any

import pytest
from openai import APIError, BadRequestError, NotFoundError, OpenAI

from dspark.runtime.params import SamplingParams
from tests.runtime.serve.parts import (
    EOS,
    EOS_ID,
    MODEL,
    TOKENIZER,
    Served,
    byte_engine,
    served,
    texts,
)

HELLO = [{"role": "user", "content": "the fox 🙂"}]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0}


def expected(prompt: list[int], **params: Any) -> Any:
    settings: dict[str, Any] = {"temperature": 0.0}
    return byte_engine(False).generate([prompt], SamplingParams(**(settings | params)))[0]


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text).ids)


def test_models_are_listed_and_found(client: OpenAI) -> None:
    (listed,) = client.models.list().data

    assert (MODEL, "model") == (listed.id, listed.object)
    assert listed == client.models.retrieve(MODEL)
    with pytest.raises(NotFoundError, match="there is no model `other` here"):
        client.models.retrieve("other")


def test_a_completion_is_the_engines(client: OpenAI) -> None:
    prompt = texts(1)[0]
    whole = expected(ids_of(prompt), max_tokens=16)

    answer = client.completions.create(prompt=prompt, **GREEDY)

    (choice,) = answer.choices
    assert whole.text == choice.text
    assert ("length", 0, None) == (choice.finish_reason, choice.index, choice.logprobs)
    assert "text_completion" == answer.object
    assert MODEL == answer.model
    assert answer.usage is not None
    used = len(ids_of(prompt))
    assert (used, 16, used + 16) == (
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
        answer.usage.total_tokens,
    )
    assert answer._request_id is not None
    assert f"cmpl-{answer._request_id}" == answer.id


def test_prompts_may_be_token_ids_and_several(client: OpenAI) -> None:
    prompts = [ids_of(text) for text in texts(3)]
    whole = [expected(prompt, max_tokens=8).text for prompt in prompts]

    one = client.completions.create(prompt=prompts[0], max_tokens=8, **GREEDY)
    all_ids = client.completions.create(prompt=prompts, max_tokens=8, **GREEDY)
    all_texts = client.completions.create(prompt=texts(3), max_tokens=8, **GREEDY)

    assert whole[:1] == [choice.text for choice in one.choices]
    assert whole == [choice.text for choice in all_ids.choices]
    assert whole == [choice.text for choice in all_texts.choices]
    assert [0, 1, 2] == [choice.index for choice in all_texts.choices]
    assert all_ids.usage is not None
    assert sum(map(len, prompts)) == all_ids.usage.prompt_tokens


def test_a_seed_fixes_every_choice(client: OpenAI) -> None:
    def texts_of(n: int, seed: int) -> list[str]:
        answer = client.completions.create(model=MODEL, prompt="the", n=n, seed=seed, max_tokens=12)
        return [choice.text for choice in answer.choices]

    together = texts_of(3, 5)

    assert 3 == len(set(together))
    assert together == [texts_of(1, seed)[0] for seed in (5, 6, 7)]


def test_a_stop_string_is_cut_off(client: OpenAI) -> None:
    text = expected(ids_of("the"), max_tokens=40).text
    pairs = [text[at : at + 2] for at in range(1, len(text) - 1)]
    stop = next(pair for pair in pairs if "\ufffd" not in pair)
    assert 0 < text.index(stop)

    answer = client.completions.create(
        prompt="the", max_tokens=40, stop=["\0never", stop], **GREEDY
    )

    assert text[: text.index(stop)] == answer.choices[0].text
    assert "stop" == answer.choices[0].finish_reason


def test_the_end_of_text_is_a_stop_and_a_token(client: OpenAI) -> None:
    answer = client.completions.create(
        prompt="the", logit_bias={str(EOS_ID): 100}, logprobs=0, **GREEDY
    )

    (choice,) = answer.choices
    assert ("", "stop") == (choice.text, choice.finish_reason)
    assert choice.logprobs is not None
    assert [EOS] == choice.logprobs.tokens
    assert answer.usage is not None
    assert 1 == answer.usage.completion_tokens


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 1.5), ("top_p", 0.1), ("top_k", 1), ("min_p", 0.9),
        ("presence_penalty", 2.0), ("frequency_penalty", 2.0), ("repetition_penalty", 5.0),
    ],
)  # fmt: skip
def test_every_way_of_choosing_reaches_the_engine(client: OpenAI, field: str, value: float) -> None:
    options: dict[str, Any] = {"temperature": 0.6, "seed": 11, "max_tokens": 60}
    # With the draft, too: what is drawn depends on it, though not how likely it is.
    params = [SamplingParams(**options), SamplingParams(**(options | {field: value}))]
    plain, whole = (one.text for one in byte_engine().generate([ids_of("the")] * 2, params))
    # Otherwise a field that is lost on the way would not be missed.
    assert whole != plain

    answer = client.completions.create(
        model=MODEL, prompt="the", extra_body=options | {field: value}
    )

    assert whole == answer.choices[0].text


def test_log_probabilities_of_a_completion(client: OpenAI) -> None:
    whole = expected(ids_of("the"), max_tokens=16, logprobs=3)

    answer = client.completions.create(prompt="the", logprobs=3, **GREEDY)

    found = answer.choices[0].logprobs
    assert found is not None
    assert found.tokens is not None
    assert found.text_offset is not None
    assert found.top_logprobs is not None
    assert [note.logprob for note in whole.logprobs] == found.token_logprobs
    assert [3] * 16 == [len(top) for top in found.top_logprobs]
    assert all(name in top for name, top in zip(found.tokens, found.top_logprobs, strict=True))
    # Tokens that are whole characters stand where their offset says.
    text = answer.choices[0].text
    whole_ones = [
        (token, text[at : at + len(token)])
        for token, at in zip(found.tokens, found.text_offset, strict=True)
        if not token.startswith("bytes:")
    ]
    assert whole_ones
    assert [token for token, _ in whole_ones] == [there for _, there in whole_ones]


def test_log_probabilities_of_a_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        messages=HELLO, max_tokens=24, logprobs=True, top_logprobs=2, **GREEDY
    )

    found = answer.choices[0].logprobs
    assert found is not None
    assert found.content is not None
    assert 24 == len(found.content)
    assert all(2 == len(entry.top_logprobs) for entry in found.content)
    assert all(entry.token == entry.top_logprobs[0].token for entry in found.content)
    data = b"".join(bytes(entry.bytes or ()) for entry in found.content)
    assert answer.choices[0].message.content == data.decode(errors="replace")


def test_echo_puts_the_prompt_first(client: OpenAI) -> None:
    plain = client.completions.create(prompt="the fox", max_tokens=5, **GREEDY)
    for prompt in ("the fox", ids_of("the fox")):
        echoed = client.completions.create(prompt=prompt, max_tokens=5, echo=True, **GREEDY)
        assert "the fox" + plain.choices[0].text == echoed.choices[0].text

    with pytest.raises(BadRequestError, match="log-probabilities of a prompt are not") as refusal:
        client.completions.create(prompt="the", echo=True, logprobs=1, **GREEDY)
    assert "logprobs" == refusal.value.param


def test_a_streamed_completion_adds_up(client: OpenAI) -> None:
    options: dict[str, Any] = {
        "prompt": texts(2),
        "n": 2,
        "seed": 3,
        "echo": True,
        "max_tokens": 20,
    }
    whole = client.completions.create(model=MODEL, **options)

    pieces = {choice.index: "" for choice in whole.choices}
    ends: dict[int, str] = {}
    usages = []
    for chunk in client.completions.create(
        model=MODEL, stream=True, stream_options={"include_usage": True}, **options
    ):
        usages.append(chunk.usage)
        for choice in chunk.choices:
            assert choice.index not in ends
            pieces[choice.index] += choice.text
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason

    assert {choice.index: choice.text for choice in whole.choices} == pieces
    assert {choice.index: choice.finish_reason for choice in whole.choices} == ends
    assert [None] * (len(usages) - 1) == usages[:-1]
    assert whole.usage == usages[-1]
    # Two choices of one prompt share it.
    assert whole.usage is not None
    assert sum(len(ids_of(text)) for text in texts(2)) == whole.usage.prompt_tokens


def test_a_streamed_chat_adds_up(client: OpenAI) -> None:
    options: dict[str, Any] = {
        "messages": HELLO, "n": 2, "seed": 1, "max_completion_tokens": 20, "logprobs": True,
    }  # fmt: skip
    whole = client.chat.completions.create(model=MODEL, **options)

    pieces, tokens = ["", ""], [0, 0]
    roles: list[list[Any]] = [[], []]
    ends: list[Any] = [None, None]
    for chunk in client.chat.completions.create(model=MODEL, stream=True, **options):
        assert chunk.usage is None
        (choice,) = chunk.choices
        if not pieces[choice.index]:
            roles[choice.index].append(choice.delta.role)
        pieces[choice.index] += choice.delta.content or ""
        ends[choice.index] = choice.finish_reason
        if choice.logprobs is not None:
            tokens[choice.index] += len(choice.logprobs.content or ())

    assert [choice.message.content for choice in whole.choices] == pieces
    assert [choice.finish_reason for choice in whole.choices] == ends
    assert ["assistant", "assistant"] == [each[0] for each in roles]
    assert [20, 20] == tokens


def test_a_chat_is_what_its_template_makes_of_it(client: OpenAI) -> None:
    text = "<|start|>system\nbe kind<|end|>\n<|start|>user\nthe\nfox<|end|>\n<|start|>assistant\n"
    whole = expected(list(TOKENIZER.encode(text).ids), max_tokens=9).text

    answer = client.chat.completions.create(
        messages=[
            {"role": "system", "content": "be kind"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "the"}, {"type": "text", "text": "fox"}],
            },
        ],
        max_tokens=9,
        **GREEDY,
    )

    assert whole == answer.choices[0].message.content
    assert answer.usage is not None
    assert len(TOKENIZER.encode(text).ids) == answer.usage.prompt_tokens


def test_an_answer_can_be_sent_back(client: OpenAI) -> None:
    first = client.chat.completions.create(messages=HELLO, max_tokens=4, **GREEDY)
    said: Any = first.choices[0].message.model_dump()
    assert {"refusal", "tool_calls", "audio"} <= said.keys()

    second = client.chat.completions.create(
        messages=[*HELLO, said, {"role": "user", "content": "go on"}], max_tokens=4, **GREEDY
    )

    assert "length" == second.choices[0].finish_reason


def test_without_a_draft_the_text_is_the_same(client: OpenAI, server: Served) -> None:
    rounds = server.metric("dspark_drafts_verified_total", position="1")
    texts_by_drafts = []
    for drafts in (0, None):
        answer = client.completions.create(
            prompt="the", max_tokens=30, extra_body={"drafts": drafts}, **GREEDY
        )
        texts_by_drafts.append(answer.choices[0].text)
        rounds, before = server.metric("dspark_drafts_verified_total", position="1"), rounds
        assert (rounds == before) == (drafts == 0)

    assert texts_by_drafts[0] == texts_by_drafts[1]


@pytest.mark.parametrize(
    ("change", "param", "code", "message"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools",
         "unsupported_parameter", "`tools` is not supported: this server does not parse calls"),
        ({"response_format": {"type": "json_object"}}, "response_format",
         "unsupported_parameter", "answers in free text only"),
        ({"temprature": 1}, "temprature", "unknown_parameter", "did you mean `temperature`?"),
        ({"temperature": 2.5}, "temperature", "invalid_value", "`temperature` must be at most 2"),
        ({"temperature": "hot"}, "temperature", "invalid_value", "must be a number"),
        ({"n": True}, "n", "invalid_value", "`n` must be an integer"),
        ({"messages": []}, "messages", "invalid_value", "`messages` must be at least 1 long"),
        ({"messages": [{"role": "bot", "content": ""}]}, "messages[0].role", "invalid_value",
         "must be `system`, `developer`, `user` or `assistant`"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content[0].type", "invalid_value", "must be `text`"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_parameter",
         "`messages[0].content` is required"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "invalid_value",
         "mean the same and differ"),
        ({"max_tokens": 10_000}, "max_tokens", "context_length_exceeded", "there is room for"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value", "needs `logprobs`"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value",
         "only for requests with `stream`"),
        ({"n": 17}, "n", "too_many_choices", "more than the 16 choices"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x", "invalid_value", "a token id in decimal"),
        ({"logit_bias": {"9999": 1}}, "logit_bias", "invalid_value", "`logit_bias` holds token"),
        ({"drafts": 99}, "drafts", "invalid_value", "`drafts` must be from 0 to 5"),
        ({"model": "gpt-4"}, "model", "model_not_found", "there is no model `gpt-4` here"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(
    client: OpenAI, change: dict[str, Any], param: str | None, code: str, message: str
) -> None:
    kind = NotFoundError if code == "model_not_found" else BadRequestError
    body: dict[str, Any] = {"model": MODEL, "messages": HELLO} | change

    with pytest.raises(kind) as refusal:
        client.post("/chat/completions", body=body, cast_to=object)

    assert (code, param) == (refusal.value.code, refusal.value.param)
    assert message in refusal.value.message
    assert "invalid_request_error" == refusal.value.type


def test_fields_that_say_nothing_are_let_pass(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        messages=HELLO, max_tokens=1, user="me", tools=[], tool_choice="none", store=False,
        response_format={"type": "text"}, service_tier="auto", metadata=None, **GREEDY,
    )  # fmt: skip

    assert "length" == answer.choices[0].finish_reason


def test_a_target_without_a_template_refuses_chats() -> None:
    with (
        served(byte_engine(), chat_template=None) as up,
        OpenAI(base_url=f"{up.url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(BadRequestError, match="the target has no chat template") as refusal,
    ):
        client.chat.completions.create(messages=HELLO, **GREEDY)
    assert ("no_chat_template", "messages") == (refusal.value.code, refusal.value.param)


def test_a_failing_engine_is_an_error_the_client_knows() -> None:
    with (
        served(byte_engine(nan=True)) as up,
        OpenAI(base_url=f"{up.url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert 200 == up.http.get("/health").status_code
        for stream in (False, True):
            with pytest.raises(APIError, match="logits are not finite") as failure:
                client.completions.create(prompt="the", stream=stream, **GREEDY)
            assert "engine_failed" == failure.value.code
        health = up.http.get("/health")

    assert 503 == health.status_code
    assert ("failing", True, False) == tuple(
        health.json()[key] for key in ("status", "live", "ready")
    )
