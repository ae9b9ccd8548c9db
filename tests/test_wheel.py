"""The wheel, as a user gets it: in an empty environment, far from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NOT_SOURCE = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
REFUSED = 3


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def run_well(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy, through the sdist: what lies in the checkout's build/ cannot leak into the wheel,
    # and an sdist that lacks a file fails here.
    source = tmp_path_factory.mktemp("source") / "dspark"
    shutil.copytree(repository, source, ignore=NOT_SOURCE)
    output = tmp_path_factory.mktemp("output")
    run_well(sys.executable, "-m", "build", "--outdir", output, source, cwd=output)
    (built,) = output.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and what it requires."""
    home = tmp_path_factory.mktemp("environment")
    run_well(sys.executable, "-m", "venv", home, cwd=home)
    constraints = repository / "constraints.txt"
    pip = [home / "bin/python", "-m", "pip"]
    run_well(*pip, "install", "--quiet", "--constraint", constraints, wheel, cwd=home)
    run_well(*pip, "check", cwd=home)
    return home / "bin"


def test_the_wheel_holds_every_file_of_the_package(wheel: Path, repository: Path) -> None:
    pyproject = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = pyproject["tool"]["setuptools"]["package-dir"]
    expected = {
        "/".join([*package.split("."), *file.relative_to(repository / folder).parts])
        for package, folder in rooms.items()
        for file in (repository / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {"dspark/rules/drafts.yaml"} <= expected
    assert any(name.startswith("dspark/schemas/") for name in expected if name.endswith(".json"))

    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith("dspark-")}

    assert expected == names


def test_the_command_says_its_version(installed: Path, wheel: Path, tmp_path: Path) -> None:
    _, version, *_ = wheel.name.split("-")

    assert version in run_well(installed / "dspark", "--version", cwd=tmp_path).split()


def test_the_wheel_routes_as_the_checkout_does(
    installed: Path, repository: Path, tmp_path: Path
) -> None:
    corpus = repository / "tests/corpus"
    assert any(corpus.glob("*/config.json"))

    checkout = run(sys.executable, "-m", "dspark.route", "-r", corpus, cwd=repository)
    wheel = run(installed / "python", "-m", "dspark.route", "-r", corpus, cwd=tmp_path)

    assert checkout.returncode == REFUSED, checkout.stderr
    assert (checkout.returncode, checkout.stdout) == (wheel.returncode, wheel.stdout)
    assert wheel.stdout


def test_the_router_brings_no_accelerator(installed: Path, tmp_path: Path) -> None:
    where = (
        "import dspark, importlib.util as u;"
        "print(dspark.__file__, *map(u.find_spec, ['torch', 'cupy', 'transformers']))"
    )

    file, *accelerators = run_well(installed / "python", "-c", where, cwd=tmp_path).split()

    assert Path(file).is_relative_to(installed.parent)
    assert ["None", "None", "None"] == accelerators
