"""A sweep: the same problem with one of its bounds at several levels."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.data.lines import quoted
from bylot.errors import BylotError, InfeasibleLimits
from bylot.files import ProblemFile, Promise
from bylot.files.promises import times
from bylot.problem import Limit, Problem
from bylot.problem.reading import instead

MOST = 100  # levels
FORM = "NAME=FROM:TO:COUNT, such as usd=0.5:3:10"


class Level(NamedTuple):
    """A bound in the unit of the file, and the problem with it; None, and why, if no policy could
    keep it.
    """

    number: int
    written: float
    problem: Problem | None
    reason: str = ""


@dataclass(frozen=True)
class Sweep:
    """The limit that is moved, and where to."""

    promise: Promise
    levels: tuple[Level, ...]


def sweep(file: ProblemFile, text: str) -> Sweep:
    """What `NAME=FROM:TO:COUNT` asks for; NAME may end in `.at_most` or `.at_least`."""
    name, bounds = parsed(text)
    promise = found(file, name)
    return Sweep(promise, tuple(level(file, promise, n, b) for n, b in enumerate(bounds)))


def parsed(text: str) -> tuple[str, list[float]]:
    """A name and bounds.

    >>> parsed("usd=0.5:3:6")
    ('usd', [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    """
    name, _, rest = text.rpartition("=")
    try:
        low, high, count = rest.split(":")
        first, last, n = float(low), float(high), int(count)
    except ValueError:
        raise BylotError(f"--sweep {text!r} is not {FORM}") from None
    if not (0 <= first < last < np.inf and 2 <= n <= MOST):
        raise BylotError(
            f"--sweep {text!r} asks for {n} levels from {first:g} to {last:g}; "
            f"wanted 2 to {MOST} levels, from a bound of 0 or more up to a larger one"
        )
    return name, [float(f"{bound:.12g}") for bound in np.linspace(first, last, n)]


def found(file: ProblemFile, name: str) -> Promise:
    """The limit of this name, on the side it says."""
    sides = {f"{one.limit.name}.{one.limit.side}": one for one in file.promises}
    fits = [side for side, one in sides.items() if name in (one.limit.name, side)]
    if len(fits) == 1:
        return sides[fits[0]]
    if fits:
        ways = " or ".join(f"{side}=..." for side in fits)
        raise BylotError(f"--sweep: {quoted(name)} is limited on both sides; write {ways}")
    names = list(dict.fromkeys(one.limit.name for one in file.promises))
    raise BylotError(
        f"--sweep: {file.path} has no limit on {quoted(name)}; {instead(name, names, 'limits')}"
    )


def level(file: ProblemFile, promise: Promise, number: int, written: float) -> Level:
    """One bound."""
    problem = file.problem
    bound = times(written, problem.draws) if promise.per == "draw" else written
    limits = [one.at(bound) if one.key == promise.limit.key else one for one in problem.limits]
    try:
        return Level(number, written, with_limits(problem, limits))
    except InfeasibleLimits as error:
        return Level(number, written, None, str(error))


def with_limits(problem: Problem, limits: Iterable[Limit]) -> Problem:
    """The same pool under other limits."""
    return Problem(
        problem.experts,
        dict(problem.costs),
        limits,
        draws=problem.draws,
        floor=problem.floor,
        period=problem.period,
    )
