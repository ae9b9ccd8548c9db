"""What the decode benchmark compares with, on the same weights: transformers, llama.cpp, memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

LOOKUPS = (3, 7, 10)
"""Draft lengths that transformers' prompt look-up is tried with."""


@dataclass(frozen=True, slots=True)
class Transformers:
    """A model in transformers, decoding greedily with its KV cache."""

    model: Any

    @classmethod
    def open(cls, folder: Path, dtype: torch.dtype) -> Transformers:
        """The checkpoint in `folder`."""
        transformers.utils.logging.disable_progress_bar()
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        return cls(model.eval())

    def decoder(self, **assistant: Any) -> Callable[[Sequence[int], int], Sequence[int]]:
        """Greedy decoding, with an assistant as `generate` takes one, or without."""

        def decode(prompt: Sequence[int], count: int) -> Sequence[int]:
            with torch.inference_mode():
                out = self.model.generate(
                    torch.tensor([prompt]),
                    attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                    max_new_tokens=count,
                    eos_token_id=None,
                    pad_token_id=0,
                    do_sample=False,
                    **assistant,
                )
            ids: list[int] = out[0, len(prompt) :].tolist()
            return ids

        return decode


def assistants() -> dict[str, dict[str, int]]:
    """Every assistant that transformers can make of the target alone.

    It cannot run a block draft, and no smaller causal model of this vocabulary exists; what is
    left is its look-up in the prompt.
    """
    return {f"prompt look-up of {n}": {"prompt_lookup_num_tokens": n} for n in LOOKUPS}


def random_qwen3(dtype: torch.dtype) -> Any:
    """A Qwen3ForCausalLM of Qwen3-0.6B's shape; seeded random weights, tied head."""
    config = transformers.Qwen3Config(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(config).to(dtype).eval()


def llama_cpp_missing() -> str | None:
    """Why llama.cpp cannot be measured here, or None if it can."""
    missing = [name for name in ("llama_cpp", "gguf") if find_spec(name) is None]
    if not missing:
        return None
    return f"no module {' and '.join(missing)}; pip install '.[bench-llama]' builds it in minutes"


class LlamaCpp:
    """llama.cpp on a BF16 GGUF file of a transformers model's weights."""

    def __init__(self, model: Any, path: Path) -> None:
        write_gguf(model, path)
        self._path = str(path)

    def decoders(self) -> dict[str, Callable[[Sequence[int], int], Sequence[int]]]:
        """Plain decoding, and with the draft mode that its Python package has."""
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        plain = self._open()
        lookup = self._open(draft_model=LlamaPromptLookupDecoding(num_pred_tokens=7))
        return {"llama.cpp": _by_llama(plain), "llama.cpp, prompt look-up of 7": _by_llama(lookup)}

    def _open(self, **how: Any) -> Any:
        from llama_cpp import Llama

        threads = torch.get_num_threads()
        return Llama(
            self._path, n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False, **how
        )


def _by_llama(llama: Any) -> Callable[[Sequence[int], int], Sequence[int]]:
    def decode(prompt: Sequence[int], count: int) -> Sequence[int]:
        tokens: list[int] = []
        for token in llama.generate(list(prompt), temp=0.0, repeat_penalty=1.0):
            tokens.append(token)
            if len(tokens) == count:
                break
        return tokens

    return decode


def read_speeds(counts: Sequence[int]) -> dict[int, float]:
    """Bytes a second that torch reads from memory, by number of threads: the floor of a pass.

    The best of several turns over 1 GB, more than any cache holds.
    """
    before = torch.get_num_threads()
    words = torch.ones(250_000_000)
    best = dict.fromkeys(counts, 0.0)
    try:
        for _ in range(4):
            for threads in counts:
                torch.set_num_threads(threads)
                start = time.perf_counter()
                words.sum()
                seconds = time.perf_counter() - start
                best[threads] = max(best[threads], 4 * len(words) / seconds)
    finally:
        torch.set_num_threads(before)
    return best


# llama.cpp's names of a Qwen3 layer's tensors.
_LAYER: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(model: Any, path: Path) -> None:
    """The model as a BF16 GGUF file (norms in float32), with a vocabulary of placeholders:
    it is only ever asked for ids.
    """
    import gguf

    config = model.config
    out = gguf.GGUFWriter(str(path), "qwen3")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_key_length(config.head_dim)
    out.add_value_length(config.head_dim)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list([f"t{number}" for number in range(config.vocab_size)])
    out.add_token_types([gguf.TokenType.NORMAL] * config.vocab_size)
    out.add_token_merges(["t 0"])
    out.add_eos_token_id(config.vocab_size - 1)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue  # tied: llama.cpp falls back to the embedding
        kind = gguf.GGMLQuantizationType.BF16
        if tensor.dim() == 1:
            out.add_tensor(_gguf_name(name), tensor.float().numpy())
            continue
        words = tensor.bfloat16().contiguous().view(torch.int16).numpy().view(np.uint8)
        out.add_tensor(_gguf_name(name), words, raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _gguf_name(name: str) -> str:
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{_LAYER[part]}.weight"
