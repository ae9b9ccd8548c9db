"""A checkpoint's tensors as a plan lists them: mapped from their files, and looked through once."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dspark import load_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from dspark import Decision
    from dspark.load_plan import Model, TensorPlace

Progress = Callable[[str, int, int], object]
"""Told as weights are read: whose they are (`target` or `draft`), bytes so far, bytes in all."""


def read_tensors(
    model: Model, decision: Decision, whose: str, progress: Progress | None = None
) -> dict[str, torch.Tensor]:
    """The tensors of `model` by canonical name, in their files' formats.

    Each file is mapped, so what is not looked at is not in memory; the tensors keep it mapped.
    `decision` is the one on the checkpoint.

    Raises:
        dspark.Refused: a file is gone or not what the plan saw, or a value is no finite number.
    """
    # INVARIANT: a plan for local files has a folder.
    assert model.folder is not None
    total = sum(place.nbytes for place in model.tensors.values())
    done = 0
    tensors: dict[str, torch.Tensor] = {}
    for file, places in _by_file(model.tensors).items():
        expected = next(each.nbytes for each in model.files if each.name == file)
        with _readable(decision, file):
            view = _mapped(Path(model.folder) / file)
        if len(view) != expected:
            reason = f"it has {len(view)} bytes, and had {expected} when it was checked"
            raise load_refusal(decision, "shard-unreadable", file=file, reason=reason)
        for name, place in places.items():
            tensors[name] = _tensor(view, place)
            if not _is_finite(tensors[name]):
                raise load_refusal(
                    decision, "tensor-not-finite", tensor=place.name, file=place.file
                )
            done += place.nbytes
            if progress is not None:
                progress(whose, done, total)
    return tensors


def _by_file(tensors: Mapping[str, TensorPlace]) -> dict[str, dict[str, TensorPlace]]:
    files: dict[str, dict[str, TensorPlace]] = {}
    # In the order of the bytes, which is the order a disk likes.
    for name, place in sorted(tensors.items(), key=lambda item: item[1].offset):
        files.setdefault(place.file, {})[name] = place
    return files


@contextmanager
def _readable(decision: Decision, file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or "input error").lower()
        raise load_refusal(decision, "shard-unreadable", file=file, reason=reason) from None


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        # A private copy: torch wants memory that could be written, and the file stays as it is.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def _tensor(view: mmap.mmap, place: TensorPlace) -> torch.Tensor:
    import torch

    dtype = {"BF16": torch.bfloat16, "F32": torch.float32, "I64": torch.int64}[place.dtype]
    data: mmap.mmap | bytearray = view
    offset = place.offset
    if offset % dtype.itemsize:
        # A header of odd length is valid, and puts every tensor at an address that none may have.
        data, offset = bytearray(view[offset : offset + place.nbytes]), 0
    count = place.nbytes // dtype.itemsize
    return torch.frombuffer(data, dtype=dtype, count=count, offset=offset).reshape(place.shape)


def _is_finite(tensor: torch.Tensor) -> bool:
    import torch

    if not tensor.is_floating_point():
        return True
    # Least and greatest are NaN if any value is, and infinite if one is: one pass, no copy.
    least, greatest = torch.aminmax(tensor)
    return bool(torch.isfinite(least) and torch.isfinite(greatest))
