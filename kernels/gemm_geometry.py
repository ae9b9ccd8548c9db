"""How the kernels around gemm.cuh are launched: the grid, the block and the shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.kernels.errors import LaunchError

MOST_ROWS = 16
"""Rows that one launch takes: the columns of two tensor-core tiles."""

STAGES = 6
CHANNEL_BYTES = 256
"""How many pieces of the weights are under way at once, and a channel's bytes in each of them."""

_MOST_WARPS = 4
_TILE = 16
"""Rows of weights that a warp has."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a launch is given besides arguments; the grid is the `blocks` of gemm_argmax."""

    grid: int
    block: int
    smem: int


def geometry(
    rows: int,
    n: int,
    k: int,
    *,
    weight_bytes: int,
    multiprocessors: int,
    most_shared: int,
    paired: bool = False,
) -> Geometry:
    """The launch of a product of `rows` rows with weights [n, k] of `weight_bytes` bytes each.

    `paired`: weights [2 * n, k], n gates and n ups, as gemm_silu_mul takes them. `most_shared` is
    what a block of the device may have. Results do not depend on the geometry, to the last bit.

    A block with more warps reads the activations for more channels at once, from the second-level
    cache; fewer warps spread a narrow matrix over more of the device.

    Raises:
        LaunchError: the kernels do not take such sizes.
    """
    values = 16 // weight_bytes
    if not 1 <= rows <= MOST_ROWS:
        raise LaunchError(f"a product takes 1 to {MOST_ROWS} rows, not {rows}")
    if n < 1 or n % 8 or k < 1 or k % values:
        raise LaunchError(
            f"weights of {weight_bytes} bytes are [a multiple of 8, a multiple of {values}],"
            f" not [{n}, {k}]"
        )
    depth = CHANNEL_BYTES // weight_bytes
    stages = min(STAGES, -(-k // depth))
    warps_in_all = -(-n * (1 + paired) // _TILE)
    for warps in range(_MOST_WARPS, 0, -1):
        smem = stages * (warps * _TILE * CHANNEL_BYTES + rows * depth * 2)
        grid = -(-warps_in_all // warps)
        if smem <= most_shared and (warps == 1 or 4 * grid >= 3 * multiprocessors):
            return Geometry(grid, 32 * warps, smem)
    raise LaunchError(
        f"a product of {rows} rows needs {smem} bytes of shared memory, beyond {most_shared}"
    )
