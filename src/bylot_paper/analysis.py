"""Groups of records that differ only in their seed, and how reports name their run."""

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.stats import binomtest

from bylot.harness import SeedCurves
from bylot.numerics.jit import Floats
from bylot_paper import grid

CASES = tuple(product((*grid.LIMITED_LEVELS, "stress"), grid.CROWD_ENVIRONMENTS))
"""The eight cases of the comparison: a level and an environment each."""
HARD_CASES = tuple(product(grid.BINDING_LEVELS, grid.CROWD_ENVIRONMENTS))
"""The four cases of all other experiments."""
RunManifest = Mapping[str, Any]
"""The content of `run.json`, the manifest of the run that wrote the records."""


class GroupKey(NamedTuple):
    """The fields that the cells of a group have in common."""

    experiment: str
    environment: str
    level: str
    policy: str
    dimensions: int
    period: int | None = None

    def __str__(self) -> str:
        """The group in words.

        >>> print(GroupKey("periods", "regime", "tight", "distinct", 3, period=250))
        distinct in periods of 250 (tight, regime, N = 3)
        """
        period = "" if self.period is None else f" of {self.period:,}"
        return (
            f"{self.policy} in {self.experiment}{period} "
            f"({self.level}, {self.environment}, N = {self.dimensions})"
        )


def sweep_key(dimensions: int, level: str) -> GroupKey:
    return GroupKey("sweep", "stochastic", level, "omd", dimensions)


class UpdateCurves(SeedCurves):
    """Curves over seeds with the clock of the sweep."""

    @property
    def n(self) -> Floats:
        """Updates of OMD, one every SWEEP_STEP_ROUNDS rounds."""
        return self.t / grid.SWEEP_STEP_ROUNDS


def read_column(cells: pl.DataFrame, column: str) -> Floats:
    """One number of every run; null values are left out."""
    return cells[column].drop_nulls().to_numpy().astype(float)


def read_by_seed(cells: pl.DataFrame, column: str) -> dict[int, float]:
    """The same by seed."""
    return dict(cells.select("seed", column).drop_nulls().iter_rows())


class RecordGroups(dict[GroupKey, pl.DataFrame]):
    """All groups of a table of records, in the order of their keys; without refused runs."""

    def __init__(self, cells: pl.DataFrame) -> None:
        if not cells.is_empty():
            played = cells.filter(pl.col("refused").is_null()).sort("seed")
            parts = played.partition_by(list(GroupKey._fields), as_dict=True)
            self.update((GroupKey(*key), parts[key]) for key in sorted(parts))

    def read(self, key: GroupKey, column: str) -> Floats:
        """One number per seed; none for a group without records, and null values are left out."""
        return read_column(self[key], column) if key in self else np.zeros(0)

    def curve(self, key: GroupKey, column: str) -> UpdateCurves | None:
        """The curves of all seeds of a group, cut to the shortest; None if there are none."""
        if key not in self:
            return None
        table = self[key].select("seed", "curve_t", column).drop_nulls()
        rows = [np.asarray(row, dtype=float) for row in table[column].to_list()]
        size = min(map(len, rows), default=0)
        if size == 0:
            return None
        t = np.asarray(table["curve_t"][0].to_list()[:size], dtype=np.int64)
        return UpdateCurves(t, np.stack([row[:size] for row in rows]), table["seed"].to_list())

    def seeds(self, experiment: str) -> tuple[int, int]:
        """The smallest and the largest number of seeds in the groups of an experiment."""
        counts = [len(one) for key, one in self.items() if key.experiment == experiment]
        return min(counts, default=0), max(counts, default=0)


def comparison_keys(policy: str) -> list[GroupKey]:
    return [GroupKey("beyond", environment, level, policy, 3) for level, environment in CASES]


def ablation_keys(policy: str, part: str) -> list[GroupKey]:
    if part:
        policy = f"{policy}:{part}"
    return [
        GroupKey("ablation", environment, level, policy, 3) for level, environment in HARD_CASES
    ]


def list_period_keys(groups: RecordGroups, policy: str) -> list[GroupKey]:
    """A policy's groups in periods, by case and length."""
    keys = [key for key in groups if key.experiment == "periods" and key.policy == policy]
    return sorted(
        keys, key=lambda key: (HARD_CASES.index((key.level, key.environment)), key.period)
    )


def is_synthetic(run: RunManifest) -> bool:
    """Is the crowd made up? Every output then says so."""
    return bool(run.get("data", {}).get("synthetic", False))


def make_figure_title(
    title: str, run: RunManifest, seeds: tuple[int, int], experiment: str = "crowd"
) -> str:
    """The title of a figure, and below it the data, rounds and seeds."""
    data = f"{name_crowd(run)} data"
    if is_synthetic(run):
        title = f"SYNTHETIC: {title}"
        data = "a made-up crowd"
    rounds = (
        f"{grid.count_rounds(experiment, run['rounds']):,} rounds"
        if "rounds" in run
        else "unknown number of rounds"
    )
    return f"{title}\n{data}, {rounds}, {format_seed_count(seeds)}"


def format_seed_count(seeds: tuple[int, int]) -> str:
    """A number of seeds, or a range.

    >>> format_seed_count((1, 1)), format_seed_count((14, 20))
    ('1 seed', '14 to 20 seeds')
    """
    fewest, most = seeds
    return f"{fewest} seed{'s' * (fewest != 1)}" if fewest == most else f"{fewest} to {most} seeds"


def wilson_interval(successes: int, runs: int) -> tuple[float, float]:
    """Wilson's 95% score interval of a share; [0, 1] without runs.

    >>> [round(end, 3) for end in wilson_interval(20, 20)]
    [0.839, 1.0]
    """
    if runs == 0:
        return 0.0, 1.0
    low, high = binomtest(successes, runs).proportion_ci(method="wilson")
    return float(low), float(high)


def name_crowd(run: RunManifest) -> str:
    return str(run.get("data", {}).get("name", "unknown"))


def name_data(run: RunManifest) -> str:
    """The name of the data, which says so if they are made up."""
    name = name_crowd(run)
    return f"{name} (synthetic)" if is_synthetic(run) and "synthetic" not in name.lower() else name
