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
    draw_limits(right, trace)
    return written(figure, folder, "demo")


def draw_limits(axes: Any, trace: Trace) -> None:
    """Running average of each limit's cost over its bound: 1 is the bound itself."""
    t = np.arange(1, len(trace.rewards) + 1)
    means = running_mean(trace.spend)
    for j, limit in enumerate(trace.problem.limits):
        colour, line = STYLES[j % len(STYLES)]
        sign = "≤" if limit.sign < 0 else "≥"
        label = f"{limit.name} {sign} {limit.bound:.3g}"
        axes.plot(t, means[:, j] / limit.bound, color=colour, linestyle=line, label=label)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set(xlabel="request", ylabel="average so far / bound", title="what it keeps")
    axes.set(xscale="log", yscale="log")
    axes.yaxis.set_major_locator(drawing().FixedLocator([0.25, 0.5, 1, 2, 4, 8]))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(drawing().NullLocator())
    axes.legend(frameon=False, fontsize=8)


def written(figure: Any, folder: Path, name: str) -> list[Path]:
    """Save as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=150)
    drawing().close(figure)
    return paths
