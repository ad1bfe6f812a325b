"""What the claims on the comparison of policies share: names, thresholds, small measurements."""

from collections.abc import Iterable

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints
from bylot.reports.style import ENVIRONMENT_LABELS, PAPER_POLICY_STYLES
from bylot_paper.analysis import GroupKey, crowd_key
from bylot_paper.evidence import (
    Evidence,
    PairedDifference,
    RunShare,
    SeedValues,
    Untestable,
    seed_mean,
)

BOTH = tuple(ENVIRONMENT_LABELS)
LIMITED = ("tight", "medium", "loose")
LEVELS = (*LIMITED, "none")
ALL = tuple(PAPER_POLICY_STYLES)
AWARE = ("omd", "ts-bwk", "cbwk", "moe")
UNAWARE = ("cucb", "ts", "greedy")
DUAL = ("ts-bwk", "cbwk")
"""The two rivals with a Lagrangian dual that the third figure shows."""

PERSISTENT = 0.95
"""All the way: at this share of the sampled rounds or more."""
TWO = "more than two standard errors of the paired difference over seeds"


def format_policy(policy: str) -> str:
    """As people write it."""
    return "OMD" if policy == "omd" else PAPER_POLICY_STYLES[policy].name


def reward_by_seed(evidence: Evidence, environment: str, level: str, policy: str) -> SeedValues:
    """Time-averaged reward of each seed."""
    return evidence.values(crowd_key(environment, level, policy), "reward")


def is_near_optimal(evidence: Evidence, key: GroupKey) -> bool:
    """Is the mean reward near the optimum?"""
    return evidence.ratio(key) >= evidence.near


def in_every_run(share: RunShare) -> bool:
    """In every run?"""
    return share.kept == share.runs


def uniform_note(evidence: Evidence, keys: Iterable[GroupKey]) -> str:
    """What equal shares earn, as near-optimal is little to ask when that is near already."""
    least = min(evidence.ratio(key, "uniform") for key in keys)
    return f"equal shares earn {least:.1%} or more"


def format_named(values: dict[str, object]) -> str:
    """Names with what was measured."""
    return ", ".join(f"{key} {value}" for key, value in values.items())


def compare_all(values: dict[str, PairedDifference]) -> tuple[bool, str, dict[str, float]]:
    """Whether all differences are clear, how they read (the least is named), and as numbers."""
    least = min(values, key=lambda one: values[one].mean)
    clear = sum(gap.clear for gap in values.values())
    text = f"{clear} of {len(values)} clear; least {values[least]} for {least}"
    return clear == len(values), text, {key: gap.mean for key, gap in values.items()}


def stretch(evidence: Evidence, low: float, high: float, t: Ints) -> Bools:
    """The sampled rounds in a part of the run."""
    inside = (t > low * evidence.rounds) & (t <= high * evidence.rounds)
    if not inside.any():
        raise Untestable("the curves have no point in that part of the run")
    return np.asarray(inside)


def rolling_by_seed(evidence: Evidence, key: GroupKey, low: float, high: float) -> SeedValues:
    """Each seed's rolling reward, averaged over a part of the run."""

    def average(t: Ints, y: Floats) -> float:
        return float(y[stretch(evidence, low, high, t)].mean())

    return evidence.each(key, "curve_reward", average)


def full_window_curve(evidence: Evidence, key: GroupKey) -> tuple[Floats, Floats]:
    """Rounds and mean rolling reward where the window is full."""
    curve = evidence.curve(key, "curve_reward")
    filled = curve.t >= min(int(evidence.run.get("window", 0)), evidence.rounds // 2)
    return curve.t[filled].astype(float), curve.mean[filled]


def share_above(evidence: Evidence, upper: GroupKey, lower: Iterable[GroupKey]) -> float:
    """Share of the sampled rounds at which one mean rolling reward is above all the others."""
    t, ours = full_window_curve(evidence, upper)
    above = np.ones(len(t), dtype=bool)
    for key in lower:
        other_t, other = full_window_curve(evidence, key)
        if len(other) != len(ours) or (other_t != t).any():
            raise Untestable(f"{upper} and {key} are sampled at different rounds")
        above &= ours > other
    return float(above.mean())


def spread_over_time(evidence: Evidence, key: GroupKey) -> float:
    """Standard deviation of the rolling reward over the second half of the run, mean over seeds."""

    def spread(t: Ints, y: Floats) -> float:
        return float(y[stretch(evidence, 0.5, 1.0, t)].std())

    return seed_mean(evidence.each(key, "curve_reward", spread))
