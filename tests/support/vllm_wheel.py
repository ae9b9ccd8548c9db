"""vLLM's own code, from its wheel: unpacked without its compiled parts and importable on a CPU.

Nothing here is installed: the Python files are laid into a cache, and whatever vLLM imports that
this environment lacks is stood in for by empty modules. That is enough to run the code that reads
a config; it computes nothing. Import vLLM in a process of its own: it changes global state.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
import types
import zipfile
from collections.abc import Sequence
from pathlib import Path

KEPT = (".py", ".json", ".jinja")
_STOOD_IN = """
aiohttp blake3 cachetools cbor2 cloudpickle compressed_tensors cpuinfo cv2 depyf
diskcache einops gguf lark llguidance lm_format_enforcer lmformatenforcer
mistral_common msgspec openai_harmony outlines_core partial_json_parser PIL
prometheus_fastapi_instrumentator psutil pybase64 scipy sentencepiece setproctitle
tiktoken uvloop watchfiles xgrammar zmq
"""
STOOD_IN = frozenset(_STOOD_IN.split())
"""What vLLM imports and no routing decision needs; each is stood in for only if it is missing."""


class NoWheel(Exception):
    """The wheel cannot be had here; the text says why."""


def cache_folder() -> Path:
    """Where unpacked wheels are kept between runs."""
    top = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(top) / "dspark" / "wheels"


def unpacked(version: str) -> Path:
    """The folder that holds vLLM's Python files of this version, fetched once if need be.

    An environment variable DSPARK_VLLM_WHEEL may name a wheel that is already there. Raises
    `NoWheel`.
    """
    folder = cache_folder() / f"vllm-{version}"
    if (folder / "vllm" / "__init__.py").is_file():
        return folder
    given = os.environ.get("DSPARK_VLLM_WHEEL")
    wheel = Path(given) if given else _download(version, cache_folder())
    if not wheel.name.startswith(f"vllm-{version}-"):
        raise NoWheel(f"DSPARK_VLLM_WHEEL names `{wheel.name}`, which is not vLLM {version}")
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial, [n for n in archive.namelist() if n.endswith(KEPT)])
    except (OSError, zipfile.BadZipFile) as error:
        raise NoWheel(f"`{wheel}` cannot be unpacked: {error}") from error
    if not given:
        wheel.unlink()  # some 300 MB, of which a tenth is Python
    if not folder.exists():  # another process may have been faster
        partial.rename(folder)
    return folder


def _download(version: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), f"vllm=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(folder.glob(f"vllm-{version}-*.whl"))
    if done.returncode or not found:
        reason = done.stderr.strip().splitlines() or ["pip says nothing"]
        raise NoWheel(f"pip cannot download vllm=={version}: {reason[-1]}")
    return found[0]


class _Anything(type):
    """A class whose every attribute is there: an enumeration's members are asked for on import."""

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Nothing,), {})


class _Nothing(metaclass=_Anything):
    """Can be subclassed, subscripted and called with anything."""

    def __init__(self, *values: object, **more: object) -> None:
        del values, more

    def __init_subclass__(cls, **options: object) -> None:
        del options

    def __class_getitem__(cls, item: object) -> type:
        del item
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        from pydantic_core import core_schema

        del source, handler
        return core_schema.any_schema()


class _Stand(types.ModuleType):
    """A module in which every name is a class that does nothing."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Nothing,), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last, so that a module that is installed is imported as it is."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name.partition(".")[0] in STOOD_IN:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stand(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def make_importable(folder: Path) -> None:
    """Makes `import vllm` work in this process, on a CPU, without asking the hub for anything."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    sys.path.insert(0, str(folder))
    sys.meta_path.append(_Finder())
    # Checking a parallel config asks only for one class of it, and it would import the server.
    sys.modules["vllm.v1.executor"] = _Stand("vllm.v1.executor")
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.model_executor.models import registry

    registry._LazyRegisteredModel.inspect_model_cls = _inspected


def _inspected(model: object) -> object:
    """What a registered class would say of itself, without importing it and all its kernels."""
    from dataclasses import fields

    from vllm.model_executor.models import registry

    known: dict[str, object] = {
        "architecture": model.class_name,  # type: ignore[attr-defined]
        "is_text_generation_model": True,
        "attn_type": "decoder",
        "default_seq_pooling_type": "LAST",
        "default_tok_pooling_type": "ALL",
        "score_type": "bi-encoder",
        "supports_pp": True,
        "supported_video_pruning_methods": (),
    }
    names = [field.name for field in fields(registry._ModelInfo)]
    return registry._ModelInfo(**{name: known.get(name, False) for name in names})
