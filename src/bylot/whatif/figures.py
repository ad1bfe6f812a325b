"""The figures of a what-if run: rewards, averages under the limits, experts, the sweep."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from bylot.reports import (
    BLACK,
    GREY,
    SeriesStyle,
    assign_styles,
    draw_std_band,
    make_panels,
    put_legend,
    save_figure,
)
from bylot.whatif.plan import DISTRIBUTION_KINDS, WhatifPlan
from bylot.whatif.results import WhatifResults

MAX_LIMIT_PANELS = 24
MAX_EXPERT_ROWS = 40
MAX_PERIOD_LINES = 20
VIOLATED_COLOUR = "#f3d9d0"
REFERENCE_LINES: dict[str, tuple[str, Any]] = {
    "panels": ("best {panels} under the limits", "solid"),
    "exact": ("best independent draws under the limits", (0, (6, 2))),
    "set": ("best fixed panel under the limits", (0, (3, 1, 1, 1))),
    "equal": ("all experts equally often", (0, (1, 2))),
}


def draw_whatif(results: WhatifResults, folder: Path) -> dict[str, list[Path]]:
    if not results.policies:
        return {}
    paths = {"reward": draw_rewards(results, folder), "experts": draw_experts(results, folder)}
    if results.plan.problem.limits:
        paths["limits"] = draw_limit_averages(results, folder)
    if any(results.policies_at(level.number) for level in results.plan.levels):
        paths["sweep"] = draw_bound_sweep(results, folder)
    return paths


def make_plots(
    results: WhatifResults, title: str, size: tuple[float, float], rows: int = 1, columns: int = 1
) -> tuple[Any, list[Any]]:
    """A figure with a grid of plots; the title of a synthetic scenario says so."""
    prefix = "SYNTHETIC SCENARIO: " if results.plan.scenario.synthetic else ""
    figure, grid = make_panels(rows, columns, size, f"{prefix}{title}", sharex=True)
    for axes in grid.flat:
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, [*grid.flat]


def draw_rewards(results: WhatifResults, folder: Path) -> list[Path]:
    """Rolling mean reward of each policy, and the references."""
    plan = results.plan
    title = f"Mean reward of the last {plan.window:,} requests"
    figure, (axes,) = make_plots(results, title, (10, 4.8))
    for policy, series in assign_styles([*results.policies]).items():
        curve = results.policies[policy].reward_curves()
        full = curve.t >= plan.window
        curve = curve._replace(t=curve.t[full], seeds=curve.seeds[:, full])
        draw_std_band(axes, curve.t, curve, series, alpha=0.15)
        axes.plot(
            *(curve.t, curve.mean),
            label=f"{policy}{', not allowed' if results.policies[policy].violated else ''}",
            color=series.colour,
            linestyle=series.line,
            linewidth=1.8,
            marker=series.marker,
            markevery=0.1,
            markersize=5,
        )
    for name, (label, dashes) in REFERENCE_LINES.items():
        one = results.reference(name)
        if one is not None and (one.kept or name == "equal"):
            note = "" if one.kept else ", not allowed"
            label = f"{label.format(panels=plan.panels)}{note}: {one.value:.3f}"
            axes.axhline(one.value, color=BLACK, linewidth=1.2, linestyle=dashes, label=label)
    draw_period_ends(axes, plan)
    axes.set(xlabel="requests", ylabel="reward", xlim=(0, plan.rounds))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    put_legend(figure, 3)
    return save_figure(figure, folder, "reward")


def draw_period_ends(axes: Any, plan: WhatifPlan) -> None:
    """Draw a faint line at the end of each period, unless there are too many."""
    has_periods = plan.horizon is None and plan.has_periods
    if has_periods and plan.rounds // plan.period <= MAX_PERIOD_LINES:
        for end in range(plan.period, plan.rounds + 1, plan.period):
            axes.axvline(end, color=GREY, linewidth=0.7, alpha=0.5)


def draw_limit_averages(results: WhatifResults, folder: Path) -> list[Path]:
    """One plot per limit: the average under each policy; the violating side is shaded."""
    plan = results.plan
    count = min(MAX_LIMIT_PANELS, len(plan.problem.limits))
    columns = min(3, count)  # more would be hard to read on a small screen
    rows = math.ceil(count / columns)
    size = (max(6.0, 3.1 * columns), 1.2 + 2.2 * rows)
    what = "in each period" if plan.has_several_periods else "so far"
    title = (
        "Each limit in its periods or windows; violations are shaded"
        if plan.has_windows
        else f"Average under each limit {what}; violations are shaded"
    )
    figure, plots = make_plots(results, title, size, rows, columns)
    for n, axes in enumerate(plots):
        if n < count:
            draw_limit_panel(axes, results, n)
        axes.set_visible(n < count)
        if count - columns <= n < count:  # the lowest plot of its column
            axes.set_xlabel("requests", fontsize=8)
            axes.tick_params(labelbottom=True)
    put_legend(figure, 6, *plots[0].get_legend_handles_labels())
    return save_figure(figure, folder, "limits")


def draw_limit_panel(axes: Any, results: WhatifResults, n: int) -> None:
    """Draw one limit in the unit of the file: by period or window, or else without the noisy first
    rounds.
    """
    plan, limit = results.plan, results.plan.file.limits[n]
    in_windows = limit.limit.per is not None
    several = plan.has_several_periods or in_windows
    unit = 1.0 if in_windows else limit.unit(plan.problem.draws)
    lowest = highest = limit.written
    for policy, series in assign_styles([*results.policies]).items():
        curve = results.policies[policy].spend_curves(n, plan.period if several else None)
        shown = curve.t >= (0 if several else plan.rounds / 20)
        t, seeds = curve.t[shown], curve.seeds[:, shown] / unit
        line = {"label": policy, "color": series.colour, "linestyle": series.line}
        if not t.size:  # so many requests were refused that no period is complete
            note = f"no complete {'window' if in_windows else 'period'}"
            place = {"transform": axes.transAxes, "ha": "center", "va": "center"}
            axes.text(0.5, 0.5, note, fontsize=8, **place)
            axes.plot([], [], **line)
            continue
        low, high = seeds.min(axis=0), seeds.max(axis=0)
        axes.fill_between(t, low, high, color=series.colour, alpha=0.15, linewidth=0)
        marker = "." if several and curve.t.size <= 50 else ""
        axes.plot(t, seeds.mean(axis=0), marker=marker, linewidth=1.5, **line)
        lowest, highest = min(lowest, low.min()), max(highest, high.max())
    margin = 0.12 * (highest - lowest) or 0.1 * limit.written or 1.0
    low, high = lowest - margin, highest + margin
    axes.axhline(limit.written, color=BLACK, linewidth=1.1)
    violated = (limit.written, high) if limit.limit.sign < 0 else (low, limit.written)
    axes.axhspan(*violated, color=VIOLATED_COLOUR, zorder=0, linewidth=0)
    axes.set(ylim=(low, high), xlim=(0, plan.rounds))
    axes.set_title(wrap_title(limit.words, limit.limit.name), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=3)
    draw_period_ends(axes, plan)


def wrap_title(text: str, name: str, width: int = 32) -> str:
    """Put the name of a limit on a line of its own if the text is too long."""
    if len(text) <= width:
        return text
    head = name if len(name) <= width else f"{name[: width - 1]}…"
    return f"{head}\n{text.removeprefix(name).strip()}"


def draw_experts(results: WhatifResults, folder: Path) -> list[Path]:
    """One row per expert: the share of requests in which each policy asks it."""
    headline = results.headline
    order = np.argsort(-headline.asked, kind="stable")[:MAX_EXPERT_ROWS]
    title = "Share of requests in which an expert is asked"
    figure, (axes,) = make_plots(results, title, (9, 1.6 + 0.21 * len(order)))
    y = np.arange(len(order))[::-1]
    for policy, series in assign_styles([*results.policies]).items():
        x = 100 * results.policies[policy].asked[order]
        axes.scatter(
            x, y, s=26, color=series.colour, marker=series.marker, alpha=0.85, label=policy
        )
    best = results.reference(headline.kind)
    if best is not None and best.asked is not None:
        ring = {"facecolors": "none", "edgecolors": BLACK, "s": 60, "linewidths": 0.9}
        label = DISTRIBUTION_KINDS[headline.kind].label
        axes.scatter(100 * best.asked[order], y, label=label, **ring)
    axes.set_yticks(y, [results.plan.problem.experts[i] for i in order], fontsize=8)
    axes.set(xlabel="% of requests", ylim=(-0.7, len(order) - 0.3))
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    put_legend(figure, 5)
    return save_figure(figure, folder, "experts")


def draw_bound_sweep(results: WhatifResults, folder: Path) -> list[Path]:
    """Reward against the bound that is varied; hollow where a limit was violated."""
    plan = results.plan
    assert plan.sweep is not None
    limit = plan.sweep.limit
    title = f"Reward against the bound on {limit.limit.name}"
    figure, (axes,) = make_plots(results, title, (9, 4.8))
    for kind in plan.kinds:
        label, dashes = REFERENCE_LINES[kind]
        best = [results.reference(kind, level) for _, level in plan.bounds]
        axes.plot(
            [bound for bound, _ in plan.bounds],
            [np.nan if one is None else one.value for one in best],
            color=BLACK,
            linestyle=dashes,
            linewidth=1.2,
            label=label.format(panels=plan.panels),
        )
    for policy, series in assign_styles(plan.policies).items():
        draw_sweep_line(axes, results, policy, series)
    axes.axvline(limit.written, color=GREY, linewidth=0.9)
    left = limit.written > np.mean(axes.get_xlim())  # where there is more space
    place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    place |= {"xytext": (-4, 0), "ha": "right"} if left else {"xytext": (4, 0), "ha": "left"}
    axes.annotate("as in the file", (limit.written, 0.02), **place, fontsize=8, color=GREY)
    side = limit.limit.side.replace("_", " ")
    axes.set(xlabel=f"{limit.limit.name} {side}, {limit.per_words}", ylabel="mean reward")
    put_legend(figure, 5)
    return save_figure(figure, folder, "sweep")


def draw_sweep_line(axes: Any, results: WhatifResults, policy: str, series: SeriesStyle) -> None:
    """Draw a policy over the bounds, with a gap where it did not run."""
    bounds = results.plan.bounds
    found = [results.policies_at(level).get(policy) for _, level in bounds]
    if not any(found):
        return
    x = [bound for bound, _ in bounds]
    y = [np.nan if one is None else one.reward for one in found]
    error = np.array([0.0 if one is None else one.deviation for one in found])
    line = {"color": series.colour, "linestyle": series.line, "linewidth": 1.5, "label": policy}
    axes.errorbar(x, y, yerr=error if error.any() else None, capsize=2.5, **line)
    face = ["white" if one is None or one.violated else series.colour for one in found]
    axes.scatter(x, y, marker=series.marker, s=36, c=face, edgecolors=series.colour, zorder=3)
