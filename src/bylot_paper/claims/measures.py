"""What claims measure: one number of a group of records, or one number for each of its seeds.

A measure takes the evidence, one or more groups, and settings from the table of claims.
"""

import numpy as np

from bylot.numerics.jit import Floats, Ints
from bylot_paper.analysis import GroupKey
from bylot_paper.evidence import (
    Evidence,
    RunShare,
    SeedValues,
    Untestable,
    find_settling_update,
    log_log_slope,
    rank_correlation,
    require_update,
    sample_log_grid,
    seed_mean,
    subtract_by_seed,
)
from bylot_paper.outcome import SWEEP_STEP_ROUNDS

NO_VIOLATION = 1e-3
"""A mean R2 below this counts as zero."""

feasible_share, feasible_by_seed = Evidence.feasible, Evidence.kept
optimum_share, by_seed = Evidence.ratio, Evidence.values


def mean_value(evidence: Evidence, key: GroupKey, column: str) -> float:
    """The mean of a column over seeds."""
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
    first, second = evidence.kept(one), evidence.kept(other)
    return {2 * seed: kept for seed, kept in first.items()} | {
        2 * seed + 1: kept for seed, kept in second.items()
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
    window = int(evidence.run.get("window", 0))
    curve = evidence.curve(key, "curve_reward")

    def first(y: Floats, target: float) -> float:
        there = curve.t[(curve.t >= window) & (y >= target)]
        return float(there[0] if there.size else evidence.rounds)

    rows = zip(curve.names, curve.seeds, strict=True)
    return {seed: first(row, evidence.near * best[seed]) for seed, row in rows}


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
        if len(other) != len(ours) or (other_t != t).any():
            raise Untestable(f"{upper} and {key} are sampled at different rounds")
        above &= ours > other
    return float(above.mean())


def spread_ratio(evidence: Evidence, key: GroupKey, *others: GroupKey) -> float:
    """Spread over time of the rolling reward, relative to the largest spread of the others."""

    def late_std(t: Ints, y: Floats) -> float:
        return float(select_rounds(evidence, 0.5, 1.0, t, y).std())

    ours, *theirs = (
        seed_mean(evidence.each(one, "curve_reward", late_std)) for one in (key, *others)
    )
    return ours / max(*theirs, 1e-12)


def feasible_rounds(evidence: Evidence, key: GroupKey) -> float:
    """Share of all sampled rounds and seeds at which R2 is 0."""
    return float((evidence.curve(key, "curve_r2").seeds <= 0).mean())


def last_violation(evidence: Evidence, key: GroupKey) -> float:
    """The last sampled round at which some seed is outside a limit; 0 if there is none."""
    curve = evidence.curve(key, "curve_r2")
    return float(max(curve.t[(curve.seeds > 0).any(axis=0)], default=0))


def slope(
    evidence: Evidence, key: GroupKey, column: str, low: float, high: float | None = None
) -> float:
    """Log-log slope of the mean curve over the updates n from `low` to `high`."""
    return log_log_slope(*sample_log_grid(evidence.curve(key, column), low, high))


def trend(evidence: Evidence, key: GroupKey, column: str, low: float) -> float:
    """Rank correlation of the mean curve with n, from n = `low` on."""
    return rank_correlation(*sample_log_grid(evidence.curve(key, column), low))


def share_above_rate(evidence: Evidence, key: GroupKey, column: str, low: float) -> float:
    """Share of the points on or above c/√n through the curve's own value at n = `low`."""
    n, y = sample_log_grid(evidence.curve(key, column), low)
    return float((y >= y[0] * np.sqrt(n[0] / n) - 1e-12).mean())


def share_left(evidence: Evidence, key: GroupKey, column: str, low: float) -> float:
    """The last value of the mean curve relative to its largest from n = `low` on."""
    _, y = sample_log_grid(evidence.curve(key, column), low)
    return float(abs(y[-1]) / y.max()) if y.max() > 0 else float("inf")


def last_value(evidence: Evidence, key: GroupKey, column: str) -> float:
    """The mean curve at the end of the run."""
    return float(evidence.curve(key, column).mean[-1])


def peak(evidence: Evidence, key: GroupKey, column: str) -> float:
    """The largest value of the mean curve."""
    return float(evidence.curve(key, column).mean.max())


def bump(evidence: Evidence, key: GroupKey, column: str) -> SeedValues:
    """How far each seed's curve rises from n = 3 to its largest value up to n = 100."""
    require_update(evidence.curve(key, column), 100)
    return evidence.each(
        key, column, lambda t, y: float(y[(t >= 30) & (t <= 1_000)].max() - y[t >= 30][0])
    )


def last_policy_shortfall(evidence: Evidence, key: GroupKey) -> float:
    """What OMD's last policy earns less than the optimum, relative to the optimum."""
    true, proxy = (evidence.values(key, name) for name in ("regret_true", "regret_proxy"))
    gap, best = subtract_by_seed(true, proxy), evidence.values(key, "optimum")
    return seed_mean({seed: gap[seed] / best[seed] for seed in gap})


def early_experts(evidence: Evidence, key: GroupKey) -> SeedValues:
    """Experts per round over the first 30 updates."""
    require_update(evidence.curve(key, "curve_expert"), 60)
    return evidence.each(
        key, "curve_expert", lambda t, y: float(y[t <= 30 * SWEEP_STEP_ROUNDS][-1])
    )


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

    def spread(t: Ints, y: Floats) -> float:  # batches, recovered from the running means
        return float(np.std(np.diff(t * y) / np.diff(t), ddof=1))

    parts: dict[str, SeedValues] = {}
    for cost in ("workload", "expert"):
        bound = evidence.values(key, f"{cost}_bound")
        found = evidence.each(key, f"curve_{cost}", spread)
        parts[cost] = {seed: value / bound[seed] for seed, value in found.items()}
    return {s: max(parts["workload"][s], parts["expert"][s]) for s in parts["workload"]}
