"""The figure behind the default: the loss of every policy in every scenario."""

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
from bylot_paper.plots.panels import make_panels, put_legend

COLOUR_RATIO = 4.0
"""The colour scale ends at this ratio to the loss of the reference, and at its inverse."""

INFEASIBLE_COLOUR = "#E4E4E4"


def draw_contest(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """The comparison of all policies in all scenarios, from records."""
    return draw_contest_lines([one.line for one in collect_entries(cells, run)], run, folder)


def draw_contest_lines(results: Sequence[ResultLine], run: RunManifest, folder: Path) -> list[Path]:
    """One row per policy, one column per place. The number is the gap in thousandths of the
    reward's range, the colour compares it with the reference's, grey tiles violated a limit.
    """
    lines = [line for line in results if line.period is None]
    tiles = {(line.policy, line.place): line for line in lines if line.gaps}
    if not tiles:
        return []
    scale = find_counted_places(lines)
    places = list(dict.fromkeys(line.place for line in lines))
    policies = [policy for policy in POLICY_ORDER if any(line.policy == policy for line in lines)]
    seeds = [len(line.gaps) for line in tiles.values()]
    mark = "SYNTHETIC: " if is_synthetic(run) else ""
    played = f"{name_crowd(run)} crowd and other scenarios, {run['rounds']:,} rounds"
    title = f"{mark}Loss of every policy, by scenario\n"
    title += f"{played}, {format_seed_count((min(seeds), max(seeds)))}"
    size = 3.2 + 0.78 * len(places), 3.4 + 0.46 * len(policies)
    figure, [[axes]] = make_panels(1, 1, size, title)
    for y, policy in enumerate(policies):
        for x, place in enumerate(places):
            if (policy, place) in tiles:
                draw_tile(axes, x, y, tiles[policy, place], scale.get(place))
    draw_tile_frame(axes, places, policies, lines)
    draw_tile_legend(figure)
    axes.set_xlabel(
        "Numbers: reward of the best mixture of panels under the limits minus that of the policy, "
        "in thousandths",
        fontsize=9,
    )
    return save_figure(figure, folder, "default")


def draw_tile(axes: Any, x: int, y: int, line: ResultLine, reference: float | None) -> None:
    """One policy in one place."""
    broke, gap = line.kept < line.runs, float(np.mean(list(line.gaps.values())))
    colour = INFEASIBLE_COLOUR if broke else choose_tile_colour(gap, reference)
    tile = load_pyplot().Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="w")
    axes.add_patch(tile)
    look: dict[str, Any] = {"fontsize": 9, "color": BLACK}
    text = f"{1_000 * gap:.1f}"
    if broke:
        look = {"fontsize": 6.5, "color": GREY}
        text = f"{1_000 * gap:.0f}\n{line.kept}/{line.runs} kept"
    axes.text(x, y, text, ha="center", va="center", **look)


def choose_tile_colour(gap: float, reference: float | None) -> Any:
    """White for the gap of the reference, blue for less, orange for more, by the ratio."""
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
    """Names at the edges, and a line between groups of scenarios."""
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(len(policies) - 0.5, -0.5)
    axes.set_xticks(range(len(places)), places, rotation=40, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(policies)), policies)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    scenario = {line.place: line.scenario for line in lines}
    for x, (one, other) in enumerate(pairwise(places)):
        if scenario[one] != scenario[other]:
            axes.axvline(x + 0.5, color=BLACK, linewidth=1.2)


def draw_tile_legend(figure: Any) -> None:
    """The meaning of colours."""
    less, more = (choose_tile_colour(ratio, 1.0) for ratio in (1 / COLOUR_RATIO, COLOUR_RATIO))
    shown = {
        f"loses a quarter of what {REFERENCE_POLICY} loses, or less": less,
        f"as much as {REFERENCE_POLICY}": "white",
        "4 times as much, or more": more,
        "violated a limit in some run: cannot be the default": INFEASIBLE_COLOUR,
    }
    tile = {"edgecolor": GREY, "linewidth": 0.6}
    rectangle = load_pyplot().Rectangle
    patches = [rectangle((0, 0), 1, 1, facecolor=colour, **tile) for colour in shown.values()]
    put_legend(figure, patches, list(shown), columns=2)
