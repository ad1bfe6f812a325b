"""Which policy is the default: a stated rule, applied to a table and to nothing else.

How the table comes about is left to others; whoever has one can apply the rule again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

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


class Score(NamedTuple):
    """Mean over worlds of the gap in parts of the reference's, and its standard error."""

    mean: float
    error: float


class Choice(NamedTuple):
    """What is taken for a class of problems.

    policy: None if nobody may be taken
    scores: of all that may, the least first
    out:    who may not, and why
    before: who had the least score, if another was taken, being tied with it
    unsaid: places that do not count, as the reference loses nothing there
    """

    problems: str
    policy: str | None
    scores: dict[str, Score]
    out: dict[str, str]
    before: str | None
    unsaid: tuple[str, ...]


RULE = (
    "Candidates are the policies that kept every limit, with no tolerance, in every run of every "
    "world and in every period that was played, and refused none of them.",
    f"The score of a candidate is what it loses against the best mixture of panels, in parts of "
    f"what {REFERENCE} loses in the same place: the mean over seeds, over the places of a world, "
    f"and over worlds. The least score wins.",
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
    whole = [line for line in lines if line.period is None]
    few = [line for line in whole if line.size <= LARGE]
    many = [line for line in whole if line.size > LARGE]
    out = broken(lines)
    classes = {"all": whole, f"up to {LARGE} experts": few, f"more than {LARGE} experts": many}
    for period in sorted({line.period for line in lines if line.period is not None}):
        some = [line for line in lines if line.period == period]
        classes[f"periods of {period:,} rounds"] = some
    choices = []
    for problems, some in classes.items():
        choices.append(choose(f"{problems}, chances told", some, silent(lines) | out))
        choices.append(choose(f"{problems}, chances not needed", some, out))
    return [choice for choice in choices if choice.scores or choice.out]


def choose(problems: str, lines: Sequence[Line], out: Mapping[str, str]) -> Choice:
    """The rule, applied to some lines; `out` may not be taken whatever they score."""
    scale, unsaid = references(lines)
    counted = [line for line in lines if line.place in scale]
    policies = dict.fromkeys(line.policy for line in lines)
    away = {policy: why for policy, why in out.items() if policy in policies}
    parts = {policy: by_world(counted, policy, scale) for policy in policies}
    for policy, found in parts.items():
        if policy not in away and (why := lacking(counted, policy, found)):
            away[policy] = why
    fit = {policy: score(found) for policy, found in parts.items() if policy not in away}
    scores = dict(sorted(fit.items(), key=lambda one: one[1].mean))
    if not scores:
        return Choice(problems, None, {}, away, None, unsaid)
    best = next(iter(scores))
    quiet = silent(lines)
    equals = [one for one in scores if one not in quiet and tied(parts[best], parts[one])]
    taken = equals[0] if best in quiet and equals else best
    return Choice(problems, taken, scores, away, best if taken != best else None, unsaid)


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


Parts = dict[str, dict[int, float]]
"""World -> seed -> the gap in parts of the reference's, mean over the places of the world."""


def by_world(lines: Iterable[Line], policy: str, scale: Mapping[str, float]) -> Parts:
    """What a policy lost, over the seeds that it has in all places of a world."""
    worlds: dict[str, list[dict[int, float]]] = {}
    for line in lines:
        if line.policy == policy:
            part = {seed: gap / scale[line.place] for seed, gap in line.gaps.items()}
            worlds.setdefault(line.world, []).append(part)
    return {
        world: {
            seed: float(np.mean([place[seed] for place in places]))
            for seed in sorted(set.intersection(*(set(place) for place in places)))
        }
        for world, places in worlds.items()
    }


def lacking(lines: Iterable[Line], policy: str, found: Parts) -> str | None:
    """What a policy was not played in or not often enough, None if it can be judged."""
    lines = list(lines)
    places = dict.fromkeys(line.place for line in lines)
    played = {line.place for line in lines if line.policy == policy}
    missing = [place for place in places if place not in played]
    if not places:
        return f"there is no place that {REFERENCE} was played in"
    if missing:
        return f"was not played in {', '.join(missing)}"
    few = [f"{len(seeds)} of {world}" for world, seeds in found.items() if len(seeds) < LEAST]
    return f"too few seeds ({', '.join(few)}), {LEAST} are needed" if few else None


def score(found: Parts) -> Score:
    """Mean over worlds of the mean over seeds; worlds are independent, seeds of one world too."""
    values = [np.array(list(seeds.values())) for seeds in found.values()]
    errors = [one.std(ddof=1) / math.sqrt(one.size) for one in values]
    return Score(
        float(np.mean([one.mean() for one in values])),
        float(np.sqrt(np.sum(np.square(errors)))) / len(values),
    )


def tied(best: Parts, other: Parts) -> bool:
    """Is the other no more than SURE standard errors worse, over the seeds that both have?"""
    apart = {
        world: {seed: seeds[seed] - best[world][seed] for seed in seeds.keys() & best[world].keys()}
        for world, seeds in other.items()
    }
    if any(len(seeds) < LEAST for seeds in apart.values()):
        return False
    mean, error = score(apart)
    return mean <= SURE * error
