"""The figure of the first look: what plays earned, and how the first of them kept its limits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bylot.reports.style import BLUE, GREY, LIMIT_STYLES, ORANGE, load_pyplot, save_figure
from bylot.simulation import Trace, running_mean


def draw_demo(
    plays: Mapping[str, Trace], levels: Mapping[str, float], title: str, folder: Path
) -> list[Path]:
    """Left: reward of every play over time against some levels; right: the limits of the first."""
    plt = load_pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    figure.suptitle(title)
    for (name, trace), colour in zip(plays.items(), (BLUE, ORANGE), strict=False):
        t = np.arange(1, len(trace.rewards) + 1)
        window = max(1, len(t) // 50)
        smooth = np.convolve(trace.rewards, np.full(window, 1 / window), mode="valid")
        left.plot(t[window - 1 :], smooth, color=colour, linewidth=1.6, label=name)
    for name, level in levels.items():
        left.axhline(level, color=GREY, linewidth=1, linestyle="--")
        left.annotate(
            f"{name}\n{level:.3f}",
            (1.0, level),
            xytext=(4, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=GREY,
        )  # beside the panel, where no curve is
    left.set(xlabel="request", ylabel=f"reward (mean of {window})", title="what they earn")
    left.margins(y=0.1)
    put_legend_below(left)
    first, trace = next(iter(plays.items()))
    draw_limit_slack(right, trace, f"what {first} keeps")
    return save_figure(figure, folder, "demo")


def draw_limit_slack(axes: Any, trace: Trace, title: str) -> None:
    """Slack of each limit's running average in parts of its bound; below 0 is outside."""
    t = np.arange(1, len(trace.rewards) + 1)
    slack = trace.problem.signs * (running_mean(trace.spend) - trace.problem.bounds)
    for j, limit in enumerate(trace.problem.limits):
        colour, line = LIMIT_STYLES[j % len(LIMIT_STYLES)]
        label = f"{limit.name} {'≤' if limit.sign < 0 else '≥'} {limit.bound:.3g}"
        axes.plot(t, slack[:, j] / limit.bound, color=colour, linestyle=line, label=label)
    axes.set(xlabel="request", ylabel="slack / bound", xscale="log", xlim=(1, t[-1]))
    axes.set(title=title, ylim=(-1.0, None))
    axes.axhspan(-1.0, 0.0, color="#f3d9d0", zorder=0)
    axes.axhline(0.0, color="black", linewidth=1)
    corner = {"xycoords": "axes fraction", "ha": "right", "fontsize": 9}
    axes.annotate("outside its bound", (0.98, 0.03), color=ORANGE, **corner)
    put_legend_below(axes)


def put_legend_below(axes: Any) -> None:
    """Under the panel, where it covers no curve."""
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
