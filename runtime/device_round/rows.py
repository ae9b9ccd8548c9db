"""Where the rows of a pass go and what they see, reckoned on the device from what it holds."""

from __future__ import annotations

from dspark.kernels.arrays import DeviceArray
from dspark.kernels.attention_geometry import SPLIT
from dspark.runtime.backends.cuda import CudaBackend, Rotary
from dspark.runtime.backends.cuda_attention import Run
from dspark.runtime.device_round.state import State
from dspark.runtime.models.config import DecoderConfig
from dspark.runtime.models.decoder import RowPlan


class Rows:
    """Rows of requests whose tables have `table_pages` pages; `scratch_slot` is nobody's."""

    def __init__(
        self, backend: CudaBackend, *, page_size: int, table_pages: int, scratch_slot: int
    ) -> None:
        self._backend = backend
        self._page_size = page_size
        self._table_pages = table_pages
        self._scratch_slot = scratch_slot

    def plan(
        self,
        state: State,
        width: int,
        rows_of: DeviceArray,
        config: DecoderConfig,
        rope_table: DeviceArray,
        causal: tuple[bool, bool],
    ) -> RowPlan:
        """Where the rows of a pass go and what they see.

        `causal` is about the layers that see everything, and those with a window.
        """
        rotary, slots = self.place(state, width, rows_of, rope_table)
        windows = {config.window(layer) for layer in range(config.num_hidden_layers)}
        attention = {
            window: [self._see(state, width, rows_of, window, causal[window is not None])]
            for window in sorted(windows, key=lambda window: window or 0)
        }
        return RowPlan(slots, rotary, attention)

    def place(
        self, state: State, width: int, rows_of: DeviceArray, rope_table: DeviceArray
    ) -> tuple[Rotary, DeviceArray]:
        """Positions and slots of the rows; those past `rows_of` go where nobody looks."""
        requests = state.lengths.shape[0]
        at, slots = (
            self._backend.scratch.empty(name, (requests * width,), "i32")
            for name in ("row positions", "row slots")
        )
        self._backend.device.kernel("place_rows")(
            *over(requests * width),
            (
                *(state.lengths, rows_of, state.tables, at, slots),
                *(requests, width, self._table_pages, self._page_size, self._scratch_slot),
            ),
        )
        return Rotary(rope_table, at), slots

    def _see(
        self, state: State, width: int, rows_of: DeviceArray, window: int | None, causal: bool
    ) -> Run:
        requests, positions = state.lengths.shape[0], self._table_pages * self._page_size
        begins, ends = (
            self._backend.scratch.empty(f"row {name} {window}", (requests, width), "i32")
            for name in ("begins", "ends")
        )
        self._backend.device.kernel("see_rows")(
            *over(requests * width),
            (
                *(state.lengths, rows_of, begins, ends),
                *(requests, width, positions, window or 0, int(causal)),
            ),
        )
        return Run(0, requests, width, state.tables, begins, ends, -(-positions // SPLIT))


def over(values: int) -> tuple[int, int]:
    """Grid and block of a kernel that takes one value a thread."""
    return -(-values // 256), min(256, -(-values // 32) * 32)
