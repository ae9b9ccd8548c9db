"""Compiled once per architecture: machine code of each .cu file, kept on disk by what went in."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dspark.kernels.errors import CompileError
from dspark.kernels.nvrtc import Nvrtc, open_nvrtc
from dspark.kernels.signatures import FOLDER
from dspark.kernels.toolkit import Toolkit, find_toolkit

FLAGS = ("-std=c++17", "-lineinfo")
"""What every source is compiled with, besides the architecture and where headers lie.

Neither -ftz nor -use_fast_math: the kernels mean what they say, here and on the simulator.
"""

ARCHITECTURES = (80, 89, 90, 100, 120)
"""What every kernel must compile for, as 80 for sm_80."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


@dataclass(frozen=True, slots=True)
class Compiler:
    """NVRTC with the headers it reads, and the folder that keeps what it made."""

    nvrtc: Nvrtc
    toolkit: Toolkit
    cache: Path

    def cubin(self, file: Path, architecture: int) -> Path:
        """Where machine code of `file` for an architecture such as 90 is kept, compiled if need be.

        Raises:
            CompileError: the source is wrong, or the cache cannot be written.
        """
        options = (*FLAGS, f"-arch=sm_{architecture}")
        kept = self.cache / f"{file.stem}-sm_{architecture}-{self._key(file, options)}.cubin"
        if kept.is_file():
            return kept
        includes = (f"-I{FOLDER}", f"-I{self.toolkit.include}")
        source = file.read_text(encoding="utf-8")
        _keep(kept, self.nvrtc.compile(source, file.name, (*options, *includes)))
        return kept

    def _key(self, file: Path, options: tuple[str, ...]) -> str:
        """A digest of everything that the machine code depends on."""
        digest = hashlib.blake2b(digest_size=12)
        words = [str(self.nvrtc.version), *options]
        for part in (*(word.encode() for word in words), *self._sources(file)):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def _sources(self, file: Path) -> Iterator[bytes]:
        """The bytes of `file` and of every header that it, or one of them, names and that is there.

        A header behind an `#if` is among them although it may not be read: rather compiled twice
        than once too few.
        """
        seen: set[Path] = set()
        waiting = [file]
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            content = path.read_bytes()
            yield content
            for quote, name in _INCLUDE.findall(content.decode("utf-8", "replace")):
                folders = [path.parent, FOLDER] if quote == '"' else []
                for folder in (*folders, self.toolkit.include):
                    if (folder / name).is_file():
                        waiting.append(folder / name)
                        break


def open_compiler() -> Compiler:
    """The compiler of this machine, keeping its work in `kernel_cache()`.

    Raises:
        ToolkitMissing: no NVRTC, or no headers.
        CompileError: what was found is no NVRTC.
    """
    toolkit = find_toolkit()
    return Compiler(open_nvrtc(toolkit.nvrtc), toolkit, kernel_cache())


def kernel_cache() -> Path:
    """Where compiled kernels are kept: `DSPARK_KERNEL_CACHE`, else the user's cache folder."""
    named = os.environ.get("DSPARK_KERNEL_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "dspark" / "kernels"


def _keep(path: Path, code: bytes) -> None:
    # Written beside and renamed, so that a reader never sees half of it, whoever else compiles.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
        with os.fdopen(descriptor, "wb") as file:
            file.write(code)
        Path(name).replace(path)
    except OSError as error:
        raise CompileError(
            f"compiled kernels cannot be kept in `{path.parent}`: {error.strerror or error};"
            " name another folder in DSPARK_KERNEL_CACHE"
        ) from error
