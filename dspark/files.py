"""Where the YAML that ships with the package lies."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def rules_file(name: str) -> Path:
    """The path of a file in `rules/`, in a checkout and in an installed wheel alike."""
    return Path(str(import_module("dspark.rules").__file__)).with_name(name)
