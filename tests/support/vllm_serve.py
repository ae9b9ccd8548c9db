"""What `vllm serve` makes of a command line, up to where it would start its workers.

Run as `python -m tests.support.vllm_serve FOLDER`, with FOLDER from `tests.support.vllm_wheel`. A
question is a JSON object per line: `argv`, what follows `vllm serve`; with `plugin` true our plugin
is registered first. The words go through vLLM's own argument parser, and from there through
everything that `vllm serve` does before it starts a worker. An answer holds the final `method`,
`architectures`, `model_type` and `tokens`, and how many GPUs on how many nodes; or the `error`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.vllm_wheel import make_importable


def answer(parser: Any, argv: list[str]) -> dict[str, Any]:
    from vllm.engine.arg_utils import AsyncEngineArgs

    try:
        words = parser.parse_args(argv)
        words.model = words.model_tag
        config = AsyncEngineArgs.from_cli_args(words).create_engine_config()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is its answer
        return {"error": f"{type(error).__name__}: {error}"}
    spec, parallel = config.speculative_config, config.parallel_config
    draft = spec.draft_model_config.hf_config
    return {
        "method": spec.method,
        "architectures": list(draft.architectures),
        "model_type": draft.model_type,
        "tokens": spec.num_speculative_tokens,
        "gpus": parallel.tensor_parallel_size,
        "nodes": parallel.nnodes,
        "backend": parallel.distributed_executor_backend,
    }


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes where its standard output goes
    os.environ["VLLM_PLUGINS"] = ""  # this process asks for ours itself
    make_importable(Path(sys.argv[1]))
    # Here the executors are imported as they are: the command line chooses one of them.
    del sys.modules["vllm.v1.executor"]
    from vllm.config import vllm as vllm_config
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    # Without Triton, which a CPU lacks, vLLM would pick the runner that knows no DSpark.
    vllm_config.HAS_TRITON = True
    parser = make_arg_parser(FlexibleArgumentParser())
    registered = False
    for line in sys.stdin:
        question = json.loads(line)
        if question.get("plugin") and not registered:
            from dspark.runtime.handoff.vllm_plugin import register

            register()
            registered = True
        print(json.dumps(answer(parser, question["argv"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
