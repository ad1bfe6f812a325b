"""Figures, from finished traces only: nothing here plays or computes an optimum."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bylot.errors import BylotError
from bylot.kernels.compile import Floats
from bylot.simulation import Trace, running_mean

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"  # safe for colour-blind eyes
STYLES = [(BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), ("#CC79A7", ":"), ("#56B4E9", "-")]


def folder_for(path: Path) -> Path:
    """The folder, made if need be: to be asked before the work whose figures go there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BylotError(f"{path} cannot be a folder for figures: {error.strerror}") from None
    return path


def drawing() -> Any:
    """matplotlib without a screen; it is an extra, so its absence is explained."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise BylotError("figures need matplotlib: pip install 'bylot[plot]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def learning_and_limits(
    trace: Trace, expected: Floats, levels: Mapping[str, float], title: str, folder: Path
) -> list[Path]:
    """Left: expected reward of the policy over time against some levels; right: every limit."""
    plt = drawing()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    figure.suptitle(title)
    t = np.arange(1, len(expected) + 1)
    window = max(1, len(expected) // 100)
    smooth = np.convolve(expected, np.full(window, 1 / window), mode="valid")
    left.plot(t[window - 1 :], smooth, color=BLUE, linewidth=1.6)
    end = (t[-1], smooth[-1])
    left.annotate("omd", end, xytext=(0, -16), textcoords="offset points", ha="right", color=BLUE)
    for name, level in levels.items():
        left.axhline(level, color=GREY, linewidth=1, linestyle="--")
        left.annotate(
            f"{name} {level:.3f}",
            (t[-1] / 2, level),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=GREY,
        )
    left.set(xlabel="request", ylabel=f"expected reward (mean of {window})", title="what it earns")
    left.margins(y=0.1)
    draw_limits(right, trace)
    return written(figure, folder, "demo")


def draw_limits(axes: Any, trace: Trace) -> None:
    """Slack of each limit's running average in parts of its bound; below 0 is outside."""
    t = np.arange(1, len(trace.rewards) + 1)
    slack = trace.problem.signs * (running_mean(trace.spend) - trace.problem.bounds)
    for j, limit in enumerate(trace.problem.limits):
        colour, line = STYLES[j % len(STYLES)]
        label = f"{limit.name} {'≤' if limit.sign < 0 else '≥'} {limit.bound:.3g}"
        axes.plot(t, slack[:, j] / limit.bound, color=colour, linestyle=line, label=label)
    axes.set(xlabel="request", ylabel="slack / bound", xscale="log", xlim=(1, t[-1]))
    axes.set(title="what it keeps", ylim=(-1.0, None))
    axes.axhspan(-1.0, 0.0, color="#f3d9d0", zorder=0)
    axes.axhline(0.0, color="black", linewidth=1)
    corner = {"xycoords": "axes fraction", "ha": "right", "fontsize": 9}
    axes.annotate("outside its bound", (0.98, 0.03), color=ORANGE, **corner)
    axes.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1.0, 0.9))


def written(figure: Any, folder: Path, name: str) -> list[Path]:
    """Save as PNG and SVG."""
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=150)
    drawing().close(figure)
    return paths
