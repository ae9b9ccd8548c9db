"""The file that API keys are kept in."""

from __future__ import annotations

import re
from pathlib import Path

from dspark.runtime.errors import InvalidRequest

_COMMENT = re.compile(r"(?:^|\s)#")


def read_keys(file: Path | None) -> tuple[str, ...]:
    """The keys in a file, one a line; none without a file.

    A `#` starts a comment at the beginning of a line and after a space: a key may hold one.

    Raises:
        InvalidRequest: the file cannot be read, or there is no key in it.
    """
    if file is None:
        return ()
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidRequest(f"cannot read the key file `{file}`: {reason}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"the key file `{file}` is not UTF-8") from None
    keys = tuple(key for line in lines if (key := _COMMENT.split(line, 1)[0].strip()))
    # An empty file must not open the server to everyone.
    if not keys:
        raise InvalidRequest(f"there is no key in `{file}`")
    return keys
