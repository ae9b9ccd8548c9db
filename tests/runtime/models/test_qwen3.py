"""The target against transformers' Qwen3, and its taps against a target that counts its layers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from dspark.runtime.backends.base import Backend
from dspark.runtime.backends.reference import ReferenceBackend
from dspark.runtime.backends.rope import Rope
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.errors import WeightError
from dspark.runtime.models.config import TargetConfig
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.models.rows import Segment
from tests.runtime.tiny import TARGET, Tensors, target_model, target_tensors

YARN = Rope(theta=10000.0, kind="yarn", factor=4.0, original_max_position_embeddings=16)

CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "no-gqa": {"num_key_value_heads": 6},
    "one-key-head": {"num_key_value_heads": 1},
    "head-dim-is-a-share": {"hidden_size": 48, "num_attention_heads": 4, "head_dim": 12},
    "bias": {"attention_bias": True},
    "yarn": {"rope": YARN},
    "sliding": {
        "layer_types": ("sliding_attention", "full_attention", "sliding_attention"),
        "sliding_window": 7,
    },
}


def hf_logits(config: TargetConfig, tensors: Tensors, ids: list[int]) -> torch.Tensor:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    rope: dict[str, Any] = {"rope_type": config.rope.kind, "rope_theta": config.rope.theta}
    if config.rope.kind == "yarn":
        rope["factor"] = config.rope.factor
        rope["original_max_position_embeddings"] = config.rope.original_max_position_embeddings
    kept = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    kept |= {"rope_parameters": rope, "layer_types": list(config.layer_types)}
    del kept["rope"]
    model = Qwen3ForCausalLM(
        Qwen3Config(**kept, use_sliding_window=config.sliding_window is not None)
    ).eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert missing == (["lm_head.weight"] if config.tie_word_embeddings else [])
    model.tie_weights()
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits


def our_logits(model: Qwen3Target, ids: list[int]) -> np.ndarray:
    store = model.new_store(5, 16)
    passed = model.forward([Segment(ids, 0, [4, 0, 3, 1])], store)
    return model.backend.host(model.logits(passed.hidden))


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_transformers(name: str, linears: str) -> None:
    config = dataclasses.replace(TARGET, **CONFIGS[name])
    tensors = target_tensors(config, seed=7)
    ids = [int(token) for token in np.random.default_rng(1).integers(0, 97, 50)]
    expected = hf_logits(config, tensors, ids).numpy()
    backend = TorchCpuBackend("float32", linears)  # type: ignore[arg-type]
    for chosen, tolerance in ((backend, 1e-4), (ReferenceBackend(), 1e-4)):
        ours = our_logits(target_model(chosen, config, tensors), ids)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance)
    assert np.abs(expected).max() > 3, "logits this small would hide an error"


def test_bfloat16_stays_close_to_float32() -> None:
    ids = list(range(3, 40))
    exact = our_logits(target_model(ReferenceBackend()), ids)
    rough = our_logits(target_model(TorchCpuBackend("bfloat16")), ids)
    assert np.abs(exact - rough).max() < 0.35
    assert np.corrcoef(exact.ravel(), rough.ravel())[0, 1] > 0.999


def counting_target(backend: Backend, taps: tuple[int, ...]) -> Qwen3Target:
    """A target whose residual stream is 1 after the embedding, and to which layer i adds 10^i."""
    config = dataclasses.replace(
        TARGET, num_hidden_layers=6, layer_types=("full_attention",) * 6, rms_norm_eps=1e-12
    )
    tensors = target_tensors(config)
    tensors["model.embed_tokens.weight"].fill_(1.0)
    silu_of_one = 1 / (1 + np.exp(-1.0))
    for name, tensor in tensors.items():
        if "norm" in name:
            tensor.fill_(1.0)
        elif "o_proj" in name:
            tensor.fill_(0.0)
        elif "gate_proj" in name or "up_proj" in name:
            tensor.fill_(1 / config.hidden_size)
        elif "down_proj" in name:
            layer = int(name.split(".")[2])
            tensor.fill_(10.0**layer / config.intermediate_size / silu_of_one)
    return target_model(backend, config, tensors, taps=taps)


@pytest.mark.parametrize("backend", [ReferenceBackend(), TorchCpuBackend()], ids=lambda b: b.name)
def test_c1_c3_tap_l_is_the_output_of_layer_l(backend: Backend) -> None:
    model = counting_target(backend, (-1, 1, 3, 5))
    passed = model.forward([Segment([8, 9, 10], 0, [1])], model.new_store(2, 16))
    features = backend.host(passed.features).reshape(3, 4, TARGET.hidden_size)
    expected = np.array([1, 12, 1112, 111112], dtype=np.float32)
    # The last layer's tap is not normalised: the final norm would make it 1.
    np.testing.assert_allclose(
        features, np.broadcast_to(expected[:, None], features.shape), rtol=1e-5
    )


def test_c2_shifted_taps_give_other_digits() -> None:
    model = counting_target(ReferenceBackend(), (0, 2, 4))
    passed = model.forward([Segment([8], 0, [1])], model.new_store(2, 16))
    features = model.backend.host(passed.features).reshape(3, TARGET.hidden_size)
    np.testing.assert_allclose(features[:, 0], [2, 112, 11112], rtol=1e-6)


def test_without_taps_there_are_no_features() -> None:
    model = target_model(taps=())
    assert model.forward([Segment([8], 0, [1])], model.new_store(2, 16)).features is None


@pytest.mark.parametrize("tap", [3, 33, -2])
def test_c5_a_tap_below_the_target_is_refused(tap: int) -> None:
    with pytest.raises(WeightError, match=f"taps layer {tap} of a target with 3 layers"):
        target_model(taps=(1, tap))


def test_a_present_head_wins_over_the_tie() -> None:
    tied = dataclasses.replace(TARGET, tie_word_embeddings=True)
    untied = our_logits(target_model(config=TARGET, tensors=target_tensors(TARGET)), [1, 2])
    with_head = our_logits(target_model(config=tied, tensors=target_tensors(TARGET)), [1, 2])
    np.testing.assert_array_equal(untied, with_head)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("lm_head.weight"), "`lm_head.weight` is missing, and the embedding"),
        (lambda t: t.pop("model.norm.weight"), "`model.norm.weight` is missing"),
        (lambda t: t.update(extra=torch.zeros(1)), "no part of the model takes tensor `extra`"),
        (
            lambda t: t.update({"model.layers.1.self_attn.q_proj.weight": torch.zeros(40, 40)}),
            r"`model.layers.1.self_attn.q_proj.weight` has shape \[40, 40\], not \[72, 40\]",
        ),
    ],
)
def test_e12_e15_every_tensor_is_taken_with_its_own_shape(change: Any, message: str) -> None:
    tensors = target_tensors()
    change(tensors)
    with pytest.raises(WeightError, match=message):
        target_model(tensors=tensors)


def test_h1_h3_logits_do_not_depend_on_chunks_or_company(linears: str) -> None:
    model = target_model(TorchCpuBackend("float32", linears))  # type: ignore[arg-type]
    ids = [int(token) for token in np.random.default_rng(2).integers(0, 97, 60)]
    whole = our_logits(model, ids)
    for chunks in ([1] * 60, [59, 1], [7] * 8 + [4], [33, 27]):
        store = model.new_store(12, 16)
        rows, at = [], 0
        for count in chunks:
            company = Segment(ids[:5], at % 7, [9, 10, 11, 8])
            passed = model.forward(
                [company, Segment(ids[at : at + count], at, [4, 0, 3, 1])], store
            )
            rows.append(model.backend.host(model.logits(passed.hidden))[5:])
            at += count
        np.testing.assert_array_equal(whole, np.concatenate(rows))
