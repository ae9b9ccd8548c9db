"""Keys and values are read as they are kept only where that leaves a row's bits alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from dspark.runtime.backends import torch_attention_format
from dspark.runtime.backends.base import Reads
from dspark.runtime.backends.torch_attention_format import reading_format
from dspark.runtime.backends.torch_cpu import TorchCpuBackend

fused = torch.nn.functional.scaled_dot_product_attention
KV_HEADS, GROUP, HEAD_DIM, PAGE, LENGTH = 3, 2, 20, 16, 70


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Puts another function in the place of torch's attention, and forgets what was measured."""

    def replace(attention: Any) -> None:
        torch_attention_format._rows_hold.cache_clear()
        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)

    yield replace
    torch_attention_format._rows_hold.cache_clear()


def careless(q: torch.Tensor, *others: torch.Tensor, **mask: torch.Tensor) -> torch.Tensor:
    """Attention that is exact in float32, and in bfloat16 has another kernel from nine rows on."""
    out = fused(q, *others, **mask)
    return out + 2**-6 if q.dtype is torch.bfloat16 and q.shape[2] > 8 * GROUP else out


def attended(rows: int) -> torch.Tensor:
    """What 40 rows get of one store, so many rows at a time."""
    backend = TorchCpuBackend("bfloat16")
    pages = range(-(-LENGTH // PAGE))
    store = backend.kv_store(1, len(pages), PAGE, KV_HEADS, HEAD_DIM)
    generator = torch.Generator().manual_seed(3)
    store.both[0].copy_(torch.randn(store.both[0].shape, generator=generator))
    q = torch.randn(40, KV_HEADS * GROUP, HEAD_DIM, generator=generator).to(torch.bfloat16)
    passes = []
    for part in torch.split(q, rows):
        reads = Reads(pages, [0] * len(part), [LENGTH] * len(part))
        plan = backend.attention_plan([reads], store, GROUP)
        passes.append(backend.attend(part, store, 0, plan))
    return torch.cat(passes)


def test_h1_a_kernel_that_mixes_rows_up_is_given_float32(
    answers: Callable[[Any], None], threads: int
) -> None:
    answers(careless)
    assert reading_format(torch.bfloat16, KV_HEADS, GROUP, HEAD_DIM, threads) is torch.float32
    seen: set[torch.dtype] = set()

    def watched(q: torch.Tensor, *others: torch.Tensor, **mask: torch.Tensor) -> torch.Tensor:
        seen.add(q.dtype)
        assert {other.dtype for other in others} == {q.dtype}
        return careless(q, *others, **mask)

    alone, together = attended(1), attended(40)
    assert torch.equal(alone, together)
    assert alone.dtype is torch.bfloat16
    answers(watched)
    reading_format(torch.bfloat16, KV_HEADS, GROUP, HEAD_DIM, threads)
    seen.clear()
    attended(40)
    assert seen == {torch.float32}


def test_h1_queries_are_measured_where_a_layer_leaves_them(
    answers: Callable[[Any], None], threads: int
) -> None:
    """A single row's are used where they lie, before its keys, and those of more are copied."""

    def particular(q: torch.Tensor, *others: torch.Tensor, **mask: torch.Tensor) -> torch.Tensor:
        out = fused(q, *others, **mask)
        return out if q.dtype is torch.float32 or q.is_contiguous() else out + 2**-6

    answers(particular)
    assert reading_format(torch.bfloat16, KV_HEADS, GROUP, HEAD_DIM, threads) is torch.float32


def test_a_kernel_that_keeps_rows_apart_is_given_what_is_kept(
    answers: Callable[[Any], None], threads: int
) -> None:
    def careful(q: torch.Tensor, *others: torch.Tensor, **mask: torch.Tensor) -> torch.Tensor:
        seen.add(q.dtype)
        wide = (part.double() for part in (q, *others))
        return fused(*wide, attn_mask=mask["attn_mask"].double()).to(q.dtype)

    seen: set[torch.dtype] = set()
    answers(careful)
    assert reading_format(torch.bfloat16, KV_HEADS, GROUP, HEAD_DIM, threads) is torch.bfloat16
    seen.clear()
    attended(8)
    assert seen == {torch.bfloat16}


def test_float32_is_read_as_it_is_kept_and_not_measured(answers: Callable[[Any], None]) -> None:
    def never(*_: torch.Tensor, **__: torch.Tensor) -> torch.Tensor:
        raise AssertionError

    answers(never)
    threads = torch.get_num_threads()
    assert reading_format(torch.float32, KV_HEADS, GROUP, HEAD_DIM, threads) is torch.float32


def test_it_is_measured_while_a_layer_loads(answers: Callable[[Any], None], threads: int) -> None:
    answers(fused)
    weight = torch.ones(HEAD_DIM, dtype=torch.bfloat16)
    backend = TorchCpuBackend("bfloat16")
    backend.prepare_head_norms(weight, weight, KV_HEADS * GROUP, KV_HEADS)
    assert torch_attention_format._rows_hold.cache_info().misses == 1
    attended(8)
    assert torch_attention_format._rows_hold.cache_info().misses == 1, threads
