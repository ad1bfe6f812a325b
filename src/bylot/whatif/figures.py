"""The figures of a what-if run: what was earned, how limits were kept, who was asked."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bylot.kernels.compile import Floats
from bylot.plots.band import band, reach
from bylot.plots.looks import looks
from bylot.plots.style import BLACK, GREY, Look, drawing, written
from bylot.whatif.findings import Findings, limit_name

PANELS = 24  # limits that get a panel of their own
EXPERTS = 40  # experts that get a line of their own
LEVELS = {
    "exact": ("best fixed law within the limits", (0, (6, 2))),
    "set": ("best single panel within them", (0, (3, 1, 1, 1))),
    "equal": ("all experts equally often", (0, (1, 2))),
}


def draw(found: Findings, folder: Path) -> dict[str, list[Path]]:
    """All figures that there are numbers for."""
    if not found.standings:
        return {}
    made = {"reward": rewards(found, folder), "experts": experts(found, folder)}
    if found.setup.problem.limits:
        made["limits"] = limits(found, folder)
    if any(found.at(level.number) for level in found.setup.levels):
        made["tradeoff"] = tradeoff(found, folder)
    return made


def mark(found: Findings) -> str:
    """What every title of a made-up world begins with."""
    return "MADE-UP WORLD: " if found.setup.world.made_up else ""


def grid(axes: Any) -> None:
    """Faint lines to read values by."""
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def rewards(found: Findings, folder: Path) -> list[Path]:
    """Rolling mean reward of every policy against the yardsticks."""
    plt, setup = drawing(), found.setup
    figure, axes = plt.subplots(figsize=(10, 4.8), layout="constrained")
    figure.suptitle(f"{mark(found)}Reward of a request, mean of the last {setup.window:,}")
    for policy, look in looks([*found.standings]).items():
        curve = found.standings[policy].rewards()
        late = curve._replace(
            t=curve.t[curve.t >= setup.window], seeds=curve.seeds[:, curve.t >= setup.window]
        )
        band(axes, late.t, late, look, alpha=0.15)
        line = {"color": look.colour, "linestyle": look.line, "marker": look.marker}
        axes.plot(
            late.t, late.mean, markevery=0.1, markersize=5, linewidth=1.8, label=policy, **line
        )
    for what, (name, dashes) in LEVELS.items():
        one = found.mark(what)
        if one is not None and (one.kept or what == "equal"):
            broken = "" if one.kept else ", which breaks limits"
            label = f"{name}{broken}: {one.value:.3f}"
            axes.axhline(one.value, color=BLACK, linewidth=1.2, linestyle=dashes, label=label)
    ends(axes, found)
    axes.set(xlabel="requests", ylabel="reward", xlim=(0, setup.rounds))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    grid(axes)
    place = {"loc": "outside lower center", "ncols": 4, "frameon": False, "fontsize": 9}
    figure.legend(**place)
    return written(figure, folder, "reward")


def ends(axes: Any, found: Findings) -> None:
    """Where a period ends, a faint line; nothing if there are too many to see."""
    setup = found.setup
    if setup.horizon is None and 0 < setup.rounds // setup.period <= 20:
        for end in range(setup.period, setup.rounds + 1, setup.period):
            axes.axvline(end, color=GREY, linewidth=0.7, alpha=0.5)


def limits(found: Findings, folder: Path) -> list[Path]:
    """A panel a limit: what it averages so far under every policy, and where it is broken."""
    plt, setup = drawing(), found.setup
    shown = range(min(PANELS, len(setup.problem.limits)))
    columns = len(shown) if len(shown) <= 3 else min(4, math.ceil(math.sqrt(len(shown))))
    rows = math.ceil(len(shown) / columns)
    figure, panels = plt.subplots(
        rows,
        columns,
        figsize=(max(6.0, 3.1 * columns), 1.2 + 2.2 * rows),
        layout="constrained",
        sharex=True,
        squeeze=False,
    )
    figure.suptitle(f"{mark(found)}Average under each limit so far; outside it is shaded")
    for axes, n in zip(panels.flat, shown, strict=False):
        limit_panel(axes, found, n)
    for axes in [*panels.flat][len(shown) :]:
        axes.set_visible(False)
    for axes in [*panels.flat][max(0, len(shown) - columns) : len(shown)]:  # nothing is below them
        axes.set_xlabel("requests", fontsize=8)
        axes.tick_params(labelbottom=True)
    handles, names = panels[0, 0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "ncols": 6, "frameon": False, "fontsize": 9}
    figure.legend(handles, names, **place)
    return written(figure, folder, "limits")


def limit_panel(axes: Any, found: Findings, n: int) -> None:
    """One limit, in the unit of the file; the first twentieth, which is mostly chance, left out."""
    setup, promise = found.setup, found.setup.file.promises[n]
    lowest = highest = promise.written
    for policy, look in looks([*found.standings]).items():
        curve = found.standings[policy].spends(n)
        late = curve.t >= setup.rounds / 20
        scaled = curve._replace(
            t=curve.t[late], seeds=found.in_unit(promise, 1.0) * curve.seeds[:, late]
        )
        reach(axes, scaled.t, scaled, look, alpha=0.15)
        axes.plot(
            scaled.t,
            scaled.mean,
            color=look.colour,
            linestyle=look.line,
            linewidth=1.5,
            label=policy,
        )
        lowest, highest = min(lowest, scaled.seeds.min()), max(highest, scaled.seeds.max())
    room = 0.12 * (highest - lowest) or 0.1 * promise.written or 1.0
    low, high = lowest - room, highest + room
    axes.axhline(promise.written, color=BLACK, linewidth=1.1)
    outside = (promise.written, high) if promise.limit.sign < 0 else (low, promise.written)
    axes.axhspan(*outside, color="#f3d9d0", zorder=0, linewidth=0)
    axes.set(ylim=(low, high), xlim=(0, setup.rounds))
    axes.set_title(in_two_lines(limit_name(promise), promise.limit.name), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=3)
    grid(axes)
    ends(axes, found)


def in_two_lines(name: str, first: str, width: int = 32) -> str:
    """A long name over what is said of it, to fit above a small panel."""
    if len(name) <= width:
        return name
    head = first if len(first) <= width else f"{first[: width - 1]}…"
    return f"{head}\n{name.removeprefix(first).strip()}"


def experts(found: Findings, folder: Path) -> list[Path]:
    """A line an expert: in how many requests each policy asks it, the most asked on top."""
    plt, setup = drawing(), found.setup
    series: dict[str, tuple[Look, Floats]] = {
        policy: (look, found.standings[policy].asked)
        for policy, look in looks([*found.standings]).items()
    }
    order = np.argsort(-lead(found), kind="stable")[:EXPERTS]
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.21 * len(order)), layout="constrained")
    figure.suptitle(f"{mark(found)}Share of requests in which an expert is asked")
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
    best = found.mark("exact")
    if best is not None and best.asked is not None:
        ring = {"facecolors": "none", "edgecolors": BLACK, "s": 60, "linewidths": 0.9}
        axes.scatter(100 * best.asked[order], y, label="best fixed law", **ring)
    axes.set_yticks(y, [setup.problem.experts[i] for i in order], fontsize=8)
    axes.set(xlabel="% of requests", ylim=(-0.7, len(order) - 0.3))
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    grid(axes)
    place = {"loc": "outside lower center", "ncols": 5, "frameon": False, "fontsize": 9}
    figure.legend(**place)
    return written(figure, folder, "experts")


def lead(found: Findings) -> Floats:
    """How often the policy that the report is about asks each expert."""
    return (found.best or next(iter(found.standings.values()))).asked


def tradeoff(found: Findings, folder: Path) -> list[Path]:
    """Reward over the bound that was moved; hollow where some limit was left."""
    plt, setup = drawing(), found.setup
    assert setup.sweep is not None
    promise = setup.sweep.promise
    figure, axes = plt.subplots(figsize=(9, 4.8), layout="constrained")
    figure.suptitle(f"{mark(found)}What the bound on {promise.limit.name} buys")
    best = {
        level.written: one.value
        for level in setup.levels
        if (one := found.mark("exact", level.number)) is not None
    }
    axes.plot(
        [*best],
        [*best.values()],
        color=BLACK,
        linestyle=(0, (6, 2)),
        linewidth=1.2,
        label="best fixed law within the limits",
    )
    for policy, look in looks(setup.policies).items():
        line(axes, policy_points(found, policy), look)
    axes.axvline(promise.written, color=GREY, linewidth=0.9)
    axes.annotate(
        "as in the file",
        (promise.written, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=8,
        color=GREY,
    )
    side = promise.limit.side.replace("_", " ")
    axes.set(
        xlabel=f"{promise.limit.name} {side}, per {promise.per}", ylabel="mean reward of a request"
    )
    grid(axes)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return written(figure, folder, "tradeoff")


def policy_points(found: Findings, policy: str) -> Mapping[float, tuple[float, float, bool]]:
    """Of each level that a policy was played at: reward, deviation, whether it kept the limits."""
    points = {}
    for level in found.setup.levels:
        one = found.at(level.number).get(policy)
        if one is not None:
            points[level.written] = one.reward, one.deviation, one.keeps
    return points


def line(axes: Any, points: Mapping[float, tuple[float, float, bool]], look: Look) -> None:
    """A policy over the levels."""
    if not points:
        return
    x = np.array([*points])
    y, reach, kept = (np.array(column) for column in zip(*points.values(), strict=True))
    style = {"color": look.colour, "linestyle": look.line, "linewidth": 1.5, "label": look.name}
    axes.errorbar(x, y, yerr=reach if reach.any() else None, capsize=2.5, **style)
    face = [look.colour if ok else "white" for ok in kept]
    axes.scatter(x, y, marker=look.marker, s=36, c=face, edgecolors=look.colour, zorder=3)
