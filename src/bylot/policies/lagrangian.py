"""Limits as the paper's baselines see them: a multiplier each, moved by subgradient ascent.

Shared by CBwK, TS-BwK and MoE; what a multiplier then does to the choice is theirs.
"""

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np

from bylot.errors import OutOfReachWarning
from bylot.kernels.compile import Floats, Ints, inlined
from bylot.kernels.draw import add_cost
from bylot.problem import Problem

DualOn = Literal["average", "instant"]


class Knapsacks(NamedTuple):
    """The limits, in units of the largest cost under each, and how their multipliers move."""

    rows: Floats  # (d, K)
    bounds: Floats  # (d,)
    signs: Floats  # (d,) -1 for an upper bound, +1 for a lower one
    step: float
    anytime: bool  # the step is divided by sqrt(t)
    instant: bool  # the violation is the last round's, not that of the running average


class Multipliers(NamedTuple):
    """What is remembered of all rounds together, whatever their context."""

    lam: Floats  # (d,) at least 0
    spent: Floats  # (d,) realised cost of all rounds
    last: Floats  # (d,) and of the last one
    rounds: Ints


def knapsacks(problem: Problem, step: float, anytime: bool, dual_on: DualOn) -> Knapsacks:
    """The limits of a problem, scaled so that a change of unit changes no decision."""
    warn_if_out_of_reach(problem)
    peak = problem.peaks
    return Knapsacks(
        rows=problem.rows / peak[:, None],
        bounds=problem.bounds / peak,
        signs=problem.signs.astype(np.float64),
        step=step,
        anytime=anytime,
        instant=dual_on == "instant",
    )


def paced(problem: Problem, step: float, horizon: int | None, dual_on: DualOn) -> Knapsacks:
    """Steps of step / sqrt(T); of step / sqrt(t) if there is no horizon T to know."""
    length = step if horizon is None else step / float(np.sqrt(horizon))
    return knapsacks(problem, length, horizon is None, dual_on)


def warn_if_out_of_reach(problem: Problem) -> None:
    """Say so if full panels cannot keep the limits, however they are chosen."""
    if problem.full_conflict is not None:
        members = min(problem.draws, problem.size)
        warnings.warn(
            f"this policy asks {members} different experts every time, which cannot keep "
            f"{problem.full_conflict}; take a policy that draws with replacement, such as 'omd', "
            "or fewer draws",
            OutOfReachWarning,
            stacklevel=5,
        )


def unlimited(problem: Problem) -> Knapsacks:
    """No limits at all, for a policy that does not look at them."""
    none = np.zeros(0)
    return Knapsacks(np.zeros((0, problem.size)), none, none.copy(), 0.0, False, False)


def resting(limits: Knapsacks) -> Multipliers:
    """All zero: nothing was spent yet."""
    d = limits.bounds.size
    return Multipliers(np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(1, np.int64))


@inlined
def advance(limits: Knapsacks, state: Multipliers) -> None:
    """lam_j <- max(0, lam_j - step sign_j (cost_j - bound_j)), the cost being what was charged."""
    rounds, lam, last, spent = state.rounds[0], state.lam, state.last, state.spent
    signs, bounds = limits.signs, limits.bounds
    if rounds > 0:
        step = limits.step / np.sqrt(rounds) if limits.anytime else limits.step
        for j in range(lam.size):
            cost = last[j] if limits.instant else spent[j] / rounds
            lam[j] = max(0.0, lam[j] - step * signs[j] * (cost - bounds[j]))


@inlined
def charge(limits: Knapsacks, state: Multipliers, draws: Ints) -> None:
    """Owe what the distinct members of a panel cost."""
    last, spent, rounds = state.last, state.spent, state.rounds
    for j in range(last.size):
        last[j] = 0.0
    add_cost(last, limits.rows, draws)
    for j in range(last.size):
        spent[j] += last[j]
    rounds[0] += 1


@inlined
def add_pressure(scores: Floats, limits: Knapsacks, state: Multipliers) -> None:
    """score_i += sum_j lam_j sign_j c_ij: down for what an upper bound limits, up for a lower."""
    rows, signs, lam = limits.rows, limits.signs, state.lam
    for j in range(lam.size):
        weight = lam[j] * signs[j]
        for i in range(scores.size):
            scores[i] += weight * rows[j, i]


def prices(problem: Problem, state: Multipliers) -> Floats:
    """The multipliers as they are now, per unit of each bound."""
    price: Floats = state.lam / problem.peaks
    return price


def unpriced(problem: Problem, rule: Any, state: Any) -> Floats:
    """NaN for every limit: a policy that does not look at them puts no price on them."""
    return np.full(len(problem.limits), np.nan)


def sound(state: Multipliers) -> bool:
    """Could this be a state of ours?"""
    numbers = (state.lam >= 0).all() and (state.lam < 1e200).all() and (state.spent >= 0).all()
    return bool(numbers and (state.last >= 0).all() and state.rounds[0] >= 0)
