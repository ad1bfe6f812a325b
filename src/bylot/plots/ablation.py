"""Past the paper: our policies without one of their parts."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from bylot.experiments import GUARDED, HARD, PARTS
from bylot.plots.groups import Groups, Key, Run, heading, spread
from bylot.plots.style import ENVIRONMENTS, GREY, HARDER, drawing, written

NAMES = {"": "as it is", **PARTS}


def variant(policy: str, part: str) -> str:
    """The name under which a policy plays without a part."""
    return f"{policy}:{part}" if part else policy


def draw(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """A row a policy; feasible runs, regret, and rounds that the guard replaced."""
    groups = Groups(cells)
    played = {key.policy.partition(":")[0] for key in groups if key.experiment == "ablation"}
    policies = [policy for policy in GUARDED if policy in played]
    if not policies:
        return []
    plt = drawing()
    figure, axes = plt.subplots(
        len(policies),
        len(MEASURES),
        figsize=(13, 1.4 + 4.4 * len(policies)),
        layout="constrained",
        sharex="col",
        sharey=True,
        squeeze=False,
    )
    title = "Past the paper: our policies without one of their parts"
    figure.suptitle(heading(title, run, groups.seeds("ablation")))
    for row, policy in enumerate(policies):
        for panel, (label, measure) in zip(axes[row], MEASURES.items(), strict=True):
            dots(panel, groups, policy, measure)
            panel.set_title(policy, fontsize=10)
            if measure is feasible:
                panel.set_xlim(-5, 105)
            if row == len(policies) - 1:
                panel.set_xlabel(label)
    handles, names = legend(plt)
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return written(figure, folder, "beyond-ablation")


def dots(axes: Any, groups: Groups, policy: str, measure: Callable[..., Any]) -> None:
    """A line of dots a part: colours are levels, hollow ones the regime."""
    places = list(product(HARD, ENVIRONMENTS))
    for y, part in enumerate(NAMES):
        for n, (level, environment) in enumerate(places):
            key = Key("ablation", environment, level, variant(policy, part), 3)
            if key not in groups:
                continue
            x, reach = measure(groups, key)
            look = HARDER[level]
            axes.errorbar(
                x,
                y + 0.21 * (n - (len(places) - 1) / 2),
                xerr=reach or None,
                color=look.colour,
                marker=look.marker,
                markerfacecolor=look.colour if environment == "stochastic" else "white",
                markersize=6,
                capsize=2,
                linewidth=1.2,
            )
    axes.set_yticks(range(len(NAMES)), list(NAMES.values()))
    axes.set_ylim(len(NAMES) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3, linewidth=0.6)
    for edge in range(1, len(NAMES)):
        axes.axhline(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)


def feasible(groups: Groups, key: Key) -> tuple[float, float]:
    """Runs within all limits, in %."""
    return float(100 * (groups.values(key, "outside") <= 0).mean()), 0.0


def regret(groups: Groups, key: Key) -> tuple[float, float]:
    """Mean over seeds and its standard error."""
    values = groups.values(key, "regret_true")
    return float(values.mean()), float(spread(values)) / len(values) ** 0.5


def replaced(groups: Groups, key: Key) -> tuple[float, float]:
    """Rounds of a run that the guard replaced."""
    return float(groups.values(key, "replaced").mean()), 0.0


MEASURES = {
    "% of runs within all limits": feasible,
    "regret, mean ± 1 standard error of the mean (not std)": regret,
    "rounds of a run that the guard replaced": replaced,
}


def legend(plt: Any) -> tuple[list[Any], list[str]]:
    """Levels by colour and marker, environments by the filling."""
    marks, names = [], []
    for level, environment in product(HARD, ENVIRONMENTS):
        look = HARDER[level]
        full = look.colour if environment == "stochastic" else "white"
        marks.append(
            plt.matplotlib.lines.Line2D(
                [], [], color=look.colour, marker=look.marker, markerfacecolor=full, linestyle=""
            )
        )
        names.append(f"{look.name} limits, {ENVIRONMENTS[environment]}")
    return marks, names
