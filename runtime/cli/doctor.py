"""`dspark doctor`: what this machine can decode on, and what to do where it cannot."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dspark.budget import parse_size, shown_size
from dspark.messages import plain
from dspark.output import Line, write
from dspark.render import DIM, LANE, NAME, REFUSED
from dspark.verb import OK
from dspark.verb import REFUSED as REFUSED_CODE

if TYPE_CHECKING:
    from dspark.runtime.devices import Device
    from dspark.runtime.examine import Examination


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.description = (
        "Looks at driver, GPUs, compiler, kernels and packages. The exit code is 0 where DEVICE, "
        "or without --device any device, can decode, and 3 where it cannot. Where there is a GPU, "
        "the kernels are compiled for it and kept."
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="the device that is asked for")
    parser.add_argument(
        "--memory",
        type=_size,
        metavar="BYTES",
        help="memory that a GPU must have free, such as 24GiB; `dspark plan` says how much",
    )
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Prints what was found; the exit code."""
    from dspark.runtime.devices import DEVICES
    from dspark.runtime.examine import examine

    found = examine(arguments.memory)
    write([[json.dumps(found.to_json())]] if arguments.json else _lines(found))
    asked: list[Device] = list(DEVICES) if arguments.device is None else [arguments.device]
    return OK if any(found.usable(device) for device in asked) else REFUSED_CODE


def _lines(found: Examination) -> Iterator[Line]:
    from dspark.runtime.devices import DEVICES

    yield from _machine(found)
    for device in DEVICES:
        if found.usable(device):
            yield [(device, NAME), ": ", ("can decode here", LANE)]
            continue
        yield [(device, NAME), ": ", ("cannot decode here", REFUSED)]
        for each in found.findings[device]:
            yield ["    ", each.message, f"  [{each.rule_id} {each.name}]"]
            yield ["    help: ", each.help]


def _machine(found: Examination) -> Iterator[Line]:
    from dspark.runtime.gpu import shown_version

    yield [f"cpu         {found.cores} cores, {shown_size(found.memory)}"]
    driver = found.machine.driver
    yield [f"driver      {'none' if driver is None else f'CUDA {shown_version(driver)}'}"]
    for gpu in found.machine.gpus:
        room = f"{shown_size(gpu.free_memory)} of {shown_size(gpu.total_memory)} free"
        yield [f"gpu {gpu.ordinal:<8}{plain(gpu.name)}, sm_{gpu.architecture}, {room}"]
    if found.compiler is None:
        yield ["compiler    none"]
    else:
        where = f"  ({found.compiler.toolkit.nvrtc})"
        version = shown_version(found.compiler.nvrtc.version)
        yield [f"compiler    NVRTC {version}", (where, DIM)]
    kernels = found.kernels
    compiled = ", ".join(f"sm_{each}" for each in kernels.architectures) or "no GPU"
    yield [
        f"kernels     {kernels.count} in {kernels.files} files, compiled for {compiled}",
        (f"  ({kernels.cache})", DIM),
    ]
    versions = (f"{name} {version or '-'}" for name, version in found.packages.items())
    yield [f"packages    {', '.join(versions)}"]


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"`{text}`: {error}") from None
