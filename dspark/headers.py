"""One safetensors file's header, proved consistent without reading a tensor's bytes.

A file is `length (8 bytes, little endian) | JSON header | data`. Every number in it is a claim, so
each is bounded before it is used: the length against the file and the format's cap, shapes and
offsets against 64 bits and against each other. The size the file should have is computed from the
header, because that is what tells an interrupted download from an over-long file.

Validity is the `safetensors` library's, and stricter in that an entry written as a list, a dtype
written as a mapping, a repeated key and an integer beyond 64 bits are refused.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from dspark.errors import Unreadable
from dspark.header_json import U64_MAX, Malformed, parse_object, shown
from dspark.ranges import FileUnreadable, Reader

HEADER_LIMIT = 100_000_000  # bytes; the format's own cap
INT64_LIMIT = 8 * 2**20  # bytes; a vocabulary map of a million entries, far from any weight
_NESTING_LIMIT = 125  # below an entry's unknown key; the library's 128 counted from the top
_MOST_FINDINGS = 64  # per header, so that a hostile one cannot make its report larger than itself
_LFS_SIZE_LIMIT = 1024  # bytes; git LFS keeps its pointers below this
_LFS_PREFIX = b"version https://git-lfs.github.com/spec/"

DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One named problem: a rule of `rules/messages.yaml` and the values of its placeholders."""

    rule_name: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies: `start` and `end` are absolute byte offsets in `file`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Header:
    """What one file declares, and every problem found in it.

    `nbytes` counts the length field and the JSON, and is 0 when no tensor list could be trusted;
    a truncated or over-long file still has its list.
    """

    file: str
    size: int
    nbytes: int
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    findings: tuple[Finding, ...]


def read_header(reader: Reader) -> Header:
    """What the file behind `reader` declares, with every problem found in it.

    Reads the length field and the header, never the data. Raises nothing of its own; a reader's
    `FileUnreadable` becomes a finding.
    """
    name, size = reader.name, reader.size
    try:
        if _is_lfs_pointer(reader):
            return _unusable(name, size, Finding("shard-is-lfs-pointer", {"file": name}))
        length = _header_length(reader)
        document = parse_object(reader.read(8, length))
        metadata = _metadata(document.pop("__metadata__", None))
    except Malformed as reason:
        return _unusable(name, size, _corrupt(name, f"the header is {reason}"))
    except FileUnreadable as error:
        return _unusable(name, size, Finding(error.rule_name, error.values))
    tensors, problems = _tensors(document, name, 8 + length)
    end, gaps = _coverage(tensors, 8 + length) if not problems else (0, [])
    problems += gaps
    if problems:
        return _unusable(name, size, *_bounded(name, problems))
    findings: tuple[Finding, ...] = ()
    if end != size:
        rule = "shard-truncated" if size < end else "shard-trailing-bytes"
        findings = (Finding(rule, {"file": name, "expected": end, "actual": size}),)
    return Header(name, size, 8 + length, tensors, metadata, findings)


def read_int64_tensor(reader: Reader, info: TensorInfo) -> array[int]:
    """The values of a small I64 tensor (a vocabulary map), in row-major order.

    Raises `Unreadable`: `tensor-dtype` when it is not I64, `tensor-too-large` above 8 MiB,
    `shard-unreadable` when the file ends before it.
    """
    if info.dtype != "I64":
        values = {"tensor": shown(info.name), "dtype": info.dtype, "expected": "I64"}
        raise Unreadable("tensor-dtype", **values)
    if info.nbytes > INT64_LIMIT:
        sizes = {"nbytes": info.nbytes, "limit": INT64_LIMIT}
        raise Unreadable("tensor-too-large", tensor=shown(info.name), **sizes)
    if info.end > reader.size:
        raise FileUnreadable(reader.name, f"`{shown(info.name)}` ends beyond it")
    result = array("q", reader.read(info.start, info.nbytes))
    if sys.byteorder == "big":
        result.byteswap()
    return result


def _is_lfs_pointer(reader: Reader) -> bool:
    if not len(_LFS_PREFIX) <= reader.size <= _LFS_SIZE_LIMIT:
        return False
    return reader.read(0, len(_LFS_PREFIX)) == _LFS_PREFIX


def _header_length(reader: Reader) -> int:
    if reader.size < 8:
        raise Malformed(f"absent: the file has {reader.size} bytes")
    length = int.from_bytes(reader.read(0, 8), "little")
    if length > HEADER_LIMIT:
        raise Malformed(f"too long: {length} bytes, where the format allows {HEADER_LIMIT}")
    if length > reader.size - 8:
        raise Malformed(f"cut off: {length} bytes, of which the file has {reader.size - 8}")
    return length


def _metadata(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(type(text) is str for text in value.values()):
        raise Malformed("invalid: `__metadata__` is not a mapping of strings")
    return value


def _tensors(
    document: dict[str, object], file: str, base: int
) -> tuple[dict[str, TensorInfo], list[str]]:
    tensors: dict[str, TensorInfo] = {}
    problems: list[str] = []
    for name, entry in document.items():
        try:
            dtype, shape, begin, end = _entry(entry)
        except Malformed as reason:
            problems.append(f"`{shown(name)}` {reason}")
        else:
            tensors[name] = TensorInfo(name, dtype, shape, file, base + begin, base + end)
    return tensors, problems


def _entry(entry: object) -> tuple[str, tuple[int, ...], int, int]:
    """One tensor's dtype, shape and offsets; `Malformed` completes "`name` ..."."""
    if not isinstance(entry, dict):
        raise Malformed("is not described by a mapping")
    for key in ("dtype", "shape", "data_offsets"):
        if key not in entry:
            raise Malformed(f"has no `{key}`")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if len(entry) > 3 and _nests_too_deeply(entry):
        raise Malformed("is nested too deeply")
    if not isinstance(dtype, str):
        raise Malformed("has a `dtype` that is not a name")
    if dtype not in DTYPE_BITS:
        raise Malformed(f"has the unknown dtype `{shown(dtype)}`")
    if not _are_sizes(shape):
        raise Malformed("has a `shape` that is not a list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise Malformed("has `data_offsets` that are not two positions")
    begin, end = offsets
    if end < begin:
        raise Malformed(f"ends at {end}, before it begins at {begin}")
    needed = _bytes_needed(shape, DTYPE_BITS[dtype])
    if needed != end - begin:
        raise Malformed(f"needs {needed} bytes and has {end - begin}")
    return dtype, tuple(shape), begin, end


def _bytes_needed(shape: list[int], bits: int) -> int:
    elements = 1
    for extent in shape:
        elements *= extent
        if elements > U64_MAX:
            raise Malformed("has a `shape` beyond 64 bits")
    if elements * bits % 8:
        raise Malformed(f"does not end on a whole byte: {elements} elements of {bits} bits")
    return elements * bits // 8


def _are_sizes(value: object) -> bool:
    # `type` and not `isinstance`: true and false are integers to Python and not to JSON.
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _nests_too_deeply(value: object) -> bool:
    level = [value]
    for _ in range(_NESTING_LIMIT + 1):
        children = (
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)  # type: ignore[attr-defined]
        )
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _coverage(tensors: Mapping[str, TensorInfo], base: int) -> tuple[int, list[str]]:
    """The size the file should have, and every byte claimed twice or by nobody."""
    problems: list[str] = []
    position = base
    for info in sorted(tensors.values(), key=lambda info: (info.start, info.end)):
        name = shown(info.name)
        if info.start > position:
            problems.append(f"{info.start - position} bytes before `{name}` belong to no tensor")
        elif info.start < position:
            problems.append(f"`{name}` overlaps the tensor before it")
        position = max(position, info.end)
    return position, problems


def _bounded(file: str, problems: list[str]) -> list[Finding]:
    findings = [_corrupt(file, problem) for problem in problems[:_MOST_FINDINGS]]
    if len(problems) > _MOST_FINDINGS:
        rest = len(problems) - _MOST_FINDINGS
        findings.append(_corrupt(file, f"{rest} more of its tensors are invalid"))
    return findings


def _corrupt(file: str, reason: str) -> Finding:
    return Finding("shard-corrupt", {"file": file, "reason": reason})


def _unusable(file: str, size: int, *findings: Finding) -> Header:
    return Header(file, size, 0, {}, {}, findings)
