"""The image holds what the package needs; building one takes a daemon, which tests have none of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def test_every_folder_of_the_package_gets_into_the_image(repository: Path) -> None:
    dockerfile = (repository / "Dockerfile").read_text(encoding="utf-8")
    pyproject = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = {
        folder.split("/")[0] for folder in pyproject["tool"]["setuptools"]["package-dir"].values()
    }
    ignore = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()

    copied = {
        word for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.M) for word in line.split()
    }
    assert rooms | {"pyproject.toml", "README.md", "LICENSE", "constraints.txt"} == copied
    assert copied == {line.removeprefix("!") for line in ignore if line.startswith("!")}


def test_each_variant_installs_an_extra_that_exists_and_runs_the_verb(repository: Path) -> None:
    dockerfile = (repository / "Dockerfile").read_text(encoding="utf-8")
    extras = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]

    assert ["base", "cpu", "cuda"] == re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.M)
    default = re.search(r"^ARG CUDA=(\d+)$", dockerfile, re.M)
    assert default is not None
    named = re.findall(r"\.\[([^\]]+)\]", dockerfile.replace("${CUDA}", default[1]))
    assert ["cpu,serve", "cuda12,serve"] == named
    assert {extra for names in named for extra in names.split(",")} <= extras.keys()
    assert 2 == dockerfile.count('ENTRYPOINT ["dspark", "serve", "--host", "0.0.0.0"')
    # Nobody runs as root, and the user is made before it is taken.
    assert 2 == len(re.findall(r"^USER dspark$", dockerfile, re.M))
