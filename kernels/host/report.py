"""What a launch on the simulator found, with lines of source in place of addresses."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dspark import DsparkError

_ADDRESS = re.compile(r"@\{([0-9a-f]+)\}")
_FRAMES = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a kernel or its launch.

    `kind` is one of race, out-of-bounds, misaligned, unwaited-copy, divergence, deadlock, mask,
    barrier, mbarrier, undefined, stack, trap, launch.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """How much of one buffer a launch read or wrote, in bytes.

    requested: each access of each thread. by_block: 32-byte sectors, each counted once for every
    block that touched it. once: 32-byte sectors, each counted once.
    """

    requested: int
    by_block: int
    once: int


@dataclass(frozen=True, slots=True)
class Report:
    """A launch that nothing is wrong with. Traffic by buffer; empty unless the mode is checked."""

    reads: Mapping[str, Traffic]
    writes: Mapping[str, Traffic]


class KernelFault(DsparkError):
    """The simulator found something wrong with a kernel or its launch.

    `findings` holds all of it; what the launch wrote until then is in memory.
    """

    def __init__(self, kernel: str, findings: tuple[Finding, ...]) -> None:
        super().__init__(kernel, findings)
        self.kernel = kernel
        self.findings = findings

    def __str__(self) -> str:
        lines = [f"{finding.kind}: {finding.text}" for finding in self.findings]
        return "\n  ".join([f"`{self.kernel}`:", *lines])


def read_report(text: str, library: Path) -> tuple[tuple[Finding, ...], Report]:
    """What a library said of its last launch.

    Raises:
        FileNotFoundError: there is no addr2line, which comes with every g++.
    """
    said = json.loads(text)
    findings = tuple(
        Finding(each["kind"], _ADDRESS.sub(lambda found: _line(library, found[1]), each["text"]))
        for each in said["findings"]
    )
    traffic = said["traffic"].items()
    return findings, Report(
        {name: Traffic(**reads) for name, (reads, _) in traffic},
        {name: Traffic(**writes) for name, (_, writes) in traffic},
    )


@cache
def _line(library: Path, address: str) -> str:
    """`file:line` of an address, and behind `<` those that the code there was inlined into."""
    command = ["addr2line", "-i", "-e", str(library), address]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    frames = []
    for place in found:
        file, _, line = place.split(" ")[0].rpartition(":")
        # What a name of CUDA's does inside is the simulator's affair.
        if Path(file).parent != Path(__file__).parent:
            frames.append(f"{Path(file).name}:{line}")
    return " < ".join(frames[:_FRAMES]) if frames else "an unknown line"
