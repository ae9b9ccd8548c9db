from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dspark.kernels import bf16


def test_every_bfloat16_is_a_float32_and_back() -> None:
    bits = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    wide = bf16.from_bits(bits)

    theirs = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(theirs, wide)
    is_nan = np.isnan(wide)
    np.testing.assert_array_equal(bits[~is_nan], bf16.to_bits(wide[~is_nan]))
    assert np.isnan(bf16.from_bits(bf16.to_bits(wide[is_nan]))).all()


@given(st.integers(0, 2**32 - 1))
def test_rounding_is_torchs(word: int) -> None:
    value = np.array([word], np.uint32).view(np.float32)

    ours = bf16.from_bits(bf16.to_bits(value))

    theirs = torch.from_numpy(value).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(theirs, ours)


def test_a_number_alone_keeps_its_shape() -> None:
    assert () == bf16.to_bits(1.0).shape == bf16.from_bits(bf16.to_bits(1.0)).shape
    assert 0x3F80 == bf16.to_bits(1.0)


def test_a_tie_goes_to_the_even_one() -> None:
    assert 0x3F80 == bf16.to_bits(1 + 2.0**-8)
    assert 0x3F82 == bf16.to_bits(1 + 3 * 2.0**-8)
    assert 0x3F81 == bf16.to_bits(1 + 2.0**-8 + 2.0**-20)
