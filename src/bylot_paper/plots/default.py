"""What the default is chosen by, at a glance: who loses what where, and who keeps the limits."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot.reports.style import BLACK, BLUE, GREY, ORANGE, load_pyplot, save_figure
from bylot_paper.analysis import (
    POLICY_ORDER,
    RunManifest,
    collect_entries,
    format_seed_count,
    is_synthetic,
    name_crowd,
)
from bylot_paper.default_rule import REFERENCE_POLICY, ResultLine, find_counted_places

COLOUR_RATIO = 4.0
"""Colours end at this many times what the reference loses, and at one part in as many."""

INFEASIBLE_COLOUR = "#E4E4E4"


def draw_contest(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """A row a policy, a column a place; the number is the gap in thousandths of the reward's
    range, the colour compares it with the reference's, grey tiles left a limit.
    """
    lines = [one.line for one in collect_entries(cells, run) if one.line.period is None]
    if not any(line.gaps for line in lines):
        return []
    plt = load_pyplot()
    tiles = {(line.policy, line.place): line for line in lines if line.gaps}
    scale = find_counted_places(lines)
    places = list(dict.fromkeys(line.place for line in lines))
    policies = [policy for policy in POLICY_ORDER if any(line.policy == policy for line in lines)]
    seeds = [len(line.gaps) for line in tiles.values()]
    figure, axes = plt.subplots(
        figsize=(3.2 + 0.78 * len(places), 3.4 + 0.46 * len(policies)), layout="constrained"
    )
    mark = "SYNTHETIC: " if is_synthetic(run) else ""
    played = f"{name_crowd(run)} crowd and other worlds, {run['rounds']:,} rounds"
    figure.suptitle(
        f"{mark}What every policy loses in every world\n"
        f"{played}, {format_seed_count((min(seeds), max(seeds)))}"
    )
    for y, policy in enumerate(policies):
        for x, place in enumerate(places):
            if (policy, place) in tiles:
                draw_tile(axes, x, y, tiles[policy, place], scale.get(place))
    draw_tile_frame(axes, places, policies, lines)
    draw_tile_legend(plt, axes)
    return save_figure(figure, folder, "default")


def draw_tile(axes: Any, x: int, y: int, line: ResultLine, reference: float | None) -> None:
    """One policy in one place."""
    broke, gap = line.kept < line.runs, float(np.mean(list(line.gaps.values())))
    colour = INFEASIBLE_COLOUR if broke else choose_tile_colour(gap, reference)
    axes.add_patch(
        load_pyplot().Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="w")
    )
    text = f"{1_000 * gap:.1f}"
    if broke:
        text = f"{1_000 * gap:.0f}\n{line.kept}/{line.runs} kept"
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=6.5 if broke else 9,
        color=GREY if broke else BLACK,
    )


def choose_tile_colour(gap: float, reference: float | None) -> Any:
    """White where the gap is the reference's; blue is less, orange more, on a scale of ratios."""
    from matplotlib.colors import to_rgb

    if reference is None:
        return "white"
    ratio = max(gap, reference / COLOUR_RATIO) / reference
    part = float(np.clip(np.log(ratio) / np.log(COLOUR_RATIO), -1.0, 1.0))
    end = np.array(to_rgb(ORANGE if part > 0 else BLUE))
    return tuple(1.0 - 0.75 * abs(part) * (1.0 - end))


def draw_tile_frame(
    axes: Any, places: Sequence[str], policies: Sequence[str], lines: list[ResultLine]
) -> None:
    """Names at the edges, and a gap in the lines between worlds."""
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(len(policies) - 0.5, -0.5)
    axes.set_xticks(range(len(places)), places, rotation=40, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(policies)), policies)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    world = {line.place: line.scenario for line in lines}
    for x, (one, other) in enumerate(pairwise(places)):
        if world[one] != world[other]:
            axes.axvline(x + 0.5, color=BLACK, linewidth=1.2)


def draw_tile_legend(plt: Any, axes: Any) -> None:
    """What colours and numbers mean."""
    shown = {
        f"loses a quarter of what {REFERENCE_POLICY} loses, or less": choose_tile_colour(
            1 / COLOUR_RATIO, 1.0
        ),
        f"as much as {REFERENCE_POLICY}": "white",
        "4 times as much, or more": choose_tile_colour(COLOUR_RATIO, 1.0),
        "left a limit in some run: may not be the default": INFEASIBLE_COLOUR,
    }
    patches = [
        plt.Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor=GREY, linewidth=0.6)
        for colour in shown.values()
    ]
    axes.figure.legend(
        patches, list(shown), loc="outside lower center", ncols=2, frameon=False, fontsize=9
    )
    axes.set_xlabel(
        "Numbers: reward of the best mixture of panels under the limits, less that of the policy, "
        "in thousandths",
        fontsize=9,
    )
