"""The GPU's driver against a CuPy that only takes notes: what it is asked for, in which order."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dspark.kernels.cubins import Compiler, open_compiler
from dspark.kernels.errors import AllocationError, LaunchError
from dspark.kernels.launch import Device
from dspark.kernels.signatures import kernels_in

SMALL = kernels_in(Path(__file__).parent / "cases")


class FakeError(Exception):
    """What the fake raises where CuPy would."""


class FakeStream:
    def __init__(self, notes: list[Any], non_blocking: bool) -> None:
        assert non_blocking, "the default stream cannot be captured"
        self.notes = notes

    def __enter__(self) -> None:
        self.notes.append("enter")

    def __exit__(self, *_: object) -> None:
        self.notes.append("leave")

    def __getattr__(self, name: str) -> Any:
        if name == "end_capture":
            return lambda: FakeGraph(self.notes, self)
        return lambda *_: self.notes.append(name)


class FakeGpu:
    compute_capability, id, mem_info = "90", 3, (10, 1000)
    attributes = MappingProxyType(
        {"MaxSharedMemoryPerBlockOptin": 232448, "MultiProcessorCount": 132}
    )

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def use(self) -> None: ...

    def __enter__(self) -> None:
        self.notes.append("device")

    def __exit__(self, *_: object) -> None: ...


class FakeGraph:
    def __init__(self, notes: list[Any], stream: FakeStream) -> None:
        self.notes, self.stream = notes, stream
        notes.append("end_capture")

    def upload(self, stream: FakeStream) -> None:
        assert stream is self.stream
        self.notes.append("upload")

    def launch(self, stream: FakeStream) -> None:
        assert stream is self.stream
        self.notes.append("replay")


class FakeArray(np.ndarray):
    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, values: np.ndarray, stream: FakeStream) -> None:
        assert isinstance(stream, FakeStream)
        self[...] = values

    def get(self, stream: FakeStream) -> np.ndarray:
        assert isinstance(stream, FakeStream)
        return np.array(self)


class FakeKernel:
    def __init__(self, notes: list[Any], name: str) -> None:
        self.notes, self.name, self.max_dynamic_shared_size_bytes = notes, name, 0

    def compile(self) -> None:
        if self.name == "advance":
            raise FakeError("named symbol not found")
        self.notes.append(("compile", self.name))

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int) -> None:
        room = max(48 * 1024, self.max_dynamic_shared_size_bytes)
        assert shared_mem <= room
        self.notes.append((self.name, grid, block, args, shared_mem))


@pytest.fixture
def notes() -> list[Any]:
    return []


@pytest.fixture
def device(notes: list[Any], monkeypatch: pytest.MonkeyPatch, repository: Path) -> Iterator[Device]:
    cupy = ModuleType("cupy")

    class FakeModule:
        def __init__(self, *, path: str) -> None:
            assert Path(path).read_bytes().startswith(b"\x7fELF")
            notes.append(("module", Path(path).name.partition("-sm_")[2][:2]))

        def get_function(self, name: str) -> FakeKernel:
            return FakeKernel(notes, name)

    def empty(shape: tuple[int, ...], dtype: Any) -> FakeArray:
        if np.prod(shape) > 10**6:
            raise FakeError
        return np.zeros(shape, dtype).view(FakeArray)

    gpu = FakeGpu(notes)
    cupy.__dict__.update(
        empty=empty,
        RawModule=FakeModule,
        cuda=SimpleNamespace(
            Device=lambda _: gpu,
            Stream=lambda *, non_blocking: FakeStream(notes, non_blocking),
            driver=SimpleNamespace(CUDADriverError=FakeError),
            memory=SimpleNamespace(OutOfMemoryError=FakeError),
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.delitem(sys.modules, "dspark.kernels.cupy_driver", raising=False)
    from dspark.kernels.cupy_driver import CupyDriver

    found = open_compiler()
    compiler = Compiler(found.nvrtc, found.toolkit, repository / "build" / "cubins")
    yield Device(CupyDriver(compiler=compiler), SMALL)
    del sys.modules["dspark.kernels.cupy_driver"]


def test_a_kernel_is_loaded_when_it_is_asked_for(device: Device, notes: list[Any]) -> None:
    device.kernel("scale")
    device.kernel("wide")

    # One module a file, for the architecture of the GPU; nothing is left for the first launch.
    loaded = [note for note in notes if isinstance(note, tuple)]
    assert [("module", "90"), ("compile", "scale"), ("compile", "wide")] == loaded
    with pytest.raises(LaunchError, match=r"`advance` is not part of small\.cu on sm_90: named"):
        device.kernel("advance")


def test_numbers_arrive_in_their_own_size(device: Device, notes: list[Any]) -> None:
    x, out = device.empty((2, 3), "bf16"), device.empty((2, 3), "f32")
    kernel = device.kernel("scale")
    notes.clear()

    kernel((4, 2), 64, [x, out, 2, 3, 0.5], smem=100)

    # The thread that launches may have another device, or none.
    device_first, enter, (name, grid, block, args, shared), leave = notes
    assert ("device", "enter", "leave") == (device_first, enter, leave)
    assert ("scale", (4, 2, 1), (64, 1, 1), 100) == (name, grid, block, shared)
    assert args[0] is x.handle
    assert args[1] is out.handle
    assert [np.int32, np.int32, np.float32] == [type(each) for each in args[2:]]
    assert [2, 3, 0.5] == list(args[2:])


def test_much_shared_memory_is_allowed_first(device: Device) -> None:
    x, out = device.empty((2, 3), "bf16"), device.empty((2, 3), "f32")
    kernel = device.kernel("scale")

    kernel(1, 32, [x, out, 2, 3, 0.5], smem=60000)
    kernel(1, 32, [x, out, 2, 3, 0.5], smem=50000)

    assert 60000 == kernel._function.max_dynamic_shared_size_bytes


def test_a_graph_is_captured_on_the_drivers_stream(device: Device, notes: list[Any]) -> None:
    x, out = device.empty((2, 3), "bf16"), device.empty((2, 3), "f32")
    kernel = device.kernel("scale")
    notes.clear()

    with device.capture("round") as graph:
        kernel(1, 32, [x, out, 2, 3, 0.5])
    graph.replay()

    around = ("device", "enter", "leave")
    words = [note if isinstance(note, str) else note[0] for note in notes if note not in around]
    captured = ["begin_capture", "scale", "end_capture", "upload", "replay"]
    assert captured == words


def test_content_goes_there_and_back(device: Device, notes: list[Any]) -> None:
    array = device.array(np.arange(6, dtype=np.int32), "i32")

    assert list(range(6)) == device.read(array).tolist()
    # `write` returns when its copy is done.
    assert "synchronize" in notes


def test_memory_that_is_not_there(device: Device) -> None:
    with pytest.raises(AllocationError) as caught:
        device.empty((1000, 1001), "bf16", "keys of layer 3")

    says = "2002000 bytes were asked for (keys of layer 3), and the GPU has 10 of 1000 left"
    assert says == str(caught.value)


@pytest.mark.parametrize("there", [True, False])
def test_torch_is_asked_whether_it_computes_here(
    device: Device, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(asked.append(1)) or there)

    assert [there, there] == [device.driver.has_library for _ in range(2)]
    assert [1] == asked
