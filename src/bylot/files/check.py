"""What can be said of a problem before the first request: what its limits leave, and to whom."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.files.problem_file import ProblemFile
from bylot.files.promises import Promise
from bylot.policies import settled, write
from bylot.policies.guard import promised, shortest_promise
from bylot.policies.onesided import one_sided, units
from bylot.policies.panel import MEMORY, room
from bylot.policies.safeset import safe_rows
from bylot.policies.slater import slater
from bylot.problem import Conflict, Limit, Problem
from bylot.problem.feasibility import always_full
from bylot.problem.limits import LOWER, UPPER
from bylot.problem.region import Region
from bylot.problem.remedy import outward

ROOMS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Beyond the nearest bound that could be kept, so that there is something to learn within."""

DIGITS = 3
"""Significant digits of a bound that is proposed."""


class Reach(NamedTuple):
    """What the average under a limit can be while the others are kept, in its own unit; `full`, the
    same of panels of M different experts, None if those cannot keep the others.
    """

    promise: Promise
    lowest: float
    highest: float
    full: tuple[float, float] | None

    @property
    def idle(self) -> bool:
        """Is the limit kept whatever is played, if the others are?"""
        bound = self.promise.written
        return bound >= self.highest if self.promise.limit.sign == UPPER else bound <= self.lowest


class Footing(NamedTuple):
    """How a policy stands to a problem.

    reason:   why it cannot be taken, empty if it can
    margin:   the fraction by which all limits could be tightened (Slater), None if it has no use
    shortest: the shortest period at whose end it can promise them, infinite if there is none
    memory:   bytes of what it believes of pairs of experts in all contexts of the file; 0: it
              remembers none
    """

    policy: str
    reason: str
    margin: float | None = None
    shortest: float = math.inf
    memory: int = 0


@dataclass(frozen=True)
class Findings:
    """All that `bylot problem check` tells of a file whose limits can be kept."""

    file: ProblemFile
    reaches: Sequence[Reach]
    full: Conflict | None  # limits that panels of M different experts cannot keep
    surrogate: Conflict | None  # limits whose stand-ins in the paper cannot be kept together
    footings: Sequence[Footing]
    wider: Sequence[Promise]  # each alone makes room for `distinct`, if there is none
    auto: Mapping[str, str]  # what `auto` takes, by the words that it is asked in


def check(file: ProblemFile) -> Findings:
    """Look a problem over."""
    problem = file.problem
    return Findings(
        file=file,
        reaches=[reach(promise, problem) for promise in file.promises],
        full=problem.full_conflict,
        surrogate=problem.surrogate_conflict,
        footings=[
            distinct(problem),
            panel(file),
            footing("tangent", problem, fewer=True),
            strict(problem),
        ],
        wider=[] if not distinct(problem).reason else list(wider(file)),
        auto={words: write(settled(words, problem))["name"] for words in asked(file)},
    )


def asked(file: ProblemFile) -> tuple[str, str]:
    """How `auto` can be asked: with the chance of every panel told, or without."""
    contexts = f",contexts={len(file.contexts)}" if len(file.contexts) > 1 else ""
    return "auto", f"auto:propensities=false{contexts}"


def reach(promise: Promise, problem: Problem) -> Reach:
    """The range of a limit."""
    lowest, highest = problem.range_of(promise.limit)
    full, M = full_range(promise, problem), unit(promise, problem)
    return Reach(promise, lowest / M, highest / M, full and (full[0] / M, full[1] / M))


def unit(promise: Promise, problem: Problem) -> int:
    """How many of the unit of a limit are one per request."""
    return problem.draws if promise.per == "draw" else 1


def full_range(promise: Promise, problem: Problem) -> tuple[float, float] | None:
    """What an average can be, per request, if every panel has M different experts."""
    region, row = always_full(problem), problem.costs[promise.limit.name]
    others = [j for j, other in enumerate(problem.limits) if other.key != promise.limit.key]
    low, high = (region.extreme(row, sign, others) for sign in (UPPER, LOWER))
    return None if low is None or high is None else (low, high)


def wider(file: ProblemFile) -> Iterator[Promise]:
    """Each limit with the nearest bound found that lets `distinct` be taken, all else as it is."""
    for promise in file.promises:
        full = full_range(promise, file.problem)
        if full is None:
            continue
        sign, nearest = promise.limit.sign, full[0 if promise.limit.sign == UPPER else 1]
        for beyond in ROOMS:
            bound = nearest * (1 - sign * beyond) / unit(promise, file.problem)
            changed = promise.at(outward(bound, sign, DIGITS), file.problem.draws)
            if changed is None or sign * (changed.written - promise.written) >= 0:
                continue  # no looser than it is
            if not distinct(with_limit(file.problem, changed.limit)).reason:
                yield changed
                break


def with_limit(problem: Problem, limit: Limit) -> Problem:
    """The same problem with another bound."""
    limits = [limit if one.key == limit.key else one for one in problem.limits]
    return Problem(
        problem.experts,
        dict(problem.costs),
        limits,
        draws=problem.draws,
        floor=problem.floor,
        period=problem.period,
    )


def distinct(problem: Problem) -> Footing:
    """Of the policy that always asks M different experts."""
    if problem.full_conflict is not None:
        members = min(problem.draws, problem.size)
        return Footing("distinct", f"panels of {members} different experts cannot keep the limits")
    return footing("distinct", problem, fewer=False)


def panel(file: ProblemFile) -> Footing:
    """Of the policy with the same panels and guard, which remembers pairs of experts."""
    contexts = max(1, len(file.contexts))
    memory = room(contexts, file.problem.size)
    found = distinct(file.problem)._replace(policy="panel", memory=memory)
    if memory > MEMORY and not found.reason:
        most = f"{MEMORY / 2**30:g} GiB"
        found = found._replace(reason=f"its beliefs would take more than {most}")
    return found


def footing(policy: str, problem: Problem, fewer: bool) -> Footing:
    """Of a policy with a guard, whose rota may ask fewer than M experts or not."""
    rows, space = one_sided(problem), slater(problem, fewer)
    shortest = shortest_promise(rows, space.quota)
    period = promised(problem, None)
    reason = ""
    if shortest == math.inf:
        reason = "the limits leave no room for a promise"
    elif shortest > period:
        reason = f"a period of {period:,} requests is too short"
    return Footing(policy, reason, max(0.0, space.margin), shortest)


def strict(problem: Problem) -> Footing:
    """Of the policy that needs a fixed set of laws, and promises nothing of periods."""
    safe = safe_rows(one_sided(problem), problem.draws)
    bounds = np.abs(safe.b) * units(problem)
    laws = Region(0.0, 1.0, 1.0, problem.rows, bounds, problem.signs)
    kept = not problem.limits or laws.feasible(laws.every)
    return Footing("strict", "" if kept else "no fixed set of laws keeps all limits for certain")
