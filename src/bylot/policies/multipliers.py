"""Limits as the paper's baselines see them: a multiplier each, moved by subgradient ascent.

Shared by CBwK, TS-BwK and MoE; what a multiplier then does to the choice is theirs.
"""

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np

from bylot.errors import OutOfReachWarning
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.sampling import add_panel_cost
from bylot.policies.constraint_rows import compute_row_units
from bylot.problem import Problem

MULTIPLIER_DECAY = 0.99  # of what a step weighs, at every later one


class MultiplierAverage(NamedTuple):
    """Prices and lengths, summed."""

    paid: Floats  # (d,)
    gone: Floats  # one number


def make_multiplier_average(rows: int) -> MultiplierAverage:
    """Nothing paid."""
    return MultiplierAverage(np.zeros(rows), np.zeros(1))


@jit
def add_multipliers(till: MultiplierAverage, prices: Floats, s: float) -> None:
    """Book a step. One of no length has prices too, of limits in force that moved."""
    till.gone[0] = MULTIPLIER_DECAY * till.gone[0] + s
    for j in range(prices.size):
        till.paid[j] = MULTIPLIER_DECAY * till.paid[j] + prices[j]


def average_shadow_prices(problem: Problem, till: MultiplierAverage, share: float = 1.0) -> Floats:
    """Rewards of [0, 1] per unit of each bound, of one-sided rows that were divided by `share`."""
    if till.gone[0] <= 0:
        return np.full(len(problem.limits), np.nan)
    per_row: Floats = till.paid / till.gone[0]
    return per_row / (compute_row_units(problem) * share)


DUAL_PRICE_STEP = 0.2  # of a price, over the root of what was missed so far, squared
MAX_DUAL_PRICE = 5.0
MAX_COUNTED_EXCESS = 30.0  # of what a panel costs beyond a bound, that shortens later steps
INITIAL_SQUARES = 0.01  # that count as missed before the first panel


class DualPrices(NamedTuple):
    """What a unit of each row costs, in rewards of [0, 1]."""

    price: Floats  # (d,) lam
    squares: Floats  # (d,) G2, of what panels cost beyond the bounds in force, summed
    moves: Ints  # one number: how often prices have moved


def make_dual_prices(rows: int) -> DualPrices:
    """Nothing costs anything yet."""
    return DualPrices(np.zeros(rows), np.full(rows, INITIAL_SQUARES), np.zeros(1, np.int64))


def is_valid_dual_prices(toll: DualPrices) -> bool:
    """Could these be prices of ours? Asked of files."""
    fair = (toll.price >= 0) & (toll.price <= MAX_DUAL_PRICE) & (toll.squares >= INITIAL_SQUARES)
    return bool(fair.all() and toll.moves[0] >= 0)


@jit
def fill_expert_prices(out: Floats, toll: DualPrices, A: Floats) -> None:
    """Write what every expert pays under all rows, sum_j lam_j A_ji."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(A.shape[0]):
        price = toll.price[j]
        if price > 0.0:
            for i in range(out.size):
                out[i] += price * A[j, i]


@jit
def update_dual_prices(
    toll: DualPrices, A: Floats, members: Ints, bounds: Floats, short: Bools
) -> None:
    """g = A(set) - b', G2 += min(g^2, MOST^2), lam += STEP g / sqrt(G2), by STEP at most, and from
    0 to DEAREST.

    Squares are cut and not g, or prices would settle where cut costs are what they should be on
    average. One price a thousand times the others would make all later steps as much shorter. The
    price of a limit that those who are up cannot keep would rise for nothing.
    """
    for j in range(bounds.size):
        if short[j]:
            continue
        g = -bounds[j]
        for i in members:
            g += A[j, i]
        toll.squares[j] += min(g * g, MAX_COUNTED_EXCESS * MAX_COUNTED_EXCESS)
        step = min(max(g / np.sqrt(toll.squares[j]), -1.0), 1.0)
        toll.price[j] = min(max(toll.price[j] + DUAL_PRICE_STEP * step, 0.0), MAX_DUAL_PRICE)
    toll.moves[0] += bounds.size > 0


DualOn = Literal["average", "instant"]


class KnapsackLimits(NamedTuple):
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


def make_knapsack_limits(
    problem: Problem, step: float, anytime: bool, dual_on: DualOn
) -> KnapsackLimits:
    """The limits of a problem, scaled so that a change of unit changes no decision."""
    warn_if_out_of_reach(problem)
    peak = problem.peaks
    return KnapsackLimits(
        rows=problem.rows / peak[:, None],
        bounds=problem.bounds / peak,
        signs=problem.signs.astype(np.float64),
        step=step,
        anytime=anytime,
        instant=dual_on == "instant",
    )


def make_horizon_limits(
    problem: Problem, step: float, horizon: int | None, dual_on: DualOn
) -> KnapsackLimits:
    """Steps of step / sqrt(T); of step / sqrt(t) if there is no horizon T to know."""
    length = step if horizon is None else step / float(np.sqrt(horizon))
    return make_knapsack_limits(problem, length, horizon is None, dual_on)


def warn_if_out_of_reach(problem: Problem) -> None:
    """Say so if full panels cannot keep the limits, however they are chosen."""
    if problem.full_conflict is not None:
        members = min(problem.draws, problem.size)
        warnings.warn(
            OutOfReachWarning(
                f"this policy asks {members} different experts every time, which cannot keep "
                "{limits}",
                limits=problem.full_conflict.limits,
                remedy="use a policy that draws with replacement, such as 'omd', or fewer draws",
            ),
            stacklevel=5,
        )


def make_no_limits(problem: Problem) -> KnapsackLimits:
    """No limits at all, for a policy that does not look at them."""
    none = np.zeros(0)
    return KnapsackLimits(np.zeros((0, problem.size)), none, none.copy(), 0.0, False, False)


def make_multipliers(limits: KnapsackLimits) -> Multipliers:
    """All zero: nothing was spent yet."""
    d = limits.bounds.size
    return Multipliers(np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(1, np.int64))


@jit_inline
def step_multipliers(limits: KnapsackLimits, state: Multipliers) -> None:
    """lam_j <- max(0, lam_j - step sign_j (cost_j - bound_j)), the cost being what was charged."""
    rounds, lam, last, spent = state.rounds[0], state.lam, state.last, state.spent
    signs, bounds = limits.signs, limits.bounds
    if rounds > 0:
        step = limits.step / np.sqrt(rounds) if limits.anytime else limits.step
        for j in range(lam.size):
            cost = last[j] if limits.instant else spent[j] / rounds
            lam[j] = max(0.0, lam[j] - step * signs[j] * (cost - bounds[j]))


@jit_inline
def charge_multipliers(limits: KnapsackLimits, state: Multipliers, draws: Ints) -> None:
    """Owe what the distinct members of a panel cost."""
    last, spent, rounds = state.last, state.spent, state.rounds
    for j in range(last.size):
        last[j] = 0.0
    add_panel_cost(last, limits.rows, draws)
    for j in range(last.size):
        spent[j] += last[j]
    rounds[0] += 1


@jit_inline
def add_multiplier_terms(scores: Floats, limits: KnapsackLimits, state: Multipliers) -> None:
    """score_i += sum_j lam_j sign_j c_ij: down for what an upper bound limits, up for a lower."""
    rows, signs, lam = limits.rows, limits.signs, state.lam
    for j in range(lam.size):
        weight = lam[j] * signs[j]
        for i in range(scores.size):
            scores[i] += weight * rows[j, i]


def compute_multiplier_prices(problem: Problem, state: Multipliers) -> Floats:
    """The multipliers as they are now, per unit of each bound."""
    price: Floats = state.lam / problem.peaks
    return price


def make_unknown_prices(problem: Problem, rule: Any, state: Any) -> Floats:
    """NaN for every limit: a policy that does not look at them puts no price on them."""
    return np.full(len(problem.limits), np.nan)


def is_valid_multipliers(state: Multipliers) -> bool:
    """Could this be a state of ours?"""
    numbers = (state.lam >= 0).all() and (state.lam < 1e200).all() and (state.spent >= 0).all()
    return bool(numbers and (state.last >= 0).all() and state.rounds[0] >= 0)
