"""Which device computes: the backend for it, or why there is none here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from dspark import load_refusal

if TYPE_CHECKING:
    from dspark import Decision
    from dspark.kernels.launch import Device as KernelDevice
    from dspark.runtime.backends.base import Backend
    from dspark.runtime.gpu import Trouble

Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16"]

DEVICES: tuple[Device, ...] = ("cpu", "cuda")
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")

_GPU_DTYPE: Dtype = "bfloat16"
"""What the kernels compute in."""
_ALWAYS = ("numpy", "torch", "tokenizers")
_NEEDED = {"cpu": _ALWAYS, "cuda": (*_ALWAYS, "cupy")}


def chosen_dtype(device: Device) -> Dtype:
    """What is computed in unless somebody says otherwise: the format in which text is exact."""
    return "float32" if device == "cpu" else _GPU_DTYPE


def device_memory(device: Device) -> int | None:
    """Bytes of the GPU that would be used; None on a CPU, and where there is no such GPU."""
    if device == "cpu":
        return None
    from dspark.kernels.machine import look
    from dspark.runtime.gpu import usable_gpus

    gpus = usable_gpus(look(), None)
    return gpus[0].free_memory if gpus else None


def block_shared_memory() -> int:
    """Bytes of shared memory that a block may have on the GPU that would be used.

    There is one: `check_device` had nothing against the device `cuda`.
    """
    from dspark.kernels.cubins import open_compiler
    from dspark.kernels.machine import look
    from dspark.runtime.gpu import usable_gpus

    # A GPU that the compiler does not know is passed over, as `open_gpu` does.
    return usable_gpus(look(), open_compiler())[0].block_shared_memory


def check_device(device: Device, dtype: Dtype, decision: Decision) -> None:
    """Nothing, if the device can compute here; libraries are looked for, not imported.

    Raises:
        dspark.Refused: it cannot; `decision` is the one on the checkpoint that was to be loaded.
    """
    for trouble in troubles(device, dtype):
        raise load_refusal(decision, trouble.name, **trouble.values)


def troubles(device: Device, dtype: Dtype) -> Iterator[Trouble]:
    """Why nothing can be computed on `device` here, the most basic reason first.

    Kernels are compiled for the GPU as far as they are not yet.
    """
    if device == "cpu":
        yield from package_troubles(device)
        return
    from dspark.runtime.gpu import Trouble, compile_trouble, kernel_files, survey, usable_gpus

    if dtype != _GPU_DTYPE:
        yield Trouble("device-unavailable", {"device": device, "expected": _GPU_DTYPE})
    machine, compiler, found = survey(package_troubles(device))
    yield from found
    if compiler is None:
        return
    for gpu in usable_gpus(machine, compiler)[:1]:
        trouble = compile_trouble(compiler, kernel_files(), gpu.architecture)
        if trouble is not None:
            yield trouble


def package_troubles(device: Device) -> Iterator[Trouble]:
    """The packages that computing on `device` needs and that are not installed."""
    from dspark.runtime.gpu import Trouble

    for name in _NEEDED[device]:
        if find_spec(name) is None:
            yield Trouble("device-unavailable", {"device": device, "package": name})


def open_backend(device: Device, dtype: Dtype) -> Backend:
    """The backend of a device that `check_device` had nothing against.

    Raises:
        AllocationError: another process has the GPU's memory.
    """
    if device == "cpu":
        from dspark.runtime.backends.torch_cpu import TorchCpuBackend

        return TorchCpuBackend(dtype)
    from dspark.runtime.backends.cuda import CudaBackend

    return CudaBackend(open_gpu())


def open_gpu() -> KernelDevice:
    """The first GPU that the kernels run on, as the launch layer sees it."""
    from dspark.kernels.cubins import open_compiler
    from dspark.kernels.cupy_driver import CupyDriver
    from dspark.kernels.launch import Device as KernelDevice
    from dspark.kernels.machine import look
    from dspark.runtime.gpu import usable_gpus

    compiler = open_compiler()
    first = usable_gpus(look(), compiler)[0]
    return KernelDevice(CupyDriver(first.ordinal, compiler))
