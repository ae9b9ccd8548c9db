"""Drafts and targets that hand-offs are tried on: one of each kind, small, and no two alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

Config = dict[str, Any]
CORPUS = Path(__file__).parents[1] / "corpus"

TARGET: Config = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}
SIZES: Config = {key: TARGET[key] for key in TARGET if key != "architectures"}
LAYERS: Config = SIZES | {"num_hidden_layers": 2}
DSPARK: Config = LAYERS | {
    "architectures": ["Qwen3DSparkModel"],
    "block_size": 5,
    "mask_token_id": 500,
    "target_layer_ids": [1, 3, 6],
    "num_target_layers": 8,
    "markov_rank": 16,
    "markov_head_type": "vanilla",
}
DFLASH: Config = LAYERS | {
    "architectures": ["DFlashDraftModel"],
    "block_size": 16,
    "num_target_layers": 8,
    "dflash_config": {"mask_token_id": 500, "target_layer_ids": [1, 3, 6]},
}
SPECULATORS: Config = {
    "speculators_model_type": "dspark",
    "speculators_config": {
        "algorithm": "dspark",
        "proposal_methods": [{"speculative_tokens": 4, "proposal_type": "greedy"}],
        "verifier": {"name_or_path": "owner/target"},
    },
    "block_size": 5,
    "mask_token_id": 500,
    "markov_rank": 16,
    "aux_hidden_state_layer_ids": [2, 4, 8],
    "draft_vocab_size": 256,
    "transformer_layer_config": LAYERS,
}
OMNI: Config = {
    "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
    "model_type": "qwen3_omni_moe",
    "thinker_config": {"text_config": SIZES | {"model_type": "qwen3_omni_moe_text"}},
}
DEEPSEEK_V4: Config = json.loads(
    (CORPUS / "deepseek-ai__DeepSeek-V4-Flash-DSpark/config.json").read_text("utf-8")
)
DEEPSEEK_V41 = DEEPSEEK_V4 | {
    "architectures": ["DeepseekV41ForCausalLM"],
    "model_type": "deepseek_v41",
}
MTP_TARGET: Config = TARGET | {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "num_nextn_predict_layers": 1,
}
GEMMA4_TARGET: Config = json.loads((CORPUS / "google__gemma-4-12B/config.json").read_text("utf-8"))
GEMMA4_DRAFT: Config = json.loads(
    (CORPUS / "deepseek-ai__dspark_gemma4_12b_block7/config.json").read_text("utf-8")
)
KIMI_K3: Config = json.loads((CORPUS / "Inferact__Kimi-K3-DSpark/config.json").read_text("utf-8"))
KIMI_TARGET = TARGET | {
    "hidden_size": 7168,
    "num_hidden_layers": 93,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "head_dim": 112,
    "vocab_size": 163840,
}


FOR_OMNI: Config = {
    "target_hidden_size": 64,
    "use_aux_hidden_state": True,
    "sample_from_anchor": True,
}
SPECULATORS_OMNI = (
    SPECULATORS
    | FOR_OMNI
    | {
        "architectures": ["Qwen3OmniDSparkModel"],
        "markov_head_type": "vanilla",
    }
)


def speculators(kind: str, **keys: object) -> Config:
    """A Speculators file of another type."""
    about = SPECULATORS["speculators_config"] | {"algorithm": kind}
    return SPECULATORS | {"speculators_model_type": kind, "speculators_config": about} | keys


def named(architecture: str, model_type: str = "qwen3", **keys: object) -> Config:
    """A draft of another architecture with the DSpark draft's keys."""
    return DSPARK | {"architectures": [architecture], "model_type": model_type} | keys


MUSE = named(
    "MuseSparkDSparkModel",
    "muse_spark_dspark",
    target_hidden_size=64,
    enable_confidence_head=False,
)
LAGUNA = named("DFlashLagunaForCausalLM", draft_vocab_size=512)
SPECULATORS_DFLASH2 = speculators(
    "dflash2", selector_rank=8, selector_top_k=4, draft_vocab_size=512
)


class Pair(NamedTuple):
    """A pair that vLLM serves, and how."""

    rule_id: str
    method: str
    tokens: int
    draft: Config
    target: Config | None = TARGET
    asked: int | None = None


SERVED = [
    Pair("L001", "dspark", 5, DSPARK),
    Pair("L001", "dspark", 4, DSPARK | {"sample_from_anchor": False}),
    Pair("L001", "dspark", 5, DSPARK | {"architectures": ["FooModel", "Qwen3DSparkModel"]}),
    Pair("L002", "dspark", 5, named("DSparkDraftModel")),
    Pair("L003", "dspark", 4, SPECULATORS),
    Pair("L003", "dspark", 5, SPECULATORS | {"sample_from_anchor": True}),
    Pair("L005", "dspark", 5, DSPARK | {"markov_rank": 0}),
    Pair("L006", "dflash", 15, DFLASH),
    Pair("R001", "dspark", 7, GEMMA4_DRAFT, GEMMA4_TARGET),
    Pair("R002", "dspark", 5, DEEPSEEK_V4, None),
    Pair("R003", "dspark", 5, DEEPSEEK_V41, None),
    Pair("R006", "dspark", 6, KIMI_K3, KIMI_TARGET, asked=6),
    Pair("R007", "dspark", 5, named("Qwen3OmniDSparkModel") | FOR_OMNI, OMNI),
    Pair("R007", "dspark", 5, SPECULATORS_OMNI, OMNI),
    Pair("R008", "dspark", 5, MUSE),
    Pair("R011", "dflash", 3, LAGUNA, asked=3),
    *(
        Pair("R011", "dflash", 3, named(architecture), asked=3)
        for architecture in (
            "LiLiCorrDraftModel",
            "Qwen3XPressModel",
            "DFlashQwen3XPressModel",
            "MuseGlimmerAssistantModel",
            "DFlashMuseGlimmerAssistantModel",
        )
    ),
    Pair("R022", "dflash", 4, speculators("dflash")),
    Pair("R026", "dflash", 15, DFLASH | {"architectures": ["DFlash2DraftModel"]}),
    Pair("R026", "dflash", 15, DFLASH | {"architectures": ["DFlash2BeamDraftModel"]}),
    Pair("R026", "dflash", 4, SPECULATORS_DFLASH2),
    Pair("R027", "eagle", 3, named("EagleLlamaForCausalLM", "llama"), asked=3),
    *(
        Pair("R028", "eagle3", 3, named(architecture, "llama"), asked=3)
        for architecture in (
            "LlamaForCausalLMEagle3",
            "Eagle3LlamaForCausalLM",
            "Eagle3Qwen3ForCausalLM",
            "Eagle3Qwen2_5vlForCausalLM",
            "Eagle3DeepseekV2ForCausalLM",
        )
    ),
    Pair("R028", "eagle3", 4, speculators("eagle3")),
    Pair("R029", "eagle3", 4, speculators("peagle")),
    Pair("R031", "mtp", 1, named("Glm4MoeMTPModel", "glm4_moe_mtp"), MTP_TARGET),
]
"""What vLLM serves: one pair at least for each rule that leads to a recipe."""


def write(folder: Path, config: Config) -> str:
    """A checkpoint folder with this config; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)
