"""A comparison as a picture; matplotlib draws it and is asked for by nothing else."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from dspark.runtime.comparison import Comparison
from dspark.runtime.errors import InvalidRequest


def check_plot(file: str) -> None:
    """Nothing, if a picture can be written to `file`; better known before than after the run.

    Raises:
        InvalidRequest: matplotlib is not installed, or `file` is not a .png in a folder of ours.
    """
    if find_spec("matplotlib") is None:
        raise InvalidRequest(
            "--plot needs the package `matplotlib`: install it with `pip install 'dspark[plot]'`"
        )
    path = Path(file)
    if path.suffix.lower() != ".png":
        raise InvalidRequest(f"`{file}` does not end in .png")
    if not path.parent.is_dir() or path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidRequest(f"`{file}` cannot be written")


def plot(compared: Comparison, file: str) -> None:
    """Draws acceptance by position and tokens per second.

    Raises:
        InvalidRequest: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    accepted, speed = figure.subplots(1, 2, width_ratios=(2, 1))
    shares = compared.with_draft.acceptance.acceptance_per_position
    accepted.bar(range(1, len(shares) + 1), shares, color="tab:blue")
    accepted.set(
        title="accepted, with all before it",
        xlabel="draft position",
        ylabel="share of verified drafts",
        ylim=(0, 1),
        xticks=range(1, len(shares) + 1),
    )
    sides = (compared.without_draft, compared.with_draft)
    bars = speed.bar(
        ("without draft", "with draft"),
        [side.tokens_per_s for side in sides],
        color=("tab:gray", "tab:blue"),
    )
    speed.bar_label(bars, fmt="%.1f")
    speed.margins(y=0.15)
    speed.set(title=f"x {compared.speedup:.2f}", ylabel="tokens per second")
    try:
        figure.savefig(file, format="png", dpi=120)
    except OSError as error:
        reason = (error.strerror or "output error").lower()
        raise InvalidRequest(f"cannot write `{file}`: {reason}") from None
