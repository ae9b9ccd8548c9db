"""Small pairs with true weights, drawn at random, and a tokenizer: what can really be loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.support.configs import Config, with_keys, write_config
from tests.support.pairs import TINY, TINY_SHAPES, TINY_TARGET, WEIGHTS, target_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Shapes = dict[str, tuple[int, ...]]
Tensors = dict[str, torch.Tensor]

EOS = 152
TARGET: Config = with_keys(TINY_TARGET, eos_token_id=EOS)


def drawn(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Tensors:
    """Norms around 1, and matrices that keep the scale of what they map."""
    generator = torch.Generator().manual_seed(seed)

    def one(shape: tuple[int, ...]) -> torch.Tensor:
        values = torch.randn(shape, generator=generator)
        values = 1 + 0.2 * values if len(shape) == 1 else values * shape[-1] ** -0.5
        return values.to(torch.bfloat16)

    return {name: one(shape) for name, shape in shapes.items()}


def save(folder: Path, config: Config, tensors: Mapping[str, Any]) -> Path:
    write_config(folder, config)
    save_file(dict(tensors), folder / WEIGHTS, {"format": "pt"})
    return folder


def write_target(folder: Path, config: Config = TARGET, seed: int = 1) -> Path:
    """A target of words `w0`, `w1`, ..., one for each id below its end-of-text."""
    save(folder, config, drawn(target_shapes(config), seed))
    words = {f"w{number}": number for number in range(min(EOS, config["vocab_size"]))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write_draft(
    folder: Path, config: Config = TINY, shapes: Shapes = TINY_SHAPES, seed: int = 2
) -> Path:
    return save(folder, config, drawn(shapes, seed))


def write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")
