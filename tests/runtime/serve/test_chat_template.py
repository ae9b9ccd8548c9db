"""Templates, against what the transformers library makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from dspark.runtime import InvalidRequest, read_chat_template
from dspark.runtime.serve.chat_template import ChatTemplate
from dspark.runtime.serve.errors import ApiError
from tests.runtime.serve.parts import TOKENIZER

# The features that published templates use, none of their text.
WIDE = """{{- bos_token }}
{%- set ns = namespace(last=0, seen=[]) %}
{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}
        {{- raise_exception('the system speaks first') }}
    {%- endif %}
    {%- if loop.index0 > 7 %}{% break %}{% endif %}
    {%- set ns.last = loop.index0 %}
    {{- '<|' ~ message.role ~ '|>' }}
    {%- if message.role == 'assistant' %}
        {% generation %}{{ message.content.split('</think>')[-1].lstrip('\\n') }}{% endgeneration %}
    {%- else %}
        {{- message.content | trim }}
    {%- endif %}
    {{- eos_token }}
{% endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{{- {'<&>': 'ä', 'n': ns.last} | tojson }}
{%- if enable_thinking is defined and enable_thinking is false %}<nothink>{% endif %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}
"""

TALK = [
    {"role": "system", "content": "  be kind "},
    {"role": "user", "content": "a <b> & 'c' 🙂"},
    {"role": "assistant", "content": "<think>hm</think>\n\nyes"},
    {"role": "user", "content": "and\nthen?"},
]


@pytest.mark.parametrize("variables", [{}, {"enable_thinking": False}, {"enable_thinking": True}])
@pytest.mark.parametrize("turns", [1, 2, 4])
def test_a_template_renders_as_in_transformers(turns: int, variables: dict[str, Any]) -> None:
    oracle = PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZER, bos_token="<|start|>", eos_token="<|end|>", chat_template=WIDE
    )
    expected = oracle.apply_chat_template(
        TALK[:turns], tokenize=False, add_generation_prompt=True, **variables
    )

    made = ChatTemplate(WIDE, {"bos_token": "<|start|>", "eos_token": "<|end|>"})

    assert expected == made.render(TALK[:turns], variables)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('only one turn') }}", "only one turn"),
        ("{{ messages[0].content.nothing.there }}", "has no attribute"),
        ("{{ messages[9].role }}", "has no element 9"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "attribute 'append' of 'list' object is unsafe"),
        ("{{ 1 // 0 }}", "division"),
    ],
)
def test_what_a_template_trips_over_is_the_callers_to_know(source: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refusal:
        ChatTemplate(source).render(TALK)

    assert (400, "chat_template_error", "messages") == (
        refusal.value.status_code,
        refusal.value.code,
        refusal.value.param,
    )


def test_variables_do_not_replace_the_conversation() -> None:
    made = ChatTemplate("{{ messages[0].role }} {{ add_generation_prompt }} {{ mood }}")

    assert "system True good" == made.render(
        TALK, {"messages": [], "add_generation_prompt": False, "mood": "good"}
    )


def target(folder: Path, template: object, **more: object) -> Path:
    config = {"chat_template": template, "eos_token": "<e>", "bos_token": {"content": "<b>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | more), encoding="utf-8")
    return folder


def said(template: ChatTemplate | None) -> str:
    assert template is not None
    return template.render(TALK)


def test_a_targets_template_is_found_where_it_may_lie(tmp_path: Path) -> None:
    assert read_chat_template(tmp_path) is None
    assert read_chat_template(target(tmp_path, None)) is None
    assert "<b>key<e>" == said(
        read_chat_template(target(tmp_path, "{{ bos_token }}key{{ eos_token }}"))
    )
    several = [{"name": "rag", "template": "rag"}, {"name": "default", "template": "default"}]
    assert "default" == said(read_chat_template(target(tmp_path, several)))
    assert read_chat_template(target(tmp_path, several[:1])) is None
    target(tmp_path, "key")
    (tmp_path / "chat_template.jinja").write_text("file {{ eos_token }}", encoding="utf-8")
    assert "file <e>" == said(read_chat_template(tmp_path))
    given = tmp_path / "given.jinja"
    given.write_text("given {{ bos_token }}", encoding="utf-8")
    assert "given <b>" == said(read_chat_template(tmp_path, given))


def test_a_template_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="the chat template does not compile: "):
        read_chat_template(target(tmp_path, "{% if %}"))
    with pytest.raises(InvalidRequest, match=r"cannot read `.*missing\.jinja`"):
        read_chat_template(tmp_path, tmp_path / "missing.jinja")
    (tmp_path / "latin.jinja").write_bytes(b"\xe4")
    with pytest.raises(InvalidRequest, match="is not UTF-8"):
        read_chat_template(tmp_path, tmp_path / "latin.jinja")
    (tmp_path / "tokenizer_config.json").write_text("[", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"`tokenizer_config\.json` is not JSON"):
        read_chat_template(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InvalidRequest, match="is not a JSON object"):
        read_chat_template(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"chat_template": 5}', "`chat_template` in `tokenizer_config.json` is no text"),
        ('{"chat_template": {"a": 1}}', "`chat_template` in `tokenizer_config.json` is no text"),
        ('{"chat_template": [1]}', "lists what is no named template"),
        ('{"chat_template": [{"name": "default", "template": 1}]}', "is no text"),
        ('{"eos_token": 5}', "`eos_token` in `tokenizer_config.json` is no token"),
        ('{"eos_token": {"x": 1}}', "`eos_token` in `tokenizer_config.json` is no token"),
        ("[" * 100_000, "`tokenizer_config.json` is not JSON"),
    ],
    ids=range(7),
)
def test_a_tokenizer_config_that_is_none_is_named(
    config: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")

    with pytest.raises(InvalidRequest, match=re.escape(message)):
        read_chat_template(tmp_path)
