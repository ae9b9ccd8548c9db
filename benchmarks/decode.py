"""How fast the runtime decodes on this CPU, each ratio with its limit.

`scripts/bench decode` prints every figure and exits with 1 if a limit is missed. A figure is tokens
a second, a ratio is taken pair by pair: what is compared runs in turns, on the same weights and
prompts, in the same number format, with the same threads, in one process. What is measured, and why
so: docs/performance-decode.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.decode_peers import (
    LlamaCpp,
    Transformers,
    assistants,
    llama_cpp_missing,
    random_qwen3,
    read_speeds,
)
from benchmarks.route import Gate
from dspark.runtime import Engine, EngineConfig, SamplingParams
from dspark.runtime.backends.rope import Rope
from dspark.runtime.backends.torch_cpu import TorchCpuBackend
from dspark.runtime.load import open_engine
from dspark.runtime.models.config import TargetConfig
from dspark.runtime.models.qwen3 import Qwen3Target
from dspark.runtime.models.rows import Segment

TINY = Path(__file__).parents[1] / "examples" / "tiny"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NEW_TOKENS = 128
SHAPED_TOKENS = 64
PROMPT = list(range(100, 132))

Decoder = Callable[[Sequence[int], int], Sequence[int]]
"""A prompt and how many tokens to add to it; those tokens."""


def by_engine(engine: Engine, drafts: int | None) -> Decoder:
    """Decodes greedily with our engine."""

    def decode(prompt: Sequence[int], count: int) -> Sequence[int]:
        params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
        return engine.generate([prompt], params, drafts=drafts)[0].token_ids

    return decode


def speeds(
    decoders: Mapping[str, Decoder], prompts: Sequence[Sequence[int]], count: int
) -> dict[str, list[float]]:
    """Tokens a second on each prompt; on one prompt all decoders take their turn.

    The first prompt is a warm-up: what is compiled, packed or cached at first use is not decoding.
    """
    found: dict[str, list[float]] = {name: [] for name in decoders}
    for number, prompt in enumerate(prompts):
        for name, decode in decoders.items():
            started = time.perf_counter()
            tokens = decode(prompt, count)
            seconds = time.perf_counter() - started
            # INVARIANT: a decoder that stops early would be compared on other work.
            assert len(tokens) == count, (name, len(tokens))
            if number:
                found[name].append(count / seconds)
    for name, values in found.items():
        _print(f"  {name:<52} {statistics.median(values):>9.1f} tokens/s")
    return found


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of the ratios, prompt by prompt."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def measure_tiny(dtype: str, prompts: int, folder: Path) -> list[Gate]:
    """The trained pair against no draft, and both against the peers."""
    _print(f"examples/tiny, {dtype}, {prompts} prompts of 64 tokens, {NEW_TOKENS} new ones")
    loaded = open_engine(str(TINY / "target"), str(TINY / "dspark"), dtype=dtype, max_length=512)
    lines = (TINY / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["prompt"] for line in lines[: prompts + 1]]
    ids = [loaded.tokenizer.encode(text).ids for text in texts]
    peer = Transformers.open(TINY / "target", DTYPES[dtype])
    decoders: dict[str, Decoder] = {
        "dspark, no draft": by_engine(loaded.engine, 0),
        "dspark, DSpark draft": by_engine(loaded.engine, None),
        "transformers, generate": peer.decoder(),
    }
    assisted = {f"transformers, {name}": peer.decoder(**how) for name, how in assistants().items()}
    llama: dict[str, Decoder] = {}
    if llama_cpp_missing() is None and dtype == "bfloat16":
        llama = LlamaCpp(peer.model, folder / "tiny.gguf").decoders()
    found = speeds(decoders | assisted | llama, ids, NEW_TOKENS)
    plain, draft = found["dspark, no draft"], found["dspark, DSpark draft"]
    best = max(assisted, key=lambda name: statistics.median(found[name]))
    _print(f"  the best of transformers' assistants here: {best.removeprefix('transformers, ')}")
    theirs = found["transformers, generate"]
    gates = [
        _at_least(f"{dtype}: draft / no draft", ratio(draft, plain), 1.8),
        _at_least(f"{dtype}: no draft / transformers generate", ratio(plain, theirs), 1.5),
        _at_least(f"{dtype}: draft / transformers assisted", ratio(draft, found[best]), 2.0),
    ]
    for name in llama:
        ours = plain if name == "llama.cpp" else draft
        which = "no draft" if ours is plain else "draft"
        gates.append(_reported(f"{dtype}: {which} / {name}", ratio(ours, found[name])))
    return gates


def measure_shaped(repeats: int, folder: Path) -> list[Gate]:
    """A target of Qwen3-0.6B's shape with random weights, in bfloat16."""
    _print(f"Qwen3-0.6B's shape, random bfloat16 weights, {SHAPED_TOKENS} new tokens")
    peer = Transformers(random_qwen3(torch.bfloat16))
    c = peer.model.config
    target = Qwen3Target(
        TorchCpuBackend("bfloat16"),
        TargetConfig(
            hidden_size=c.hidden_size,
            intermediate_size=c.intermediate_size,
            num_hidden_layers=c.num_hidden_layers,
            num_attention_heads=c.num_attention_heads,
            num_key_value_heads=c.num_key_value_heads,
            head_dim=c.head_dim,
            vocab_size=c.vocab_size,
            rms_norm_eps=c.rms_norm_eps,
            rope=Rope(theta=1e6),
            layer_types=("full_attention",) * c.num_hidden_layers,
            sliding_window=None,
            attention_bias=False,
            tie_word_embeddings=True,
            max_position_embeddings=c.max_position_embeddings,
        ),
        {name: value for name, value in peer.model.state_dict().items() if "lm_head" not in name},
        max_length=256,
    )
    engine = Engine(target, None, EngineConfig(max_length=256, pages=16))
    decoders: dict[str, Decoder] = {
        "dspark, no draft": by_engine(engine, 0),
        "transformers, generate": peer.decoder(),
    }
    if llama_cpp_missing() is None:
        llama = LlamaCpp(peer.model, folder / "shaped.gguf").decoders()
        decoders["llama.cpp"] = llama["llama.cpp"]
    threads = torch.get_num_threads()
    before = read_speeds((1, threads))
    found = speeds(decoders, [PROMPT] * (repeats + 1), SHAPED_TOKENS)
    plain = found["dspark, no draft"]
    one, eight = step_seconds(target, repeats * 3)
    after = read_speeds((1, threads))
    for count in before:
        first, last = before[count] / 1e9, after[count] / 1e9
        name = f"memory read by {count} thread{'s' if count > 1 else ''}, before and after"
        _print(f"  {name:<45} {first:>6.1f} {last:>6.1f} GB/s")
    read = sum(value.nbytes for value in peer.model.parameters()) / after[threads]
    for name, seconds in (("1 row", one), ("8 rows", eight)):
        _print(f"  a pass of {name:<42} {statistics.median(seconds) * 1e3:>9.1f} ms")
    gates = [
        _at_least(
            "0.6B: no draft / transformers generate",
            ratio(plain, found["transformers, generate"]),
            1.7,
        ),
        Gate("0.6B: 8-row verify / 1-row step", ratio(eight, one), 1.15, "x"),
        _reported("0.6B: 1-row step / reading its weights", statistics.median(one) / read),
    ]
    if "llama.cpp" in found:
        gates.append(_reported("0.6B: no draft / llama.cpp", ratio(plain, found["llama.cpp"])))
    return gates


def step_seconds(target: Qwen3Target, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of a pass of one row and of eight behind the same context, in turns."""
    store = target.new_store(8, 32)
    pages = list(range(8))
    seconds: dict[int, list[float]] = {1: [], 8: []}
    with target.backend.session():
        target.forward([Segment(PROMPT, 0, pages)], store)
        for turn in range(repeats + 2):
            for rows, found in seconds.items():
                started = time.perf_counter()
                passed = target.forward([Segment(PROMPT[:rows], len(PROMPT), pages)], store)
                target.backend.argmax(target.logits(passed.hidden))
                if turn > 1:
                    found.append(time.perf_counter() - started)
    return seconds[1], seconds[8]


def _at_least(name: str, measured: float, limit: float) -> Gate:
    return Gate(name, measured, limit, "x", at_least=True)


def _reported(name: str, measured: float) -> Gate:
    return Gate(name, measured, None, "x")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures and then every gate; 1 if one is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench decode", description=main.__doc__)
    parser.add_argument("--prompts", type=int, default=12, help="prompts of the tiny pair")
    parser.add_argument("--repeats", type=int, default=5, help="turns of the large shape; 0: none")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    _print(f"torch {torch.__version__}, {arguments.threads} threads")
    if (reason := llama_cpp_missing()) is not None:
        _print(f"llama.cpp is not measured: {reason}")
    gates: list[Gate] = []
    with tempfile.TemporaryDirectory() as folder:
        for dtype in DTYPES:
            gates += measure_tiny(dtype, arguments.prompts, Path(folder))
        if arguments.repeats:
            gates += measure_shaped(arguments.repeats, Path(folder))
    for gate in gates:
        _print(str(gate))
    return 0 if all(gate.met for gate in gates) else 1


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
