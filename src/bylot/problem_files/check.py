"""What can be said of a problem before the first request: what its limits leave, and to whom."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.policies import policy_to_data, resolve_policy
from bylot.policies.constraint_rows import (
    compute_row_units,
    find_slater_point,
    make_constraint_rows,
)
from bylot.policies.guard import find_shortest_period, get_period
from bylot.policies.iid_limits import make_safe_rows
from bylot.policies.noisy_or import MAX_POSTERIOR_BYTES, count_posterior_bytes
from bylot.problem import Conflict, Limit, Problem
from bylot.problem.feasibility import full_panels_polytope, round_outward
from bylot.problem.limits import LOWER, UPPER
from bylot.problem.polytope import LimitPolytope
from bylot.problem_files.limits import WrittenLimit
from bylot.problem_files.problem_file import ProblemFile

MARGINS_TRIED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Beyond the nearest bound that could be kept, so that there is something to learn within."""

PROPOSED_DIGITS = 3
"""Significant digits of a bound that is proposed."""


class LimitRange(NamedTuple):
    """What the average under a limit can be while the others are kept, in its own unit; `full`, the
    same of panels of M different experts, None if those cannot keep the others.
    """

    promise: WrittenLimit
    lowest: float
    highest: float
    full: tuple[float, float] | None

    @property
    def idle(self) -> bool:
        """Is the limit kept whatever is played, if the others are?"""
        bound = self.promise.written
        return bound >= self.highest if self.promise.limit.sign == UPPER else bound <= self.lowest


class PolicyCheck(NamedTuple):
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
class ProblemCheck:
    """All that `bylot problem check` tells of a file whose limits can be kept."""

    file: ProblemFile
    reaches: Sequence[LimitRange]
    full: Conflict | None  # limits that panels of M different experts cannot keep
    surrogate: Conflict | None  # limits whose stand-ins in the paper cannot be kept together
    footings: Sequence[PolicyCheck]
    wider: Sequence[WrittenLimit]  # each alone makes room for `check_distinct`, if there is none
    auto: Mapping[str, str]  # what `auto` takes, by the words that it is asked in


def check_problem(file: ProblemFile) -> ProblemCheck:
    """Look a problem over."""
    problem = file.problem
    return ProblemCheck(
        file=file,
        reaches=[limit_range(promise, problem) for promise in file.promises],
        full=problem.full_conflict,
        surrogate=problem.surrogate_conflict,
        footings=[
            check_distinct(problem),
            check_noisy_or(file),
            check_guarded("tangent", problem, fewer=True),
            check_strict(problem),
        ],
        wider=[] if not check_distinct(problem).reason else list(looser_limits(file)),
        auto={
            words: policy_to_data(resolve_policy(words, problem))["name"]
            for words in auto_specs(file)
        },
    )


def auto_specs(file: ProblemFile) -> tuple[str, str]:
    """How `auto` can be asked: with the chance of every panel told, or without."""
    contexts = f",contexts={len(file.contexts)}" if len(file.contexts) > 1 else ""
    return "auto", f"auto:propensities=false{contexts}"


def limit_range(promise: WrittenLimit, problem: Problem) -> LimitRange:
    """The range of a limit."""
    lowest, highest = problem.range_of(promise.limit)
    full, M = full_panel_range(promise, problem), bound_scale(promise, problem)
    return LimitRange(promise, lowest / M, highest / M, full and (full[0] / M, full[1] / M))


def bound_scale(promise: WrittenLimit, problem: Problem) -> int:
    """How many of the unit of a limit are one per request."""
    return problem.draws if promise.per == "draw" else 1


def full_panel_range(promise: WrittenLimit, problem: Problem) -> tuple[float, float] | None:
    """What an average can be, per request, if every panel has M different experts."""
    region, row = full_panels_polytope(problem), problem.costs[promise.limit.name]
    others = [j for j, other in enumerate(problem.limits) if other.key != promise.limit.key]
    low, high = (region.find_extreme(row, sign, others) for sign in (UPPER, LOWER))
    return None if low is None or high is None else (low, high)


def looser_limits(file: ProblemFile) -> Iterator[WrittenLimit]:
    """Each limit with the nearest bound found that lets `check_distinct` be taken, all else as it is."""
    for promise in file.promises:
        full = full_panel_range(promise, file.problem)
        if full is None:
            continue
        sign, nearest = promise.limit.sign, full[0 if promise.limit.sign == UPPER else 1]
        for beyond in MARGINS_TRIED:
            bound = nearest * (1 - sign * beyond) / bound_scale(promise, file.problem)
            changed = promise.at(round_outward(bound, sign, PROPOSED_DIGITS), file.problem.draws)
            if changed is None or sign * (changed.written - promise.written) >= 0:
                continue  # no looser than it is
            if not check_distinct(replace_limit(file.problem, changed.limit)).reason:
                yield changed
                break


def replace_limit(problem: Problem, limit: Limit) -> Problem:
    """The same problem with another bound."""
    limits = [limit if one.key == limit.key else one for one in problem.limits]
    return problem.replace(limits=limits)


def check_distinct(problem: Problem) -> PolicyCheck:
    """Of the policy that always asks M different experts."""
    if problem.full_conflict is not None:
        members = min(problem.draws, problem.size)
        return PolicyCheck(
            "distinct", f"panels of {members} different experts cannot keep the limits"
        )
    return check_guarded("distinct", problem, fewer=False)


def check_noisy_or(file: ProblemFile) -> PolicyCheck:
    """Of the policy with the same panels and guard, which remembers pairs of experts."""
    contexts = max(1, len(file.contexts))
    memory = count_posterior_bytes(contexts, file.problem.size)
    found = check_distinct(file.problem)._replace(policy="noisy-or", memory=memory)
    if memory > MAX_POSTERIOR_BYTES and not found.reason:
        most = f"{MAX_POSTERIOR_BYTES / 2**30:g} GiB"
        found = found._replace(reason=f"its beliefs would take more than {most}")
    return found


def check_guarded(policy: str, problem: Problem, fewer: bool) -> PolicyCheck:
    """Of a policy with a guard, whose rota may ask fewer than M experts or not."""
    rows, space = make_constraint_rows(problem), find_slater_point(problem, fewer)
    shortest = find_shortest_period(rows, space.quota)
    period = get_period(problem, None)
    reason = ""
    if shortest == math.inf:
        reason = "the limits leave no room for a promise"
    elif shortest > period:
        reason = f"a period of {period:,} requests is too short"
    return PolicyCheck(policy, reason, max(0.0, space.margin), shortest)


def check_strict(problem: Problem) -> PolicyCheck:
    """Of the policy that needs a fixed set of laws, and promises nothing of periods."""
    safe = make_safe_rows(make_constraint_rows(problem), problem.draws)
    bounds = np.abs(safe.b) * compute_row_units(problem)
    laws = LimitPolytope(0.0, 1.0, 1.0, problem.rows, bounds, problem.signs)
    kept = not problem.limits or laws.is_feasible(laws.every)
    return PolicyCheck(
        "strict", "" if kept else "no fixed set of laws keeps all limits for certain"
    )
