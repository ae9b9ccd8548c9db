"""Enough of pytest for a module of tests to be imported where there is none; it runs nothing."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def stand_in_for_pytest() -> None:
    """Makes `import pytest` work, with the real one where it is installed."""
    if find_spec("pytest") is not None:
        return
    stand_in = ModuleType("pytest")
    stand_in.__dict__.update(mark=_Marks(), fixture=_mark, param=lambda *values, **_: values)
    sys.modules["pytest"] = stand_in


class _Marks:
    def __getattr__(self, name: str) -> Any:
        return _mark


def _mark(*arguments: Any, **_: Any) -> Any:
    """A decorator with or without arguments, which changes nothing."""
    if len(arguments) == 1 and callable(arguments[0]):
        return arguments[0]
    return lambda test: test
