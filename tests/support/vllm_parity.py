"""vLLM's parity pack held against vLLM itself: questions, and whether two answers agree."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dspark.parity_facts import Question
from dspark.parity_pack import REFUSES, RUNS, SWALLOWS, UNKNOWN, Answer, Pack

REPOSITORY = Path(__file__).parents[2]
Observed = dict[str, Any]


def ask_vllm(folder: Path, questions: Sequence[Question]) -> list[Observed]:
    """What vLLM in `folder` answers, question by question."""
    lines = "\n".join(json.dumps(question._asdict()) for question in questions)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.vllm_answers", str(folder)],
        input=lines,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(questions):
        raise RuntimeError(f"vLLM stopped after {len(answers)} answers:\n{done.stderr[-2000:]}")
    return answers


def observed_lane(pack: Pack, observed: Observed) -> str:
    """The lane of the pack that vLLM's final method and architecture are."""
    lane = f"{observed['method']}/{observed['class']}"
    return lane if lane in pack.lanes else str(observed["method"])


def disagreement(pack: Pack, answer: Answer, observed: Observed) -> str:
    """What vLLM did where the pack says something else; empty if they agree or it says nothing."""
    if answer.outcome == UNKNOWN:
        return ""
    error = observed.get("error", "")
    if answer.outcome == REFUSES and not answer.lane:
        return "" if answer.text in error else error or observed_lane(pack, observed)
    # What is refused only after a lane was chosen, vLLM's config code still lets through.
    if error:
        return str(error)
    lane = observed_lane(pack, observed)
    return "" if lane == answer.lane else lane


def recorded(answer: Answer, question: Question) -> dict[str, object]:
    """One line of a file of cases, for an answer that vLLM was seen to give."""
    late = answer.outcome == REFUSES and answer.lane
    how = "read" if late or answer.outcome == UNKNOWN else "run"
    says = {RUNS: answer.lane, SWALLOWS: answer.lane, REFUSES: answer.text, UNKNOWN: ""}
    line: dict[str, object] = {"rule": answer.rule.id, "config": question.config}
    if question.flags:
        line["flags"] = question.flags
    if question.path:
        line["path"] = question.path
    return line | {answer.outcome: says[answer.outcome], "how": how, "seen": answer.rule.refs[0]}


_DRAFTS = ("Qwen3DSparkModel", "DSparkDraftModel", "DFlashDraftModel")
_NAMES = (
    *_DRAFTS,
    *_DRAFTS,
    "Gemma4DSparkModel",
    "K3DSparkModel",
    "MuseGlimmerAssistantModel",
    "Qwen3OmniDSparkModel",
    "DFlash2DraftModel",
    "LiLiCorrDraftModel",
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "EagleLlamaForCausalLM",
    "Qwen3ForCausalLM",
    "LlamaForCausalLM",
    "Qwen3MoeForCausalLM",
    "LlamaDSparkModel",
    "FooModel",
)
_TYPES = ("qwen3", "qwen3", "qwen3", "llama", "qwen3_moe", "gemma4_text", "gpt_oss", "qwen3_5_text")
_METHODS = ("dspark", "dspark", "dflash", "eagle", "eagle3", "mtp", "draft_model", "qwen3_next_mtp")
_PATHS = (
    "",
    "",
    "",
    "my-eagle-head",
    "org/eagle3-x",
    "org/DFlash_b16",
    "dspark_qwen3",
    "a/EAGLE-1",
)


def random_questions(seed: int, count: int) -> Iterator[Question]:
    """Questions of every kind that the pack means to answer, the same for the same seed."""
    dice = random.Random(seed)
    for _ in range(count):
        config = _random_config(dice)
        flags: dict[str, object] = {}
        if dice.random() < 0.6:
            flags["method"] = dice.choice(_METHODS)
        if dice.random() < 0.75:
            flags["num_speculative_tokens"] = dice.randint(1, 9)
        if dice.random() < 0.1:
            flags["target"] = dice.choice(("deepseek_v41", "qwen3_omni", "deepseek_v4"))
        if dice.random() < 0.1:
            name = dice.choice(("dspark_draft_topk", "draft_tensor_parallel_size", "max_model_len"))
            flags[name] = dice.choice((1, 2, 1000))
            config |= {"vocab_size": 512, "max_position_embeddings": 128}
        yield Question(config, flags, dice.choice(_PATHS))


def _random_config(dice: random.Random) -> dict[str, object]:
    config: dict[str, object] = {}
    if dice.random() < 0.7:
        config["block_size"] = dice.choice((7, 8, 16))
    if dice.random() < 0.8:
        config["markov_rank"] = dice.choice((0, 8))
    if dice.random() < 0.8:
        config["mask_token_id"] = 3
    if dice.random() < 0.15:
        config["n_predict"] = dice.choice((1, 2, 3))
    entries = dice.sample(sorted(set(_NAMES)), 2) if dice.random() < 0.15 else [dice.choice(_NAMES)]
    if dice.random() < 0.95:
        config["architectures"] = entries
    if dice.random() < 0.2:
        config["speculators_config"] = {"proposal_methods": [{"speculative_tokens": 7}]}
        kinds = ("dspark", "dspark", "dspark", "dflash", "dflash2", "domino")
        config["speculators_model_type"] = dice.choice(kinds)
        if dice.random() < 0.85:
            config["aux_hidden_state_layer_ids"] = [1, 2]
        config["transformer_layer_config"] = {"model_type": dice.choice(("qwen3", "llama"))}
    else:
        config["model_type"] = dice.choice(_TYPES)
    return config
