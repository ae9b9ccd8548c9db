"""What each kernel takes, read from its own source, so that a launch can be checked against it.

One way of writing a kernel is read, and anything else is an error:

    extern "C" __global__ void __launch_bounds__(256) scale(
        const bf16* __restrict__ x,  // [rows, width]
        bf16* __restrict__ y,        // [rows, width]
        int rows, int width, float factor) {

Every pointer has behind it the shape of what it points to, in numbers and integer parameters. The
declaration may be the body of a macro, one use of which per line makes one kernel; its comments
are then of the other kind, since a line comment would swallow what follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from dspark.kernels.errors import SourceError
from dspark.kernels.extents import Expression, evaluate, names_in, parse_expression

TYPES = {
    "bf16": "bf16",
    "fp8": "fp8",
    "float": "f32",
    "double": "f64",
    "int": "i32",
    "unsigned": "u32",
    "long long": "i64",
    "unsigned long long": "u64",
    "uint8_t": "u8",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
}
"""C++ types a parameter may have, and what the launch layer calls them."""

SIZES = {
    "bf16": 2,
    "fp8": 1,
    "f32": 4,
    "f64": 8,
    "i32": 4,
    "u32": 4,
    "i64": 8,
    "u64": 8,
    "u8": 1,
}
"""Bytes of one value."""

FOLDER = Path(__file__).parent
"""Where the kernels lie."""

_MACRO = re.compile(
    r"^[ \t]*#define (?P<name>\w+)\((?P<words>[^)]*)\)(?P<body>(?:.*\\\n)*.*)", re.M
)
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+'
    r"(?:__launch_bounds__\s*\(\s*(?P<threads>\d+)\s*(?:,\s*\d+\s*)?\)\s*)?(?P<name>[a-z]\w*)\s*\("
)
_PARAMETER = re.compile(
    r"(?P<const>const\s+)?(?P<type>[a-z]\w*(?: long)*)\s*(?P<pointer>\*\s*(?:__restrict__)?)?"
    r"\s*\b(?P<name>[a-z]\w*)"
)
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_SHAPE = re.compile(r"/[/*]\s*\[(?P<dims>[^\]]*)\]")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: an array on the device, or a number passed by value.

    `shape` is None for a number; `writes` says whether the kernel may write to the array.
    """

    name: str
    dtype: str
    shape: tuple[Expression, ...] | None
    writes: bool

    def values_in(self, numbers: Mapping[str, int]) -> int:
        """How many values the array must hold when the kernel's integers are `numbers`."""
        # INVARIANT: only an array has a shape, and only arrays are asked.
        assert self.shape is not None
        return prod(evaluate(dim, numbers) for dim in self.shape)


@dataclass(frozen=True, slots=True)
class Signature:
    """A kernel as its source declares it; `threads` is the most that a block may have."""

    name: str
    file: Path
    parameters: tuple[Parameter, ...]
    threads: int


@cache
def kernels_in(folder: Path = FOLDER) -> Mapping[str, Signature]:
    """Every kernel of the .cu files in `folder`, by name.

    Raises:
        SourceError: a kernel is written in a way that is not read, or two have one name.
    """
    found: dict[str, Signature] = {}
    for file in sorted(folder.glob("*.cu")):
        for signature in read_signatures(file.read_text(encoding="utf-8"), file):
            if signature.name in found:
                other = found[signature.name].file.name
                raise SourceError(f"{file.name}: `{signature.name}` is in {other} already")
            found[signature.name] = signature
    return found


def read_signatures(text: str, file: Path) -> list[Signature]:
    """The kernels that `text`, the content of `file`, declares, in its order.

    Raises:
        SourceError: a kernel is written in a way that is not read, or a pointer has no shape.
    """
    source = _expand(text, file.name)
    matches = list(_KERNEL.finditer(source))
    if len(matches) != len(re.findall(r"\b__global__\b", re.sub(_COMMENT, "", source, flags=re.S))):
        raise SourceError(f"{file.name}: a kernel is not declared as kernels/signatures.py reads")
    return [
        Signature(
            match["name"],
            file,
            tuple(_parameters(_inside(source, match.end()), f"{file.name}: `{match['name']}`")),
            int(match["threads"] or 1024),
        )
        for match in matches
    ]


def _expand(text: str, where: str) -> str:
    """`text` with each macro that declares a kernel replaced by what its uses make."""
    for macro in _MACRO.finditer(text):
        if "__global__" not in macro["body"]:
            continue
        words = [word.strip() for word in macro["words"].split(",")]
        uses = re.findall(rf"^[ \t]*{macro['name']}\((.*)\)[ \t;]*$", text, re.M)
        made = []
        for use in uses:
            body = macro["body"].replace("\\\n", "\n")
            for word, value in zip(words, use.split(","), strict=False):
                body = re.sub(rf"\b{word}\b", value.strip(), body)
            made.append(body.replace("##", ""))
        if not made:
            raise SourceError(
                f"{where}: the macro `{macro['name']}` declares a kernel and makes none"
            )
        text = text.replace(macro[0], "\n".join(made))
    return text


def _inside(text: str, begin: int) -> str:
    depth = 1
    for match in re.finditer(rf"{_COMMENT}|[()]", text[begin:], re.S):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return text[begin : begin + match.start()]
    raise SourceError("a kernel's parameters have no closing parenthesis")


def _parameters(inside: str, where: str) -> Iterator[Parameter]:
    found = [
        _parameter(declaration, comment, where) for declaration, comment in _declarations(inside)
    ]
    numbers = [each for each in found if each.shape is None]
    integers = {each.name for each in numbers if each.dtype not in ("f32", "f64")}
    for each in found:
        unknown = {name for dim in each.shape or () for name in names_in(dim)} - integers
        if unknown:
            raise SourceError(
                f"{where}: the shape of `{each.name}` names `{min(unknown)}`, which is no integer"
                " that the kernel is given"
            )
    yield from found


def _declarations(inside: str) -> list[tuple[str, str]]:
    """(declaration, comment behind it) of each parameter."""
    found: list[tuple[str, str]] = []
    current = ""

    def close(comment: str) -> None:
        nonlocal current
        if current.strip():
            found.append((" ".join(current.split()), comment))
        elif comment and found and not found[-1][1]:
            found[-1] = (found[-1][0], comment)
        current = ""

    for piece in re.findall(rf"{_COMMENT}|,|[^,/]+|/", inside, re.S):
        if piece == "," or piece.startswith(("//", "/*")):
            close("" if piece == "," else piece)
        else:
            current += piece
    close("")
    return found


def _parameter(text: str, comment: str, where: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None or match["type"] not in TYPES:
        raise SourceError(f"{where}: no launch can check a parameter declared as `{text}`")
    dtype, name = TYPES[match["type"]], match["name"]
    if not match["pointer"]:
        return Parameter(name, dtype, None, writes=False)
    shape = _SHAPE.match(comment)
    if shape is None:
        raise SourceError(f"{where}: `{name}` is a pointer without a shape behind it, as `// [n]`")
    dims = tuple(parse_expression(dim, where) for dim in shape["dims"].split(","))
    return Parameter(name, dtype, dims, match["const"] is None)
