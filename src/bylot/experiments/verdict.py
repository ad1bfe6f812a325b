"""Which policy is the default: a stated rule, applied to a table and to nothing else.

How the table comes about is left to others; whoever has one can apply the rule again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bylot.errors import DataError
from bylot.experiments.estimate import Estimate, average, difference, mean, ratio

REFERENCE = "distinct"
"""What is lost is measured in parts of what this policy loses in the same place."""

LARGE = 120
"""More experts than this are many: the middle of the sizes played, 50 and 300, by their ratio."""

SURE = 2.0  # standard errors
LEAST = 3
"""Fewer seeds than this say nothing about a spread."""


class Line(NamedTuple):
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


class Score(NamedTuple):
    """Mean over worlds of the gap in parts of the reference's, and its standard error, which is
    0 of the reference: it is the measure.
    """

    mean: float
    error: float


class Choice(NamedTuple):
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
    scores: dict[str, Score]
    out: dict[str, str]
    before: str | None
    unsaid: tuple[str, ...]
    uneven: tuple[str, ...] = ()


RULE = (
    "Candidates are the policies that kept every limit, with no tolerance, in every run of every "
    "world and in every period, and refused none of them. All are played in all places, in periods "
    "too; whoever was not is no candidate.",
    f"The score of a candidate is what it loses against the best mixture of panels, in parts of "
    f"what {REFERENCE} loses in the same place: the mean over seeds, over the places of a world, "
    f"and over worlds. The least score wins.",
    f"A standard error is that of a ratio of means over the same seeds: what {REFERENCE} loses is "
    f"measured too, and seeds that are lucky for both are no news. Worlds are independent of each "
    f"other, but for those on the same pools. {REFERENCE} itself has the score 1 and no error.",
    f"Whoever is within {SURE:g} standard errors of the winner, seed by seed, is tied with it. If "
    f"the winner cannot tell the chances of its panels and somebody tied with it can, the best of "
    f"those is taken.",
    "The default is the winner over all worlds among those that tell the chance of every panel: "
    "what is not told when a panel is drawn cannot be found out later, and a log without it says "
    "nothing of other policies. Where chances are not needed, all candidates count.",
    f"For a class of problems the same rule is applied to the worlds of that class: up to {LARGE} "
    f"experts and more, periods by their length.",
)
"""In words."""


def verdict(lines: Sequence[Line]) -> list[Choice]:
    """The default, then what is taken where chances are not needed, and so for each class."""
    sane(lines)
    whole = [line for line in lines if line.period is None]
    few = [line for line in whole if line.size <= LARGE]
    many = [line for line in whole if line.size > LARGE]
    out = absent(lines) | broken(lines)
    classes = {"all": whole, f"up to {LARGE} experts": few, f"more than {LARGE} experts": many}
    for period in sorted({line.period for line in lines if line.period is not None}):
        some = [line for line in lines if line.period == period]
        classes[f"periods of {period:,} rounds"] = some
    choices = []
    for problems, some in classes.items():
        choices.append(choose(f"{problems}, chances told", some, silent(lines) | out))
        choices.append(choose(f"{problems}, chances not needed", some, out))
    return [choice for choice in choices if choice.scores or choice.out]


def sane(lines: Iterable[Line]) -> None:
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


def choose(problems: str, lines: Sequence[Line], out: Mapping[str, str]) -> Choice:
    """The rule, applied to some lines; `out` may not be taken whatever they score."""
    scale, unsaid = references(lines)
    counted = [line for line in lines if line.place in scale]
    policies = dict.fromkeys(line.policy for line in lines)
    away = {policy: why for policy, why in out.items() if policy in policies}
    for policy in policies:
        if policy not in away and (why := lacking(lines, counted, policy)):
            away[policy] = why
    losses = {policy: loss(counted, policy) for policy in policies if policy not in away}
    order = sorted(losses, key=lambda policy: losses[policy].value)
    if not order:
        return Choice(problems, None, {}, away, None, unsaid)
    best, quiet = order[0], silent(lines)
    equals = [one for one in order if one not in quiet and tied(losses[best], losses[one])]
    taken = equals[0] if best in quiet and equals else best
    scores = {policy: Score(losses[policy].value, losses[policy].error) for policy in order}
    before = best if taken != best else None
    return Choice(problems, taken, scores, away, before, unsaid, uneven(counted, order))


def absent(lines: Sequence[Line]) -> dict[str, str]:
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


def broken(lines: Iterable[Line]) -> dict[str, str]:
    """Who left a limit anywhere, or would not play, and where it was so first."""
    out: dict[str, str] = {}
    for line in lines:
        if line.kept < line.runs:
            why = f"kept all limits in {line.kept} of {line.runs} runs of {line.place}"
            out.setdefault(line.policy, why)
        elif line.bad:
            out.setdefault(line.policy, f"left a limit in {line.bad} periods of {line.place}")
    return out


def silent(lines: Iterable[Line]) -> dict[str, str]:
    """Who does not tell the chances of its panels."""
    return {line.policy: "does not tell its chances" for line in lines if not line.told}


def references(lines: Iterable[Line]) -> tuple[dict[str, float], tuple[str, ...]]:
    """What the reference loses in each place, and the places in which that is no measure."""
    found = {line.place: list(line.gaps.values()) for line in lines if line.policy == REFERENCE}
    means = {place: float(np.mean(gaps)) for place, gaps in found.items() if gaps}
    places = dict.fromkeys(line.place for line in lines)
    scale = {place: mean for place, mean in means.items() if mean > 0.0}
    return scale, tuple(place for place in places if place not in scale)


def lacking(lines: Iterable[Line], counted: Sequence[Line], policy: str) -> str | None:
    """What is missing to measure a policy, None if nothing is."""
    if not counted:
        played = any(line.gaps for line in lines if line.policy == REFERENCE)
        where = "loses nothing in any place" if played else "was not played in any place"
        return f"{REFERENCE}, the measure, {where}"
    few = {
        line.world: f"{len(line.gaps)} of {line.world}"
        for line in counted
        if line.policy in (policy, REFERENCE) and len(line.gaps) < LEAST
    }
    return f"too few seeds ({', '.join(few.values())}), {LEAST} are needed" if few else None


def loss(lines: Sequence[Line], policy: str) -> Estimate:
    """What a policy loses in parts of what the reference does: mean over the places of a world,
    and over worlds.
    """
    measure = {line.place: lost(line) for line in lines if line.policy == REFERENCE}
    worlds: dict[str, list[Estimate]] = {}
    for line in lines:
        if line.policy == policy:
            worlds.setdefault(line.world, []).append(ratio(lost(line), measure[line.place]))
    return average(average(places) for places in worlds.values())


def lost(line: Line) -> Estimate:
    """The mean gap; a seed is the same chance in all places of a world or pool."""
    return mean({(line.pool or line.world, seed): gap for seed, gap in line.gaps.items()})


def tied(best: Estimate, other: Estimate) -> bool:
    """Is the other no more than SURE standard errors worse, seed by seed?"""
    apart = difference(other, best)
    return apart.value <= SURE * apart.error


def uneven(lines: Sequence[Line], policies: Iterable[str]) -> tuple[str, ...]:
    """Where who was played with other seeds than the reference: what it cannot have in common
    with it is counted as chance, so that its error is larger.
    """
    seeds = {line.place: line.gaps.keys() for line in lines if line.policy == REFERENCE}
    return tuple(
        f"{line.policy} in {line.place}"
        for policy in policies
        for line in lines
        if line.policy == policy and line.gaps.keys() != seeds[line.place]
    )
