from __future__ import annotations

import json
import os
import random
import struct
import tracemalloc
from array import array
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from dspark.errors import Unreadable
from dspark.headers import (
    DTYPE_BITS,
    HEADER_LIMIT,
    INT64_LIMIT,
    Header,
    TensorInfo,
    read_header,
    read_int64_tensor,
)
from dspark.ranges import LocalReader
from tests.support.safetensors_files import (
    CheckedReader,
    declared,
    encoded,
    entry,
    write,
    write_sparse,
)

if TYPE_CHECKING:
    from pathlib import Path

A = entry("U8", [4], 0, 4)
KNOWN_RULES = {
    "shard-corrupt",
    "shard-truncated",
    "shard-trailing-bytes",
    "shard-is-lfs-pointer",
}


def header_of(data: bytes) -> Header:
    return read_header(CheckedReader(data))


def one(shape: object = "[0]", offsets: str = "[0,0]", z: object = None) -> str:
    """A header of one tensor, as JSON text that may say what no JSON writer would."""
    unknown = "" if z is None else f',"z":{z}'
    return f'{{"a":{{"dtype":"U8","shape":{shape},"data_offsets":{offsets}{unknown}}}}}'


def problems(data: bytes) -> list[tuple[str, object]]:
    return [(f.rule_name, f.values.get("reason")) for f in header_of(data).findings]


def library_accepts(data: bytes) -> bool:
    try:
        deserialize(data)
    except SafetensorError:
        return False
    return True


# Sound files


_NUMPY = ["bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "c8"]
_arrays = st.builds(
    lambda dtype, shape: np.zeros(shape, dtype),
    st.sampled_from(_NUMPY),
    st.lists(st.integers(0, 3), max_size=4).map(tuple),
)


@given(
    arrays=st.dictionaries(st.text(max_size=8).filter(lambda n: n != "__metadata__"), _arrays),
    metadata=st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)
def test_agrees_with_the_library_on_every_file_it_writes(
    arrays: dict[str, np.ndarray], metadata: dict[str, str] | None
) -> None:
    # safetensors 0.8.0 writes a header of no tensors and no metadata that it cannot read.
    assume(arrays or metadata != {})
    data = save(arrays, metadata)
    header = header_of(data)
    assert header.findings == ()
    assert header.metadata == (metadata or {})
    expected = dict(deserialize(data))
    assert header.tensors.keys() == expected.keys() == arrays.keys()
    for name, view in expected.items():
        info = header.tensors[name]
        assert (info.name, info.dtype, list(info.shape)) == (name, view["dtype"], view["shape"])
        assert data[info.start : info.end] == view["data"]
        assert info.nbytes == len(view["data"])


def test_offsets_are_absolute_and_locate_the_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        "transposed": rng.normal(size=(3, 5)).astype("f4").T,
        "strided": np.arange(40, dtype="i8").reshape(8, 5)[::2],
        "scalar": np.array(7.5),
        "empty": np.zeros((0, 4), "f2"),
    }
    assert not arrays["transposed"].flags.c_contiguous
    write(tmp_path / "w", arrays)
    data = (tmp_path / "w").read_bytes()
    with LocalReader(tmp_path / "w", "w") as reader:
        header = read_header(reader)
    assert header.tensors["scalar"].shape == ()
    assert header.tensors["empty"].shape == (0, 4)
    for name, array_ in arrays.items():
        info = header.tensors[name]
        found = np.frombuffer(data[info.start : info.end], array_.dtype).reshape(info.shape)
        np.testing.assert_array_equal(found, array_)


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS))
def test_knows_the_size_of_every_dtype_the_library_knows(dtype: str) -> None:
    eight = DTYPE_BITS[dtype]  # bytes of eight elements
    sound = encoded({"a": entry(dtype, [8], 0, eight)}, bytes(eight))
    assert library_accepts(sound)
    assert header_of(sound).findings == ()
    for wrong in (eight - 1, eight + 1):
        data = encoded({"a": entry(dtype, [8], 0, wrong)}, bytes(wrong))
        assert not library_accepts(data)
        assert problems(data) == [("shard-corrupt", f"`a` needs {eight} bytes and has {wrong}")]


def test_knows_every_dtype_the_library_names_itself() -> None:
    with pytest.raises(SafetensorError, match="unknown variant") as refusal:
        deserialize(encoded({"a": entry("?", [0], 0, 0)}))
    named = set(str(refusal.value).split("expected one of ")[1].split("`")[1::2])
    assert named == DTYPE_BITS.keys()


def test_reads_the_length_and_the_header_and_nothing_behind_them() -> None:
    data = encoded({"a": A}, bytes(4))
    reader = CheckedReader(data)
    header = read_header(reader)
    assert header.nbytes == len(data) - 4
    assert max(end for _, end in reader.ranges) == header.nbytes


# Damage. Each row: what it is, the file, and the whole report.

_HUGE = 2**64
DAMAGED = {
    "empty file": (b"", "the header is absent: the file has 0 bytes"),
    "seven bytes": (bytes(7), "the header is absent: the file has 7 bytes"),
    "no header": (bytes(8), "the header is not JSON at character 0"),
    "length 2^63": (
        struct.pack("<Q", 2**63) + b"{}",
        f"the header is too long: {2**63} bytes, where the format allows {HEADER_LIMIT}",
    ),
    "length beyond the file": (
        struct.pack("<Q", 3) + b"{}",
        "the header is cut off: 3 bytes, of which the file has 2",
    ),
    "list": (encoded([]), "the header is not a JSON object"),
    "null": (encoded("null"), "the header is not a JSON object"),
    "not UTF-8": (encoded(b'{"\xff":1}'), "the header is not UTF-8 at byte 2"),
    "BOM": (encoded(b"\xef\xbb\xbf{}"), "the header is not JSON at character 0"),
    "trailing NUL": (encoded(b"{}\0"), "the header is not JSON at character 2"),
    "NaN": (encoded('{"a": NaN}'), "the header is not JSON: it has the value `NaN`"),
    "infinite": (
        encoded('{"a": -1e999}'),
        "the header is out of range: it has the number `-1e999`",
    ),
    "half a surrogate pair": (
        encoded('{"\\ud800": 1}'),
        "the header is not text: it escapes half of a surrogate pair",
    ),
    "bottomless": (encoded('{"a":' + "[" * 200_000), "the header is nested too deeply"),
    "metadata number": (
        encoded('{"__metadata__": {"x": 1}}'),
        "the header is invalid: `__metadata__` is not a mapping of strings",
    ),
    "metadata list": (
        encoded('{"__metadata__": []}'),
        "the header is invalid: `__metadata__` is not a mapping of strings",
    ),
    "entry number": (encoded({"a": 3}), "`a` is not described by a mapping"),
    "no dtype": (encoded({"a": {"shape": [], "data_offsets": [0, 0]}}), "`a` has no `dtype`"),
    "no shape": (encoded({"a": {"dtype": "U8", "data_offsets": [0, 0]}}), "`a` has no `shape`"),
    "no offsets": (encoded({"a": {"dtype": "U8", "shape": []}}), "`a` has no `data_offsets`"),
    "dtype": (encoded({"a": entry("U4", [0], 0, 0)}), "`a` has the unknown dtype `U4`"),
    "dtype number": (
        encoded('{"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}}'),
        "`a` has a `dtype` that is not a name",
    ),
    "shape text": (
        encoded(one('"4"', "[0,4]"), bytes(4)),
        "`a` has a `shape` that is not a list of sizes",
    ),
    **{
        f"shape [{value}]": (
            encoded(one(f"[{value}]", "[0,1]"), bytes(1)),
            "`a` has a `shape` that is not a list of sizes",
        )
        for value in ("-1", "true", "1.0", "1e0", "-0", "null", '"1"')
    },
    "shape 2^64": (
        encoded(one([_HUGE])),
        f"the header is out of range: it has the number `{_HUGE}`",
    ),
    "shape of 5000 digits": (
        encoded(one("[" + "9" * 5000 + "]")),
        f"the header is out of range: it has the number `{'9' * 117}...`",
    ),
    "shape overflows before its 0": (
        encoded({"a": entry("U8", [2**32, 2**32, 0], 0, 0)}),
        "`a` has a `shape` beyond 64 bits",
    ),
    "three offsets": (
        encoded(one([4], "[0,4,4]"), bytes(4)),
        "`a` has `data_offsets` that are not two positions",
    ),
    "offset true": (
        encoded(one([1], "[false,true]"), bytes(1)),
        "`a` has `data_offsets` that are not two positions",
    ),
    "backwards": (
        encoded({"a": entry("U8", [4], 4, 0)}, bytes(4)),
        "`a` ends at 0, before it begins at 4",
    ),
    "shape larger than its bytes": (
        encoded({"a": entry("F32", [1000, 1000], 0, 4)}, bytes(4)),
        "`a` needs 4000000 bytes and has 4",
    ),
    "half a byte": (
        encoded({"a": entry("F4", [1], 0, 1)}, bytes(1)),
        "`a` does not end on a whole byte: 1 elements of 4 bits",
    ),
    "starts late": (
        encoded({"a": entry("U8", [4], 1, 5)}, bytes(5)),
        "1 bytes before `a` belong to no tensor",
    ),
    "hole": (
        encoded({"a": A, "b": entry("U8", [4], 6, 10)}, bytes(10)),
        "2 bytes before `b` belong to no tensor",
    ),
    "overlap": (
        encoded({"a": A, "b": entry("U8", [4], 3, 7)}, bytes(7)),
        "`b` overlaps the tensor before it",
    ),
    "the same bytes": (encoded({"a": A, "b": A}, bytes(4)), "`b` overlaps the tensor before it"),
    "empty tensor inside another": (
        encoded({"a": A, "b": entry("U8", [0], 2, 2)}, bytes(4)),
        "`b` overlaps the tensor before it",
    ),
}


@pytest.mark.parametrize("case", sorted(DAMAGED))
def test_damage_is_refused_with_its_reason(case: str) -> None:
    data, reason = DAMAGED[case]
    assert not library_accepts(data)
    header = header_of(data)
    assert [(f.rule_name, dict(f.values)) for f in header.findings] == [
        ("shard-corrupt", {"file": "model.safetensors", "reason": reason})
    ]
    assert (header.tensors, header.nbytes) == ({}, 0)


STRICTER = {
    "a tensor twice": (
        encoded(f'{{"a":{json.dumps(A)},"a":{json.dumps(A)}}}', bytes(4)),
        "the header is ambiguous: it has the key `a` twice",
    ),
    "a metadata key twice": (
        encoded('{"__metadata__":{"x":"1","x":"2"}}'),
        "the header is ambiguous: it has the key `x` twice",
    ),
    "an unknown key twice": (
        encoded('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"z":1,"z":2}}'),
        "the header is ambiguous: it has the key `z` twice",
    ),
    "an entry as a list": (
        encoded('{"a":["U8",[4],[0,4]]}', bytes(4)),
        "`a` is not described by a mapping",
    ),
    "a dtype as a mapping": (
        encoded('{"a":{"dtype":{"U8":null},"shape":[4],"data_offsets":[0,4]}}', bytes(4)),
        "`a` has a `dtype` that is not a name",
    ),
    "an unknown key's integer beyond 64 bits": (
        encoded(one(z=_HUGE)),
        f"the header is out of range: it has the number `{_HUGE}`",
    ),
}


@pytest.mark.parametrize("case", sorted(STRICTER))
def test_refuses_what_the_library_reads_in_one_of_two_ways(case: str) -> None:
    data, reason = STRICTER[case]
    assert library_accepts(data)
    assert problems(data) == [("shard-corrupt", reason)]


ODD_BUT_SOUND = {
    "nothing": encoded("{}"),
    "spaces around": encoded(" {} \n\t"),
    "null metadata": encoded('{"__metadata__":null}'),
    "scalar": encoded({"a": entry("F32", [], 0, 4)}, bytes(4)),
    "empty tensors everywhere": encoded(
        {
            "first": entry("F32", [0, 4], 0, 0),
            "a": A,
            "middle": entry("U8", [4, 0], 4, 4),
            "b": entry("U8", [4], 4, 8),
            "last": entry("I64", [0], 8, 8),
        },
        bytes(8),
    ),
    "zero before the overflow": encoded({"a": entry("U8", [0, 2**32, 2**32], 0, 0)}),
    "2^64-1 by 0": encoded({"a": entry("U8", [2**64 - 1, 0], 0, 0)}),
    "unordered": encoded({"b": entry("U8", [4], 4, 8), "a": A}, bytes(8)),
    "an empty tensor after the one it lies before": encoded(
        {"a": A, "empty": entry("U8", [0], 0, 0)}, bytes(4)
    ),
    "empty name": encoded({"": A}, bytes(4)),
    "NUL in a name": encoded(f'{{"\\u0000":{json.dumps(A)}}}', bytes(4)),
    "escaped key": encoded('{"a":{"\\u0064type":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "unknown key": encoded({"a": {**A, "z": [1.5, {"y": None}]}}, bytes(4)),
    "unknown key of depth 125": encoded(one(z="[" * 125 + "1" + "]" * 125)),
}


@pytest.mark.parametrize("case", sorted(ODD_BUT_SOUND))
def test_accepts_what_is_odd_but_sound(case: str) -> None:
    assert library_accepts(ODD_BUT_SOUND[case])
    assert header_of(ODD_BUT_SOUND[case]).findings == ()


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"y":', "}")])
def test_nesting_has_the_librarys_limit(opening: str, closing: str) -> None:
    for depth, accepted in ((125, True), (126, False)):
        data = encoded(one(z=opening * (depth - 1) + "[]" + closing * (depth - 1)))
        assert library_accepts(data) == accepted
        expected = [] if accepted else [("shard-corrupt", "`a` is nested too deeply")]
        assert problems(data) == expected


@pytest.mark.parametrize(
    ("actual", "rule"),
    [(11, "shard-truncated"), (0, "shard-truncated"), (13, "shard-trailing-bytes")],
)
def test_tells_a_truncated_file_from_an_over_long_one(actual: int, rule: str) -> None:
    header = {"a": A, "b": entry("F32", [2], 4, 12)}
    data = encoded(header, bytes(actual))
    base = len(data) - actual
    found = header_of(data)
    assert [(f.rule_name, dict(f.values)) for f in found.findings] == [
        (rule, {"file": "model.safetensors", "expected": base + 12, "actual": len(data)})
    ]
    assert set(found.tensors) == {"a", "b"}, "what it should hold is known, and used by the index"


def test_reports_every_damaged_tensor_and_stays_short() -> None:
    data = encoded({f"t{i}": i for i in range(100)})
    reasons = [reason for _, reason in problems(data)]
    assert reasons[:2] == [f"`t{i}` is not described by a mapping" for i in range(2)]
    assert len(reasons) == 65
    assert reasons[-1] == "36 more of its tensors are invalid"


def test_reports_every_hole_and_overlap() -> None:
    header = {"a": entry("U8", [1], 1, 2), "b": entry("U8", [2], 1, 3), "c": entry("U8", [1], 5, 6)}
    assert [reason for _, reason in problems(encoded(header, bytes(6)))] == [
        "1 bytes before `a` belong to no tensor",
        "`b` overlaps the tensor before it",
        "2 bytes before `c` belong to no tensor",
    ]


def test_a_tensor_inside_another_hides_no_byte_of_it() -> None:
    header = {"a": entry("U8", [8], 0, 8), "b": entry("U8", [2], 2, 4), "c": entry("U8", [1], 8, 9)}
    assert problems(encoded(header, bytes(9))) == [
        ("shard-corrupt", "`b` overlaps the tensor before it")
    ]


def test_the_place_of_a_damaged_tensor_is_not_called_a_hole() -> None:
    header = {"a": entry("X", [4], 0, 4), "b": entry("U8", [4], 4, 8)}
    assert problems(encoded(header, bytes(8))) == [
        ("shard-corrupt", "`a` has the unknown dtype `X`")
    ]


def test_names_in_reasons_are_clipped_and_cannot_steer_a_terminal() -> None:
    ((_, reason),) = problems(encoded({"\x1b[2J" + "x" * 500: 3}))
    assert isinstance(reason, str)
    assert reason.startswith("`\\x1b[2Jxxx")
    assert reason.endswith("...` is not described by a mapping")
    assert len(reason) < 200


def test_an_lfs_pointer_is_named_as_one() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    assert problems(pointer) == [("shard-is-lfs-pointer", None)]
    assert problems(pointer + bytes(2000))[0][0] == "shard-corrupt", "no pointer is that long"
    assert problems(b"version 1, but of something else, longer than the prefix")[0][0] == (
        "shard-corrupt"
    )


# Hostile input


@pytest.mark.parametrize("length", [HEADER_LIMIT + 1, 2**31, 2**40, 2**63, 2**64 - 1])
def test_a_claimed_length_allocates_nothing(length: int) -> None:
    reader = CheckedReader(struct.pack("<Q", length) + b"{}")
    tracemalloc.start()
    try:
        assert read_header(reader).findings[0].rule_name == "shard-corrupt"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024
    assert all(end <= 8 for _, end in reader.ranges)


def _mutated(data: bytes, rng: random.Random) -> bytes:
    buffer = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        kind = rng.randrange(6)
        at = rng.randrange(len(buffer) + 1)
        if kind == 0 and at < len(buffer):
            buffer[at] = rng.randrange(256)
        elif kind == 1:
            del buffer[at : at + rng.randrange(1, 9)]
        elif kind == 2:
            buffer[at:at] = rng.choice((b'"', b"[", b"{", b"9", b"-", b",", b"\0", b"\\u", b"e9"))
        elif kind == 3 and at < len(buffer):
            buffer[at] ^= 1 << rng.randrange(8)
        elif kind == 4:
            other = rng.randrange(len(buffer) + 1)
            buffer[at:at] = buffer[other : other + rng.randrange(1, 60)]
        else:
            # Keep the length true, so that the damage reaches the JSON.
            buffer[:8] = struct.pack("<Q", max(0, len(buffer) - 8 - 12))[: len(buffer[:8])]
        if not buffer:
            break
    return bytes(buffer)


def _fuzz(cases: int, seed: int) -> None:
    rng = random.Random(seed)
    sound = [
        encoded({"a": A, "b": entry("F32", [2], 4, 12)}, bytes(12)),
        encoded(declared({"layers.0.w": (2, 3)}, "BF16"), bytes(12)),
        encoded(
            '{"\\u0061":{"dtype":"F4","shape":[3,8],"data_offsets":[0,12],"z":[{}]}}', bytes(12)
        ),
    ]
    assert all(header_of(data).findings == () for data in sound)
    stricter = ("ambiguous", "out of range", "not described by a mapping", "not a name")
    refused = 0
    for number in range(cases):
        data = _mutated(rng.choice(sound), rng)
        findings = header_of(data).findings
        assert {f.rule_name for f in findings} <= KNOWN_RULES, (seed, number, data)
        refused += bool(findings)
        if library_accepts(data) != (not findings):
            assert findings, f"accepts what the library refuses: {data!r}"
            assert any(s in str(f.values.get("reason")) for f in findings for s in stricter), data
    assert cases // 2 < refused < cases, "the fuzz reaches both outcomes"


def test_fuzzed_bytes_give_findings_and_the_librarys_verdict() -> None:
    _fuzz(2_000, seed=1)


@pytest.mark.slow
def test_many_fuzzed_bytes_give_findings_and_the_librarys_verdict() -> None:
    tracemalloc.start()
    try:
        _fuzz(50_000, seed=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


_numbers = st.integers(-1, 9) | st.sampled_from([2**31, 2**63, 2**64, 2**64 - 1, True, 1.0, None])
_entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPE_BITS, "u8", "", None, 8]),
        "shape": st.lists(_numbers, max_size=3) | st.sampled_from([None, {}, "4"]),
        "data_offsets": st.lists(_numbers, min_size=1, max_size=3) | st.none(),
    },
    optional={"z": st.sampled_from([1, None, [], {"a": {}}])},
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    header=st.dictionaries(st.sampled_from(["a", "b", "c"]), _entries | st.none(), max_size=3),
    size=st.integers(0, 20),
)
def test_agrees_with_the_library_on_the_validity_of_any_header(
    header: dict[str, object], size: int
) -> None:
    data = encoded(header, bytes(size))
    findings = header_of(data).findings
    out_of_range = any("out of range" in str(f.values.get("reason")) for f in findings)
    assert out_of_range or library_accepts(data) == (not findings), findings


@given(
    layout=st.lists(
        st.tuples(st.sampled_from(["U8", "F16", "F4"]), st.integers(0, 3)), min_size=1, max_size=4
    ),
    shift=st.tuples(st.integers(0, 3), st.sampled_from([0, 0, -1, 1]), st.sampled_from([0, 1])),
    extra=st.sampled_from([0, 0, -1, 1]),
)
def test_agrees_with_the_library_on_layouts_that_are_almost_sound(
    layout: list[tuple[str, int]], shift: tuple[int, int, int], extra: int
) -> None:
    header: dict[str, dict[str, object]] = {}
    end = 0
    for number, (dtype, pairs) in enumerate(layout):
        begin, end = end, end + pairs * 2 * DTYPE_BITS[dtype] // 8
        header[f"t{number}"] = entry(dtype, [2, pairs], begin, end)
    victim, delta, side = header[f"t{shift[0] % len(layout)}"], shift[1], shift[2]
    offsets = victim["data_offsets"]
    assert isinstance(offsets, list)
    offsets[side] = max(0, offsets[side] + delta)
    data = encoded(header, bytes(max(0, end + extra)))
    assert library_accepts(data) == (header_of(data).findings == ())


# Local files


def test_a_pipe_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    with pytest.raises(Unreadable) as refusal:
        LocalReader(tmp_path / "p", "p")
    assert (refusal.value.rule_name, refusal.value.values) == (
        "shard-unreadable",
        {"file": "p", "reason": "it is not a regular file"},
    )


def test_a_folder_and_a_loop_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in (
        (".", "it is not a regular file"),
        ("loop", "too many levels of symbolic links"),
    ):
        with pytest.raises(Unreadable) as refusal:
            LocalReader(tmp_path / name, name)
        assert refusal.value.values == {"file": name, "reason": reason}


def test_what_is_not_there_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    for name in ("absent", "dangling", "file/below"):
        with pytest.raises(FileNotFoundError):
            LocalReader(tmp_path / name, name)


def test_a_file_that_shrinks_is_refused(tmp_path: Path) -> None:
    write_sparse(tmp_path / "w", {"a": (4, 4)})
    with LocalReader(tmp_path / "w", "w") as reader:
        os.truncate(tmp_path / "w", 9)
        found = read_header(reader)
    assert [(f.rule_name, dict(f.values)) for f in found.findings] == [
        ("shard-unreadable", {"file": "w", "reason": "it changed while it was read"})
    ]


def test_a_reader_closes_its_file(tmp_path: Path) -> None:
    write_sparse(tmp_path / "w", {"a": (4, 4)})
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with LocalReader(tmp_path / "w", "w") as reader:
        read_header(reader)
    os.mkfifo(tmp_path / "p")
    with pytest.raises(Unreadable):
        LocalReader(tmp_path / "p", "p")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# Vocabulary maps


def test_an_int64_tensor_is_read_whole(tmp_path: Path) -> None:
    values = np.array([0, -1, 2**62, 151935], "i8")
    write(tmp_path / "w", {"before": np.zeros(3, "f4"), "d2t": values, "z": np.zeros(1, "i8")})
    with LocalReader(tmp_path / "w", "w") as reader:
        info = read_header(reader).tensors["d2t"]
        assert read_int64_tensor(reader, info) == array("q", values.tolist())


@pytest.mark.parametrize(
    ("dtype", "elements", "rule", "values"),
    [
        ("I32", 4, "tensor-dtype", {"tensor": "d2t", "dtype": "I32", "expected": "I64"}),
        (
            "I64",
            INT64_LIMIT // 8 + 1,
            "tensor-too-large",
            {"tensor": "d2t", "nbytes": INT64_LIMIT + 8, "limit": INT64_LIMIT},
        ),
    ],
)
def test_only_a_small_int64_tensor_is_read(
    dtype: str, elements: int, rule: str, values: dict[str, object]
) -> None:
    info = TensorInfo("d2t", dtype, (elements,), "w", 0, elements * DTYPE_BITS[dtype] // 8)
    reader = CheckedReader(b"")
    with pytest.raises(Unreadable) as refusal:
        read_int64_tensor(reader, info)
    assert (refusal.value.rule_name, refusal.value.values) == (rule, values)
    assert reader.ranges == []


def test_an_int64_tensor_of_a_truncated_file_is_not_read() -> None:
    reader = CheckedReader(encoded({"d2t": entry("I64", [4], 0, 32)}, bytes(31)))
    info = read_header(reader).tensors["d2t"]
    with pytest.raises(Unreadable) as refusal:
        read_int64_tensor(reader, info)
    assert refusal.value.values["reason"] == "`d2t` ends beyond it"
