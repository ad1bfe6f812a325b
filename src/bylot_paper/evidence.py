"""What claims measure in the records; `Untestable` is raised where records are missing."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import stats

from bylot.errors import BylotError
from bylot.numerics.jit import Floats, Ints
from bylot_paper.analysis import (
    GroupKey,
    RecordGroups,
    RunManifest,
    UpdateCurves,
    format_seed_count,
    wilson_interval,
)

MIN_VERDICT_SEEDS = 3
"""Fewer seeds say nothing about a spread."""

NEAR_OPTIMAL = 0.99
"""Near-optimal: at least this share of the true constrained optimum. Equal shares earn 94%."""

SeedValues = dict[int, float]
"""One number per seed."""


class Untestable(BylotError):
    """The records lack what a claim needs; the message says what."""


class PairedDifference(NamedTuple):
    """Mean of a paired difference over seeds, and its standard error."""

    mean: float
    error: float

    @property
    def clear(self) -> bool:
        """Above 0 by more than two standard errors."""
        return self.mean > max(2 * self.error, 1e-12)  # equal runs differ by rounding only

    def __str__(self) -> str:
        return f"{self.mean:+.4f} (s.e. {self.error:.4f})"


class RunShare(NamedTuple):
    """The number of runs in which something holds."""

    kept: int
    runs: int

    @property
    def value(self) -> float:
        """From 0 to 1."""
        return self.kept / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval."""
        return wilson_interval(self.kept, self.runs)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.0%} ({self.kept}/{self.runs}, Wilson {low:.0%} to {high:.0%})"


class Evidence:
    """The groups of a table of records, and the manifest of their run.

    asked: the groups that were used so far, to find out what a verdict depends on
    near:  the share of the true constrained optimum that counts as near-optimal
    """

    def __init__(self, cells: pl.DataFrame, run: RunManifest, near: float = NEAR_OPTIMAL) -> None:
        self.groups = RecordGroups(cells)
        self.run, self.near = run, near
        self.asked: set[GroupKey] = set()

    def values(self, key: GroupKey, column: str) -> SeedValues:
        """One number per seed."""
        self.asked.add(key)
        if key not in self.groups:
            raise Untestable(f"no records of {key}")
        table = self.groups[key].select("seed", column).drop_nulls()
        values = dict(zip(table["seed"].to_list(), table[column].to_list(), strict=True))
        return self.enough(values, key, column)

    def curve(self, key: GroupKey, column: str) -> UpdateCurves:
        """One curve per seed."""
        self.asked.add(key)
        curve = self.groups.curve(key, column)
        if curve is None:
            raise Untestable(f"no records of {key} with {column}")
        self.enough(dict.fromkeys(curve.names, 0.0), key, column)
        return curve

    def enough(self, values: SeedValues, key: GroupKey, column: str) -> SeedValues:
        """The values, if there are enough seeds."""
        if len(values) < MIN_VERDICT_SEEDS:
            had = format_seed_count((len(values), len(values)))
            lacking = f" with {column}" if len(values) < len(self.groups[key]) else ""
            raise Untestable(f"{had}{lacking} of {key}; a verdict needs {MIN_VERDICT_SEEDS}")
        return values

    def each(
        self, key: GroupKey, column: str, measure: Callable[[Ints, Floats], float]
    ) -> SeedValues:
        """A number computed from each seed's curve."""
        curve = self.curve(key, column)
        rows = zip(curve.names, curve.seeds, strict=True)
        return {seed: float(measure(curve.t, row)) for seed, row in rows}

    def kept(self, key: GroupKey) -> SeedValues:
        """1 for a seed within all limits exactly, else 0."""
        return {seed: float(far <= 0) for seed, far in self.values(key, "outside").items()}

    def feasible(self, key: GroupKey) -> RunShare:
        """The share of the seeds within all limits exactly."""
        kept = self.kept(key)
        return RunShare(int(sum(kept.values())), len(kept))

    def ratio(self, key: GroupKey, column: str = "reward") -> float:
        """Mean over seeds of a reward relative to the true constrained optimum."""
        best = self.values(key, "optimum")
        parts = [earned / best[seed] for seed, earned in self.values(key, column).items()]
        return float(np.mean(parts))

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        if "rounds" not in self.run:
            raise Untestable("the manifest does not have the number of rounds")
        return int(self.run["rounds"])


def seed_mean(values: SeedValues) -> float:
    """Mean over seeds."""
    return float(np.mean(list(values.values())))


def paired_difference(more: SeedValues, less: SeedValues) -> PairedDifference:
    """more - less over the seeds that both have.

    >>> paired_difference({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 1.0, 2: 2.0})
    PairedDifference(mean=1.0, error=0.0)
    """
    seeds = sorted(more.keys() & less.keys())
    if len(seeds) < MIN_VERDICT_SEEDS:
        raise Untestable(
            f"only {len(seeds)} seeds are in both groups; a verdict needs {MIN_VERDICT_SEEDS}"
        )
    gaps = np.array([more[seed] - less[seed] for seed in seeds])
    return PairedDifference(float(gaps.mean()), float(gaps.std(ddof=1) / math.sqrt(len(gaps))))


def subtract_by_seed(more: SeedValues, less: SeedValues) -> SeedValues:
    """The difference of each seed that both have."""
    return {seed: more[seed] - less[seed] for seed in more.keys() & less.keys()}


GRID_POINTS_PER_DECADE = 10
"""Points of the logarithmic grid on which curves are compared."""


def require_update(curve: UpdateCurves, n: float) -> None:
    """Raise `Untestable` for a run that ends before n."""
    if curve.n[-1] < n:
        raise Untestable(f"the run ends at n = {curve.n[-1]:g}, the claim speaks of n = {n:g}")


def sample_log_grid(
    curve: UpdateCurves, low: float, high: float | None = None
) -> tuple[Floats, Floats]:
    """The mean curve at logarithmically even n from low to high (the end if not given)."""
    end = float(curve.n[-1]) if high is None else high
    require_update(curve, max(end, 2 * low))
    count = max(5, round(GRID_POINTS_PER_DECADE * np.log10(end / low)) + 1)
    n = np.geomspace(low, end, count)
    return n, np.interp(n, curve.n, curve.mean)


def log_log_slope(n: Floats, y: Floats) -> float:
    """Least-squares slope of log y over log n; points at or below 0 have no logarithm.

    >>> round(log_log_slope(np.array([1.0, 4.0, 16.0]), np.array([1.0, 0.5, 0.25])), 6)
    -0.5
    """
    above = y > 0
    if above.sum() < 3:
        return float("nan")
    return float(np.polyfit(np.log(n[above]), np.log(y[above]), 1)[0])


def rank_correlation(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation; 0 for a constant, which neither rises nor falls."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(stats.spearmanr(x, y).statistic)


def find_settling_update(n: Floats, y: Floats, below: float) -> float:
    """First n from which y stays below a threshold; infinite if it is not below at the end.

    >>> find_settling_update(
    ...     np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 0.0]), below=0.5
    ... )
    3.0
    """
    over = np.flatnonzero(y >= below)
    if over.size == 0:
        return float(n[0])
    return float("inf") if over[-1] == len(n) - 1 else float(n[over[-1] + 1])
