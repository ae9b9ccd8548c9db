"""Makes the pair in this folder: a Qwen3 target, and three drafts trained against it.

    python examples/tiny/train.py all|tokenizer|target|drafts|report [--steps 2]

Every step is seeded. A run that was stopped goes on where it was: what is unfinished lies in
`--work`, what is finished in `--out`. README.md says what is learnt from what, and how long it
takes. `--steps 2` is a smoke run: it makes every file, and nothing in them is any good.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from draft import Blocks, Draft, Shape, Tally, speculative
from modules import documents
from qwen import Config, Target, continuations, plain
from safetensors.torch import load_file, save_file
from text import CHAT_TEMPLATE, END_OF_TEXT, beginnings, encode, train_tokenizer, windows
from tokenizers import Tokenizer
from torch import Tensor, nn

HERE = Path(__file__).parent
SECONDS_BETWEEN_CHECKPOINTS = 60
DECAY_FROM = 0.7

# Sizes all differ, so that a transposed or mistaken one cannot fit by chance.
TARGET: Config = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1499,
    "dtype": "bfloat16",
    "eos_token_id": 1499,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 256,
    "initializer_range": 0.02,
    "intermediate_size": 448,
    "layer_types": ["full_attention"] * 8,
    "max_position_embeddings": 2048,
    "max_window_layers": 8,
    "model_type": "qwen3",
    "num_attention_heads": 6,
    "num_hidden_layers": 8,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 10000, "rope_type": "default"},
    "sliding_window": None,
    "tie_word_embeddings": True,
    "transformers_version": "5.10.2",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 1536,
}
TAPS, DRAFTS, MASK_ID, RANK, DRAFT_LAYERS, DRAFT_VOCAB = (1, 4, 6), 7, 1509, 80, 2, 640
FOLDERS = ("dspark", "dflash", "dspark-speculators")


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of everything a run does."""

    documents: int = 20_000
    target_steps: int = 1500
    target_batch: int = 4
    target_window: int = 512
    draft_steps: int = 1100
    draft_batch: int = 8
    draft_window: int = 320
    blocks: int = 40  # to a sequence
    greedy: int = 1024  # continuations of the target's own to train on, greedy
    sampled: int = 256  # and at temperature 1
    at_once: int = 128
    prompts: int = 64
    new_tokens: int = 128


def smoke(steps: int) -> Budget:
    """A budget of `steps` steps for everything, as small as the code allows."""
    return Budget(800, steps, 1, 32, steps, 2, 48, 2, 4, 2, 2, 2, 12)


def learning_rate(step: int, steps: int, warm_up: int, peak: float) -> float:
    """Linear warm-up, a plateau, and from 70 % of the steps on a straight line down to nothing.

    Up to the decay the rate does not depend on `steps`, so a run on a plateau can be resumed with
    another length.
    """
    decay = DECAY_FROM * steps
    return peak * min(1, (step + 1) / warm_up, (steps - step) / (steps - decay))


def train(
    models: Sequence[nn.Module],
    losses: Callable[[int], list[Tensor]],
    *,
    steps: int,
    warm_up: int,
    peak: float,
    weight_decay: float,
    checkpoint: Path,
) -> list[list[float]]:
    """The models trained in place for `steps` steps; the losses at every tenth step.

    Each model has its own loss, its own optimizer and its own gradient clipping, so what a model
    learns does not depend on which others are trained beside it. `losses(step)` must depend on
    nothing but the step and the weights: then a run that was stopped goes on from `checkpoint`
    as if it had not been.
    """
    optimizers = [
        torch.optim.AdamW(
            [p for p in model.parameters() if p.requires_grad],
            betas=(0.9, 0.95),
            weight_decay=weight_decay,
            fused=True,
        )
        for model in models
    ]
    first, history = 0, []
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["steps"] != steps and saved["step"] > DECAY_FROM * min(steps, saved["steps"]):
            raise SystemExit(
                f"`{checkpoint}` is in the decay of a run of {saved['steps']} steps, not {steps}: "
                "delete it, or ask for the same number"
            )
        for model, optimizer, one in zip(models, optimizers, saved["models"], strict=True):
            model.load_state_dict(one["model"])
            optimizer.load_state_dict(one["optimizer"])
        first, history = saved["step"], saved["history"]
        print(f"resuming at step {first} of {steps}")

    def save(step: int) -> None:
        states = [
            {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            for model, optimizer in zip(models, optimizers, strict=True)
        ]
        partial = checkpoint.with_suffix(".partial")
        torch.save({"models": states, "step": step, "steps": steps, "history": history}, partial)
        partial.replace(checkpoint)

    started = saved_at = time.monotonic()
    for step in range(first, steps):
        values = losses(step)
        # The losses share no trainable weight, so each weight's gradient is that of its own loss.
        torch.stack(values).sum().backward()
        for model, optimizer in zip(models, optimizers, strict=True):
            nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps, warm_up, peak)
            optimizer.step()
            optimizer.zero_grad()
        if step % 10 == 0 or step + 1 == steps:
            history.append([step, *(round(value.item(), 4) for value in values)])
            spent = time.monotonic() - started
            left = spent / (step + 1 - first) * (steps - step - 1)
            done = "#" * (30 * (step + 1) // steps)
            print(f"[{done:<30}] {history[-1]} {spent:.0f} s, {left:.0f} s left", flush=True)
        if time.monotonic() - saved_at > SECONDS_BETWEEN_CHECKPOINTS or step + 1 == steps:
            save(step + 1)
            saved_at = time.monotonic()
    return history


def compiled(function: Callable[..., Any], steps: int) -> Callable[..., Any]:
    """The function compiled, unless the run is too short for a minute's compiling to pay."""
    return torch.compile(function) if steps > 100 else function


def write_json(path: Path, value: object) -> None:
    """One value, indented, in a folder that need not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def publish(folder: Path, config: Config, tensors: dict[str, Tensor]) -> None:
    """config.json and model.safetensors, floating tensors as bfloat16 like every published draft.

    What is stored is what the later steps load, so a draft is trained on the rounded target.
    """
    write_json(folder / "config.json", config)
    stored = {
        name: (tensor.bfloat16() if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in tensors.items()
    }
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


def make_tokenizer(out: Path, _work: Path, budget: Budget) -> None:
    """target/tokenizer.json, from the training files."""
    folder = out / "target"
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer(documents(budget.documents)[0]).save(str(folder / "tokenizer.json"))
    names = {"eos_token": END_OF_TEXT, "model_max_length": TARGET["max_position_embeddings"]}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    write_json(folder / "tokenizer_config.json", kind | names | {"chat_template": CHAT_TEMPLATE})


def load_tokenizer(out: Path) -> Tokenizer:
    """What `make_tokenizer` wrote."""
    return Tokenizer.from_file(str(out / "target" / "tokenizer.json"))


def make_target(out: Path, work: Path, budget: Budget) -> None:
    """target/: next-token prediction on the training files."""
    tokenizer, texts = load_tokenizer(out), documents(budget.documents)
    stream, held_out = encode(tokenizer, texts[0]), encode(tokenizer, texts[1])
    target = Target(TARGET)
    target.initialise(seed=0)

    def loss(ids: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = target(ids[:, :-1])[0]
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    run = compiled(loss, budget.target_steps)
    batch, window = budget.target_batch, budget.target_window
    history = train(
        [target],
        lambda step: [run(windows(stream, step, batch, window, seed=1))],
        steps=budget.target_steps,
        warm_up=100,
        peak=2.5e-3,
        weight_decay=0.1,
        checkpoint=work / "target.pt",
    )
    publish(out / "target", TARGET, target.state_dict())
    write_json(
        out / "target" / "generation_config.json",
        {"bos_token_id": TARGET["bos_token_id"], "eos_token_id": TARGET["eos_token_id"]},
    )
    target = load_target(out)
    with torch.inference_mode():
        batches = [windows(held_out, i, batch, window, seed=2) for i in range(budget.target_steps)]
        held_out_loss = sum(float(loss(ids)) for ids in batches[:50]) / len(batches[:50])
    write_json(work / "target.json", {"history": history, "held_out_loss": held_out_loss})
    # What an earlier target said, or what was learnt from it.
    for stale in [*work.glob("continuations/*"), work / "plain.json", work / "drafts.pt"]:
        stale.unlink(missing_ok=True)


def load_target(out: Path) -> Target:
    """The published target, in float32 and frozen."""
    target = Target(TARGET)
    target.load_state_dict(load_file(out / "target" / "model.safetensors"))
    return target.float().requires_grad_(False)


def own_text(out: Path, work: Path, budget: Budget, temperature: float) -> Tensor:
    """The target's own continuations [rows, draft_window + 1] of training documents.

    Prompts are the first 32 to 96 tokens of a document. Made in bfloat16, which is faster here and
    close enough for text to learn from; kept in `work`, one file a batch, so that a stopped run
    repeats none.
    """
    target, tokenizer = load_target(out).bfloat16(), load_tokenizer(out)
    texts = documents(budget.documents)[0][:: -1 if temperature else 1]
    length, at_once = budget.draft_window + 1, budget.at_once
    rows = []
    for number in range((budget.sampled if temperature else budget.greedy) // at_once):
        path = work / "continuations" / f"temperature-{temperature}-{number}.pt"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            width = min(32 + 16 * (number % 5), length // 2)
            # A few documents are shorter than the prompt; twice as many as needed are at hand.
            some = texts[2 * at_once * number : 2 * at_once * (number + 1)]
            prompts = torch.tensor(beginnings(tokenizer, some, width)[:at_once])
            torch.manual_seed(number)
            torch.save(continuations(target, prompts, length, temperature), path)
            print(f"continuations at temperature {temperature}: batch {number}", flush=True)
        rows.append(torch.load(path, weights_only=True))
    return torch.cat(rows)


def draft_shapes(frequent: Tensor) -> dict[str, Shape]:
    """The three drafts by folder; `frequent` are the ids of the reduced vocabulary."""
    ids = tuple(frequent.tolist())
    return {
        "dspark": Shape(TAPS, MASK_ID, DRAFTS, RANK, anchor_predicts=True),
        "dflash": Shape(TAPS, MASK_ID, DRAFTS, 0, anchor_predicts=True),
        "dspark-speculators": Shape(TAPS, MASK_ID, DRAFTS, RANK, False, ids),
    }


def layers_config() -> Config:
    """The target's config with the draft's depth: the Qwen3 part of every draft."""
    depth = {"num_hidden_layers": DRAFT_LAYERS, "layer_types": ["full_attention"] * DRAFT_LAYERS}
    return TARGET | depth | {"tie_word_embeddings": False}


def flat_config(shape: Shape) -> Config:
    """config.json in DeepSpec's packaging; a rank of 0 is how it writes a DFlash draft."""
    config = layers_config() | {
        "architectures": ["Qwen3DSparkModel"],
        "block_size": shape.drafts,
        "enable_confidence_head": shape.markov_rank > 0,
        "markov_rank": shape.markov_rank,
        "mask_token_id": shape.mask_id,
        "num_anchors": FULL.blocks,
        "num_target_layers": TARGET["num_hidden_layers"],
        "target_layer_ids": list(shape.taps),
    }
    if shape.markov_rank:
        config |= {"confidence_head_with_markov": True, "markov_head_type": "vanilla"}
    return dict(sorted(config.items()))


def speculators_config(shape: Shape) -> Config:
    """config.json in the packaging of the Speculators library: taps count from 1, and the anchor's
    own row is part of the block.
    """
    outer = {"architectures", "dtype", "transformers_version"}
    method = {
        "accept_tolerance": 0.0,
        "proposal_type": "greedy",
        "speculative_tokens": shape.drafts,
        "verifier_accept_k": 1,
    }
    return {
        "architectures": ["DSparkDraftModel"],
        "aux_hidden_state_layer_ids": [tap + 1 for tap in shape.taps],
        "block_size": shape.drafts + 1,
        "confidence_head_with_markov": True,
        "draft_vocab_size": len(shape.draft_ids or ()),
        "dtype": "bfloat16",
        "enable_confidence_head": True,
        "markov_head_type": "vanilla",
        "markov_rank": shape.markov_rank,
        "mask_token_id": shape.mask_id,
        "max_anchors": FULL.blocks,
        "sample_from_anchor": shape.anchor_predicts,
        "speculators_config": {
            "algorithm": "dspark",
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            "verifier": {"architectures": TARGET["architectures"], "name_or_path": "../target"},
        },
        "speculators_model_type": "dspark",
        "speculators_version": "0.9.0",
        "tie_word_embeddings": False,
        "transformer_layer_config": {k: v for k, v in layers_config().items() if k not in outer},
        "transformers_version": TARGET["transformers_version"],
    }


def publish_draft(folder: Path, draft: Draft) -> None:
    """A draft's folder. The flat ones hold copies of the target's embedding and head; the
    Speculators one takes the embedding from the target, and has a head of its own vocabulary.
    """
    tensors = draft.state_dict()
    if draft.shape.draft_ids is None:
        publish(folder, flat_config(draft.shape), tensors)
        return
    del tensors["embed_tokens.weight"]
    ids = draft.draft_ids
    tensors["d2t"] = ids - torch.arange(len(ids))
    tensors["t2d"] = draft.draft_index >= 0
    publish(folder, speculators_config(draft.shape), tensors)


def load_draft(out: Path, name: str) -> Draft:
    """A published draft, in float32 and frozen."""
    target = load_file(out / "target" / "model.safetensors")
    tensors = load_file(out / name / "model.safetensors")
    tensors.pop("t2d", None)
    offsets = tensors.pop("d2t", torch.zeros(0, dtype=torch.int64))
    draft = Draft(layers_config(), draft_shapes(offsets + torch.arange(len(offsets)))[name])
    tensors.setdefault("embed_tokens.weight", target["model.embed_tokens.weight"])
    draft.load_state_dict(tensors)
    return draft.float().requires_grad_(False)


def make_drafts(out: Path, work: Path, budget: Budget) -> None:
    """The three drafts, side by side: the same text, the same anchors, the same number of steps."""
    target = load_target(out)
    stream = encode(load_tokenizer(out), documents(budget.documents)[0])
    greedy, sampled = (own_text(out, work, budget, temperature) for temperature in (0.0, 1.0))
    counts = torch.cat([stream, greedy.flatten(), sampled.flatten()]).bincount(minlength=MASK_ID)
    frequent = counts.topk(DRAFT_VOCAB).indices.sort().values
    drafts = [Draft(layers_config(), shape) for shape in draft_shapes(frequent).values()]
    for draft in drafts:
        draft.initialise(target, seed=5)
    batch, length = budget.draft_batch, budget.draft_window

    def loss(ids: Tensor, anchor_at: Tensor) -> list[Tensor]:
        row = torch.arange(batch)[:, None, None]
        at = anchor_at[:, :, None] + torch.arange(DRAFTS)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                logits, features = target(ids, TAPS)
                wanted = logits[row, at].float().softmax(-1)
            blocks = Blocks(anchor_at, ids[row, at], ids[row, at + 1], wanted)
            return [draft.loss(features, blocks) for draft in drafts]

    run = compiled(loss, budget.draft_steps)

    def losses(step: int) -> list[Tensor]:
        # Half of a batch greedy, a quarter sampled, a quarter training text.
        generator = torch.Generator().manual_seed(6_000_000 + step)
        half, quarter = batch // 2, batch // 4
        ids = torch.cat(
            [
                greedy[torch.randint(len(greedy), (half,), generator=generator)],
                sampled[torch.randint(len(sampled), (quarter,), generator=generator)],
                windows(stream, step, batch - half - quarter, length, seed=7),
            ]
        )[:, :length]
        last = length - 1 - DRAFTS
        anchor_at = 1 + torch.rand(batch, last, generator=generator).topk(budget.blocks).indices
        return run(ids, anchor_at)

    history = train(
        drafts,
        losses,
        steps=budget.draft_steps,
        warm_up=25,
        peak=2e-3,
        weight_decay=0.0,
        checkpoint=work / "drafts.pt",
    )
    for name, draft in zip(FOLDERS, drafts, strict=True):
        publish_draft(out / name, draft)
    write_json(work / "drafts.json", {"history": history})
    for stale in work.glob("acceptance-*.json"):
        stale.unlink()


def prompts_of(out: Path, budget: Budget) -> tuple[list[str], list[list[int]]]:
    """The held-out prompts as texts and as ids."""
    tokenizer, width = load_tokenizer(out), 64 if budget == FULL else 16
    ids = beginnings(tokenizer, documents(budget.documents)[1], width)[: budget.prompts]
    return tokenizer.decode_batch(ids), ids


def plain_texts(out: Path, work: Path, budget: Budget) -> list[list[int]]:
    """What the target says to each prompt without a draft; kept in `work`."""
    kept = work / "plain.json"
    if not kept.exists():
        target, (_, prompts) = load_target(out), prompts_of(out, budget)
        new, end = budget.new_tokens, TARGET["eos_token_id"]
        write_json(kept, [plain(target, prompt, new, end) for prompt in prompts])
    texts: list[list[int]] = json.loads(kept.read_text(encoding="utf-8"))
    return texts


def measured(out: Path, work: Path, budget: Budget, name: str) -> dict[str, Any]:
    """A draft's rounds over all prompts; kept in `work`."""
    kept = work / f"acceptance-{name}.json"
    if kept.exists():
        known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return known
    target, draft, (_, prompts) = load_target(out), load_draft(out, name), prompts_of(out, budget)
    new, end, tally = budget.new_tokens, TARGET["eos_token_id"], Tally()
    said = [speculative(target, draft, prompt, new, end, tally) for prompt in prompts]
    expected = plain_texts(out, work, budget)
    result = {
        "tokens_per_round": round(tally.tokens / tally.rounds, 3),
        "acceptance_per_position": [round(n / tally.rounds, 4) for n in tally.accepted],
        "rounds": tally.rounds,
        "prompts_that_differ_from_plain_greedy": sum(map(list.__ne__, said, expected)),
    }
    print(f"{name}: {result}", flush=True)
    write_json(kept, result)
    return result


def make_report(out: Path, work: Path, budget: Budget) -> None:
    """acceptance.json: greedy rounds of the published drafts on held-out prompts."""
    texts, prompts = prompts_of(out, budget)
    with (out / "prompts.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"prompt": text}) + "\n" for text in texts)
    of_target = json.loads((work / "target.json").read_text(encoding="utf-8"))
    of_drafts = json.loads((work / "drafts.json").read_text(encoding="utf-8"))
    write_json(
        out / "acceptance.json",
        {
            "temperature": 0,
            "block": DRAFTS,
            "prompts": len(prompts),
            "prompt_tokens": len(prompts[0]),
            "new_tokens": budget.new_tokens,
            "drafts": {name: measured(out, work, budget, name) for name in FOLDERS},
            "training": {
                "target_steps": budget.target_steps,
                "target_loss": of_target["history"][-1][1],
                "target_held_out_loss": round(of_target["held_out_loss"], 4),
                "draft_steps": budget.draft_steps,
                "draft_loss": dict(zip(FOLDERS, of_drafts["history"][-1][1:], strict=True)),
            },
        },
    )


FULL = Budget()
STAGES: dict[str, Callable[[Path, Path, Budget], None]] = {
    "tokenizer": make_tokenizer,
    "target": make_target,
    "drafts": make_drafts,
    "report": make_report,
}


def main() -> None:
    """Runs one stage, or all of them in order."""
    parser = argparse.ArgumentParser(description="train the tiny target and its drafts")
    parser.add_argument("stage", choices=["all", *STAGES])
    parser.add_argument("--steps", type=int, help="a smoke run of this many steps")
    parser.add_argument("--out", type=Path, default=HERE, help="where finished files go")
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / "build" / "tiny")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.work.mkdir(parents=True, exist_ok=True)
    budget = smoke(arguments.steps) if arguments.steps else FULL
    for name in STAGES if arguments.stage == "all" else [arguments.stage]:
        STAGES[name](arguments.out, arguments.work, budget)


if __name__ == "__main__":
    main()
