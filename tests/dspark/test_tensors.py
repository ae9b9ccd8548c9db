from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors import safe_open

from dspark.headers import Finding
from dspark.tensors import MOST_TENSORS, Tensors, index_checkpoint
from tests.support.safetensors_files import (
    INDEX,
    declared,
    draft_shapes,
    encoded,
    entry,
    write,
    write_index,
    write_shards,
    write_sparse,
)

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
TINY = draft_shapes(
    layers=2, hidden=64, intermediate=96, heads=4, kv_heads=2, head_dim=32, vocab=160
)


def report(found: Tensors) -> list[tuple[str, dict[str, object]]]:
    return [(f.rule_name, dict(f.values)) for f in found.findings]


def only(found: Tensors) -> tuple[str, dict[str, object]]:
    (finding,) = report(found)
    return finding


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write_shards(
        tmp_path,
        {
            ONE: {"a": np.ones((2, 3), "f4"), "b": np.ones(4, "f2")},
            TWO: {"c": np.ones((5,), "i8")},
        },
    )
    assert report(index_checkpoint(tmp_path)) == []
    return tmp_path


# One file


def test_a_single_file_gives_every_tensor(tmp_path: Path) -> None:
    size = write_sparse(tmp_path / "model.safetensors", TINY)
    found = index_checkpoint(tmp_path)
    assert found.findings == ()
    assert {name: info.shape for name, info in found.tensors.items()} == TINY
    assert {info.dtype for info in found.tensors.values()} == {"BF16"}
    assert found.files == (("model.safetensors", size),)
    assert found.header_bytes == len(encoded(declared(TINY)))
    with safe_open(tmp_path / "model.safetensors", framework="numpy") as library:
        assert set(library.keys()) == found.tensors.keys()


def test_the_only_weight_file_may_have_any_name(tmp_path: Path) -> None:
    write_sparse(tmp_path / "draft.safetensors", TINY)
    (tmp_path / "._draft.safetensors").write_bytes(b"a resource fork")
    assert index_checkpoint(tmp_path).files[0][0] == "draft.safetensors"


def test_the_usual_name_wins_over_a_stray_file(tmp_path: Path) -> None:
    write_sparse(tmp_path / "model.safetensors", TINY)
    write_sparse(tmp_path / "adapter.safetensors", {"stray": (1,)})
    found = index_checkpoint(tmp_path)
    assert (found.findings, "stray" in found.tensors) == ((), False)


def test_zero_size_tensors_and_scalars_are_tensors(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {"e": np.zeros((0, 4), "f4"), "s": np.array(1.0)})
    found = index_checkpoint(tmp_path)
    assert found.findings == ()
    assert (found.tensors["e"].shape, found.tensors["e"].nbytes) == ((0, 4), 0)
    assert (found.tensors["s"].shape, found.tensors["s"].nbytes) == ((), 8)


def test_a_damaged_single_file_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    size = write_sparse(path, TINY)
    os.truncate(path, size - 8)
    found = index_checkpoint(tmp_path)
    assert only(found) == (
        "shard-truncated",
        {"file": "model.safetensors", "expected": size, "actual": size - 8},
    )
    assert found.tensors.keys() == TINY.keys()


# No weights


@pytest.mark.parametrize(
    ("files", "reason", "remedy"),
    [
        ([], "no file ends in `.safetensors`", "add `model.safetensors`"),
        (["config.json"], "no file ends in `.safetensors`", "add `model.safetensors`"),
        (
            ["pytorch_model.bin"],
            "`pytorch_model.bin` is not a safetensors file",
            "convert the checkpoint to safetensors",
        ),
        (
            ["a.safetensors", "b.safetensors"],
            "the index that says how `a.safetensors`, `b.safetensors` belong together is missing",
            "add `model.safetensors.index.json`",
        ),
        (
            [f"{c}.safetensors" for c in "abcde"],
            (
                "the index that says how `a.safetensors`, `b.safetensors`, `c.safetensors` and 2"
                " more belong together is missing"
            ),
            "add `model.safetensors.index.json`",
        ),
    ],
)
def test_without_weights_the_reason_is_named(
    tmp_path: Path, files: list[str], reason: str, remedy: str
) -> None:
    for file in files:
        write_sparse(tmp_path / file, TINY)
    found = index_checkpoint(tmp_path)
    values = {"source": str(tmp_path), "reason": reason, "remedy": remedy}
    assert only(found) == ("weights-missing", values)
    assert (found.tensors, found.files, found.header_bytes) == ({}, (), 0)


def test_a_file_without_tensors_is_no_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(encoded({}))
    rule, values = only(index_checkpoint(tmp_path))
    assert (rule, values["reason"]) == ("weights-missing", "`model.safetensors` holds no tensor")


def test_an_index_without_tensors_is_no_weights(tmp_path: Path) -> None:
    write_index(tmp_path, {})
    rule, values = only(index_checkpoint(tmp_path))
    assert (rule, values["reason"]) == ("weights-missing", f"`{INDEX}` lists no tensor")


@pytest.mark.parametrize("name", ["absent", "file", "nul\0"])
def test_what_cannot_be_listed_is_a_finding(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    rule, values = only(index_checkpoint(tmp_path / name))
    assert (rule, values["reason"]) == (
        "weights-missing",
        "it is not a folder that can be listed",
    )


# Odd files under the usual name


def test_a_pipe_in_place_of_the_weights_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    assert only(index_checkpoint(tmp_path)) == (
        "shard-unreadable",
        {"file": "model.safetensors", "reason": "it is not a regular file"},
    )


def test_a_pipe_in_place_of_the_index_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / INDEX)
    assert only(index_checkpoint(tmp_path)) == (
        "shard-unreadable",
        {"file": INDEX, "reason": "it is not a regular file"},
    )


def test_a_dangling_link_is_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "blobs" / "gone")
    assert only(index_checkpoint(tmp_path)) == (
        "shard-missing",
        {"file": "model.safetensors", "listed_in": str(tmp_path)},
    )


def test_a_dangling_index_is_not_replaced_by_what_lies_around(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    (sharded / INDEX).symlink_to(sharded / "gone")
    write_sparse(sharded / "model.safetensors", TINY)
    assert only(index_checkpoint(sharded)) == (
        "index-invalid",
        {"file": INDEX, "reason": "a link to a file that is not there"},
    )


def test_shards_may_be_links_as_in_the_hub_cache(tmp_path: Path, sharded: Path) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for name in (ONE, TWO, INDEX):
        (sharded / name).rename(blobs / f"hash-of-{name}")
        (sharded / name).symlink_to(f"blobs/hash-of-{name}")
    found = index_checkpoint(sharded)
    assert (found.findings, set(found.tensors)) == ((), {"a", "b", "c"})


# Shards and their index


def test_shards_give_the_tensors_of_all(sharded: Path) -> None:
    found = index_checkpoint(sharded)
    assert {name: (info.file, info.shape) for name, info in found.tensors.items()} == {
        "a": (ONE, (2, 3)),
        "b": (ONE, (4,)),
        "c": (TWO, (5,)),
    }
    sizes = {name: (sharded / name).stat().st_size for name in (ONE, TWO)}
    assert dict(found.files) == sizes
    assert found.header_bytes == sum(sizes.values()) - 24 - 8 - 40


def test_a_deleted_shard_is_named_once(sharded: Path) -> None:
    (sharded / TWO).unlink()
    found = index_checkpoint(sharded)
    assert only(found) == ("shard-missing", {"file": TWO, "listed_in": INDEX})
    assert set(found.tensors) == {"a", "b"}


def test_a_stale_index_is_refused_and_nothing_is_globbed(sharded: Path) -> None:
    for name in (ONE, TWO):
        (sharded / name).rename(sharded / name.replace("model", "renamed"))
    found = index_checkpoint(sharded)
    assert report(found) == [
        ("shard-missing", {"file": ONE, "listed_in": INDEX}),
        ("shard-missing", {"file": TWO, "listed_in": INDEX}),
    ]
    assert (found.tensors, found.files) == ({}, ())


def test_a_stray_file_beside_an_index_is_ignored(sharded: Path) -> None:
    before = index_checkpoint(sharded)
    write(sharded / "model.safetensors", {"a": np.zeros(1, "i1"), "stray": np.zeros(1, "i1")})
    (sharded / "other.safetensors").write_bytes(b"not even that")
    assert index_checkpoint(sharded) == before


def test_the_only_index_may_have_any_name(sharded: Path) -> None:
    (sharded / INDEX).rename(sharded / "draft.safetensors.index.json")
    assert report(index_checkpoint(sharded)) == []


def test_the_usual_index_wins_and_several_others_are_ambiguous(sharded: Path) -> None:
    content = (sharded / INDEX).read_text()
    (sharded / "x.safetensors.index.json").write_text("not read")
    assert report(index_checkpoint(sharded)) == []
    (sharded / INDEX).unlink()
    (sharded / "y.safetensors.index.json").write_text(content)
    assert only(index_checkpoint(sharded)) == (
        "index-invalid",
        {
            "file": "x.safetensors.index.json",
            "reason": "one of several: `x.safetensors.index.json`, `y.safetensors.index.json`",
        },
    )


def test_an_indexed_tensor_its_shard_lacks_is_missing(sharded: Path) -> None:
    write_index(sharded, {"a": ONE, "b": ONE, "c": TWO, "d": TWO})
    found = index_checkpoint(sharded)
    assert only(found) == ("tensor-missing", {"tensor": "d", "file": TWO, "index": INDEX})


def test_the_same_tensor_in_two_shards_is_a_duplicate(sharded: Path) -> None:
    write(sharded / TWO, {"c": np.ones(5, "i8"), "b": np.ones(4, "f2")})
    found = index_checkpoint(sharded)
    assert only(found) == ("tensor-duplicate", {"tensor": "b", "file": TWO, "other": ONE})
    assert found.tensors["b"].file == ONE


def test_the_shard_read_first_does_not_win_over_the_index(sharded: Path) -> None:
    write(sharded / ONE, {"a": np.ones((2, 3), "f4"), "b": np.ones(4), "c": np.zeros(1)})
    found = index_checkpoint(sharded)
    assert only(found) == ("tensor-duplicate", {"tensor": "c", "file": ONE, "other": TWO})
    assert found.tensors["c"].file == TWO


def test_an_unlisted_tensor_in_two_shards_is_a_duplicate(sharded: Path) -> None:
    write_index(sharded, {"a": ONE, "c": TWO})
    extra = {"b": np.ones(4, "f2")}
    write(sharded / TWO, {"c": np.ones(5, "i8"), **extra})
    assert only(index_checkpoint(sharded)) == (
        "tensor-duplicate",
        {"tensor": "b", "file": TWO, "other": ONE},
    )


def test_an_unlisted_tensor_of_one_shard_is_there(sharded: Path) -> None:
    write_index(sharded, {"a": ONE, "c": TWO})
    found = index_checkpoint(sharded)
    assert (found.findings, found.tensors["b"].file) == ((), ONE)


def test_a_tensor_in_another_shard_than_indexed_is_claimed_by_both(sharded: Path) -> None:
    write_index(sharded, {"a": ONE, "b": TWO, "c": TWO})
    found = index_checkpoint(sharded)
    assert report(found) == [
        ("tensor-missing", {"tensor": "b", "file": TWO, "index": INDEX}),
        ("tensor-duplicate", {"tensor": "b", "file": ONE, "other": TWO}),
    ]
    assert "b" not in found.tensors


def test_every_damaged_shard_is_reported_without_consequences(sharded: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (sharded / ONE).write_bytes(pointer)
    size = (sharded / TWO).stat().st_size
    os.truncate(sharded / TWO, size - 1)
    found = index_checkpoint(sharded)
    assert report(found) == [
        ("shard-is-lfs-pointer", {"file": ONE}),
        ("shard-truncated", {"file": TWO, "expected": size, "actual": size - 1}),
    ]
    assert set(found.tensors) == {"c"}


def test_a_shard_below_a_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    write(tmp_path / "part" / "a.safetensors", {"a": np.ones(2)})
    write_index(tmp_path, {"a": "part/a.safetensors"})
    found = index_checkpoint(tmp_path)
    assert (found.findings, found.tensors["a"].file) == ((), "part/a.safetensors")


SAFE = "does not name a file of this checkpoint"
BAD_INDEXES = {
    "not JSON": ("{", "not JSON at character 1"),
    "comment": ('// hi\n{"weight_map": {}}', "not JSON at character 0"),
    "list": ("[]", "not a JSON object"),
    "empty": ("", "not JSON at character 0"),
    "not UTF-8": (b"\xff{}", "not UTF-8 at byte 0"),
    "no map": ("{}", "without a `weight_map`"),
    "null map": (
        '{"weight_map": null}',
        "without a `weight_map` from tensor names to file names",
    ),
    "list map": ('{"weight_map": []}', "without a `weight_map` from tensor names to file names"),
    "number": (
        '{"weight_map": {"a": 1}}',
        "without a `weight_map` from tensor names to file names",
    ),
    "twice": (
        '{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}',
        "ambiguous: it has the key `a` twice",
    ),
    "NaN": (
        '{"metadata": {"total_size": NaN}, "weight_map": {}}',
        "not JSON: it has the value `NaN`",
    ),
    "other format": (
        '{"weight_map": {"a": "pytorch_model.bin"}}',
        "one of another format: it names `pytorch_model.bin`",
    ),
    **{
        f"unsafe {name!r}": (
            json.dumps({"weight_map": {"a": name}}),
            f"unsafe: `{shown}` {SAFE}",
        )
        for name, shown in {
            "../x.safetensors": "../x.safetensors",
            "a/../../x.safetensors": "a/../../x.safetensors",
            "/etc/x.safetensors": "/etc/x.safetensors",
            "./x.safetensors": "./x.safetensors",
            "a//x.safetensors": "a//x.safetensors",
            "a\\x.safetensors": "a\\x.safetensors",
            "C:x.safetensors": "C:x.safetensors",
            "x\0.safetensors": "x\\x00.safetensors",
            "": "",
        }.items()
    },
}


@pytest.mark.parametrize("case", sorted(BAD_INDEXES))
def test_a_bad_index_is_refused_and_no_shard_is_opened(sharded: Path, case: str) -> None:
    content, reason = BAD_INDEXES[case]
    (sharded / INDEX).write_bytes(content if isinstance(content, bytes) else content.encode())
    found = index_checkpoint(sharded)
    assert only(found) == ("index-invalid", {"file": INDEX, "reason": reason})
    assert found.files == ()


def test_a_traversal_reads_nothing_outside_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "secret.safetensors", {"a": np.ones(2)})
    inside = tmp_path / "inside"
    inside.mkdir()
    write_index(inside, {"a": "../secret.safetensors"})
    assert index_checkpoint(inside).tensors == {}


def test_an_endless_index_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / INDEX).open("wb") as file:
        file.truncate(2**40)
    rule, values = only(index_checkpoint(tmp_path))
    assert (rule, values["reason"]) == (
        "index-invalid",
        f"too long: {2**40} bytes, where {64 * 2**20} are allowed",
    )


def test_an_index_whose_shards_are_empty_is_no_weights(tmp_path: Path) -> None:
    (tmp_path / ONE).write_bytes(encoded({}))
    write_index(tmp_path, {"a": ONE})
    assert only(index_checkpoint(tmp_path))[0] == "tensor-missing"


def test_findings_compare_by_what_they_say() -> None:
    assert Finding("r", {"file": "a"}) == Finding("r", {"file": "a"}) != Finding("r", {"file": "b"})


# Cost


def target_shapes(layers: int) -> dict[str, tuple[int, ...]]:
    draft = draft_shapes(layers, 4096, 12288, 32, 8, 128, 151936)
    body = {f"model.{name}": shape for name, shape in draft.items() if name.startswith("layers")}
    return body | {"model.embed_tokens.weight": (151936, 4096), "lm_head.weight": (151936, 4096)}


def best_of(tries: int, *folders: Path) -> float:
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        for folder in folders:
            assert index_checkpoint(folder).findings == ()
        times.append(time.perf_counter() - start)
    return min(times)


def test_a_draft_and_its_target_cost_milliseconds(tmp_path: Path) -> None:
    for name, shapes in (
        ("draft", draft_shapes(5, 4096, 12288, 32, 8, 128, 151936)),
        ("target", target_shapes(36)),
    ):
        (tmp_path / name).mkdir()
        write_sparse(tmp_path / name / "model.safetensors", shapes)
    assert best_of(5, tmp_path / "draft", tmp_path / "target") < 0.05


def test_two_hundred_shards_cost_a_fraction_of_a_second(tmp_path: Path) -> None:
    weight_map = {}
    for shard in range(200):
        name = f"model-{shard:05}-of-00200.safetensors"
        shapes = {f"model.layers.{shard}.mlp.experts.{i}.weight": (4096, 512) for i in range(10)}
        write_sparse(tmp_path / name, shapes)
        weight_map |= dict.fromkeys(shapes, name)
    write_index(tmp_path, weight_map)
    assert len(index_checkpoint(tmp_path).tensors) == 2000
    assert best_of(3, tmp_path) < 0.45


def test_headers_need_neither_a_framework_nor_a_network() -> None:
    script = (
        "import sys, pathlib, dspark.tensors as t\n"
        "t.index_checkpoint(pathlib.Path('.'))\n"
        "heavy = {'torch', 'numpy', 'safetensors', 'huggingface_hub', 'httpx2', 'socket'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_a_huge_tensor_count_is_refused_by_the_size_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(encoded({"a": entry("F32", [2**50], 0, 2**52)}))
    rule, values = only(index_checkpoint(tmp_path))
    assert (rule, values["actual"]) == (
        "shard-truncated",
        (tmp_path / "model.safetensors").stat().st_size,
    )


def test_many_shards_of_one_big_file_are_refused_in_bounded_time(tmp_path: Path) -> None:
    """Twenty links to a header of empty tensors: each is small, and together they are a bomb."""
    empty = {f"t{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(60_000)}
    text = json.dumps(empty).encode()
    (tmp_path / "big").write_bytes(len(text).to_bytes(8, "little") + text)
    shards = [f"s{number:02}.safetensors" for number in range(20)]
    for shard in shards:
        os.link(tmp_path / "big", tmp_path / shard)
    index = {"weight_map": {f"w{number}": shard for number, shard in enumerate(shards)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    found = index_checkpoint(tmp_path)

    (corrupt,) = [each for each in found.findings if each.rule_name == "shard-corrupt"]
    assert {
        "file": "s03.safetensors",
        "reason": f"it takes the checkpoint past {MOST_TENSORS} tensors",
    } == corrupt.values
    assert 3 * len(empty) <= MOST_TENSORS < 4 * len(empty)
