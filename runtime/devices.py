"""Which device computes: the backend for it, or why there is none here."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from dspark import load_refusal

if TYPE_CHECKING:
    from dspark import Decision
    from dspark.runtime.backends.base import Backend

Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16"]

DEVICES: tuple[Device, ...] = ("cpu", "cuda")
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")

_NEEDED = ("numpy", "torch", "tokenizers")


def chosen_dtype(device: Device) -> Dtype:
    """What is computed in unless somebody says otherwise: the format in which text is exact."""
    return "float32" if device == "cpu" else "bfloat16"


def check_device(device: Device, decision: Decision) -> None:
    """Nothing, if the device can compute here; what it needs is looked for, not imported.

    Raises:
        dspark.Refused: it cannot; `decision` is the one on the checkpoint that was to be loaded.
    """
    trouble = trouble_with(device)
    if trouble is not None:
        raise load_refusal(decision, "device-unavailable", device=device, **trouble)


def trouble_with(device: Device) -> dict[str, str] | None:
    """Why this package cannot compute on `device` here, and the remedy; None if it can."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        reason = f"the package `{missing[0]}` is not installed"
        remedy = f"install it with `pip install 'dspark[{device}]'`"
        if device == "cuda":
            remedy = "install it with `pip install 'dspark[cuda12]'` or `'dspark[cuda13]'`"
    elif device == "cuda":
        reason = "this build has no backend for it yet"
        remedy = "leave out --device, or serve the pair with vLLM"
    else:
        return None
    return {"reason": reason, "remedy": remedy}


def open_backend(device: Device, dtype: Dtype) -> Backend:
    """The backend of a device that `check_device` had nothing against."""
    # INVARIANT: `check_device` refuses every other device.
    assert device == "cpu"
    from dspark.runtime.backends.torch_cpu import TorchCpuBackend

    return TorchCpuBackend(dtype)
