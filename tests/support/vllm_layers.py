"""Which targets vLLM can take layers out of, read from its classes without importing them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

HOOK = "SupportsEagle3"
"""The interface that a target's class has where its layers can be had."""
TABLES = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")
"""The parts of the registry that targets are in."""
MODELS = "vllm.model_executor.models"


class Module(NamedTuple):
    """The classes of a module, and where its imported names come from."""

    classes: dict[str, ast.ClassDef]
    imports: dict[str, tuple[str, str]]


def without_layers(folder: Path) -> set[str]:
    """The architectures of targets whose layers cannot be had, in a vLLM that is unpacked there."""
    classes = Classes(folder)
    found = registered(folder)
    return {name for name, (module, kind) in found.items() if not classes.hands_out(module, kind)}


def registered(folder: Path) -> dict[str, tuple[str, str]]:
    """Architecture -> module and class, for everything that may be a target."""
    tree = ast.parse((folder / MODELS.replace(".", "/") / "registry.py").read_text("utf-8"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in TABLES:
            for name, (module, kind) in ast.literal_eval(node.value).items():
                full = module if module.startswith("vllm.") else f"{MODELS}.{module}"
                found[name] = (full, kind)
    return found


class Classes:
    """The classes of an unpacked vLLM, by module and name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = cache(self._module)
        self.hands_out = cache(self._hands_out)

    def _hands_out(self, module: str, name: str) -> bool:
        """Whether the class, or one that it inherits from, has the hook."""
        if name == HOOK:
            return True
        known = self.module(module)
        if known is None:
            return False
        if name not in known.classes:
            return name in known.imports and self.hands_out(*known.imports[name])
        bases = known.classes[name].bases
        plain = [base.value if isinstance(base, ast.Subscript) else base for base in bases]
        names = [ast.unparse(base).rpartition(".")[2] for base in plain]
        return any(self.hands_out(module, each) for each in names)

    def _module(self, name: str) -> Module | None:
        place = self.folder / name.replace(".", "/")
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if not file.is_file():
            return None  # of another package
        package = name.split(".") if place.is_dir() else name.split(".")[:-1]
        found = Module({}, {})
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.classes.setdefault(node.name, node)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                source = ".".join([*above, *([node.module] if node.module else [])])
                for each in node.names:
                    found.imports[each.asname or each.name] = (source, each.name)
        return found
