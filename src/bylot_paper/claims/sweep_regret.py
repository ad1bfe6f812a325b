"""Claims of 6.2 on R1, each judged both ways: as the paper defines R1, and against the optimum.

Left out: what the figure shows and that a reference is drawn (descriptions), and the repeated
remark that all curves end near zero (the first row here).
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from bylot_paper.analysis import UpdateCurves, sweep_key
from bylot_paper.claims.judging import ClaimFinding, register_claim
from bylot_paper.evidence import (
    Evidence,
    log_log_slope,
    paired_difference,
    rank_correlation,
    require_update,
    sample_log_grid,
    seed_mean,
    subtract_by_seed,
)

SECTION = "6.2 R1"
GRID = [(dimensions, level) for dimensions in (3, 5) for level in ("tight", "medium", "loose")]
WAYS = {
    "true": ("curve_r1_true", "R1 against the true optimum"),
    "proxy": ("curve_r1_proxy", "R1 as the paper defines it, against OMD's last policy"),
}
ANCHOR, WARM, REST = 10, 30, 0.20
ABOVE, FLAT, DOWN, HALF = 0.95, 0.25, -0.95, -0.5
NEAR = 0.01


def both_ways(name: str, says: str, rule: str) -> Callable[..., None]:
    """Register a judge of one column for each way to define R1."""

    def register(judge: Callable[[str, Evidence], ClaimFinding]) -> None:
        for way, (column, label) in WAYS.items():
            says_it = f"{says} ({label})"
            register_claim(f"{name}-{way}", SECTION, says_it, rule)(partial(judge, column))

    return register


def six(
    column: str, evidence: Evidence, measure: Callable[[UpdateCurves], float]
) -> dict[str, float]:
    """A number of each of the six curves."""
    return {
        f"N={dimensions} {level}": measure(evidence.curve(sweep_key(dimensions, level), column))
        for dimensions, level in GRID
    }


def listed(values: dict[str, float], form: str = ".2f") -> str:
    """Numbers with their names, on one line."""
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


@both_ways(
    "r1-near-zero",
    "Under all three levels and both N, R1 has all but vanished when the run ends.",
    f"At the last update (n = T/B; the n = 10,000 of the text cannot be, as T/B is 1,000) the mean "
    f"R1 is within {REST:.0%} of its largest value from n = {ANCHOR} on, in all six curves. "
    f"(c/√n itself falls to 10% from n = 10 to 1,000, so less cannot be asked of curves that are "
    f"said to lie above it.)",
)
def near_zero(column: str, evidence: Evidence) -> ClaimFinding:
    """How much of the largest R1 is left."""

    def left(curve: UpdateCurves) -> float:
        _, y = sample_log_grid(curve, ANCHOR)
        return float(abs(y[-1]) / y.max()) if y.max() > 0 else float("inf")

    parts = six(column, evidence, left)
    ends = six(column, evidence, lambda curve: float(curve.mean[-1]))
    text = f"left of the largest: {listed(parts, '.0%')}; at the end {listed(ends, '.4f')}"
    return ClaimFinding(max(parts.values()) <= REST, text, {"left": parts, "end": ends})


@both_ways(
    "r1-above-reference",
    "The curves of R1 stay on the upper side of the c/√n line all along.",
    f"The text gives no c; each curve is held against c/√n through its own value at n = {ANCHOR}. "
    f"On a logarithmic grid from there to the end, at least {ABOVE:.0%} of the points are at or "
    f"above the line, in all six curves.",
)
def above(column: str, evidence: Evidence) -> ClaimFinding:
    """Share of points on or over the line."""

    def share(curve: UpdateCurves) -> float:
        n, y = sample_log_grid(curve, ANCHOR)
        return float((y >= y[0] * np.sqrt(n[0] / n) - 1e-12).mean())

    shares = six(column, evidence, share)
    holds = min(shares.values()) >= ABOVE
    return ClaimFinding(holds, f"points above: {listed(shares, '.0%')}", {"above": shares})


@both_ways(
    "r1-slow-start",
    "At first R1 falls more slowly than the square-root rate.",
    f"The log-log slope of the mean curve fitted over n = {ANCHOR} to 100 is above {HALF}, "
    f"in all six curves.",
)
def slow_start(column: str, evidence: Evidence) -> ClaimFinding:
    """The early slope."""
    slopes = six(
        column, evidence, lambda curve: log_log_slope(*sample_log_grid(curve, ANCHOR, 100))
    )
    holds = all(value > HALF for value in slopes.values())
    return ClaimFinding(holds, f"slopes: {listed(slopes)}", {"slope": slopes})


@both_ways(
    "r1-plateau",
    "For about the first 30 updates R1 stays level.",
    f"The log-log slope of the mean curve fitted over n = 3 to {WARM} is within ±{FLAT}, "
    f"in all six curves.",
)
def plateau(column: str, evidence: Evidence) -> ClaimFinding:
    """The slope of the warm-up."""
    slopes = six(column, evidence, lambda curve: log_log_slope(*sample_log_grid(curve, 3, WARM)))
    holds = all(abs(value) <= FLAT for value in slopes.values())
    return ClaimFinding(holds, f"slopes: {listed(slopes)}", {"slope": slopes})


@both_ways(
    "r1-monotone",
    "Once past the warm-up, R1 only goes down.",
    f"Spearman's rank correlation of the mean curve with n, on a logarithmic grid from n = {WARM} "
    f"to the end, is at most {DOWN}, in all six curves.",
)
def monotone(column: str, evidence: Evidence) -> ClaimFinding:
    """Rank correlation with n."""
    ranks = six(column, evidence, lambda curve: rank_correlation(*sample_log_grid(curve, WARM)))
    holds = max(ranks.values()) <= DOWN
    return ClaimFinding(holds, f"rank correlations: {listed(ranks)}", {"spearman": ranks})


def rise(column: str, evidence: Evidence, dimensions: int, level: str) -> dict[int, float]:
    """By how much each seed's R1 rises from n = 3 to its largest value up to n = 100."""
    key = sweep_key(dimensions, level)
    require_update(evidence.curve(key, column), 100)
    return evidence.each(
        key, column, lambda t, y: float(y[(t >= 30) & (t <= 1_000)].max() - y[t >= 30][0])
    )


@both_ways(
    "r1-hump",
    "With N = 5 the loose level has the larger bump early on.",
    "A bump is how far a seed's R1 rises from n = 3 to its largest value up to n = 100. That of "
    "N = 5 loose is larger than those of N = 5 tight, N = 5 medium and N = 3 loose, each by more "
    "than two standard errors of the paired difference over seeds.",
)
def hump(column: str, evidence: Evidence) -> ClaimFinding:
    """Bumps against that of N = 5 loose."""
    ours = rise(column, evidence, 5, "loose")
    others = {
        f"N={dimensions} {level}": rise(column, evidence, dimensions, level)
        for dimensions, level in ((5, "tight"), (5, "medium"), (3, "loose"))
    }
    gaps = {name: paired_difference(ours, other) for name, other in others.items()}
    text = ", ".join(f"over {name} {gap}" for name, gap in gaps.items())
    numbers = {
        "rise": seed_mean(ours),
        "others": {name: seed_mean(other) for name, other in others.items()},
    }
    holds = all(gap.clear for gap in gaps.values())
    return ClaimFinding(holds, f"bump {seed_mean(ours):.4f}; {text}", numbers)


@both_ways(
    "r1-hump-range",
    "That bump comes from rewards having a wider range when N is larger.",
    "If the range is the cause, the bump of the loose level is larger at N = 5 than at N = 3 by "
    "more than two standard errors, and no longer so when each is divided by its N.",
)
def hump_range(column: str, evidence: Evidence) -> ClaimFinding:
    """Bumps as they are, and per dimension."""
    five, three = (rise(column, evidence, dimensions, "loose") for dimensions in (5, 3))
    plain = paired_difference(five, three)
    scaled = paired_difference(
        {seed: value / 5 for seed, value in five.items()},
        {seed: value / 3 for seed, value in three.items()},
    )
    text = f"difference {plain}, per dimension {scaled}"
    numbers = {"difference": plain.mean, "per_dimension": scaled.mean}
    return ClaimFinding(plain.clear and not scaled.clear, text, numbers)


@both_ways(
    "r1-rate",
    "R1 goes down at the rate that the theory predicts, one over the root of n.",
    "The log-log slope of the mean curve fitted from n = 30 to the end is -0.35 or steeper, in all "
    "six curves (opening sentence of 6.2; a bound allows a faster fall).",
)
def rate(column: str, evidence: Evidence) -> ClaimFinding:
    """The slope after the warm-up."""
    slopes = six(column, evidence, lambda curve: log_log_slope(*sample_log_grid(curve, WARM)))
    holds = all(value <= -0.35 for value in slopes.values())
    return ClaimFinding(holds, f"slopes: {listed(slopes)}", {"slope": slopes})


@register_claim(
    "r1-stand-in",
    SECTION,
    "OMD's last policy can stand in for the best feasible one.",
    f"Over the run, the last policy earns at least {1 - NEAR:.0%} of the true constrained optimum, "
    "on average over seeds, in all six groups (R1 against the optimum less R1 against the last "
    "policy is what the last policy lacks).",
)
def stand_in(evidence: Evidence) -> ClaimFinding:
    """What the last policy lacks, in parts of the optimum."""
    lacks = {}
    for dimensions, level in GRID:
        key = sweep_key(dimensions, level)
        gap = subtract_by_seed(
            evidence.values(key, "regret_true"), evidence.values(key, "regret_proxy")
        )
        best = evidence.values(key, "optimum")
        lacks[f"N={dimensions} {level}"] = seed_mean({seed: gap[seed] / best[seed] for seed in gap})
    text = f"lacks {listed(lacks, '.2%')} of the optimum"
    return ClaimFinding(max(lacks.values()) <= NEAR, text, {"lacks": lacks})
