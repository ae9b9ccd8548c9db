"""What vLLM's own `SpeculativeConfig` makes of drafts: one question per line in, one answer out.

Run as `python -m tests.support.vllm_answers FOLDER`, with FOLDER from `tests.support.vllm_wheel`.
A question is a JSON object as in the recorded cases of a parity pack: `config`, `flags` and `path`.
The flags are those of the speculative config, and more: `target`, a key of `TARGETS`;
`target_length`; and `draft`, for a draft that is no folder: `in-target` (`config` is the target's),
`ngram` or `module`. An answer holds the final `method`, `architectures` and `model_type`, or the
`error`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.vllm_wheel import make_importable

PLAIN = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "num_target_layers": 1,
}
"""Sizes that a config needs before vLLM looks at anything else; a question's own keys win."""

FITTING = ("vocab_size", "max_position_embeddings")

TARGETS: dict[str, dict[str, Any]] = {
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    "deepseek_v4": {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4"},
    "deepseek_v41": {"architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41"},
    "qwen3_omni": {
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "model_type": "qwen3_omni_moe",
    },
}


def _write(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    if "speculators_config" in config and "model_type" not in config:
        layers = config.get("transformer_layer_config", {"model_type": "qwen3"})
        return {**config, "transformer_layer_config": {**PLAIN, **layers}}
    return {**PLAIN, **config}


class Asker:
    """Holds the targets, which are the same for all questions."""

    def __init__(self, top: Path) -> None:
        from vllm.config import ModelConfig, ParallelConfig

        self.top = top
        self.parallel = ParallelConfig()
        self.targets: dict[tuple[object, ...], Any] = {}
        self.model_config = ModelConfig

    def target(self, name: str, draft: dict[str, Any]) -> Any:
        """A target as long as the draft and with its vocabulary: no size gets in the way."""
        name = name if name in TARGETS else "qwen3"
        sizes = {key: draft[key] for key in FITTING if isinstance(draft.get(key), int)}
        key = (name, *sizes.values())
        if key not in self.targets:
            folder = self.top / "targets" / str(len(self.targets))
            self.targets[key] = self._model(_write(folder, {**PLAIN, **TARGETS[name], **sizes}))
        return self.targets[key]

    def _model(self, path: str) -> Any:
        return self.model_config(model=path, skip_tokenizer_init=True, dtype="float32")

    def ask(self, number: int, question: dict[str, Any]) -> dict[str, Any]:
        from vllm.config import SpeculativeConfig

        flags = dict(question.get("flags") or {})
        draft = flags.pop("draft", None)
        name = flags.pop("target", "qwen3")
        length = flags.pop("target_length", None)
        folder = self.top / str(number) / (question.get("path") or "neutral")
        path = _write(folder, _completed(question["config"]))
        try:
            if draft == "in-target":
                target = self._model(path)
            else:
                sizes = _completed(question["config"])
                sizes |= {"max_position_embeddings": length} if length else {}
                target = self.target(name, sizes)
            if draft != "in-target":
                flags["model"] = {"ngram": "ngram", "module": "package.Proposer"}.get(draft, path)
            spec = SpeculativeConfig(
                target_model_config=target, target_parallel_config=self.parallel, **flags
            )
        except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
            text = str(error).replace(str(folder), "FOLDER")
            return {"error": f"{type(error).__name__}: {text}"}
        found = spec.draft_model_config
        return {
            "method": spec.method,
            "architectures": list(found.hf_config.architectures) if found else [],
            "model_type": found.hf_config.model_type if found else "",
            "class": found.architecture if found else "",
            "tokens": spec.num_speculative_tokens,
        }


def main() -> None:
    make_importable(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="questions-") as top:
        asker = Asker(Path(top))
        for number, line in enumerate(sys.stdin):
            sys.stdout.write(json.dumps(asker.ask(number, json.loads(line))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
