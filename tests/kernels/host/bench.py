"""How the tests run the small kernels in cases/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dspark.kernels.host.build import Library, build
from dspark.kernels.host.memory import Memory
from dspark.kernels.host.report import Finding, KernelFault, Report
from dspark.kernels.host.simulator import Schedule, Simulator

CASES = Path(__file__).parent / "cases"

Array = npt.NDArray[Any]
SCHEDULES = [Schedule(0), *(Schedule(seed, resident=3) for seed in range(1, 5))]


class Bench:
    """Runs one kernel of one case; afterwards `arrays` holds what it left behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.arrays: dict[str, Array] = {}

    def library(self, case: str, mode: str = "checked") -> Library:
        return build(CASES / f"{case}.cu", self._folder, mode)

    def run(
        self,
        kernel: str,
        arrays: Mapping[str, Array],
        *scalars: np.generic,
        grid: int = 1,
        block: int = 32,
        shared: int = 0,
        schedule: Schedule = SCHEDULES[0],
        mode: str = "checked",
    ) -> Report:
        """`kernel` is `case.name`; arguments are the arrays, copied, and then the scalars."""
        case, _, name = kernel.partition(".")
        memory = Memory()
        self.arrays = {name: memory.array(values, name) for name, values in arrays.items()}
        arguments = [*self.arrays.values(), *scalars]
        simulator = Simulator(memory, schedule)
        return simulator.launch(
            self.library(case, mode), name, (grid,), (block,), arguments, shared
        )

    def faults(self, kernel: str, *arguments: Any, **options: Any) -> tuple[Finding, ...]:
        with pytest.raises(KernelFault) as caught:
            self.run(kernel, *arguments, **options)
        return caught.value.findings


def line(case: str, text: str) -> str:
    """`file:line` of the one line of a case that holds `text`."""
    lines = (CASES / f"{case}.cu").read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, each in enumerate(lines, 1) if text in each]
    return f"{case}.cu:{number}"
