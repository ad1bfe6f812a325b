"""The part of the report that is about the default policy: the verdict, its rule, table, figure."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bylot.reports import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    Banner,
    Block,
    Bullets,
    Heading,
    Paragraph,
    load_pyplot,
    make_panels,
    put_legend,
    save_figure,
)
from bylot_paper import default_rule, grid
from bylot_paper.analysis import (
    RunManifest,
    format_seed_count,
    is_synthetic,
    name_crowd,
    read_column,
)
from bylot_paper.report.formatting import (
    NO_VALUE,
    TEXTS,
    build_figure,
    fill_table,
    format_mean_error,
    place_in_order,
    tabulate_refusals,
)
from bylot_paper.scenarios import ALL_LEVELS, SHARED_POOLS

RULE_TEXT = [text.format(rule=default_rule) for text in TEXTS["rule"]["default"]]
POLICY_ORDER = grid.COMPARED_POLICIES[::-1]
"""The order of policies in tables and figures: ours first."""
COLOUR_RATIO = 4.0
"""The colour scale ends at this ratio to the loss of the reference, and at its inverse."""
INFEASIBLE_COLOUR = "#E4E4E4"


class ContestEntry(NamedTuple):
    """A result line, and the records behind it without refused runs."""

    line: default_rule.ResultLine
    cells: pl.DataFrame


def collect_contest_entries(cells: pl.DataFrame, run: RunManifest) -> list[ContestEntry]:
    """All entries, by place and then by policy, in the order of tables."""
    some = cells.filter(pl.col("experiment").is_in(grid.COMPARISON_EXPERIMENTS))
    parts: dict[Any, pl.DataFrame] = some.partition_by(
        ["experiment", "environment", "level", "period", "policy"], as_dict=True
    )
    return [make_entry(parts[key], run) for key in sorted(parts, key=order_entry)]


def order_entry(key: tuple[str, str, str, int | None, str]) -> tuple[int, ...]:
    """The place in tables, by experiment, environment, level, period and policy."""
    experiment, environment, level, period, policy = key
    environments = [*grid.CROWD_ENVIRONMENTS, *(name for name, _, _ in grid.OTHER_SCENARIOS)]
    own = experiment == "worlds" or environment not in grid.CROWD_ENVIRONMENTS
    place = environments.index(environment), [*ALL_LEVELS, "own"].index(level)
    return (
        grid.COMPARISON_EXPERIMENTS.index(experiment),
        int(own),
        *(place if own else place[::-1]),
        period or 0,
        place_in_order(policy, POLICY_ORDER),
    )


def make_entry(group: pl.DataFrame, run: RunManifest) -> ContestEntry:
    """The entry of one group of cells that differ only in their seed."""
    first = group.row(0, named=True)
    on_crowd = first["environment"] in grid.CROWD_ENVIRONMENTS
    played = group.filter(pl.col("refused").is_null()).sort("seed")
    gaps = played.select("seed", pl.col("mixture") - pl.col("reward"))
    return ContestEntry(
        default_rule.ResultLine(
            scenario=f"{name_crowd(run)} crowd" if on_crowd else first["environment"],
            place=name_place(first["environment"], first["level"], first["period"], run),
            policy=first["policy"],
            size=int(played["size"].max() or 0),  # type: ignore[arg-type]
            period=first["period"],
            gaps=dict(gaps.iter_rows()),
            runs=len(group),
            kept=int(played["feasible"].sum()),
            bad_periods=int(played["bad_periods"].sum()),
            propensities=not played.is_empty() and bool(played["propensities"].all()),
            pool=SHARED_POOLS.get(first["environment"], ""),
        ),
        played,
    )


def name_place(environment: str, level: str, period: int | None, run: RunManifest) -> str:
    """A place: the environment, level and period of a scenario.

    >>> name_place("regime", "tight", 250, {"data": {"name": "trec"}})
    'trec tight, regime, periods of 250'
    """
    where = environment if level == "own" else f"{environment} {level}"
    if environment in grid.CROWD_ENVIRONMENTS:
        where = f"{name_crowd(run)} {level}, {environment}"
    return where if period is None else f"{where}, periods of {period:,}"


def build_default_section(
    cells: pl.DataFrame, run: RunManifest, figure: Sequence[Path]
) -> tuple[list[Block], dict[str, Any]]:
    """The verdict, the rule and all tables, as far as the records go; and default.json."""
    entries = collect_contest_entries(cells, run)
    choices = default_rule.choose_defaults([one.line for one in entries])
    whole = [one for one in entries if one.line.period is None and one.line.gaps]
    spans = [one for one in entries if one.line.period is not None]
    blocks: list[Block] = [Heading("The default"), Paragraph(describe_outcome(choices))]
    if not any(one.line.scenario == "hospital" for one in entries):
        blocks.append(Banner("Without the hospital: its files were not given (--hospital)"))
    blocks += [*tabulate_choices(choices), Heading("The rule", 3), Bullets(RULE_TEXT)]
    blocks += [Heading("The table", 3), *build_figure("default", figure, run)]
    if whole:
        blocks += tabulate_policies(entries, *choices[:2])
        for table, form in ENTRY_TABLES.items():
            blocks += tabulate_entries(whole, table, form)
        blocks += tabulate_references(whole)
    if spans:
        blocks.append(Heading("In periods", 3))
        for table, form in PERIOD_TABLES.items():
            blocks += tabulate_entries(spans, table, form)
    blocks += [
        *tabulate_refusals(cells),
        Heading("How it was done", 3),
        Bullets(TEXTS["notes"]["default"]),
    ]
    return blocks, make_default_data(entries, choices)


def describe_outcome(choices: Sequence[default_rule.DefaultChoice]) -> str:
    if not choices:
        return "There is nothing to choose a default from."
    first, *others = choices
    if first.policy is None:
        reasons = "; ".join(f"{policy}: {why}" for policy, why in first.excluded.items())
        return f"No policy can be the default by these records: {reasons}."
    if first.policy != default_rule.REFERENCE_POLICY:
        loses = (
            f"it loses {format_score(first, first.policy)} of what "
            f"{default_rule.REFERENCE_POLICY} loses"
        )
    else:
        loses = "all scores are relative to its loss"
        for name in list_others(first)[:1]:
            loses += f"; the next candidate, {name}, loses {format_score(first, name)} of that"
    classes = "; ".join(f"{choice.problems}: {choice.policy or 'none'}" for choice in others)
    return (
        f"The default is {first.policy} by the rule below: {len(first.scores)} of "
        f"{len(first.scores) + len(first.excluded)} policies are candidates, and {loses}. "
        f"By class of problems: {classes}."
    )


def tabulate_choices(choices: Sequence[default_rule.DefaultChoice]) -> list[Block]:
    """One row per class of problems: scores, ties, places that do not count, unequal seeds."""
    rows = []
    for choice in choices:
        others = ", ".join(f"{name} {format_score(choice, name)}" for name in list_others(choice))
        notes = {
            "tied with {}, which does not record propensities": choice.beaten,
            "does not count: {}": ", ".join(choice.uncounted),
            f"other seeds than those of {default_rule.REFERENCE_POLICY}: {{}}": ", ".join(
                choice.uneven
            ),
        }
        rows.append(
            (
                choice.problems,
                choice.policy or "none",
                format_score(choice, choice.policy),
                others or NO_VALUE,
                "; ".join(text.format(what) for text, what in notes.items() if what) or NO_VALUE,
            )
        )
    return fill_table("choices", rows)


def list_others(choice: default_rule.DefaultChoice) -> list[str]:
    """The candidates that were not chosen, the best first."""
    return [name for name in choice.scores if name != choice.policy]


def format_score(choice: default_rule.DefaultChoice, policy: str | None) -> str:
    """A score with its error; the reference has none."""
    score = choice.scores.get(policy or "")
    if score is None:
        return NO_VALUE
    if policy == default_rule.REFERENCE_POLICY:
        return "1 (the reference)"
    return f"{score.value:.2f} ± {score.error:.2f}"


def tabulate_policies(
    entries: Sequence[ContestEntry],
    choice: default_rule.DefaultChoice,
    free: default_rule.DefaultChoice,
) -> list[Block]:
    """One row per policy. choice: where propensities are needed; free: where they are not."""
    rows = []
    for policy in list_policies([one.line for one in entries]):
        mine = [one for one in entries if one.line.policy == policy]
        whole = [one for one in mine if one.line.period is None]
        times = [read_column(one.cells, "micros").mean() for one in whole]
        rows.append(
            (
                policy,
                f"no: {choice.excluded[policy]}" if policy in choice.excluded else "yes",
                "yes" if all(one.line.propensities for one in mine) else "no",
                format_score(free, policy),
                f"{sum(one.line.kept for one in whole)}/{sum(one.line.runs for one in whole)}",
                f"{np.mean(times):.1f}",
            )
        )
    return fill_table("policies", rows)


def tabulate_entries(
    entries: Sequence[ContestEntry], table: str, form: Callable[[ContestEntry], str]
) -> list[Block]:
    """One row per place, one column per policy."""
    policies = list_policies([one.line for one in entries])
    rows = {one.line.place: [NO_VALUE] * len(policies) for one in entries}
    for one in entries:
        if one.line.gaps or one.line.period is not None:
            rows[one.line.place][policies.index(one.line.policy)] = form(one)
    return fill_table(table, [(name, *row) for name, row in rows.items()], policies)


def list_policies(lines: Sequence[default_rule.ResultLine]) -> list[str]:
    """The policies in the records, in the order of tables."""
    return [policy for policy in POLICY_ORDER if any(line.policy == policy for line in lines)]


def format_entry_gap(entry: ContestEntry) -> str:
    """The gap to the best mixture; marked where a limit was violated."""
    line = entry.line
    mark = " ✗" if line.kept < line.runs or line.bad_periods else ""
    return format_mean_error(np.array(list(line.gaps.values()))) + mark


ENTRY_TABLES: dict[str, Callable[[ContestEntry], str]] = {
    "gap": format_entry_gap,
    "multinomial-gap": lambda one: format_mean_error(read_column(one.cells, "regret_true")),
    "reward": lambda one: format_mean_error(read_column(one.cells, "reward")),
    "kept": lambda one: f"{one.line.kept}/{one.line.runs}",
    "micros": lambda one: f"{read_column(one.cells, 'micros').mean():.1f}",
}
PERIOD_TABLES: dict[str, Callable[[ContestEntry], str]] = {
    "bad-periods": lambda one: f"{one.line.bad_periods}/{one.cells['periods'].sum()}",
    "gap-in-periods": format_entry_gap,
}


def tabulate_references(entries: Sequence[ContestEntry]) -> list[Block]:
    """What the references earn in each place, and how sure they are."""
    rows = []
    for name in dict.fromkeys(one.line.place for one in entries):
        cells = pl.concat([one.cells for one in entries if one.line.place == name])
        seeds = cells.unique("seed", keep="first").sort("seed")
        columns = ("mixture", "optimum", "optimum_gap", "uniform")
        means = (f"{read_column(seeds, column).mean():.4f}" for column in columns)
        rows.append((name, *means, f"{read_column(seeds, 'mixture_gap').max():.1e}"))
    return fill_table("references", rows)


def make_default_data(
    entries: list[ContestEntry], choices: list[default_rule.DefaultChoice]
) -> dict[str, Any]:
    """The content of default.json: the rule, the lines it was applied to, and its choices."""
    return {
        "rule": RULE_TEXT,
        "outcome": describe_outcome(choices),
        "choices": [
            one._asdict()
            | {"scores": {x: {"mean": y.value, "error": y.error} for x, y in one.scores.items()}}
            for one in choices
        ],
        "lines": [one.line._asdict() for one in entries],
    }


def draw_contest(cells: pl.DataFrame, run: RunManifest, folder: Path) -> list[Path]:
    """One row per policy, one column per place. The number is the gap in thousandths of the
    reward's range, the colour compares it with the reference's, grey tiles violated a limit.
    """
    lines = [one.line for one in collect_contest_entries(cells, run) if one.line.period is None]
    tiles = {(line.policy, line.place): line for line in lines if line.gaps}
    if not tiles:
        return []
    scale = default_rule.find_counted_places(lines)
    places = list(dict.fromkeys(line.place for line in lines))
    policies = list_policies(lines)
    seeds = [len(line.gaps) for line in tiles.values()]
    size = 3.2 + 0.78 * len(places), 3.4 + 0.46 * len(policies)
    title = (
        f"{'SYNTHETIC: ' * is_synthetic(run)}Loss of every policy, by scenario\n"
        f"{name_crowd(run)} crowd and other scenarios, {run['rounds']:,} rounds, "
        f"{format_seed_count((min(seeds), max(seeds)))}"
    )
    figure, [[axes]] = make_panels(1, 1, size, title)
    for (y, policy), (x, place) in product(enumerate(policies), enumerate(places)):
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


def draw_tile(
    axes: Any, x: int, y: int, line: default_rule.ResultLine, reference: float | None
) -> None:
    gap = float(np.mean(list(line.gaps.values())))
    tile = partial(load_pyplot().Rectangle, (x - 0.5, y - 0.5), 1, 1, edgecolor="w")
    write = partial(axes.text, x, y, ha="center", va="center")
    if line.kept < line.runs:
        axes.add_patch(tile(facecolor=INFEASIBLE_COLOUR))
        write(f"{1_000 * gap:.0f}\n{line.kept}/{line.runs} kept", fontsize=6.5, color=GREY)
    else:
        axes.add_patch(tile(facecolor=choose_tile_colour(gap, reference)))
        write(f"{1_000 * gap:.1f}", fontsize=9, color=BLACK)


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
    axes: Any, places: Sequence[str], policies: Sequence[str], lines: list[default_rule.ResultLine]
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
    less, more = (choose_tile_colour(ratio, 1.0) for ratio in (1 / COLOUR_RATIO, COLOUR_RATIO))
    shown = {
        f"loses a quarter of what {default_rule.REFERENCE_POLICY} loses, or less": less,
        f"as much as {default_rule.REFERENCE_POLICY}": "white",
        "4 times as much, or more": more,
        "violated a limit in some run: cannot be the default": INFEASIBLE_COLOUR,
    }
    tile = partial(load_pyplot().Rectangle, (0, 0), 1, 1, edgecolor=GREY, linewidth=0.6)
    put_legend(figure, 2, [tile(facecolor=colour) for colour in shown.values()], list(shown))
