"""bf16, half and fp8 to the last bit, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.kernels.host.bench import Array, Bench


def floats_worth_trying() -> Array:
    """Random patterns, every bf16, half and fp8, the ties between them, and what else is odd."""
    random = np.random.default_rng(3).integers(0, 2**32, 40_000, dtype=np.uint32)
    codes = np.arange(2**16, dtype=np.uint32)
    bf16 = codes << 16
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    with np.errstate(over="ignore"):  # beyond the largest is infinity, which rounds to itself
        spacing = np.abs(np.spacing(halves.astype(np.float16)).astype(np.float32))
    eights = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    finite = np.sort(eights[np.isfinite(eights)])
    between = (finite[1:] + finite[:-1]) / 2
    values = [
        random.view(np.float32),
        bf16.view(np.float32),
        (bf16 + 0x7FFF).view(np.float32),
        (bf16 + 0x8000).view(np.float32),
        (bf16 + 0x8001).view(np.float32),
        halves,
        halves + spacing / 2,
        np.nextafter(halves + spacing / 2, np.float32(0)),
        finite,
        between,
        np.nextafter(between, np.float32(np.inf)),
        np.nextafter(between, np.float32(-np.inf)),
        np.array(
            [0.0, -0.0, 448, 464, 465, 480, 65504, 65519.996, 65520, 1e30, np.inf], np.float32
        ),
        -np.array([448, 464, 465, 480, 65504, 65519.996, 65520, 1e30, np.inf], "f4"),
        np.array([np.nan, 2.0**-149, 2.0**-126, 2.0**-25, 2.0**-24, 2.0**-10, 2.0**-9]).astype(
            "f4"
        ),
    ]
    return np.concatenate(values).astype(np.float32)


@pytest.fixture(scope="module")
def floats() -> Array:
    return floats_worth_trying()


def narrowed(bench: Bench, floats: Array) -> dict[str, Array]:
    count = len(floats)
    bench.run(
        "numbers.narrow",
        {
            "from": floats,
            "bf16": np.zeros(count, np.uint16),
            "half": np.zeros(count, np.uint16),
            "fp8": np.zeros(count, np.uint8),
        },
        np.int32(count),
        mode="fast",
    )
    return bench.arrays


def test_a_float_becomes_bf16_as_in_pytorch(bench: Bench, floats: Array) -> None:
    expected = torch.from_numpy(floats).bfloat16().view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(floats)
    assert number.sum() < len(number)

    got = narrowed(bench, floats)["bf16"]

    np.testing.assert_array_equal(expected[number], got[number])
    np.testing.assert_array_equal(0x7FFF, got[~number])


def test_a_float_becomes_half_as_in_numpy(bench: Bench, floats: Array) -> None:
    with np.errstate(over="ignore"):
        expected = floats.astype(np.float16).view(np.uint16)
    number = ~np.isnan(floats)

    got = narrowed(bench, floats)["half"]

    np.testing.assert_array_equal(expected[number], got[number])
    np.testing.assert_array_equal(0x7FFF, got[~number])


def test_a_float_becomes_fp8_as_in_pytorch_and_saturates(bench: Bench, floats: Array) -> None:
    # PyTorch is asked only where it cannot overflow; CUDA's conversion stops at 448.
    fits = np.abs(floats) <= 464
    expected = torch.from_numpy(floats[fits]).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    beyond = np.abs(floats) > 464

    got = narrowed(bench, floats)["fp8"]

    np.testing.assert_array_equal(expected, got[fits])
    np.testing.assert_array_equal(np.where(floats[beyond] > 0, 0x7E, 0xFE), got[beyond])
    np.testing.assert_array_equal(0x7F, got[np.isnan(floats)])


def test_every_code_has_the_value_that_pytorch_and_numpy_give_it(bench: Bench) -> None:
    codes = np.arange(2**16, dtype=np.uint16)
    results = {name: np.zeros(2**16, np.float32) for name in ("bf16", "half")}
    eights = np.arange(256, dtype=np.uint8)

    bench.run(
        "numbers.widen",
        {"codes": codes, **results, "fp8": np.zeros(256, np.float32)},
        np.int32(2**16),
        mode="fast",
    )

    bf16 = torch.from_numpy(codes.view(np.int16)).view(torch.bfloat16).float().numpy()
    fp8 = torch.from_numpy(eights).view(torch.float8_e4m3fn).float().numpy()
    for expected, got in [
        (bf16, bench.arrays["bf16"]),
        (codes.view(np.float16).astype(np.float32), bench.arrays["half"]),
        (fp8, bench.arrays["fp8"]),
    ]:
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(expected), np.isnan(got))
        np.testing.assert_array_equal(expected[number].view("u4"), got[number].view("u4"))


def test_packed_values_keep_their_order(bench: Bench) -> None:
    eight = torch.arange(1.0, 9.0).bfloat16()
    four = torch.tensor([0.5, -1.5, 448.0, 2.0**-9]).to(torch.float8_e4m3fn)
    words = np.zeros(8, np.uint32)
    words[:4] = eight.view(torch.int32).numpy().view(np.uint32)
    words[4] = four.view(torch.int32).numpy().view(np.uint32)[0]

    bench.run(
        "numbers.packs",
        {
            "from": words,
            "to": np.zeros(4, np.uint32),
            "values": np.zeros(12, np.float32),
            "pairs": np.zeros(1, np.uint32),
        },
        block=1,
    )

    np.testing.assert_array_equal(words[:4], bench.arrays["to"])
    np.testing.assert_array_equal([*eight.tolist(), *four.float().tolist()], bench.arrays["values"])
    assert words[1] == bench.arrays["pairs"][0]
