"""What decoding needs of a target besides its weights: its tokenizer, and what ends a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark import load_refusal

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from dspark import Decision

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
# The first that names an end-of-text id counts, as everywhere.
_NAMES_EOS = ("generation_config.json", "config.json")


def read_tokenizer(folder: Path, vocab_size: int, decision: Decision) -> Tokenizer:
    """The tokenizer of the target in `folder`; `decision` is the one on that target.

    Raises:
        dspark.Refused: there is none, or its file is not one.
    """
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    if not path.is_file():
        raise load_refusal(decision, "tokenizer-missing")
    try:
        tokenizer = Tokenizer.from_file(str(path))
        # What a file was trained or exported with must not cut or fill up a prompt here.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        around = tokenizer.encode("").ids
    except (KeyboardInterrupt, SystemExit):
        raise
    # The library raises bare exceptions for whatever is wrong with a file, and panics beside them,
    # which are no `Exception`.
    except BaseException as error:  # noqa: BLE001
        raise _invalid(decision, TOKENIZER, str(error)) from None
    if beyond := [token for token in around if token >= vocab_size]:
        reason = f"it puts token `{beyond[0]}` around a text, and the ids end at {vocab_size - 1}"
        raise _invalid(decision, TOKENIZER, reason)
    return tokenizer


def read_eos_token_ids(folder: Path, vocab_size: int, decision: Decision) -> frozenset[int]:
    """The ids that end a text of the target in `folder`; none if its files name none.

    Raises:
        dspark.Refused: a file that would name them is not what it should be.
    """
    for name in _NAMES_EOS:
        named = _read(folder, name, decision).get("eos_token_id")
        if named is None:
            continue
        ids = named if isinstance(named, list) else [named]
        if not ids or not all(type(token) is int and token >= 0 for token in ids):
            reason = f"`eos_token_id` is `{json.dumps(named)}`, and not ids"
            raise _invalid(decision, name, reason)
        # An id that cannot come would let every text run on to its limit.
        if max(ids) >= vocab_size:
            reason = f"`eos_token_id` has an id beyond {vocab_size - 1}, the target's last"
            raise _invalid(decision, name, reason)
        return frozenset(ids)
    return frozenset()


class _TwiceError(Exception):
    """A key that an object has twice, so that its value is anybody's guess."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _TwiceError(key)
        values[key] = value
    return values


def _read(folder: Path, name: str, decision: Decision) -> dict[str, Any]:
    try:
        data = (folder / name).read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _invalid(decision, name, (error.strerror or "input error").lower()) from None
    try:
        document = json.loads(data, object_pairs_hook=_once)
    except _TwiceError as error:
        raise _invalid(decision, name, f"it has the key `{error}` twice") from None
    except (ValueError, RecursionError):
        raise _invalid(decision, name, "it is not JSON") from None
    if not isinstance(document, dict):
        raise _invalid(decision, name, "it is not a JSON object")
    return document


def _invalid(decision: Decision, file: str, reason: str) -> Exception:
    return load_refusal(decision, "target-file-invalid", file=file, reason=reason)
