"""Past the paper: in how many periods a limit was left, and what short periods cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.plots.groups import Groups, Key, Run, heading, spread
from bylot.plots.style import ENVIRONMENTS, GREY, HARDER, OURS, drawing, written

APART = 0.14
"""Between two policies, where two lengths of a period are 1 apart."""

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
    policies = [policy for policy in OURS if any(key.policy == policy for key in keys)]
    lengths = sorted({key.period or 0 for key in keys})
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
        for n, policy in enumerate(policies):
            aside = APART * (n - (len(policies) - 1) / 2)  # or they would hide each other
            of_policy = [Key("periods", environment, level, policy, 3, one) for one in lengths]
            at = {place + aside: key for place, key in enumerate(of_policy) if key in groups}
            line(axes[0, column], groups, at, bad)
            line(axes[1, column], groups, at, regret)
        marked(axes[:, column], lengths)
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


def line(axes: Any, groups: Groups, at: Mapping[float, Key], measure: Any) -> None:
    """One policy over the lengths of a period, each at its place."""
    if not at:
        return
    look = OURS[next(iter(at.values())).policy]
    y, reach = np.array([measure(groups, key) for key in at.values()]).T
    axes.errorbar(
        list(at),
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
    """The lengths that were played, as names and not to scale, and where nothing is lost."""
    for axes in panels:
        axes.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
        axes.set_xlim(-0.5, len(lengths) - 0.5)
        axes.tick_params(axis="x", length=0)
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        axes.grid(axis="y", alpha=0.25, linewidth=0.6)
        for edge in range(1, len(lengths)):
            axes.axvline(edge - 0.5, color=GREY, linewidth=0.6, alpha=0.6)
    panels[-1].set_xlabel("rounds of a period")
