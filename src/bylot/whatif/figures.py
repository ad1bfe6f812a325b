"""The figures of a what-if run: what was earned, how limits were kept, who was asked."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from bylot.numerics.jit import Floats
from bylot.reports.style import (
    BLACK,
    GREY,
    SeriesStyle,
    assign_styles,
    draw_seed_range,
    draw_std_band,
    load_pyplot,
    save_figure,
)
from bylot.whatif.plan import DISTRIBUTION_KINDS, WhatifPlan
from bylot.whatif.results import WhatifResults

MAX_LIMIT_PANELS = 24  # limits that get a panel of their own
MAX_EXPERT_ROWS = 40  # experts that get a line of their own
REFERENCE_LINES = {
    "panels": ("best full panels within the limits", "solid"),
    "exact": ("best independent draws within them", (0, (6, 2))),
    "set": ("best single panel within them", (0, (3, 1, 1, 1))),
    "equal": ("all experts equally often", (0, (1, 2))),
}


def draw_whatif(found: WhatifResults, folder: Path) -> dict[str, list[Path]]:
    """All figures that there are numbers for."""
    if not found.standings:
        return {}
    made = {"reward": draw_rewards(found, folder), "experts": draw_experts(found, folder)}
    if found.setup.problem.limits:
        made["limits"] = draw_limit_averages(found, folder)
    if any(found.at(level.number) for level in found.setup.levels):
        made["tradeoff"] = draw_sweep(found, folder)
    return made


def title_prefix(found: WhatifResults) -> str:
    """What every title of a made-up world begins with."""
    return "MADE-UP WORLD: " if found.setup.world.made_up else ""


def add_grid(axes: Any) -> None:
    """Faint lines to read values by."""
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def draw_rewards(found: WhatifResults, folder: Path) -> list[Path]:
    """Rolling mean reward of every policy against the yardsticks."""
    plt, setup = load_pyplot(), found.setup
    figure, axes = plt.subplots(figsize=(10, 4.8), layout="constrained")
    figure.suptitle(f"{title_prefix(found)}Reward of a request, mean of the last {setup.window:,}")
    for policy, look in assign_styles([*found.standings]).items():
        curve = found.standings[policy].rewards()
        late = curve._replace(
            t=curve.t[curve.t >= setup.window], seeds=curve.seeds[:, curve.t >= setup.window]
        )
        draw_std_band(axes, late.t, late, look, alpha=0.15)
        line = {"color": look.colour, "linestyle": look.line, "marker": look.marker}
        axes.plot(
            late.t, late.mean, markevery=0.1, markersize=5, linewidth=1.8, label=policy, **line
        )
    for what, (name, dashes) in REFERENCE_LINES.items():
        one = found.mark(what)
        if one is not None and (one.kept or what == "equal"):
            broken = "" if one.kept else ", which breaks limits"
            label = f"{name}{broken}: {one.value:.3f}"
            axes.axhline(one.value, color=BLACK, linewidth=1.2, linestyle=dashes, label=label)
    draw_period_ends(axes, found)
    axes.set(xlabel="requests", ylabel="reward", xlim=(0, setup.rounds))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    add_grid(axes)
    place = {"loc": "outside lower center", "ncols": 4, "frameon": False, "fontsize": 9}
    figure.legend(**place)
    return save_figure(figure, folder, "reward")


def draw_period_ends(axes: Any, found: WhatifResults) -> None:
    """Where a period ends, a faint line; nothing if there are too many to see."""
    setup = found.setup
    if setup.horizon is None and 0 < setup.rounds // setup.period <= 20:
        for end in range(setup.period, setup.rounds + 1, setup.period):
            axes.axvline(end, color=GREY, linewidth=0.7, alpha=0.5)


def draw_limit_averages(found: WhatifResults, folder: Path) -> list[Path]:
    """A panel a limit: what it averages so far under every policy, and where it is broken."""
    plt, setup = load_pyplot(), found.setup
    shown = range(min(MAX_LIMIT_PANELS, len(setup.problem.limits)))
    columns = min(3, len(shown))  # more would be hard to read on a small screen
    rows = math.ceil(len(shown) / columns)
    figure, panels = plt.subplots(
        rows,
        columns,
        figsize=(max(6.0, 3.1 * columns), 1.2 + 2.2 * rows),
        layout="constrained",
        sharex=True,
        squeeze=False,
    )
    what = "in each period" if has_several_periods(setup) else "so far"
    figure.suptitle(f"{title_prefix(found)}Average under each limit {what}; outside it is shaded")
    for axes, n in zip(panels.flat, shown, strict=False):
        draw_limit_panel(axes, found, n)
    for axes in [*panels.flat][len(shown) :]:
        axes.set_visible(False)
    for axes in [*panels.flat][max(0, len(shown) - columns) : len(shown)]:  # nothing is below them
        axes.set_xlabel("requests", fontsize=8)
        axes.tick_params(labelbottom=True)
    handles, names = panels[0, 0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "ncols": 6, "frameon": False, "fontsize": 9}
    figure.legend(handles, names, **place)
    return save_figure(figure, folder, "limits")


def draw_limit_panel(axes: Any, found: WhatifResults, n: int) -> None:
    """One limit, in the unit of the file: of each period, or else so far, where the first
    twentieth, which is mostly chance, is left out.
    """
    setup, promise = found.setup, found.setup.file.limits[n]
    lowest = highest = promise.written
    marker = "." if has_several_periods(setup) and setup.due // setup.period <= 50 else ""
    for policy, look in assign_styles([*found.standings]).items():
        one = found.standings[policy]
        curve = one.by_period(n, setup.period) if has_several_periods(setup) else one.spends(n)
        late = curve.t >= (0 if has_several_periods(setup) else setup.rounds / 20)
        scaled = curve._replace(
            t=curve.t[late], seeds=found.in_unit(promise, 1.0) * curve.seeds[:, late]
        )
        draw_seed_range(axes, scaled.t, scaled, look, alpha=0.15)
        axes.plot(
            scaled.t,
            scaled.mean,
            color=look.colour,
            linestyle=look.line,
            linewidth=1.5,
            marker=marker,
            label=policy,
        )
        lowest, highest = min(lowest, scaled.seeds.min()), max(highest, scaled.seeds.max())
    room = 0.12 * (highest - lowest) or 0.1 * promise.written or 1.0
    low, high = lowest - room, highest + room
    axes.axhline(promise.written, color=BLACK, linewidth=1.1)
    outside = (promise.written, high) if promise.limit.sign < 0 else (low, promise.written)
    axes.axhspan(*outside, color="#f3d9d0", zorder=0, linewidth=0)
    axes.set(ylim=(low, high), xlim=(0, setup.rounds))
    axes.set_title(wrap_title(promise.words, promise.limit.name), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=3)
    add_grid(axes)
    draw_period_ends(axes, found)


def has_several_periods(setup: WhatifPlan) -> bool:
    """Are there several periods, so that each is shown by itself?"""
    return setup.due > setup.period


def wrap_title(name: str, first: str, width: int = 32) -> str:
    """A long name over what is said of it, to fit above a small panel."""
    if len(name) <= width:
        return name
    head = first if len(first) <= width else f"{first[: width - 1]}…"
    return f"{head}\n{name.removeprefix(first).strip()}"


def draw_experts(found: WhatifResults, folder: Path) -> list[Path]:
    """A line an expert: in how many requests each policy asks it, the most asked on top."""
    plt, setup = load_pyplot(), found.setup
    series: dict[str, tuple[SeriesStyle, Floats]] = {
        policy: (look, found.standings[policy].asked)
        for policy, look in assign_styles([*found.standings]).items()
    }
    order = np.argsort(-found.headline.asked, kind="stable")[:MAX_EXPERT_ROWS]
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.21 * len(order)), layout="constrained")
    figure.suptitle(f"{title_prefix(found)}Share of requests in which an expert is asked")
    y = np.arange(len(order))[::-1]
    for policy, (look, asked) in series.items():
        axes.scatter(
            100 * asked[order],
            y,
            color=look.colour,
            marker=look.marker,
            s=26,
            label=policy,
            alpha=0.85,
        )
    kind = found.headline.kind
    best = found.mark(kind)
    if best is not None and best.asked is not None:
        ring = {"facecolors": "none", "edgecolors": BLACK, "s": 60, "linewidths": 0.9}
        axes.scatter(100 * best.asked[order], y, label=DISTRIBUTION_KINDS[kind].name, **ring)
    axes.set_yticks(y, [setup.problem.experts[i] for i in order], fontsize=8)
    axes.set(xlabel="% of requests", ylim=(-0.7, len(order) - 0.3))
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    add_grid(axes)
    place = {"loc": "outside lower center", "ncols": 5, "frameon": False, "fontsize": 9}
    figure.legend(**place)
    return save_figure(figure, folder, "experts")


def draw_sweep(found: WhatifResults, folder: Path) -> list[Path]:
    """Reward over the bound that was moved; hollow where some limit was left."""
    plt, setup = load_pyplot(), found.setup
    assert setup.sweep is not None
    promise = setup.sweep.promise
    figure, axes = plt.subplots(figsize=(9, 4.8), layout="constrained")
    figure.suptitle(f"{title_prefix(found)}What the bound on {promise.limit.name} buys")
    for kind in setup.kinds:
        name, dashes = REFERENCE_LINES[kind]
        marks = [found.mark(kind, level) for _, level in sweep_bounds(setup)]
        best = [np.nan if one is None else one.value for one in marks]
        x = [bound for bound, _ in sweep_bounds(setup)]
        axes.plot(x, best, color=BLACK, linestyle=dashes, linewidth=1.2, label=name)
    for policy, look in assign_styles(setup.policies).items():
        draw_sweep_line(axes, found, policy, look)
    axes.axvline(promise.written, color=GREY, linewidth=0.9)
    late = promise.written > np.mean(axes.get_xlim())  # then there is room before the line
    axes.annotate(
        "as in the file",
        (promise.written, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if late else 4, 0),
        textcoords="offset points",
        ha="right" if late else "left",
        fontsize=8,
        color=GREY,
    )
    side = promise.limit.side.replace("_", " ")
    axes.set(
        xlabel=f"{promise.limit.name} {side}, per {promise.per}", ylabel="mean reward of a request"
    )
    add_grid(axes)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return save_figure(figure, folder, "tradeoff")


def sweep_bounds(setup: WhatifPlan) -> list[tuple[float, int | None]]:
    """The bounds of the sweep in their order, each with its level, and that of the file (None)."""
    assert setup.sweep is not None
    own = setup.sweep.promise.written
    made = [(level.written, level.number) for level in setup.levels if level.written != own]
    return sorted([*made, (own, None)], key=lambda one: one[0])


def draw_sweep_line(axes: Any, found: WhatifResults, policy: str, look: SeriesStyle) -> None:
    """A policy over the bounds, with a gap where it did not play."""
    at = [(bound, found.at(level).get(policy)) for bound, level in sweep_bounds(found.setup)]
    if not any(one for _, one in at):
        return
    x = np.array([bound for bound, _ in at])
    y = np.array([np.nan if one is None else one.reward for _, one in at])
    far = np.array([0.0 if one is None else one.deviation for _, one in at])
    style = {"color": look.colour, "linestyle": look.line, "linewidth": 1.5, "label": look.name}
    axes.errorbar(x, y, yerr=far if far.any() else None, capsize=2.5, **style)
    face = ["white" if one is None or one.breaks else look.colour for _, one in at]
    axes.scatter(x, y, marker=look.marker, s=36, c=face, edgecolors=look.colour, zorder=3)
