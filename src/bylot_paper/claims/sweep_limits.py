"""Claims of 6.2 on R2, the distance of the mean cost from the limits.

Costs do not depend on N, so what the text says of N and R2 cannot be its doing; it is measured all
the same. Left out: what the caption says is drawn.
"""

from functools import partial

import numpy as np

from bylot.numerics.jit import Floats, Ints
from bylot_paper.analysis import GroupKey, sweep_key
from bylot_paper.claims.judging import ClaimFinding, register_claim
from bylot_paper.claims.sweep_regret import listed
from bylot_paper.evidence import (
    Evidence,
    PairedDifference,
    find_settling_update,
    log_log_slope,
    paired_difference,
    require_update,
    sample_log_grid,
    seed_mean,
)
from bylot_paper.outcome import SWEEP_STEP_ROUNDS

SECTION = "6.2 R2"
BOTH = (3, 5)
MEANINGFUL, ZERO = 0.01, 1e-3
RATE = (-0.65, -0.35)
COLUMN = "curve_r2"
CONSTRAINED = ("tight", "medium", "loose")


def peak(evidence: Evidence, key: GroupKey) -> float:
    """Largest mean R2 of the run."""
    return float(evidence.curve(key, COLUMN).mean.max())


@register_claim(
    "r2-only-tight",
    SECTION,
    "A violation worth speaking of occurs under the tight level alone.",
    f"The largest mean R2 of the tight level is above {MEANINGFUL}, and those of the medium and "
    f"the loose one are less than a quarter of it, for both N.",
    feasibility=True,
)
def only_tight(evidence: Evidence) -> ClaimFinding:
    """Largest mean R2 of each level."""
    peaks: dict[str, float] = {}
    holds = True
    for N in BOTH:
        tight, medium, loose = (peak(evidence, sweep_key(N, level)) for level in CONSTRAINED)
        holds = holds and tight > MEANINGFUL and max(medium, loose) < tight / 4
        peaks |= {f"N={N} tight": tight, f"N={N} medium": medium, f"N={N} loose": loose}
    return ClaimFinding(holds, f"largest: {listed(peaks, '.4f')}", {"largest": peaks})


@register_claim(
    "r2-starts-above-cap",
    SECTION,
    "At the tight level the mean cost begins beyond the cap on experts.",
    "At the first update (n = 1) the mean number of experts per round, over seeds, is above the "
    "cap, for both N.",
    feasibility=True,
)
def starts_above(evidence: Evidence) -> ClaimFinding:
    """Experts per round in the first batch."""
    starts, caps = {}, {}
    for dimensions in BOTH:
        key = sweep_key(dimensions, "tight")
        starts[f"N={dimensions}"] = seed_mean(evidence.each(key, "curve_expert", lambda t, y: y[0]))
        caps[f"N={dimensions}"] = seed_mean(evidence.values(key, "expert_bound"))
    holds = all(starts[name] > caps[name] for name in starts)
    cap = ", ".join(f"{value:g}" for value in sorted(set(caps.values())))
    text = f"experts per round at n = 1: {listed(starts)}; cap {cap}"
    return ClaimFinding(holds, text, {"start": starts, "cap": caps})


@register_claim(
    "r2-steered-away",
    SECTION,
    "At the tight level the dual steps bit by bit turn the draws away from experts used too much.",
    "Experts per round over the second half of the run are fewer than over the first 30 updates, "
    "by more than two standard errors of the paired difference over seeds, for both N.",
)
def steered(evidence: Evidence) -> ClaimFinding:
    """Experts early less experts late."""

    def early(t: Ints, y: Floats) -> float:
        return float(y[t <= 30 * SWEEP_STEP_ROUNDS][-1])

    def late(t: Ints, y: Floats) -> float:
        half = len(t) // 2 - 1
        return float((t[-1] * y[-1] - t[half] * y[half]) / (t[-1] - t[half]))

    falls: dict[str, PairedDifference] = {}
    for dimensions in BOTH:
        key = sweep_key(dimensions, "tight")
        require_update(evidence.curve(key, "curve_expert"), 60)
        first, second = (evidence.each(key, "curve_expert", part) for part in (early, late))
        falls[f"N={dimensions}"] = paired_difference(first, second)
    text = ", ".join(f"{name} {fall}" for name, fall in falls.items())
    numbers = {name: fall.mean for name, fall in falls.items()}
    holds = all(fall.clear for fall in falls.values())
    return ClaimFinding(holds, f"early less late: {text}", numbers)


@register_claim(
    "r2-rate",
    SECTION,
    "At the tight level R2 keeps close to the c/√n line.",
    f"From n = 10 to the last n at which the mean R2 is above {ZERO} (at least to n = 30), its "
    f"fitted log-log slope is within {RATE[0]} to {RATE[1]}, for both N.",
    feasibility=True,
)
def tracks(evidence: Evidence) -> ClaimFinding:
    """The slope of R2 while there is any."""
    slopes = {}
    for dimensions in BOTH:
        curve = evidence.curve(sweep_key(dimensions, "tight"), COLUMN)
        require_update(curve, 30)
        over = curve.n[curve.mean > ZERO]
        last = float(over[-1]) if over.size else 0.0
        slopes[f"N={dimensions}"] = (
            log_log_slope(*sample_log_grid(curve, 10, last)) if last >= 30 else float("nan")
        )
    holds = all(RATE[0] <= value <= RATE[1] for value in slopes.values())
    text = f"slopes: {listed(slopes)} (nan: R2 is gone before n = 30)"
    return ClaimFinding(holds, text, {"slope": slopes})


def at_rest(evidence: Evidence, dimensions: int, level: str) -> float:
    """First n from which the mean R2 stays under ZERO."""
    curve = evidence.curve(sweep_key(dimensions, level), COLUMN)
    return find_settling_update(curve.n, curve.mean, ZERO)


def gone_by(n: int, dimensions: int, evidence: Evidence) -> ClaimFinding:
    """Is R2 gone about n?"""
    curve = evidence.curve(sweep_key(dimensions, "tight"), COLUMN)
    require_update(curve, n)
    found = at_rest(evidence, dimensions, "tight")
    text = f"from n = {found:g}; R2 at the end {curve.mean[-1]:.5f}"
    return ClaimFinding(n / 2 <= found <= 2 * n, text, {"rest": found})


for N, about in ((3, 300), (5, 1_000)):
    register_claim(
        f"r2-gone-n{N}",
        SECTION,
        f"With N = {N}, the tight level's R2 has gone to about zero around n = {about:,}.",
        f"The first n from which the mean R2 stays below {ZERO} is within a factor of two of "
        f"{about:,}.",
        feasibility=True,
    )(partial(gone_by, about, N))


@register_claim(
    "r2-larger-n5",
    SECTION,
    "At the tight level the violation is larger with N = 5 than with N = 3.",
    "A seed's R2, averaged over the run's updates, is larger at N = 5 by more than two standard "
    "errors of the paired difference over seeds.",
)
def larger(evidence: Evidence) -> ClaimFinding:
    """Mean R2 over the run."""
    five, three = (
        evidence.each(sweep_key(dimensions, "tight"), COLUMN, lambda t, y: y.mean())
        for dimensions in (5, 3)
    )
    gap = paired_difference(five, three)
    text = f"N=5 {seed_mean(five):.4f}, N=3 {seed_mean(three):.4f}, difference {gap}"
    return ClaimFinding(gap.clear, text, {"N=5": seed_mean(five), "N=3": seed_mean(three)})


@register_claim(
    "r2-slower-n5",
    SECTION,
    "At the tight level the violation takes longer to go with N = 5.",
    f"The logarithm of the first n from which a seed's R2 stays below {ZERO} (the end of the run "
    f"if it does not) is larger at N = 5 by more than two standard errors of the paired "
    f"difference over seeds.",
)
def slower(evidence: Evidence) -> ClaimFinding:
    """When each seed's R2 is gone."""

    def when(t: Ints, y: Floats) -> float:
        return float(
            np.log(
                min(find_settling_update(t / SWEEP_STEP_ROUNDS, y, ZERO), t[-1] / SWEEP_STEP_ROUNDS)
            )
        )

    five, three = (evidence.each(sweep_key(N, "tight"), COLUMN, when) for N in (5, 3))
    gap = paired_difference(five, three)
    ends = {"N=5": float(np.exp(seed_mean(five))), "N=3": float(np.exp(seed_mean(three)))}
    return ClaimFinding(gap.clear, f"typical n: {listed(ends, '.0f')}; log difference {gap}", ends)


@register_claim(
    "r2-variance-n5",
    SECTION,
    "The cause is that costs per round vary more when there are more groups of skills.",
    "At the tight level, the standard deviation over the run of the mean cost of a batch (workload "
    "or experts, in parts of its limit, the larger of both) is larger at N = 5 by more than two "
    "standard errors of the paired difference over seeds. Costs are defined without N.",
)
def variance(evidence: Evidence) -> ClaimFinding:
    """Spread of the cost of single batches, got back from the running means."""

    def spread(t: Ints, y: Floats) -> float:
        return float(np.std(np.diff(t * y) / np.diff(t), ddof=1))

    def seeds(dimensions: int) -> dict[int, float]:
        key = sweep_key(dimensions, "tight")
        parts = {}
        for cost in ("workload", "expert"):
            bound = evidence.values(key, f"{cost}_bound")
            found = evidence.each(key, f"curve_{cost}", spread)
            parts[cost] = {seed: value / bound[seed] for seed, value in found.items()}
        return {s: max(parts["workload"][s], parts["expert"][s]) for s in parts["workload"]}

    five, three = seeds(5), seeds(3)
    gap = paired_difference(five, three)
    text = f"N=5 {seed_mean(five):.3f}, N=3 {seed_mean(three):.3f}, difference {gap}"
    return ClaimFinding(gap.clear, text, {"N=5": seed_mean(five), "N=3": seed_mean(three)})


@register_claim(
    "r2-medium-transient",
    SECTION,
    "At the medium level there is a small violation at the very start.",
    f"The mean R2 of the medium level is somewhere above {ZERO} up to n = 30, yet nowhere as large "
    f"as the largest of the tight level, for both N.",
    feasibility=True,
)
def medium_transient(evidence: Evidence) -> ClaimFinding:
    """Largest mean R2 at the start."""
    peaks: dict[str, float] = {}
    holds = True
    for dimensions in BOTH:
        curve = evidence.curve(sweep_key(dimensions, "medium"), COLUMN)
        require_update(curve, 30)
        early = float(curve.mean[curve.n <= 30].max())
        tight = peak(evidence, sweep_key(dimensions, "tight"))
        peaks |= {f"N={dimensions} medium": early, f"N={dimensions} tight": tight}
        holds = holds and early > ZERO and peak(evidence, sweep_key(dimensions, "medium")) < tight
    return ClaimFinding(holds, f"largest: {listed(peaks, '.4f')}", {"largest": peaks})


@register_claim(
    "r2-medium-gone",
    SECTION,
    "That violation of the medium level has gone about n = 20 to 30.",
    f"The first n from which the mean R2 stays below {ZERO} is within a factor of two of that "
    f"range, 10 to 60, for both N.",
    feasibility=True,
)
def medium_gone(evidence: Evidence) -> ClaimFinding:
    """When the medium level's R2 is gone."""
    require_update(evidence.curve(sweep_key(3, "medium"), COLUMN), 60)
    found = {f"N={dimensions}": at_rest(evidence, dimensions, "medium") for dimensions in BOTH}
    holds = all(10 <= n <= 60 for n in found.values())
    return ClaimFinding(holds, f"from n: {listed(found, 'g')}", {"rest": found})


@register_claim(
    "r2-loose-zero",
    SECTION,
    "At the loose level R2 is zero all the time.",
    f"The mean R2 of the loose level is never above {ZERO}, for both N.",
    feasibility=True,
)
def loose_zero(evidence: Evidence) -> ClaimFinding:
    """Largest mean R2 of the loose level."""
    peaks = {
        f"N={dimensions}": peak(evidence, sweep_key(dimensions, "loose")) for dimensions in BOTH
    }
    return ClaimFinding(max(peaks.values()) <= ZERO, f"largest: {listed(peaks, '.5f')}", peaks)
