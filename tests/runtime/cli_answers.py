"""What the decoding verbs said, in this process or in another."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from dspark.cli import main

SCHEMAS = Path(str(import_module("dspark.schemas").__file__)).parent
SCRIPT = Path(sys.executable).parent / "dspark"


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


class Verb:
    """One verb on one pair; options are added to the pair's."""

    def __init__(
        self, name: str, target: Path, draft: Path | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.name = name
        self.models = ["--target", str(target)]
        if draft is not None:
            self.models += ["--draft", str(draft)]
        self._capsys = capsys

    def say(self, *options: str) -> Said:
        code = main([self.name, *self.models, *options])
        return Said(code, *self._capsys.readouterr())

    def misuse(self, *options: str) -> str:
        """What argparse says to options that it refuses itself."""
        with pytest.raises(SystemExit) as ended:
            main([self.name, *self.models, *options])
        assert 2 == ended.value.code
        return self._capsys.readouterr().err


def in_a_process(
    *arguments: str, stdin: bytes = b""
) -> tuple[subprocess.CompletedProcess[str], float]:
    """A run of the installed command, and the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [SCRIPT, *arguments],
        input=stdin.decode(),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return run, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def validate(name: str, document: object) -> None:
    def read(schema: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((SCHEMAS / schema).read_text(encoding="utf-8"))
        return loaded

    decision = Resource.from_contents(read("decision.schema.json"))
    registry: Registry[Any] = Registry().with_resource("decision.schema.json", decision)
    schema = read(f"{name}.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema, registry=registry).validate(document)
