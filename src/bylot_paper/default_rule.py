"""Which policy is the default: a stated rule, applied to a table and to nothing else.

How the table comes about is left to others; whoever has one can apply the rule again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import DataError


class SeedEstimate(NamedTuple):
    """A value, and by how much each independent draw of chance pulled it, to first order."""

    value: float
    pulls: Mapping[Any, float]

    @property
    def error(self) -> float:
        """Its standard error: pulls are independent, so it is the root of the sum of squares."""
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
    """The pulls of sum_k a_k x_k: those of one seed meet before they are squared."""
    pulls: dict[Any, float] = {}
    for weight, term in terms:
        for seed, pull in term.pulls.items():
            pulls[seed] = pulls.get(seed, 0.0) + weight * pull
    return pulls


def average_estimates(parts: Iterable[SeedEstimate]) -> SeedEstimate:
    """The mean of several, each of them counting alike."""
    parts = list(parts)
    value = float(np.mean([part.value for part in parts]))
    return SeedEstimate(value, sum_pulls((1 / len(parts), part) for part in parts))


def divide_estimates(top: SeedEstimate, bottom: SeedEstimate) -> SeedEstimate:
    """R = x / y, by the delta method: dR = (dx - R dy) / y.

    >>> divide_estimates(
    ...     estimate_mean({0: 1.0, 1: 3.0}), estimate_mean({0: 2.0, 1: 6.0})
    ... ).error  # half of it in every seed
    0.0
    """
    value = top.value / bottom.value
    return SeedEstimate(
        value, sum_pulls([(1 / bottom.value, top), (-value / bottom.value, bottom)])
    )


def subtract_estimates(one: SeedEstimate, other: SeedEstimate) -> SeedEstimate:
    """one - other."""
    return SeedEstimate(one.value - other.value, sum_pulls([(1.0, one), (-1.0, other)]))


REFERENCE_POLICY = "distinct"
"""What is lost is measured in parts of what this policy loses in the same place."""

LARGE_POOL_SIZE = 120
"""More experts than this are many: the middle of the sizes played, 50 and 300, by their ratio."""

TIE_STANDARD_ERRORS = 2.0  # standard errors
MIN_RULE_SEEDS = 3
"""Fewer seeds than this say nothing about a spread."""


class ResultLine(NamedTuple):
    """What one policy did in one place.

    world: places of one world count together as much as another world does
    size:  K
    gaps:  by seed, what the best mixture of panels earns more
    runs:  that were asked for; kept: of these, how many were played and kept every limit
    bad:   whole periods that left a limit
    told:  was the chance of every panel known?
    pool:  what its seeds draw, its own world if empty: worlds on the same pools err together
    """

    world: str
    place: str
    policy: str
    size: int
    period: int | None
    gaps: Mapping[int, float]
    runs: int
    kept: int
    bad: int
    told: bool
    pool: str = ""


class RelativeLoss(NamedTuple):
    """Mean over worlds of the gap in parts of the reference's, and its standard error, which is
    0 of the reference: it is the measure.
    """

    mean: float
    error: float


class DefaultChoice(NamedTuple):
    """What is taken for a class of problems.

    policy: None if nobody may be taken
    scores: of all that may, the least first
    out:    who may not, and why
    before: who had the least score, if another was taken, being tied with it
    unsaid: places that do not count, as the reference loses nothing there
    uneven: who was played with other seeds than the reference, and where
    """

    problems: str
    policy: str | None
    scores: dict[str, RelativeLoss]
    out: dict[str, str]
    before: str | None
    unsaid: tuple[str, ...]
    uneven: tuple[str, ...] = ()


DEFAULT_RULE_TEXT = (
    "Candidates are the policies that kept every limit, with no tolerance, in every run of every "
    "world and in every period, and refused none of them. All are played in all places, in periods "
    "too; whoever was not is no candidate.",
    f"The score of a candidate is what it loses against the best mixture of panels, in parts of "
    f"what {REFERENCE_POLICY} loses in the same place: the mean over seeds, over the places of a world, "
    f"and over worlds. The least score wins.",
    f"A standard error is that of a ratio of means over the same seeds: what {REFERENCE_POLICY} loses is "
    f"measured too, and seeds that are lucky for both are no news. Worlds are independent of each "
    f"other, but for those on the same pools. {REFERENCE_POLICY} itself has the score 1 and no error.",
    f"Whoever is within {TIE_STANDARD_ERRORS:g} standard errors of the winner, seed by seed, is tied with it. If "
    f"the winner cannot tell the chances of its panels and somebody tied with it can, the best of "
    f"those is taken.",
    "The default is the winner over all worlds among those that tell the chance of every panel: "
    "what is not told when a panel is drawn cannot be found out later, and a log without it says "
    "nothing of other policies. Where chances are not needed, all candidates count.",
    f"For a class of problems the same rule is applied to the worlds of that class: up to {LARGE_POOL_SIZE} "
    f"experts and more, periods by their length.",
)
"""In words."""


def choose_defaults(lines: Sequence[ResultLine]) -> list[DefaultChoice]:
    """The default, then what is taken where chances are not needed, and so for each class."""
    check_result_lines(lines)
    whole = [line for line in lines if line.period is None]
    few = [line for line in whole if line.size <= LARGE_POOL_SIZE]
    many = [line for line in whole if line.size > LARGE_POOL_SIZE]
    out = find_absent_policies(lines) | find_broken_limits(lines)
    classes = {
        "all": whole,
        f"up to {LARGE_POOL_SIZE} experts": few,
        f"more than {LARGE_POOL_SIZE} experts": many,
    }
    for period in sorted({line.period for line in lines if line.period is not None}):
        some = [line for line in lines if line.period == period]
        classes[f"periods of {period:,} rounds"] = some
    choices = []
    for problems, some in classes.items():
        choices.append(
            choose_default(
                f"{problems}, chances told", some, find_missing_propensities(lines) | out
            )
        )
        choices.append(choose_default(f"{problems}, chances not needed", some, out))
    return [choice for choice in choices if choice.scores or choice.out]


def check_result_lines(lines: Iterable[ResultLine]) -> None:
    """Refuse what would be counted twice, or could not be counted at all."""
    seen: set[tuple[str, str]] = set()
    worlds: dict[str, str] = {}
    for line in lines:
        if worlds.setdefault(line.place, line.world) != line.world:
            raise DataError(
                f"{line.place} is a place of {worlds[line.place]} and of {line.world}; give places "
                "of different worlds different names"
            )
        if (line.policy, line.place) in seen:
            raise DataError(
                f"{line.policy} has two lines in {line.place}; give one for each policy and place"
            )
        seen.add((line.policy, line.place))
        for seed, gap in line.gaps.items():
            if not math.isfinite(gap):
                raise DataError(
                    f"{line.policy} in {line.place}, seed {seed}: a gap of {gap} is no finite "
                    "number; leave out seeds that were not played"
                )


def choose_default(
    problems: str, lines: Sequence[ResultLine], out: Mapping[str, str]
) -> DefaultChoice:
    """The rule, applied to some lines; `out` may not be taken whatever they score."""
    scale, unsaid = measure_references(lines)
    counted = [line for line in lines if line.place in scale]
    policies = dict.fromkeys(line.policy for line in lines)
    away = {policy: why for policy, why in out.items() if policy in policies}
    for policy in policies:
        if policy not in away and (why := find_missing_measure(lines, counted, policy)):
            away[policy] = why
    losses = {
        policy: estimate_relative_loss(counted, policy) for policy in policies if policy not in away
    }
    order = sorted(losses, key=lambda policy: losses[policy].value)
    if not order:
        return DefaultChoice(problems, None, {}, away, None, unsaid)
    best, quiet = order[0], find_missing_propensities(lines)
    equals = [one for one in order if one not in quiet and is_tied(losses[best], losses[one])]
    taken = equals[0] if best in quiet and equals else best
    scores = {policy: RelativeLoss(losses[policy].value, losses[policy].error) for policy in order}
    before = best if taken != best else None
    return DefaultChoice(
        problems, taken, scores, away, before, unsaid, list_uneven_seeds(counted, order)
    )


def find_absent_policies(lines: Sequence[ResultLine]) -> dict[str, str]:
    """Who was not played where others were, so that it could not fail there."""
    places = dict.fromkeys(line.place for line in lines)
    out = {}
    for policy in dict.fromkeys(line.policy for line in lines):
        played = {line.place for line in lines if line.policy == policy}
        missing = [place for place in places if place not in played]
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        if missing:
            out[policy] = f"was not played in {missing[0]}{others}"
    return out


def find_broken_limits(lines: Iterable[ResultLine]) -> dict[str, str]:
    """Who left a limit anywhere, or would not play, and where it was so first."""
    out: dict[str, str] = {}
    for line in lines:
        if line.kept < line.runs:
            why = f"kept all limits in {line.kept} of {line.runs} runs of {line.place}"
            out.setdefault(line.policy, why)
        elif line.bad:
            out.setdefault(line.policy, f"left a limit in {line.bad} periods of {line.place}")
    return out


def find_missing_propensities(lines: Iterable[ResultLine]) -> dict[str, str]:
    """Who does not tell the chances of its panels."""
    return {line.policy: "does not tell its chances" for line in lines if not line.told}


def measure_references(lines: Iterable[ResultLine]) -> tuple[dict[str, float], tuple[str, ...]]:
    """What the reference loses in each place, and the places in which that is no measure."""
    found = {
        line.place: list(line.gaps.values()) for line in lines if line.policy == REFERENCE_POLICY
    }
    means = {place: float(np.mean(gaps)) for place, gaps in found.items() if gaps}
    places = dict.fromkeys(line.place for line in lines)
    scale = {place: mean for place, mean in means.items() if mean > 0.0}
    return scale, tuple(place for place in places if place not in scale)


def find_missing_measure(
    lines: Iterable[ResultLine], counted: Sequence[ResultLine], policy: str
) -> str | None:
    """What is missing to measure a policy, None if nothing is."""
    if not counted:
        played = any(line.gaps for line in lines if line.policy == REFERENCE_POLICY)
        where = "loses nothing in any place" if played else "was not played in any place"
        return f"{REFERENCE_POLICY}, the measure, {where}"
    few = {
        line.world: f"{len(line.gaps)} of {line.world}"
        for line in counted
        if line.policy in (policy, REFERENCE_POLICY) and len(line.gaps) < MIN_RULE_SEEDS
    }
    return (
        f"too few seeds ({', '.join(few.values())}), {MIN_RULE_SEEDS} are needed" if few else None
    )


def estimate_relative_loss(lines: Sequence[ResultLine], policy: str) -> SeedEstimate:
    """What a policy loses in parts of what the reference does: mean over the places of a world,
    and over worlds.
    """
    measure = {line.place: estimate_gap(line) for line in lines if line.policy == REFERENCE_POLICY}
    worlds: dict[str, list[SeedEstimate]] = {}
    for line in lines:
        if line.policy == policy:
            worlds.setdefault(line.world, []).append(
                divide_estimates(estimate_gap(line), measure[line.place])
            )
    return average_estimates(average_estimates(places) for places in worlds.values())


def estimate_gap(line: ResultLine) -> SeedEstimate:
    """The mean gap; a seed is the same chance in all places of a world or pool."""
    return estimate_mean({(line.pool or line.world, seed): gap for seed, gap in line.gaps.items()})


def is_tied(best: SeedEstimate, other: SeedEstimate) -> bool:
    """Is the other no more than SURE standard errors worse, seed by seed?"""
    apart = subtract_estimates(other, best)
    return apart.value <= TIE_STANDARD_ERRORS * apart.error


def list_uneven_seeds(lines: Sequence[ResultLine], policies: Iterable[str]) -> tuple[str, ...]:
    """Where who was played with other seeds than the reference: what it cannot have in common
    with it is counted as chance, so that its error is larger.
    """
    seeds = {line.place: line.gaps.keys() for line in lines if line.policy == REFERENCE_POLICY}
    return tuple(
        f"{line.policy} in {line.place}"
        for policy in policies
        for line in lines
        if line.policy == policy and line.gaps.keys() != seeds[line.place]
    )
