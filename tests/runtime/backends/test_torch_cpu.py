"""The CPU backend against the float64 oracle, and against itself with other company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dspark.runtime.backends import torch_linear
from dspark.runtime.backends.base import KvStore, Reads
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.backends.rope import Rope
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.backends.torch_linear import (
    CpuLinear,
    RowRule,
    by_rule,
    first_rule_that_holds,
)

REFERENCE = ReferenceBackend()
PAGE = 16


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(ours: torch.Tensor, reference: np.ndarray, dtype: str = "float32") -> None:
    tolerance = {"float32": 2e-5, "bfloat16": 3e-2}[dtype]
    np.testing.assert_allclose(ours.double().numpy(), reference, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_linears_equal_the_oracle(dtype: str, rows: int, linears: str) -> None:
    backend = TorchCpuBackend(dtype, linears)  # type: ignore[arg-type]
    weight, more = random(33, 20, seed=1) / 5, random(7, 20, seed=2) / 5
    bias, x = random(40, seed=3), random(rows, 20, seed=4)
    weight, more, bias, x = (part.to(backend._dtype) for part in (weight, more, bias, x))
    for biases, parts in ((None, None), ([bias[:33], bias[33:]], [bias[:33], bias[33:]])):
        ours = backend.linear(x, backend.prepare_linear([weight, more], biases))
        expected = REFERENCE.linear(
            REFERENCE.parameter(x), REFERENCE.prepare_linear([weight, more], parts)
        )
        close(ours, expected, dtype)
        # F7: an unsupported format must not come out as zeros.
        assert ours.abs().min() > 0 or ours.abs().mean() > 0.1


def test_prepacked_linears_are_what_this_torch_has() -> None:
    assert torch_linear.packing_available()
    assert TorchCpuBackend().prepare_linear([random(8, 8)]).packed


def test_without_prepacked_linears_the_plain_ones_take_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_linear, "packing_available", lambda: False)
    assert not TorchCpuBackend().prepare_linear([random(8, 8)]).packed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(33, 20), (97, 40), (64, 64), (40, 3072), (260, 96)])
def test_h1_a_linears_rows_do_not_depend_on_their_number(
    dtype: torch.dtype, shape: tuple[int, int], linears: str
) -> None:
    linear = CpuLinear(random(*shape).to(dtype), None, packed=linears == "packed")
    x = random(131, shape[1], seed=1).to(dtype)
    alone = torch.cat([linear(row) for row in x.split(1)])
    for rows in (*range(2, 20), 31, 32, 33, 64, 130, 131):
        assert torch.equal(alone[:rows], linear(x[:rows])), rows


def test_h1_a_product_that_is_never_safe_is_refused() -> None:
    calls = iter(range(10_000))

    def unsafe(x: torch.Tensor) -> torch.Tensor:
        return x + next(calls)

    with pytest.raises(ArithmeticError, match="other bits at every row count"):
        first_rule_that_holds(unsafe, random(256, 5))


@pytest.mark.parametrize("rows", [1, 7, 255, 256, 257, 600])
def test_any_number_of_rows_comes_back(rows: int, linears: str) -> None:
    linear = CpuLinear(random(9, 12), None, packed=linears == "packed")
    torch.testing.assert_close(linear(random(rows, 12)), random(rows, 12) @ random(9, 12).T)


def test_h1_the_measurement_finds_the_cheapest_rule_that_holds() -> None:
    def safe_by_four(x: torch.Tensor) -> torch.Tensor:
        return x + (x.shape[0] % 4)

    def safe_up_to_forty(x: torch.Tensor) -> torch.Tensor:
        return x + (x.shape[0] > 40)

    assert first_rule_that_holds(lambda x: x, random(256, 5)) == RowRule(1, 256)
    assert first_rule_that_holds(safe_by_four, random(256, 5)) == RowRule(4, 256)
    assert first_rule_that_holds(safe_up_to_forty, random(256, 5)) == RowRule(1, 32)


def test_h1_rows_are_filled_up_to_four_where_one_is_not_safe() -> None:
    given: list[int] = []

    def product(x: torch.Tensor) -> torch.Tensor:
        given.append(len(x))
        return 2 * x

    for multiple, expected in (
        (1, [1, 2, 3, 4, 5, 6, 7]),
        (2, [4, 4, 4, 4, 6, 6, 8]),
        (8, [8] * 7),
    ):
        given.clear()
        for rows in range(1, 8):
            x = random(rows, 5, seed=rows)
            assert torch.equal(by_rule(product, x, RowRule(multiple, 256)), 2 * x)
        assert given == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [1, 5, 31, 32, 56, 100, 4099])
def test_h1_elementwise_functions_do_not_depend_on_the_array_around(size: int, dtype: str) -> None:
    backend = TorchCpuBackend(dtype)  # type: ignore[arg-type]
    x = backend.parameter(random(40, size, seed=1) * 3)
    for function in (backend.sigmoid, backend.tanh, torch.exp):
        together = function(x)
        for row in range(0, 40, 7):
            assert torch.equal(together[row], function(x[row : row + 1].clone())[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [2, 36, 56, 72, 200])
def test_h1_norms_and_swiglu_do_not_depend_on_the_other_rows(
    width: int, dtype: str, threads: int
) -> None:
    backend = TorchCpuBackend(dtype)  # type: ignore[arg-type]
    x = backend.parameter(random(1100, 2 * width))
    weight = backend.parameter(random(2 * width, seed=1))
    for function in (backend.swiglu, lambda x: backend.rms_norm(x, weight, 1e-6)):
        together = function(x)
        for row in (0, 3, *range(300, 800), 1098, 1099):
            assert torch.equal(together[row : row + 1], function(x[row : row + 1].clone())), threads
        assert torch.equal(together[5:12], function(x[5:12].clone()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_norms_rope_and_swiglu_equal_the_oracle(dtype: str) -> None:
    backend = TorchCpuBackend(dtype)  # type: ignore[arg-type]
    x = backend.parameter(random(5, 3, 24))
    wide, weight = REFERENCE.parameter(x), backend.parameter(random(24, seed=1))
    close(
        backend.rms_norm(x, weight, 1e-3),
        REFERENCE.rms_norm(wide, REFERENCE.parameter(weight), 1e-3),
        dtype,
    )
    close(backend.swiglu(x[:, 0]), REFERENCE.swiglu(wide[:, 0]), dtype)
    close(backend.sigmoid(x), REFERENCE.sigmoid(wide), dtype)
    close(backend.tanh(x), REFERENCE.tanh(wide), dtype)
    rope, positions = Rope(theta=1e4), [0, 1, 7, 30, 199]
    ours = backend.rotary(backend.rope_table(rope, 24, 200), positions)
    expected = REFERENCE.rotary(REFERENCE.rope_table(rope, 24, 200), positions)
    close(backend.rotate(x, ours), REFERENCE.rotate(wide, expected), dtype)


def test_heads_in_bfloat16_are_rounded_once() -> None:
    backend, heads, kv_heads, head_dim, rows = TorchCpuBackend("bfloat16"), 5, 2, 24, 11
    x = backend.parameter(random(rows, (heads + 2 * kv_heads) * head_dim, seed=1))
    weights = [backend.parameter(random(head_dim, seed=seed)) for seed in (2, 3)]

    def placed(backend: Any) -> tuple[Any, Any]:
        store = backend.kv_store(1, 1, 16, kv_heads, head_dim)
        slots = backend.slots(range(rows), store)
        rotary = backend.rotary(backend.rope_table(Rope(theta=1e4), head_dim, 16), range(rows))
        norms = backend.prepare_head_norms(
            *(backend.parameter(weight) for weight in weights), heads, kv_heads
        )
        given = backend.parameter(x)
        q = backend.place_heads(given, norms, 1e-6, rotary, store, 0, slots)
        return q, store.keys[0][0][:, :rows]

    for ours, oracle in zip(placed(backend), placed(REFERENCE), strict=True):
        assert ours.dtype is torch.bfloat16
        # Rounding what is in between too would move a third of them.
        nearest = torch.as_tensor(oracle).to(torch.bfloat16)
        assert (ours == nearest).double().mean() > 0.99


@pytest.mark.parametrize("kind", ["default", "yarn"])
def test_g1_g3_rope_equals_transformers(kind: str) -> None:
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    parameters = {"rope_type": kind, "rope_theta": 1e6}
    rope = Rope(theta=1e6)
    if kind == "yarn":
        extra = {"factor": 4.0, "original_max_position_embeddings": 32768}
        parameters |= extra
        rope = Rope(theta=1e6, kind="yarn", factor=4.0, original_max_position_embeddings=32768)
    config = Qwen3Config(head_dim=128, max_position_embeddings=131072, rope_parameters=parameters)
    positions = torch.tensor([[0, 1, 4096, 40000]])
    cos, sin = Qwen3RotaryEmbedding(config)(torch.zeros(1, 4, 1), positions)
    backend = TorchCpuBackend()
    table = backend.rope_table(rope, 128, 40001)
    ours = backend.rotary(table, positions[0].tolist())
    # float32 angles: at 40,000 a last bit of the frequency is worth 0.004.
    for row, tolerance in enumerate((1e-6, 1e-6, 5e-4, 5e-3)):
        signed = torch.cat([-sin[0, row, :64], sin[0, row, 64:]])
        torch.testing.assert_close(cos[0, row], ours[0][row, 0], atol=tolerance, rtol=0)
        torch.testing.assert_close(signed, ours[1][row, 0], atol=tolerance, rtol=0)
    if kind == "default":
        # A base of 10,000, where the file says a million, would be seen here.
        assert ours[0][2, 0, 5].item() == pytest.approx(np.cos(4096 * 1e6 ** (-10 / 128)), abs=1e-3)


def filled(backend: TorchCpuBackend, length: int, pages: list[int]) -> tuple[KvStore, KvStore]:
    """A store of the backend and one of the oracle with equal content, NaN where nobody wrote."""
    kv = backend.parameter(random(length, 4, 12, seed=5))
    slots = [pages[at // PAGE] * PAGE + at % PAGE for at in range(length)]
    ours = backend.kv_store(1, 12, PAGE, 2, 12)
    for tensor in (*ours.keys, *ours.values):
        tensor.fill_(torch.nan)
    backend.write_kv(ours, 0, backend.slots(slots, ours), kv)
    oracle = REFERENCE.kv_store(1, 12, PAGE, 2, 12)
    REFERENCE.write_kv(oracle, 0, REFERENCE.slots(slots, oracle), REFERENCE.parameter(kv))
    return ours, oracle


PAGES = [7, 2, 9, 0, 4]
READS = [
    Reads(PAGES, [0], [70]),
    Reads(PAGES, [0, 0, 0], [5, 6, 7]),
    Reads(PAGES, [30, 31, 0], [50, 50, 33]),
    Reads(PAGES, [69], [70]),
    Reads(PAGES, [0] * 9, list(range(17, 26))),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_equals_the_oracle_and_never_reads_what_nobody_wrote(dtype: str) -> None:
    backend = TorchCpuBackend(dtype)  # type: ignore[arg-type]
    ours, oracle = filled(backend, 70, PAGES)
    q = backend.parameter(random(17, 6, 12, seed=8))
    out = backend.attend(q, ours, 0, backend.attention_plan(READS, ours, 3))
    expected = REFERENCE.attend(
        REFERENCE.parameter(q), oracle, 0, REFERENCE.attention_plan(READS, oracle, 3)
    )
    close(out, expected, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_h1_attentions_rows_do_not_depend_on_the_company(dtype: str) -> None:
    backend = TorchCpuBackend(dtype)  # type: ignore[arg-type]
    store, _ = filled(backend, 70, PAGES)
    q = backend.parameter(random(24, 6, 12, seed=8))
    ends = [3, 16, 17, 32, 33, 48, 64, 70, *range(40, 56)]
    alone = torch.cat(
        [
            backend.attend(
                q[row : row + 1],
                store,
                0,
                backend.attention_plan([Reads(PAGES, [0], [end])], store, 3),
            )
            for row, end in enumerate(ends)
        ]
    )
    for split in ([24], [1, 23], [8, 8, 8], [3, 5, 7, 9], [2] * 12, [13, 1, 1, 9]):
        reads, at = [], 0
        for count in split:
            reads.append(Reads(PAGES, [0] * count, ends[at : at + count]))
            at += count
        together = backend.attend(q, store, 0, backend.attention_plan(reads, store, 3))
        assert torch.equal(alone, together), split


def test_argmax_takes_the_first_of_equals_and_shows_nan() -> None:
    backend = TorchCpuBackend()
    x = torch.tensor([[1.0, 5.0, 5.0], [0.0, torch.nan, 2.0], [-torch.inf, 3.0, 1.0]])
    for places, values in (backend.argmax(x), REFERENCE.argmax(x.double().numpy())):
        assert [1, 1, 1] == places.tolist()
        assert 5.0 == values[0]
        assert np.isnan(values[1])
