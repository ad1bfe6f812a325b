"""What claims measure in the records: one number of a group, or one number for each of its seeds.

A measure takes the evidence, one or more groups, and settings from the table of claims. It raises
`Untestable` where records are missing.
"""

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
    read_by_seed,
    wilson_interval,
)
from bylot_paper.grid import SWEEP_STEP_ROUNDS

MIN_VERDICT_SEEDS = 3  # fewer seeds say nothing about a spread
NEAR_OPTIMAL = 0.99  # share of the true constrained optimum; equal shares earn 94%
NO_VIOLATION = 1e-3  # a mean R2 below this counts as zero
GRID_POINTS_PER_DECADE = 10  # of the logarithmic grid on which curves are compared

SeedValues = dict[int, float]  # one number per seed


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
        return self.kept / self.runs

    @property
    def interval(self) -> tuple[float, float]:
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
        self.asked.add(key)
        if key not in self.groups:
            raise Untestable(f"no records of {key}")
        found = read_by_seed(self.groups[key], column)
        self.require_seeds(len(found), key, column)
        return found

    def curve(self, key: GroupKey, column: str) -> UpdateCurves:
        self.asked.add(key)
        curve = self.groups.curve(key, column)
        if curve is None:
            raise Untestable(f"no records of {key} with {column}")
        self.require_seeds(len(curve.names), key, column)
        return curve

    def require_seeds(self, found: int, key: GroupKey, column: str) -> None:
        """Raise `Untestable` if there are too few seeds."""
        if found < MIN_VERDICT_SEEDS:
            lacking = f" with {column}" if found < len(self.groups[key]) else ""
            seeds = format_seed_count((found, found))
            raise Untestable(f"{seeds}{lacking} of {key}; a verdict needs {MIN_VERDICT_SEEDS}")

    def each(self, key: GroupKey, column: str, find: Callable[[Ints, Floats], float]) -> SeedValues:
        """A number computed from each seed's curve."""
        curve = self.curve(key, column)
        return {
            seed: float(find(curve.t, row))
            for seed, row in zip(curve.names, curve.seeds, strict=True)
        }

    def kept(self, key: GroupKey) -> SeedValues:
        """1 for a seed within all limits exactly, else 0."""
        return {seed: float(far <= 0) for seed, far in self.values(key, "outside").items()}

    def feasible(self, key: GroupKey) -> RunShare:
        kept = self.kept(key)
        return RunShare(int(sum(kept.values())), len(kept))

    def ratio(self, key: GroupKey, column: str = "reward") -> float:
        """Mean over seeds of a reward relative to the true constrained optimum."""
        best, earned = self.values(key, "optimum"), self.values(key, column)
        return seed_mean({seed: earned[seed] / best[seed] for seed in earned})

    @property
    def rounds(self) -> int:
        if "rounds" not in self.run:
            raise Untestable("the manifest does not have the number of rounds")
        return int(self.run["rounds"])


def seed_mean(values: SeedValues) -> float:
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
    return {seed: more[seed] - less[seed] for seed in more.keys() & less.keys()}


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
    return 0.0 if np.ptp(x) == 0 or np.ptp(y) == 0 else float(stats.spearmanr(x, y).statistic)


def find_settling_update(n: Floats, y: Floats, below: float) -> float:
    """First n from which y stays below a threshold; infinite if it is not below at the end.

    >>> find_settling_update(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0]), below=0.5)
    3.0
    """
    over = np.flatnonzero(y >= below)
    if over.size == 0:
        return float(n[0])
    return float("inf") if over[-1] == len(n) - 1 else float(n[over[-1] + 1])


feasible_share, feasible_by_seed = Evidence.feasible, Evidence.kept
optimum_share, by_seed = Evidence.ratio, Evidence.values


def mean_value(evidence: Evidence, key: GroupKey, column: str) -> float:
    return seed_mean(evidence.values(key, column))


def relative_reward(evidence: Evidence, base: GroupKey, other: GroupKey) -> float:
    """Mean reward of `other` relative to that of `base`, minus 1."""
    ours, theirs = (mean_value(evidence, key, "reward") for key in (base, other))
    return theirs / ours - 1


def share_within_cap(evidence: Evidence, key: GroupKey) -> RunShare:
    """Share of the seeds that kept the cap on experts, whatever their workload."""
    slack = subtract_by_seed(evidence.values(key, "expert_bound"), evidence.values(key, "expert"))
    return RunShare(sum(left >= 0 for left in slack.values()), len(slack))


def reward_drop(evidence: Evidence, first: GroupKey, second: GroupKey) -> SeedValues:
    """Reward in the first group minus that in the second."""
    return subtract_by_seed(evidence.values(first, "reward"), evidence.values(second, "reward"))


def feasibility_drop(evidence: Evidence, first: GroupKey, second: GroupKey) -> SeedValues:
    """1 where only the first group is feasible, -1 where only the second is, else 0."""
    return subtract_by_seed(evidence.kept(first), evidence.kept(second))


def mean_lead(evidence: Evidence, ours: GroupKey, one: GroupKey, other: GroupKey) -> SeedValues:
    """By how much our reward exceeds the average reward of two rivals."""
    first, second = (reward_drop(evidence, ours, rival) for rival in (one, other))
    return {seed: (first[seed] + second[seed]) / 2 for seed in first.keys() & second.keys()}


def feasible_in_both(evidence: Evidence, one: GroupKey, other: GroupKey) -> SeedValues:
    """1 for a feasible seed, else 0, over the seeds of two groups."""
    return {
        2 * seed + place: kept
        for place, key in enumerate((one, other))
        for seed, kept in evidence.kept(key).items()
    }


def early_value(evidence: Evidence, key: GroupKey, column: str) -> SeedValues:
    """Rolling reward averaged over the first tenth of the run, or a running mean at its end."""

    def measure(t: Ints, y: Floats) -> float:
        if column == "curve_reward":
            return float(select_rounds(evidence, 0.0, 0.1, t, y).mean())
        return float(np.interp(int(0.1 * evidence.rounds), t, y))

    return evidence.each(key, column, measure)


def select_rounds(evidence: Evidence, low: float, high: float, t: Ints, y: Floats) -> Floats:
    """The points of a curve in a part of the run."""
    inside = (t > low * evidence.rounds) & (t <= high * evidence.rounds)
    if not inside.any():
        raise Untestable("the curves have no point in that part of the run")
    return y[inside]


def arrival_round(evidence: Evidence, key: GroupKey) -> SeedValues:
    """First round with a full window and a near-optimal rolling reward; the last one if none."""
    best = evidence.values(key, "optimum")
    curve = evidence.curve(key, "curve_reward")
    full = curve.t >= int(evidence.run.get("window", 0))
    arrivals = {}
    for seed, rewards in zip(curve.names, curve.seeds, strict=True):
        there = curve.t[full & (rewards >= evidence.near * best[seed])]
        arrivals[seed] = float(there[0] if there.size else evidence.rounds)
    return arrivals


def full_window_reward(evidence: Evidence, key: GroupKey) -> tuple[Floats, Floats]:
    """Rounds and mean rolling reward, from the first full window on."""
    curve = evidence.curve(key, "curve_reward")
    full = curve.t >= min(int(evidence.run.get("window", 0)), evidence.rounds // 2)
    return curve.t[full].astype(float), curve.mean[full]


def reward_trend(evidence: Evidence, key: GroupKey) -> float:
    """Rank correlation of the mean rolling reward with the round."""
    return rank_correlation(*full_window_reward(evidence, key))


def share_above(evidence: Evidence, upper: GroupKey, *lower: GroupKey) -> float:
    """Share of the sampled rounds at which one mean rolling reward is above all the others."""
    t, ours = full_window_reward(evidence, upper)
    above = np.ones(len(t), dtype=bool)
    for key in lower:
        other_t, other = full_window_reward(evidence, key)
        if not np.array_equal(other_t, t):
            raise Untestable(f"{upper} and {key} are sampled at different rounds")
        above &= ours > other
    return float(above.mean())


def spread_ratio(evidence: Evidence, key: GroupKey, *others: GroupKey) -> float:
    """Spread over time of the rolling reward, relative to the largest spread of the others."""

    def late_std(t: Ints, y: Floats) -> float:
        return float(select_rounds(evidence, 0.5, 1.0, t, y).std())

    spreads = [seed_mean(evidence.each(one, "curve_reward", late_std)) for one in (key, *others)]
    return spreads[0] / max(*spreads[1:], 1e-12)


def feasible_rounds(evidence: Evidence, key: GroupKey) -> float:
    """Share of all sampled rounds and seeds at which R2 is 0."""
    return float((evidence.curve(key, "curve_r2").seeds <= 0).mean())


def last_violation(evidence: Evidence, key: GroupKey) -> float:
    """The last sampled round at which some seed is outside a limit; 0 if there is none."""
    curve = evidence.curve(key, "curve_r2")
    return float(max(curve.t[(curve.seeds > 0).any(axis=0)], default=0))


CURVE_STATISTICS: dict[str, Callable[[Floats, Floats], float]] = {
    "slope": log_log_slope,
    "trend": rank_correlation,
    # the points on or above c/√n through the curve's own first value
    "share_above_rate": lambda n, y: float((y >= y[0] * np.sqrt(n[0] / n) - 1e-12).mean()),
    # the last value relative to the largest
    "share_left": lambda n, y: float(abs(y[-1]) / y.max()) if y.max() > 0 else math.inf,
}


def measure_curve(
    evidence: Evidence, key: GroupKey, column: str, what: str, low: float, high: float | None = None
) -> float:
    """A statistic of the mean curve over the updates n from `low` to `high`, or to the end."""
    return CURVE_STATISTICS[what](*sample_log_grid(evidence.curve(key, column), low, high))


def last_value(evidence: Evidence, key: GroupKey, column: str) -> float:
    return float(evidence.curve(key, column).mean[-1])


def peak(evidence: Evidence, key: GroupKey, column: str) -> float:
    return float(evidence.curve(key, column).mean.max())


def bump(evidence: Evidence, key: GroupKey, column: str) -> SeedValues:
    """How far each seed's curve rises from n = 3 to its largest value up to n = 100."""
    require_update(evidence.curve(key, column), 100)
    return evidence.each(key, column, lambda t, y: y[(t >= 30) & (t <= 1000)].max() - y[t >= 30][0])


def last_policy_shortfall(evidence: Evidence, key: GroupKey) -> float:
    """What OMD's last policy earns less than the optimum, relative to the optimum."""
    true, proxy = (evidence.values(key, name) for name in ("regret_true", "regret_proxy"))
    gap, best = subtract_by_seed(true, proxy), evidence.values(key, "optimum")
    return seed_mean({seed: gap[seed] / best[seed] for seed in gap})


def early_experts(evidence: Evidence, key: GroupKey) -> SeedValues:
    """Experts per round over the first 30 updates."""
    require_update(evidence.curve(key, "curve_expert"), 60)
    return evidence.each(key, "curve_expert", lambda t, y: y[t <= 30 * SWEEP_STEP_ROUNDS][-1])


def late_experts(evidence: Evidence, key: GroupKey) -> SeedValues:
    """Experts per round over the second half of the run."""

    def late(t: Ints, y: Floats) -> float:
        half = len(t) // 2 - 1
        return float((t[-1] * y[-1] - t[half] * y[half]) / (t[-1] - t[half]))

    return evidence.each(key, "curve_expert", late)


def mean_r2(evidence: Evidence, key: GroupKey) -> SeedValues:
    """R2 averaged over the updates of the run."""
    return evidence.each(key, "curve_r2", lambda t, y: y.mean())


def r2_slope(evidence: Evidence, key: GroupKey) -> float:
    """Log-log slope of the mean R2 from n = 10 until it is zero; nan if that is before n = 30."""
    curve = evidence.curve(key, "curve_r2")
    require_update(curve, 30)
    last = max(curve.n[curve.mean > NO_VIOLATION], default=0.0)
    return log_log_slope(*sample_log_grid(curve, 10, float(last))) if last >= 30 else float("nan")


def settling_update(evidence: Evidence, key: GroupKey, shortest: float) -> float:
    """First n from which the mean R2 stays at zero; the run must reach n = `shortest`."""
    curve = evidence.curve(key, "curve_r2")
    require_update(curve, shortest)
    return find_settling_update(curve.n, curve.mean, NO_VIOLATION)


def log_settling_update(evidence: Evidence, key: GroupKey) -> SeedValues:
    """Logarithm of the first n from which a seed's R2 stays at zero; of the last n if none."""

    def when(t: Ints, y: Floats) -> float:
        settled = find_settling_update(t / SWEEP_STEP_ROUNDS, y, NO_VIOLATION)
        return float(np.log(min(settled, t[-1] / SWEEP_STEP_ROUNDS)))

    return evidence.each(key, "curve_r2", when)


def cost_spread(evidence: Evidence, key: GroupKey) -> SeedValues:
    """Standard deviation of the mean cost of a batch relative to its limit, the largest of both."""

    def spread(t: Ints, y: Floats) -> float:  # of batches, recovered from running means
        return float(np.std(np.diff(t * y) / np.diff(t), ddof=1))

    largest: SeedValues = {}
    for cost in ("workload", "expert"):
        bound = evidence.values(key, f"{cost}_bound")
        for seed, value in evidence.each(key, f"curve_{cost}", spread).items():
            largest[seed] = max(value / bound[seed], largest.get(seed, 0.0))
    return largest
