"""What the limits of a problem allow, and which policies can keep them."""

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
from bylot.problem import Conflict, Problem
from bylot.problem.feasibility import full_panels_polytope, round_outward
from bylot.problem.limits import LOWER, UPPER
from bylot.problem.polytope import LimitPolytope
from bylot.problem_files.limits import WrittenLimit
from bylot.problem_files.problem_file import ProblemFile

MARGINS_TRIED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""How far a proposed bound lies beyond the nearest feasible one, so that a policy can learn."""

PROPOSED_DIGITS = 3
"""Significant digits of a proposed bound."""

NOISY_OR = "noisy-or"


class LimitRange(NamedTuple):
    """What the average under a limit can be while the others are kept, in the unit of the file.

    full: the same for panels of M different experts; None if these cannot keep the others
    """

    limit: WrittenLimit
    lowest: float
    highest: float
    full: tuple[float, float] | None

    @property
    def redundant(self) -> bool:
        """Do the other limits imply this one?"""
        bound = self.limit.written
        return bound >= self.highest if self.limit.limit.sign == UPPER else bound <= self.lowest


class PolicyCheck(NamedTuple):
    """Whether a policy can run on a problem.

    reason:   why it cannot; empty if it can
    margin:   the fraction by which all limits could be tightened (Slater); None if irrelevant
    shortest: the shortest period at whose end it guarantees the limits; infinite if there is none
    memory:   bytes of its posterior for all contexts of the file; 0 if it has none
    """

    policy: str
    reason: str
    margin: float | None = None
    shortest: float = math.inf
    memory: int = 0


@dataclass(frozen=True)
class ProblemCheck:
    """The results of `bylot problem check` for a file whose limits are feasible.

    full:      limits that panels of M different experts cannot keep
    surrogate: limits whose linear surrogates in the paper cannot be kept together
    looser:    bounds each of which alone lets `distinct` run, if it cannot
    auto:      the policy that each spec of `auto` selects
    """

    file: ProblemFile
    ranges: Sequence[LimitRange]
    full: Conflict | None
    surrogate: Conflict | None
    policies: Sequence[PolicyCheck]
    looser: Sequence[WrittenLimit]
    auto: Mapping[str, str]


def check_problem(file: ProblemFile) -> ProblemCheck:
    """Check a problem."""
    problem, distinct = file.problem, check_distinct(file.problem)
    policies = [
        distinct,
        check_noisy_or(file, distinct),
        check_guarded("tangent", problem, fewer=True),
        check_strict(problem),
    ]
    contexts = f",contexts={len(file.contexts)}" if len(file.contexts) > 1 else ""
    specs = ("auto", f"auto:propensities=false{contexts}")
    return ProblemCheck(
        file=file,
        ranges=[find_limit_range(limit, problem) for limit in file.limits],
        full=problem.full_conflict,
        surrogate=problem.surrogate_conflict,
        policies=policies,
        looser=list(find_looser_limits(file)) if distinct.reason else [],
        auto={spec: policy_to_data(resolve_policy(spec, problem))["name"] for spec in specs},
    )


def find_limit_range(limit: WrittenLimit, problem: Problem) -> LimitRange:
    """The range of the average under a limit."""
    lowest, highest = problem.range_of(limit.limit)
    full, unit = find_full_panel_range(limit, problem), limit.unit(problem.draws)
    return LimitRange(
        limit, lowest / unit, highest / unit, full and (full[0] / unit, full[1] / unit)
    )


def find_full_panel_range(limit: WrittenLimit, problem: Problem) -> tuple[float, float] | None:
    """The range of the average per request if every panel has M different experts."""
    region, row = full_panels_polytope(problem), problem.costs[limit.limit.name]
    others = [j for j, other in enumerate(problem.limits) if other.key != limit.limit.key]
    low, high = (region.find_extreme(row, sign, others) for sign in (UPPER, LOWER))
    return None if low is None or high is None else (low, high)


def find_looser_limits(file: ProblemFile) -> Iterator[WrittenLimit]:
    """Each limit with the nearest tried bound that lets `distinct` run, the others unchanged."""
    problem = file.problem
    for limit in file.limits:
        full, sign = find_full_panel_range(limit, problem), limit.limit.sign
        if full is None:
            continue
        nearest = full[0 if sign == UPPER else 1] / limit.unit(problem.draws)
        for margin in MARGINS_TRIED:
            bound = nearest * (1 - sign * margin)
            looser = limit.at(round_outward(bound, sign, PROPOSED_DIGITS), problem.draws)
            if looser is None or sign * (looser.written - limit.written) >= 0:
                continue  # not looser than the bound of the file
            limits = [
                looser.limit if one.key == looser.limit.key else one for one in problem.limits
            ]
            if not check_distinct(problem.replace(limits=limits)).reason:
                yield looser
                break


def check_distinct(problem: Problem) -> PolicyCheck:
    """Check the policy that always asks M different experts."""
    if problem.full_conflict is not None:
        members = min(problem.draws, problem.size)
        reason = f"panels of {members} different experts cannot keep the limits"
        return PolicyCheck("distinct", reason)
    return check_guarded("distinct", problem, fewer=False)


def check_noisy_or(file: ProblemFile, distinct: PolicyCheck) -> PolicyCheck:
    """Check the policy with the same panels and guard as `distinct`, and a large posterior."""
    memory = count_posterior_bytes(max(1, len(file.contexts)), file.problem.size)
    reason = distinct.reason
    if memory > MAX_POSTERIOR_BYTES and not reason:
        reason = f"its posterior would take more than {MAX_POSTERIOR_BYTES / 2**30:g} GiB"
    return distinct._replace(policy=NOISY_OR, memory=memory, reason=reason)


def check_guarded(policy: str, problem: Problem, fewer: bool) -> PolicyCheck:
    """Check a policy with a guard; `fewer`: its fallback schedule may ask fewer than M experts."""
    space, period = find_slater_point(problem, fewer), get_period(problem, None)
    shortest = find_shortest_period(make_constraint_rows(problem), space.quota)
    reason = ""
    if shortest == math.inf:
        reason = "the limits leave no margin for a guarantee"
    elif shortest > period:
        reason = f"a period of {period:,} requests is too short"
    return PolicyCheck(policy, reason, max(0.0, space.margin), shortest)


def check_strict(problem: Problem) -> PolicyCheck:
    """Check the policy that needs a fixed set of safe distributions; it guarantees no period."""
    safe = make_safe_rows(make_constraint_rows(problem), problem.draws)
    bounds = np.abs(safe.b) * compute_row_units(problem)
    region = LimitPolytope(0.0, 1.0, 1.0, problem.rows, bounds, problem.signs)
    kept = not problem.limits or region.is_feasible(region.every)
    reason = "" if kept else "no fixed set of distributions is certain to keep all limits"
    return PolicyCheck("strict", reason)
