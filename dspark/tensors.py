"""Every tensor of a checkpoint and where it lies: one safetensors file, or shards with an index.

With an index the index decides: only the files it names are opened, and a stale one is refused
rather than repaired from whatever else lies in the folder. What is read is the headers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from dspark.header_json import Malformed, parse_object, shown
from dspark.headers import Finding, Header, TensorInfo, read_header
from dspark.ranges import FileUnreadable, LocalReader, Reader

SINGLE = "model.safetensors"
SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
_INDEX_LIMIT = 64 * 2**20  # bytes; the longest published index is below 10 MB
MOST_TENSORS = 200_000
"""Tensors a checkpoint may name in all. A draft and a dense target have hundreds (64 and 398 for
Qwen3-8B); the bound is there so that shards that link to one big header cannot multiply it."""

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")

OpenFile = Callable[[str], AbstractContextManager[Reader]]
"""Opens a file of the checkpoint; raises FileNotFoundError, or `FileUnreadable`."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """A checkpoint's tensors by name, and every problem found on the way to them.

    `files` are the weight files that were opened, with their sizes in bytes; `header_bytes` is the
    total length of their headers. With findings the tensors are those of the readable files.
    """

    tensors: Mapping[str, TensorInfo]
    findings: tuple[Finding, ...]
    files: tuple[tuple[str, int], ...]
    header_bytes: int


def index_checkpoint(folder: Path) -> Tensors:
    """The tensors of the checkpoint in a local folder, from its headers alone.

    Raises nothing of its own: what is missing or malformed is in `findings`.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except (OSError, ValueError):  # ValueError: a NUL byte in the path
        reason = "it is not a folder that can be listed"
        return _only(_missing(str(folder), reason, "check the path and its permissions"))
    return index_files(str(folder), names, lambda name: LocalReader(folder / name, name))


def index_files(
    source: str, names: Collection[str], open_file: OpenFile, *, threads: int = 1
) -> Tensors:
    """The tensors of the checkpoint `source`, whose top-level file names are `names`.

    `threads` is how many headers are read at a time. Raises what `open_file` raises beyond its
    contract.
    """
    names = sorted(name for name in names if not name.startswith("."))
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    index = SINGLE + ".index.json"
    if index in indexes:
        return _sharded(source, index, open_file, threads)
    if len(indexes) == 1:
        return _sharded(source, indexes[0], open_file, threads)
    if indexes:
        listed = ", ".join(f"`{shown(name)}`" for name in indexes)
        return _only(_bad_index(indexes[0], f"one of several: {listed}"))
    weights = [name for name in names if name.endswith(SUFFIX)]
    if SINGLE in weights or len(weights) == 1:
        return _single(source, SINGLE if SINGLE in weights else weights[0], open_file)
    return _only(_no_weights(source, names, weights))


def _single(source: str, file: str, open_file: OpenFile) -> Tensors:
    header = _header(file, open_file)
    if header is None:
        return _only(_absent(file, source))
    findings = header.findings
    if header.nbytes and not header.tensors:
        findings += (_missing(source, f"`{shown(file)}` holds no tensor", _EXPORT_AGAIN),)
    return Tensors(header.tensors, findings, ((file, header.size),), header.nbytes)


def _sharded(source: str, index: str, open_file: OpenFile, threads: int) -> Tensors:
    try:
        weight_map = _weight_map(index, open_file)
    except Malformed as reason:
        return _only(_bad_index(index, str(reason)))
    except FileUnreadable as error:
        return _only(Finding(error.rule_name, error.values))
    except FileNotFoundError:
        return _only(_bad_index(index, "a link to a file that is not there"))
    if not weight_map:
        return _only(_missing(source, f"`{shown(index)}` lists no tensor", _EXPORT_AGAIN))
    shards = list(dict.fromkeys(weight_map.values()))
    headers = dict(zip(shards, _headers(shards, open_file, threads), strict=True))
    present = [header for header in headers.values() if header is not None]
    findings = [_absent(file, shown(index)) for file in shards if headers[file] is None]
    findings += [finding for header in present for finding in header.findings]
    findings += _not_where_indexed(index, weight_map, headers)
    tensors, duplicates = _merged(weight_map, present)
    findings += duplicates
    files = tuple((header.file, header.size) for header in present)
    return Tensors(tensors, tuple(findings), files, sum(header.nbytes for header in present))


def _weight_map(index: str, open_file: OpenFile) -> dict[str, str]:
    """Tensor name -> shard name, each shard a relative path below the checkpoint."""
    with open_file(index) as reader:
        if reader.size > _INDEX_LIMIT:
            raise Malformed(f"too long: {reader.size} bytes, where {_INDEX_LIMIT} are allowed")
        document = parse_object(reader.read(0, reader.size))
    if "weight_map" not in document:
        raise Malformed("without a `weight_map`")
    weight_map = document["weight_map"]
    if not isinstance(weight_map, dict) or not all(type(f) is str for f in weight_map.values()):
        raise Malformed("without a `weight_map` from tensor names to file names")
    for file in dict.fromkeys(weight_map.values()):
        if not _stays_inside(file):
            raise Malformed(f"unsafe: `{shown(file)}` does not name a file of this checkpoint")
        if not file.endswith(SUFFIX):
            raise Malformed(f"one of another format: it names `{shown(file)}`")
    if len(weight_map) > MOST_TENSORS:
        raise Malformed(f"too long: {len(weight_map)} tensors, where {MOST_TENSORS} are allowed")
    return weight_map


def _stays_inside(file: str) -> bool:
    # Both flavours, so that a checkpoint accepted on one system is not a traversal on another.
    if "\0" in file or "\\" in file or PureWindowsPath(file).drive:
        return False
    return not {"", ".", ".."} & set(file.split("/"))


def _headers(shards: Sequence[str], open_file: OpenFile, threads: int) -> list[Header | None]:
    if threads == 1:
        return _bounded(shards, (_header(file, open_file) for file in shards))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        return _bounded(shards, pool.map(lambda file: _header(file, open_file), shards))


def _bounded(shards: Sequence[str], headers: Iterator[Header | None]) -> list[Header | None]:
    """The headers, up to the one that takes the checkpoint past `MOST_TENSORS`; it is a finding."""
    found: list[Header | None] = []
    count = 0
    for file, header in zip(shards, headers, strict=False):
        count += len(header.tensors) if header is not None else 0
        if count > MOST_TENSORS:
            reason = f"it takes the checkpoint past {MOST_TENSORS} tensors"
            values = {"file": shown(file), "reason": reason}
            bad = Header(file, 0, 0, {}, {}, (Finding("shard-corrupt", values),))
            # What the files after it hold was not looked at, and nothing is said of them.
            rest = [Header(other, 0, 0, {}, {}, ()) for other in shards[len(found) + 1 :]]
            return [*found, bad, *rest]
        found.append(header)
    return found


def _header(file: str, open_file: OpenFile) -> Header | None:
    """The header of one file, or None when the file is not there."""
    try:
        with open_file(file) as reader:
            return read_header(reader)
    except FileNotFoundError:
        return None
    except FileUnreadable as error:
        return Header(file, 0, 0, {}, {}, (Finding(error.rule_name, error.values),))


def _not_where_indexed(
    index: str, weight_map: Mapping[str, str], headers: Mapping[str, Header | None]
) -> list[Finding]:
    findings = []
    for tensor, file in weight_map.items():
        header = headers[file]
        # A file whose list is unknown has a finding of its own; what it lacks would be a guess.
        if header is not None and header.nbytes and tensor not in header.tensors:
            values = {"tensor": shown(tensor), "file": shown(file), "index": shown(index)}
            findings.append(Finding("tensor-missing", values))
    return findings


def _merged(
    weight_map: Mapping[str, str], headers: Sequence[Header]
) -> tuple[dict[str, TensorInfo], list[Finding]]:
    """All tensors by name; one that two files claim is a finding, and stays where it is indexed."""
    tensors: dict[str, TensorInfo] = {}
    duplicates: list[Finding] = []
    for header in headers:
        for name, info in header.tensors.items():
            home = weight_map.get(name, tensors[name].file if name in tensors else header.file)
            if home != header.file:
                values = {"tensor": shown(name), "file": shown(header.file), "other": shown(home)}
                duplicates.append(Finding("tensor-duplicate", values))
            else:
                tensors[name] = info
    return tensors, duplicates


_EXPORT_AGAIN = "export the checkpoint again"


def _no_weights(source: str, names: Sequence[str], weights: Sequence[str]) -> Finding:
    if weights:
        first = ", ".join(f"`{shown(name)}`" for name in weights[:3])
        more = f" and {len(weights) - 3} more" if len(weights) > 3 else ""
        reason = f"the index that says how {first}{more} belong together is missing"
        return _missing(source, reason, f"add `{SINGLE}.index.json`")
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        reason = f"`{shown(pickles[0])}` is not a safetensors file"
        return _missing(source, reason, "convert the checkpoint to safetensors")
    return _missing(source, f"no file ends in `{SUFFIX}`", f"add `{SINGLE}`")


def _missing(source: str, reason: str, remedy: str) -> Finding:
    return Finding("weights-missing", {"source": source, "reason": reason, "remedy": remedy})


def _absent(file: str, listed_in: str) -> Finding:
    return Finding("shard-missing", {"file": shown(file), "listed_in": listed_in})


def _bad_index(index: str, reason: str) -> Finding:
    return Finding("index-invalid", {"file": shown(index), "reason": reason})


def _only(finding: Finding) -> Tensors:
    return Tensors({}, (finding,), (), 0)
