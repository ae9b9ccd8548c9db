"""The options that the decoding verbs share, and what is opened by them."""

from __future__ import annotations

import argparse
import sys

from dspark import compile_table
from dspark.cli_plan import count, size
from dspark.runtime.devices import DEVICES, DTYPES
from dspark.runtime.errors import InvalidRequest
from dspark.runtime.load import Loaded, Prepared, prepare

# Below this, handing work to a second thread costs more than doing it.
_ONE_THREAD_BYTES = 64 * 2**20


def add_model_options(parser: argparse.ArgumentParser, *, draft_required: bool = False) -> None:
    """Adds what says which models decode, and how."""
    parser.add_argument("--target", required=True, metavar="FOLDER", help="the model that decodes")
    parser.add_argument(
        "--draft", required=draft_required, metavar="FOLDER", help="the draft that speeds it up"
    )
    parser.add_argument(
        "-k",
        # Where both ways are compared, one of them must draft.
        type=count if draft_required else _count_or_none,
        metavar="N",
        dest="drafts",
        help="drafts a round (default: as many as the draft's block has)",
    )
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default="cpu",
        help="what computes (default: cpu; `dspark plan` plans for cuda unless told)",
    )
    parser.add_argument(
        "--dtype", choices=DTYPES, help="what is computed in (default: float32 on cpu)"
    )
    parser.add_argument(
        "--max-seq",
        type=count,
        metavar="N",
        help="most tokens of prompt and output (default: all of the target's positions)",
    )
    parser.add_argument(
        "--memory", type=size, metavar="SIZE", help="memory there is, such as 24GiB"
    )
    parser.add_argument(
        "--threads", type=count, metavar="N", help="threads (default: 1 for tiny models)"
    )
    parser.add_argument("--rules", metavar="FILE", help="a table to use instead of the shipped one")


def prepare_models(arguments: argparse.Namespace, *, max_batch: int = 1) -> Prepared:
    """The models that the options name, `max_batch` sequences at a time; no weight is read yet.

    Raises:
        dspark.Refused, dspark.TableError, InvalidRequest: see `prepare`.
    """
    try:
        table = compile_table(arguments.rules) if arguments.rules else None
    except OSError as error:
        reason = error.strerror or error
        raise InvalidRequest(f"cannot read the rules file `{arguments.rules}`: {reason}") from None
    return prepare(
        arguments.target,
        arguments.draft,
        device=arguments.device,
        dtype=arguments.dtype,
        max_length=arguments.max_seq,
        max_batch=max_batch,
        memory=arguments.memory,
        drafts=arguments.drafts,
        table=table,
    )


def load_models(prepared: Prepared, threads: int | None) -> Loaded:
    """The engine, with a progress bar for each model on standard error if that is a terminal."""
    _use_threads(threads, prepared.weight_bytes)
    if sys.stderr is None or not sys.stderr.isatty():
        return prepared.load()
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    columns = (TextColumn("loading the {task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(whose: str, done: int, total: int) -> None:
            if whose not in tasks:
                tasks[whose] = bars.add_task(whose, total=total)
            bars.update(tasks[whose], completed=done)

        return prepared.load(show)


def _use_threads(threads: int | None, weight_bytes: int) -> None:
    import torch

    if threads is None and weight_bytes < _ONE_THREAD_BYTES:
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)


def _count_or_none(text: str) -> int:
    return 0 if text == "0" else count(text)
