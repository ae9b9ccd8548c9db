"""Shared memory of the kernels that keep whole rows of a model in it: the wider, the more.

Attention and products choose geometries that fit into the least that a GPU with kernels has. Here
a model may be too wide for a GPU, and what is too wide is told from what the GPU says it has.
"""

from __future__ import annotations

_NORM_OWN = 128
_STEP_OWN = {8: 384, 16: 640}
"""Bytes that the kernels declare themselves, which count too. By compiled code, for a Markov step
rounded up to where the latents begin."""

_VECTOR_BYTES = 16
_VECTOR = 8
"""Values of a vector."""


def norm_bytes(width: int) -> int:
    """What `rms_norm` and `add_rms_norm` are given for rows of `width` values."""
    return 2 * width


def widest_norm(most_shared: int) -> int:
    """The most values of a row that fit where a block may have `most_shared` bytes."""
    return (most_shared - _NORM_OWN) // norm_bytes(_VECTOR) * _VECTOR


def step_requests(count: int) -> int:
    """How many requests the Markov step has room for that takes `count`, up to 16, at once."""
    return 8 if count <= 8 else 16


def step_bytes(rank: int, requests: int) -> int:
    """What `markov_step_8` or `_16`, by `requests`, is given for latents of `rank` values."""
    # In vectors; markov.cu says why.
    pitch = -(-rank // (8 * _VECTOR)) * 8 + 4
    return _VECTOR_BYTES * requests * pitch


def highest_rank(most_shared: int, requests: int) -> int:
    """The most values of a latent that fit where a block may have `most_shared` bytes."""
    pitch = (most_shared - _STEP_OWN[requests]) // (_VECTOR_BYTES * requests)
    return (pitch - 4) // 8 * 8 * _VECTOR
