"""Past the paper: in how many periods a limit was left, and what short periods cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.plots.groups import Groups, Key, Run, heading, spread
from bylot.plots.style import ENVIRONMENTS, GREY, HARDER, OURS, drawing, written

Place = tuple[str, str]
"""A level and an environment."""


def draw(cells: pl.DataFrame, run: Run, folder: Path) -> list[Path]:
    """A column a level and environment: bad periods above, regret below, by length of a period."""
    groups = Groups(cells)
    keys = [key for key in groups if key.experiment == "periods"]
    if not keys:
        return []
    plt = drawing()
    found = {(key.level, key.environment) for key in keys}
    places = [place for place in every() if place in found]
    figure, axes = plt.subplots(
        2,
        len(places),
        figsize=(1.5 + 3.2 * len(places), 7.6),
        layout="constrained",
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    title = "Past the paper: limits that are to hold in every period, no end in sight"
    figure.suptitle(heading(title, run, groups.seeds("periods"), "periods"))
    for column, place in enumerate(places):
        level, environment = place
        axes[0, column].set_title(f"{ENVIRONMENTS[environment]}, {level}", fontsize=10)
        here = [key for key in keys if (key.level, key.environment) == place]
        for policy in OURS:
            of_policy = sorted(
                (key for key in here if key.policy == policy), key=lambda key: key.period or 0
            )
            line(axes[0, column], groups, of_policy, bad)
            line(axes[1, column], groups, of_policy, regret)
        marked(axes[:, column], sorted({key.period or 0 for key in here}))
    axes[0, 0].set_ylabel("% of periods outside a limit")
    axes[1, 0].set_ylabel("regret, mean ± 1 std over seeds")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return written(figure, folder, "beyond-periods")


def every() -> list[Place]:
    """All places in the order of the figure."""
    return [(level, environment) for level in HARDER for environment in ENVIRONMENTS]


def bad(groups: Groups, key: Key) -> tuple[float, float]:
    """The share of all periods that left a limit, in %, and no spread: it is a count."""
    left = groups.values(key, "bad_periods").sum()
    return float(100 * left / max(1.0, groups.values(key, "periods").sum())), 0.0


def regret(groups: Groups, key: Key) -> tuple[float, float]:
    """Mean and standard deviation over seeds."""
    values = groups.values(key, "regret_true")
    return float(values.mean()), float(spread(values))


def line(axes: Any, groups: Groups, keys: Sequence[Key], measure: Any) -> None:
    """One policy over the lengths of a period."""
    if not keys:
        return
    look, places = OURS[keys[0].policy], list(OURS)
    aside = 1.06 ** (
        places.index(keys[0].policy) - len(places) / 2
    )  # or they would hide each other
    y, reach = np.array([measure(groups, key) for key in keys]).T
    axes.errorbar(
        [aside * (key.period or 0) for key in keys],
        y,
        yerr=reach if reach.any() else None,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markersize=6,
        capsize=2.5,
        linewidth=1.6,
        label=look.name,
    )


def marked(panels: Sequence[Any], lengths: Sequence[int]) -> None:
    """The lengths that were played, and where nothing is lost."""
    for axes in panels:
        axes.set_xscale("log")
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.minorticks_off()
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        axes.grid(alpha=0.25, linewidth=0.6)
    panels[-1].set_xlabel("rounds of a period")
