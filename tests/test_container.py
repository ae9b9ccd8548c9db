"""The image holds what the package needs; building one takes a daemon, which tests have none of."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dspark.cli import main

USAGE, REFUSED, UNREADABLE = 2, 3, 4


@pytest.fixture(scope="module")
def dockerfile(repository: Path) -> str:
    return (repository / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pyproject(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


def copied(dockerfile: str) -> set[str]:
    """What of the checkout gets into the image."""
    lines = re.findall(r"^COPY (.+) \S+$", dockerfile, re.M)
    return {word for line in lines for word in line.split()}


def words(dockerfile: str, instruction: str) -> list[list[str]]:
    """The words of an instruction that is written as a list, each time that it comes."""
    return [
        json.loads(found) for found in re.findall(rf"^{instruction} .*?(\[.*\])$", dockerfile, re.M)
    ]


def test_every_folder_of_the_package_gets_into_the_image(
    repository: Path, dockerfile: str, pyproject: dict[str, Any]
) -> None:
    rooms = {
        folder.split("/")[0] for folder in pyproject["tool"]["setuptools"]["package-dir"].values()
    }
    ignore = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()

    found = copied(dockerfile)

    assert rooms | {"pyproject.toml", "README.md", "LICENSE", "constraints.txt"} == found
    assert found == {line.removeprefix("!") for line in ignore if line.startswith("!")}
    assert all((repository / name).exists() for name in found)
    # A folder keeps its name, or its packages would not be where pyproject.toml says.
    for source, place in re.findall(r"^COPY (\S+) (\S+)$", dockerfile, re.M):
        assert source == place


def test_each_variant_installs_an_extra_that_exists(
    dockerfile: str, pyproject: dict[str, Any]
) -> None:
    extras = pyproject["project"]["optional-dependencies"]

    assert ["base", "cpu", "cuda"] == re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.M)
    default = re.search(r"^ARG CUDA=(\d+)$", dockerfile, re.M)
    assert default is not None
    named = re.findall(r"\.\[([^\]]+)\]", dockerfile.replace("${CUDA}", default[1]))
    assert ["cpu,serve", "cuda12,serve"] == named
    assert {extra for names in named for extra in names.split(",")} <= extras.keys()
    # `--build-arg CUDA=13` is the other one.
    assert {"cuda12", "cuda13"} == {name for name in extras if name.startswith("cuda")}
    constraints = re.findall(r"--constraint (\S+)", dockerfile)
    assert [True] * 2 == [name in copied(dockerfile) for name in constraints]
    # Nobody runs as root, and the user is made before it is taken.
    assert 2 == len(re.findall(r"^USER dspark$", dockerfile, re.M))
    assert dockerfile.index("RUN useradd") < dockerfile.index("USER dspark")
    assert "useradd --create-home" in dockerfile
    assert ["/home/dspark"] * 2 == re.findall(r"^USER dspark\nWORKDIR (\S+)$", dockerfile, re.M)


def test_each_variant_starts_the_verb_that_serves(
    dockerfile: str, pyproject: dict[str, Any], tmp_path: Path
) -> None:
    entries = words(dockerfile, "ENTRYPOINT")
    assert 2 == len(entries)

    for command, *arguments in entries:
        assert command in pyproject["project"]["scripts"]
        assert ["serve", "--host", "0.0.0.0"] == arguments[:3]
        # Past the options: what is wrong is the device, or that there is nothing at that place.
        code = main([*arguments, "--target", str(tmp_path), "--draft", str(tmp_path)])
        assert code in (REFUSED, UNREADABLE)

    with pytest.raises(SystemExit) as caught:
        main([*entries[0][1:], "--no-such-option"])
    assert USAGE == caught.value.code


def test_the_image_asks_its_own_server_how_it_is(
    dockerfile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dspark.runtime import AsyncEngine
    from dspark.runtime.serve.health import Health, health_routes
    from tests.runtime.tiny import make_engine

    ((program, option, code),) = words(dockerfile, "HEALTHCHECK")
    asked: list[str] = []
    monkeypatch.setattr("urllib.request.urlopen", asked.append)

    exec(compile(code, "HEALTHCHECK", "exec"), {})

    assert ("python", "-c") == (program, option)
    exposed = re.findall(r"^EXPOSE (\d+)$", dockerfile, re.M)
    paths = {route.path for route in health_routes(Health(AsyncEngine(make_engine()))).routes}
    (url,) = asked
    host, _, path = url.removeprefix("http://").partition("/")
    assert [host] == [f"127.0.0.1:{port}" for port in exposed] == ["127.0.0.1:8000"]
    assert f"/{path}" in paths


@pytest.mark.slow
def test_what_is_copied_is_enough_to_make_the_package(
    repository: Path, dockerfile: str, tmp_path: Path
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for name in copied(dockerfile):
        if (repository / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(repository / name, source / name, ignore=ignore)
        else:
            shutil.copy(repository / name, source)
    made = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]

    subprocess.run([*made, tmp_path / "out", source], check=True, capture_output=True)

    (wheel,) = (tmp_path / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"dspark/cli.py", "dspark/rules/drafts.yaml", "dspark/runtime/cli/serve.py"} <= names
    assert {"dspark/kernels/norm.cu", "dspark/schemas/decision.schema.json"} <= names
