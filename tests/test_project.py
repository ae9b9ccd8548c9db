"""What holds for the repository as a whole, whatever the code does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dspark

HEAVY = {
    "cupy",
    "httpx",
    "httpx2",
    "huggingface_hub",
    "jsonschema",
    "pydantic",
    "requests",
    "rich",
    "torch",
    "transformers",
}

# Counts attempts, so that it also notices an import that is tried and fails: most of the heavy
# packages are not installed where the tests run.
TRIPWIRE = """
import sys
class Tripwire:
    def find_spec(self, name, path=None, target=None):
        print(name)
sys.meta_path.insert(0, Tripwire())
"""

SCRIPTS = [
    "browser",
    "check",
    "demo",
    "format",
    "gpu",
    "imports",
    "kernels",
    "lint",
    "ray",
    "setup",
    "test",
]


@pytest.fixture(scope="module")
def pyproject(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


def imports_tried(statement: str) -> set[str]:
    python = subprocess.run(
        [sys.executable, "-c", TRIPWIRE + statement], capture_output=True, text=True, check=True
    )
    return set(python.stdout.split())


def canonical(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_importing_dspark_stays_light() -> None:
    tried = imports_tried("import dspark")

    assert "dspark" in tried
    assert set() == HEAVY & tried


def test_the_tripwire_sees_an_import_that_fails() -> None:
    tried = imports_tried("try:\n    import torch.nowhere\nexcept ImportError: pass")

    assert {"torch"} == HEAVY & tried


def test_the_version_is_said_once(pyproject: dict[str, Any]) -> None:
    assert pyproject["project"]["version"] == dspark.__version__


@pytest.mark.parametrize(
    ("page", "commands"),
    [
        ("README.md", ["scripts/demo", "scripts/test"]),
        ("CONTRIBUTING.md", ["scripts/check", "scripts/test"]),
    ],
)
def test_newcomers_are_told_the_two_commands(
    repository: Path, page: str, commands: list[str]
) -> None:
    text = (repository / page).read_text(encoding="utf-8")

    assert commands == [command for command in commands if command in text]


@pytest.mark.parametrize("script", [*(f"scripts/{name}" for name in SCRIPTS), ".ci/run"])
def test_scripts_run(repository: Path, script: str) -> None:
    path = repository / script

    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True)


def test_the_tests_that_ci_leaves_out_for_ray_are_those_that_scripts_ray_runs(
    repository: Path,
) -> None:
    script = (repository / "scripts/ray").read_text(encoding="utf-8")
    wants = f'{"find_spec"}("ray")'  # in two parts, since this file is searched too
    skipping = [
        str(file.relative_to(repository))
        for file in (repository / "tests").rglob("*.py")
        if wants in file.read_text(encoding="utf-8")
    ]

    assert skipping
    assert skipping == re.findall(r"\btests/\S+\.py\b", script)
    # Without the variable they would skip there too, and the script would say that all is well.
    assert re.search(r"^DSPARK_RAY=1 exec .* -m pytest", script, re.M)
    text = (repository / skipping[0]).read_text(encoding="utf-8")
    assert f'{wants} is None and "DSPARK_RAY" not in os.environ' in text


def test_every_folder_of_code_is_packaged(repository: Path, pyproject: dict[str, Any]) -> None:
    setuptools = pyproject["tool"]["setuptools"]
    rooms: dict[str, str] = setuptools["package-dir"]
    found = set()
    for package, folder in rooms.items():
        for code in (repository / folder).rglob("*.py"):
            inside = code.parent.relative_to(repository / folder).parts
            assert (code.parent / "__init__.py").is_file(), code
            found.add(".".join([package, *inside]))

    assert sorted(found) == setuptools["packages"]


def test_every_tool_is_pinned(repository: Path, pyproject: dict[str, Any]) -> None:
    lines = (repository / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    names = [canonical(pin) for pin in pins]
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    wanted += [each for name in ("dev", "bench", "cpu", "ray") for each in extras[name]]

    assert sorted(names) == names
    assert [] == [pin for pin in pins if "==" not in pin]
    assert set() == {canonical(requirement) for requirement in wanted} - set(names)


def test_no_file_names_a_place_outside_the_repository(repository: Path) -> None:
    if not (repository / ".git").exists():
        pytest.skip("only a git checkout knows which files are the project's")
    # Built from halves, since this file is searched too.
    foreign = ["/" + "work/", "shared" + "/configs"]
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [repository / name for name in listing.stdout.split("\0") if name]
    assert repository / "pyproject.toml" in files

    assert [] == [
        (str(file), words)
        for file in files
        if file.is_file()
        for words in foreign
        if words.encode() in file.read_bytes()
    ]


@pytest.mark.parametrize(
    ("statement", "contract"),
    [
        ("import dspark.runtime", "the router never imports the runtime or the kernels"),
        ("from dspark import kernels", "the router never imports the runtime or the kernels"),
        ("import torch", "the router imports no torch, cupy or transformers"),
    ],
)
def test_scripts_imports_sees_a_forbidden_import(
    repository: Path, tmp_path: Path, statement: str, contract: str
) -> None:
    for folder in ["dspark", "kernels", "rules", "runtime", "schemas", "scripts"]:
        shutil.copytree(repository / folder, tmp_path / folder)
    shutil.copy(repository / "pyproject.toml", tmp_path)
    # scripts/imports asks for .venv/bin/lint-imports; a shim, since a copied venv would not run.
    linter = tmp_path / ".venv/bin/lint-imports"
    linter.parent.mkdir(parents=True)
    linter.write_text(
        f"#!{sys.executable}\nfrom importlinter.cli import lint_imports_command as run\nrun()\n"
    )
    linter.chmod(0o755)
    (tmp_path / "dspark/intruder.py").write_text(f"{statement}\n")

    lint = subprocess.run(
        [tmp_path / "scripts/imports"], capture_output=True, text=True, check=False
    )

    assert lint.returncode == 1, lint.stderr
    assert f"{contract} BROKEN" in lint.stdout
    assert "dspark.intruder" in lint.stdout
