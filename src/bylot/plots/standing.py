"""Records of the contest as the lines that the rule for the default reads."""

from typing import NamedTuple

import polars as pl

from bylot.experiments import CONTENDERS, CONTEST
from bylot.experiments.arena import SAME_POOL
from bylot.experiments.grid import ENVIRONMENTS, WORLDS
from bylot.experiments.levels import KNOWN
from bylot.experiments.verdict import Line
from bylot.plots.groups import Run

SHOWN = CONTENDERS[::-1]
"""The order of policies in tables and figures: ours first."""


class Entry(NamedTuple):
    """A line of the rule, and the records behind it, those of refused runs left out."""

    line: Line
    cells: pl.DataFrame


def entries(cells: pl.DataFrame, run: Run) -> list[Entry]:
    """All places in their order, and in each the policies in theirs."""
    if cells.is_empty():
        return []
    by = ["experiment", "environment", "level", "period", "policy"]
    parts = cells.filter(pl.col("experiment").is_in(CONTEST)).partition_by(by, as_dict=True)
    found = {key: entry(part, run) for key, part in parts.items()}
    return [found[key] for key in sorted(found, key=rank)]


def rank(key: tuple[object, ...]) -> tuple[int, ...]:
    """Where a group stands: by experiment, world, level, period and policy."""
    experiment, environment, level, period, policy = key
    worlds = [*ENVIRONMENTS, *dict.fromkeys(world for world, _, _ in WORLDS)]
    levels = [*KNOWN, "own"]
    own = experiment == "worlds" or environment not in ENVIRONMENTS
    place = (worlds.index(str(environment)), levels.index(str(level)))
    return (
        CONTEST.index(str(experiment)),
        int(own),
        *(place if own else place[::-1]),
        int(str(period or 0)),
        SHOWN.index(str(policy)) if policy in SHOWN else len(SHOWN),
    )


def entry(group: pl.DataFrame, run: Run) -> Entry:
    """The line of one group of cells that differ only in their seed."""
    first = group.row(0, named=True)
    played = group.filter(pl.col("refused").is_null()).sort("seed")
    gaps = (played["mixture"] - played["reward"]).to_list()
    line = Line(
        world=world(first["environment"], run),
        place=place(first["environment"], first["level"], first["period"], run),
        policy=first["policy"],
        size=int(played["size"].max() or 0),  # type: ignore[arg-type]
        period=first["period"],
        gaps=dict(zip(played["seed"].to_list(), gaps, strict=True)),
        runs=len(group),
        kept=int(played["feasible"].sum()),
        bad=int(played["bad_periods"].sum()),
        told=not played.is_empty() and bool(played["told"].all()),
        pool=SAME_POOL.get(first["environment"], ""),
    )
    return Entry(line, played)


def world(environment: str, run: Run) -> str:
    """What counts as one world: both environments and all levels of the crowd together."""
    return f"{crowd(run)} crowd" if environment in ENVIRONMENTS else environment


def place(environment: str, level: str, period: int | None, run: Run) -> str:
    """A place in words.

    >>> place("regime", "tight", 250, {"data": {"name": "trec"}})
    'trec tight, regime, periods of 250'
    """
    where = environment if level == "own" else f"{environment} {level}"
    if environment in ENVIRONMENTS:
        where = f"{crowd(run)} {level}, {environment}"
    return where if period is None else f"{where}, periods of {period:,}"


def crowd(run: Run) -> str:
    """The name of the crowd that was played on."""
    return str(run.get("data", {}).get("name", "unknown"))
