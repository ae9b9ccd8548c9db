"""The target's chat template: from a conversation to the prompt it was trained on.

Templates are programs that come with a checkpoint, so they run in Jinja's sandbox, set up as the
transformers library does it, which is what they are written for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dspark.runtime.errors import InvalidRequest
from dspark.runtime.serve.errors import ApiError

_FILE = "chat_template.jinja"
_CONFIG = "tokenizer_config.json"
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


class _Generation(Extension):
    """`{% generation %}` marks what the model said, for training; here it is just its content."""

    tags = {"generation"}  # noqa: RUF012 - what Jinja asks for

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class ChatTemplate:
    """A compiled template. `special` are the special tokens that it may name.

    Raises:
        InvalidRequest: `source` is not a Jinja template.
    """

    def __init__(self, source: str, special: Mapping[str, str] | None = None) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise InvalidRequest(f"the chat template does not compile: {error}") from None
        self._special = dict(special or {})

    def render(
        self, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt, up to where the assistant is to speak.

        Raises:
            ApiError: 400 `chat_template_error`, the template does not take this conversation.
        """
        try:
            return self._template.render(
                self._special
                | dict(variables or {})
                | {
                    "messages": [dict(message) for message in messages],
                    "tools": None,
                    "documents": None,
                    "add_generation_prompt": True,
                }
            )
        # A template is a program: what it trips over in a conversation is up to its author.
        except Exception as error:  # noqa: BLE001
            raise ApiError(
                400,
                f"the target's chat template does not take these messages: {error}",
                code="chat_template_error",
                param="messages",
            ) from None


def read_chat_template(folder: Path, file: Path | None = None) -> ChatTemplate | None:
    """The template of the target in `folder`, or the one in `file`; None if there is neither.

    A `chat_template.jinja` counts before the key of tokenizer_config.json, and of several named
    templates in that key the one called `default`, as everywhere.

    Raises:
        InvalidRequest: the template does not compile, or a file cannot be read as what it is.
    """
    config = _config(folder / _CONFIG)
    special = {name: _content(name, config[name]) for name in _SPECIAL if config.get(name)}
    path = folder / _FILE if file is None else file
    if file is not None or path.is_file():
        return ChatTemplate(_read(path), special)
    found = config.get("chat_template")
    if isinstance(found, list):
        if not all(isinstance(each, dict) for each in found):
            raise InvalidRequest(f"`chat_template` in `{_CONFIG}` lists what is no named template")
        found = {each.get("name"): each.get("template") for each in found}.get("default")
    if found is not None and not isinstance(found, str):
        raise InvalidRequest(f"`chat_template` in `{_CONFIG}` is no text")
    return None if found is None else ChatTemplate(found, special)


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"`{_CONFIG}` is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InvalidRequest(f"`{_CONFIG}` is not a JSON object")
    return config


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot read `{path}`: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"`{path}` is not UTF-8") from None


def _content(name: str, token: object) -> str:
    """A special token, which older files write as an object."""
    content = token.get("content") if isinstance(token, dict) else token
    if not isinstance(content, str):
        raise InvalidRequest(f"`{name}` in `{_CONFIG}` is no token")
    return content


def _to_json(value: object, indent: int | None = None, **options: Any) -> str:
    # Jinja's own escapes HTML, and a prompt is none.
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
