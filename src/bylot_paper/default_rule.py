"""The rule that chooses the default policy, applied to a table of results and to nothing else.

Errors are propagated seed by seed: the same few seeds are behind numerator and denominator, behind
the places of a scenario, and behind the policies that are compared.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import DataError

REFERENCE_POLICY = "distinct"
"""Losses are measured relative to the loss of this policy in the same place."""

LARGE_POOL_SIZE = 120
"""Larger pools form a class of their own: the geometric mean of the sizes played, 50 and 300."""

TIE_STANDARD_ERRORS = 2.0
MIN_RULE_SEEDS = 3  # fewer seeds say nothing about a spread


class SeedEstimate(NamedTuple):
    """A value, and how much each independent seed moved it, to first order."""

    value: float
    pulls: Mapping[Any, float]

    @property
    def error(self) -> float:
        """Standard error: the root of the sum of squares, as pulls are independent."""
        return math.sqrt(sum(pull * pull for pull in self.pulls.values()))


def estimate_mean(values: Mapping[Any, float]) -> SeedEstimate:
    """pull_s = (x_s - mean) / sqrt(n (n - 1)), whose squares sum to the usual variance s^2 / n.

    >>> round(estimate_mean({0: 1.0, 1: 3.0}).error, 12)
    1.0
    """
    found = np.array(list(values.values()))
    pulls = (found - found.mean()) / math.sqrt(found.size * (found.size - 1))
    return SeedEstimate(float(found.mean()), dict(zip(values, pulls.tolist(), strict=True)))


def sum_pulls(terms: Iterable[tuple[float, SeedEstimate]]) -> dict[Any, float]:
    """The pulls of sum_k a_k x_k: those of one seed are added before they are squared."""
    pulls: dict[Any, float] = {}
    for weight, term in terms:
        for seed, pull in term.pulls.items():
            pulls[seed] = pulls.get(seed, 0.0) + weight * pull
    return pulls


def average_estimates(parts: Iterable[SeedEstimate]) -> SeedEstimate:
    parts = list(parts)
    return SeedEstimate(
        float(np.mean([part.value for part in parts])),
        sum_pulls((1 / len(parts), part) for part in parts),
    )


def divide_estimates(top: SeedEstimate, bottom: SeedEstimate) -> SeedEstimate:
    """R = x / y, by the delta method: dR = (dx - R dy) / y.

    >>> half = divide_estimates(estimate_mean({0: 1.0, 1: 3.0}), estimate_mean({0: 2.0, 1: 6.0}))
    >>> half.error  # half of it in every seed
    0.0
    """
    R = top.value / bottom.value
    return SeedEstimate(R, sum_pulls([(1 / bottom.value, top), (-R / bottom.value, bottom)]))


def subtract_estimates(one: SeedEstimate, other: SeedEstimate) -> SeedEstimate:
    return SeedEstimate(one.value - other.value, sum_pulls([(1.0, one), (-1.0, other)]))


class ResultLine(NamedTuple):
    """The results of one policy in one place.

    scenario: its places together count as much as another scenario
    gaps: by seed, how much more the best mixture of panels earns
    runs, kept: runs requested, and those that were played and kept every limit
    bad_periods: whole periods that ended outside a limit
    propensities: was the propensity of every panel known?
    pool: what the seeds draw, if several scenarios share it; their errors are then dependent
    """

    scenario: str
    place: str
    policy: str
    size: int
    period: int | None
    gaps: Mapping[int, float]
    runs: int
    kept: int
    bad_periods: int
    propensities: bool
    pool: str = ""


class DefaultChoice(NamedTuple):
    """The choice for a class of problems.

    policy: None if there is no candidate
    scores: loss of each candidate relative to the reference, the lowest first
    excluded: policies that are no candidates, with the reason
    beaten: the policy with the lowest score, if another one that is tied with it was taken
    uncounted: places where the reference loses nothing, which do not count
    uneven: policies and places with other seeds than the reference
    """

    problems: str
    policy: str | None
    scores: dict[str, SeedEstimate]
    excluded: dict[str, str]
    beaten: str | None
    uncounted: tuple[str, ...]
    uneven: tuple[str, ...] = ()


def choose_defaults(lines: Sequence[ResultLine]) -> list[DefaultChoice]:
    """Choose by class of problems, with and without propensities; the first is the default."""
    check_result_lines(lines)
    whole = [line for line in lines if line.period is None]
    classes = {
        "all": whole,
        f"up to {LARGE_POOL_SIZE} experts": [x for x in whole if x.size <= LARGE_POOL_SIZE],
        f"more than {LARGE_POOL_SIZE} experts": [x for x in whole if x.size > LARGE_POOL_SIZE],
    }
    for period in sorted({line.period for line in lines if line.period is not None}):
        classes[f"periods of {period:,} rounds"] = [x for x in lines if x.period == period]
    excluded = find_absent_policies(lines) | find_broken_limits(lines)
    silent = find_missing_propensities(lines) | excluded
    kinds = {"with propensities": silent, "propensities not needed": excluded}
    choices = [
        choose_default(f"{problems}, {kind}", some, left_out)
        for problems, some in classes.items()
        for kind, left_out in kinds.items()
    ]
    return [choice for choice in choices if choice.scores or choice.excluded]


def check_result_lines(lines: Iterable[ResultLine]) -> None:
    """Refuse lines that would count twice or cannot be counted."""
    seen: set[tuple[str, str]] = set()
    scenarios: dict[str, str] = {}
    for line in lines:
        other = scenarios.setdefault(line.place, line.scenario)
        if other != line.scenario:
            raise DataError(
                f"{line.place} is a place of {other} and of {line.scenario}",
                remedy="give places of different scenarios different names",
            )
        if (line.policy, line.place) in seen:
            raise DataError(
                f"{line.policy} has two lines in {line.place}",
                remedy="give one line per policy and place",
            )
        seen.add((line.policy, line.place))
        for seed, gap in line.gaps.items():
            if not math.isfinite(gap):
                raise DataError(
                    f"gap of {line.policy} in {line.place} for seed {seed}",
                    got=gap,
                    expected="a finite number",
                    remedy="leave out seeds that were not played",
                )


def choose_default(
    problems: str, lines: Sequence[ResultLine], barred: Mapping[str, str]
) -> DefaultChoice:
    """Apply the rule to some lines; `barred` policies are excluded whatever they score."""
    places, losing = dict.fromkeys(line.place for line in lines), find_counted_places(lines)
    counted = [line for line in lines if line.place in losing]
    uncounted = tuple(place for place in places if place not in losing)
    policies = dict.fromkeys(line.policy for line in lines)
    excluded = {policy: why for policy, why in barred.items() if policy in policies}
    for policy in policies:
        if policy not in excluded and (why := find_missing_measure(lines, counted, policy)):
            excluded[policy] = why
    losses = {x: estimate_relative_loss(counted, x) for x in policies if x not in excluded}
    scores = dict(sorted(losses.items(), key=lambda item: item[1].value))
    if not scores:
        return DefaultChoice(problems, None, {}, excluded, None, uncounted)
    best = taken = next(iter(scores))
    silent = find_missing_propensities(lines)
    if best in silent:  # a policy that is tied with it and records propensities is taken
        worse = {x: subtract_estimates(score, scores[best]) for x, score in scores.items()}
        tied = [x for x in worse if worse[x].value <= TIE_STANDARD_ERRORS * worse[x].error]
        taken = next((policy for policy in tied if policy not in silent), best)
    return DefaultChoice(
        problems,
        taken,
        scores,
        excluded,
        best if taken != best else None,
        uncounted,
        list_uneven_seeds(counted, scores),
    )


def find_absent_policies(lines: Sequence[ResultLine]) -> dict[str, str]:
    """The policies that were not played in every place, with the first of these places."""
    places = dict.fromkeys(line.place for line in lines)
    absent = {}
    for policy in dict.fromkeys(line.policy for line in lines):
        played = {line.place for line in lines if line.policy == policy}
        if missing := [place for place in places if place not in played]:
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            absent[policy] = f"was not played in {missing[0]}{others}"
    return absent


def find_broken_limits(lines: Iterable[ResultLine]) -> dict[str, str]:
    """The policies that broke a limit or refused to play, with the first such place."""
    broken: dict[str, str] = {}
    for line in lines:
        if line.kept < line.runs:
            why = f"kept all limits in {line.kept} of {line.runs} runs of {line.place}"
            broken.setdefault(line.policy, why)
        elif line.bad_periods:
            why = f"broke a limit in {line.bad_periods} periods of {line.place}"
            broken.setdefault(line.policy, why)
    return broken


def find_missing_propensities(lines: Iterable[ResultLine]) -> dict[str, str]:
    return {line.policy: "does not record propensities" for line in lines if not line.propensities}


def find_counted_places(lines: Iterable[ResultLine]) -> dict[str, float]:
    """The mean loss of the reference in the places where it loses anything."""
    means = {
        line.place: float(np.mean(list(line.gaps.values())))
        for line in lines
        if line.policy == REFERENCE_POLICY and line.gaps
    }
    return {place: mean for place, mean in means.items() if mean > 0.0}


def find_missing_measure(
    lines: Iterable[ResultLine], counted: Sequence[ResultLine], policy: str
) -> str | None:
    """What is missing to score a policy; None if nothing is."""
    if not counted:
        played = any(line.gaps for line in lines if line.policy == REFERENCE_POLICY)
        where = "loses nothing in any place" if played else "was not played in any place"
        return f"{REFERENCE_POLICY}, the reference, {where}"
    few = {
        line.scenario: f"{len(line.gaps)} of {line.scenario}"
        for line in counted
        if line.policy in (policy, REFERENCE_POLICY) and len(line.gaps) < MIN_RULE_SEEDS
    }
    if not few:
        return None
    return f"too few seeds ({', '.join(few.values())}), at least {MIN_RULE_SEEDS} are needed"


def estimate_relative_loss(lines: Sequence[ResultLine], policy: str) -> SeedEstimate:
    """Loss relative to the reference: mean over the places of a scenario, then over scenarios."""
    reference = {x.place: estimate_gap(x) for x in lines if x.policy == REFERENCE_POLICY}
    scenarios: dict[str, list[SeedEstimate]] = {}
    for line in lines:
        if line.policy == policy:
            scenarios.setdefault(line.scenario, []).append(
                divide_estimates(estimate_gap(line), reference[line.place])
            )
    return average_estimates(average_estimates(places) for places in scenarios.values())


def estimate_gap(line: ResultLine) -> SeedEstimate:
    """The mean gap; a seed is the same randomness in all places of a scenario or pool."""
    source = line.pool or line.scenario
    return estimate_mean({(source, seed): gap for seed, gap in line.gaps.items()})


def list_uneven_seeds(lines: Sequence[ResultLine], policies: Iterable[str]) -> tuple[str, ...]:
    """Policies and places with other seeds than the reference: what they cannot share with it
    counts as independent, so that their error is larger.
    """
    seeds = {line.place: line.gaps.keys() for line in lines if line.policy == REFERENCE_POLICY}
    return tuple(
        f"{line.policy} in {line.place}"
        for policy in policies
        for line in lines
        if line.policy == policy and line.gaps.keys() != seeds[line.place]
    )
