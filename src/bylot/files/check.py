"""What can be said of a problem before the first request: what its limits leave, and to whom."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.files.problem_file import ProblemFile
from bylot.files.promises import Promise
from bylot.policies.guard import promised, shortest_promise
from bylot.policies.onesided import one_sided, units
from bylot.policies.safeset import safe_rows
from bylot.policies.slater import slater
from bylot.problem import Conflict, Problem
from bylot.problem.limits import UPPER
from bylot.problem.region import Region


class Reach(NamedTuple):
    """What the average under a limit can be while the others are kept, in its own unit."""

    promise: Promise
    lowest: float
    highest: float

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
    """

    policy: str
    reason: str
    margin: float | None = None
    shortest: float = math.inf


@dataclass(frozen=True)
class Findings:
    """All that `bylot problem check` tells of a file whose limits can be kept."""

    file: ProblemFile
    reaches: Sequence[Reach]
    full: Conflict | None  # limits that panels of M different experts cannot keep
    surrogate: Conflict | None  # limits whose stand-ins in the paper cannot be kept together
    footings: Sequence[Footing]


def check(file: ProblemFile) -> Findings:
    """Look a problem over."""
    problem = file.problem
    return Findings(
        file=file,
        reaches=[reach(promise, problem) for promise in file.promises],
        full=problem.full_conflict,
        surrogate=problem.surrogate_conflict,
        footings=[distinct(problem), footing("tangent", problem, fewer=True), strict(problem)],
    )


def reach(promise: Promise, problem: Problem) -> Reach:
    """The range of a limit."""
    lowest, highest = problem.range_of(promise.limit)
    M = problem.draws if promise.per == "draw" else 1
    return Reach(promise, lowest / M, highest / M)


def distinct(problem: Problem) -> Footing:
    """Of the policy that always asks M different experts."""
    if problem.full_conflict is not None:
        members = min(problem.draws, problem.size)
        return Footing("distinct", f"panels of {members} different experts cannot keep the limits")
    return footing("distinct", problem, fewer=False)


def footing(policy: str, problem: Problem, fewer: bool) -> Footing:
    """Of a policy with a guard, whose rota may ask fewer than M experts or not."""
    rows, room = one_sided(problem), slater(problem, fewer)
    shortest = shortest_promise(rows, room.quota)
    period = promised(problem, None)
    reason = ""
    if shortest == math.inf:
        reason = "the limits leave no room for a promise"
    elif shortest > period:
        reason = f"a period of {period:,} requests is too short"
    return Footing(policy, reason, room.margin, shortest)


def strict(problem: Problem) -> Footing:
    """Of the policy that needs a fixed set of laws, and promises nothing of periods."""
    safe = safe_rows(one_sided(problem), problem.draws)
    bounds = np.abs(safe.b) * units(problem)
    laws = Region(0.0, 1.0, 1.0, problem.rows, bounds, problem.signs)
    kept = not problem.limits or laws.feasible(laws.every)
    return Footing("strict", "" if kept else "no fixed set of laws keeps all limits for certain")
