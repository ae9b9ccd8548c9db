"""How large each step is, on a GPU and in a rehearsal on the simulator."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers that differ between the two; times that are measured differ by millions."""

    repeats: int
    read_bytes: int
    """What is read to learn the bandwidth; less where the memory has less free."""
    products: dict[str, tuple[int, int]]
    """Channels and depth of the products, by what they are for in the model."""
    rotated_bytes: int
    """How much of weights a product goes through before it comes to the first again."""
    timed_bytes: int
    """How much of weights is timed at once: what it costs to wait for the device is to be small."""
    rows: tuple[int, ...]
    launches: int
    vector_files: tuple[str, ...]
    """The tests of kernels to run; none: all that are not slow."""
    prompts: int
    new_tokens: int
    context: int
    shape: str
    """Which of the shapes in `qwen3_8b.py` is decoded in."""


FULL = Sizes(
    repeats=10,
    read_bytes=8 * GIB,
    products={
        "qkv": (6144, 4096),
        "o": (4096, 4096),
        "gate_up": (24576, 4096),
        "down": (4096, 12288),
        "lm_head": (151936, 4096),
    },
    # Several times what any GPU's cache holds.
    rotated_bytes=GIB // 2,
    timed_bytes=8 * GIB,
    rows=(1, 8, 16),
    launches=328,
    vector_files=(),
    prompts=8,
    new_tokens=64,
    context=2048,
    shape="Qwen3-8B",
)
TINY = Sizes(
    repeats=1,
    read_bytes=1 << 16,
    products={"qkv": (48, 128), "down": (24, 272)},
    rotated_bytes=1 << 15,
    timed_bytes=1 << 16,
    rows=(1, 8),
    launches=5,
    vector_files=("tests/kernels/test_norm.py", "tests/kernels/test_rows.py"),
    prompts=1,
    new_tokens=3,
    context=20,
    shape="tiny",
)
