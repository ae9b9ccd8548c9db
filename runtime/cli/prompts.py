"""Prompts as a user hands them over: on the command line, in a file, or on standard input."""

from __future__ import annotations

import argparse
import json
import sys

from dspark.messages import plain
from dspark.runtime.errors import InvalidRequest

STDIN = "-"
_MOST_BYTES = 64 * 2**20


def read_prompt(arguments: argparse.Namespace) -> str:
    """The one prompt of `--prompt`, `--prompt-file` or `-`.

    Raises:
        InvalidRequest: it cannot be read, is no UTF-8, or is empty.
    """
    if arguments.prompt is not None:
        text: str = arguments.prompt
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("the prompt is not UTF-8") from None
    else:
        text = _read(arguments.prompt_file or STDIN)
    if not text:
        raise InvalidRequest("the prompt is empty")
    return text


def read_prompts(file: str, most: int | None = None) -> list[str]:
    """The prompts of a file with one JSON object a line, each with a `prompt`; the first `most`.

    Other keys are not looked at, and blank lines are skipped.

    Raises:
        InvalidRequest: the file cannot be read or has no prompt, or a line is not such an object.
    """
    prompts: list[str] = []
    for number, line in enumerate(_read(file).splitlines(), 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        prompt = document.get("prompt") if isinstance(document, dict) else None
        if not (isinstance(prompt, str) and prompt):
            where = f"line {number} of `{_shown(file)}`"
            raise InvalidRequest(f'{where} is not an object such as {{"prompt": "Once"}}')
        prompts.append(prompt)
    if not prompts:
        raise InvalidRequest(f"`{_shown(file)}` has no prompts")
    return prompts[:most]


def _read(file: str) -> str:
    name = _shown(file)
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with open(file, "rb") as stream:  # noqa: PTH123 - a name with a NUL raises below
                data = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no file can have this name"
        raise InvalidRequest(f"cannot read `{name}`: {reason.lower()}") from None
    if len(data) > _MOST_BYTES:
        raise InvalidRequest(f"`{name}` has more than {_MOST_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise InvalidRequest(
            f"`{name}` is not UTF-8: byte 0x{byte:02x} at offset {error.start}"
        ) from None


def _shown(file: str) -> str:
    return "standard input" if file == STDIN else plain(file, 200)
