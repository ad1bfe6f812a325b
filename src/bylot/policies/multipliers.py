"""Multipliers of limits: averaged over projections, moved by panels, or by subgradient ascent.

The policies with an exact projection average the multipliers it returns, `noisy-or` moves prices by
what its panels cost, and the paper's baselines use a Lagrangian.
"""

import warnings
from typing import Literal, NamedTuple

import numpy as np

from bylot.errors import OutOfReachWarning
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.sampling import add_panel_cost
from bylot.policies.base import ProblemChange
from bylot.policies.constraint_rows import compute_price_units, compute_row_units
from bylot.problem import Problem

MULTIPLIER_DECAY = 0.99  # of a step's weight, at every later step


class MultiplierAverage(NamedTuple):
    """Multipliers of recent projections, to be divided by the lengths of their steps.

    A step of length s maximises s <g, p> less a divergence, subject to the rows; the multiplier of
    a row, over s, is thus in rewards per unit of the row. Both are summed before they are divided,
    so that short steps do not dominate.
    """

    total: Floats  # (d,)
    length: Floats  # one number

    def migrate(self, new: "MultiplierAverage", change: ProblemChange) -> None:
        """Multipliers are per unit of the constraint rows."""
        growth = change.growth(compute_row_units(change.old), compute_row_units(change.new))
        change.copy_by_limit(self.total, new.total, growth)
        new.length[:] = self.length


def make_multiplier_average(rows: int) -> MultiplierAverage:
    """The average before the first step."""
    return MultiplierAverage(np.zeros(rows), np.zeros(1))


@jit
def add_multipliers(average: MultiplierAverage, multipliers: Floats, s: float) -> None:
    """Add a step. One of length 0 has multipliers too, if the bounds in force moved."""
    average.length[0] = MULTIPLIER_DECAY * average.length[0] + s
    for j in range(multipliers.size):
        average.total[j] = MULTIPLIER_DECAY * average.total[j] + multipliers[j]


def average_shadow_prices(
    problem: Problem, average: MultiplierAverage, share: float = 1.0
) -> Floats:
    """Rewards of [0, 1] per unit of each bound, of rows that were divided by `share`."""
    if average.length[0] <= 0:
        return np.full(len(problem.limits), np.nan)
    per_row: Floats = average.total / average.length[0]
    return per_row / (compute_row_units(problem) * share)


DUAL_PRICE_STEP = 0.2  # longest step of a price
MAX_DUAL_PRICE = 5.0
MAX_COUNTED_EXCESS = 30.0  # excess cost of a panel that shortens later steps
INITIAL_SQUARES = 0.01  # sum of squares before the first panel


class DualPrices(NamedTuple):
    """A price per unit of each row, in rewards of [0, 1], that follows the cost of panels."""

    price: Floats  # (d,) lam
    squares: Floats  # (d,) G2, sum of squared excess over the bounds in force
    moves: Ints  # one number: how often prices have moved

    def migrate(self, new: "DualPrices", change: ProblemChange) -> None:
        """Prices are per unit of their rows. Where a limit leaves more or less slack than before,
        steps are long again; where one is new, prices are rehearsed as at the start.
        """
        growth = change.growth(compute_price_units(change.old), compute_price_units(change.new))
        change.copy_by_limit(self.price, new.price, growth)
        change.copy_by_limit(self.squares, new.squares, growth == 1.0)
        new.price[:] = np.minimum(new.price, MAX_DUAL_PRICE)
        new.squares[:] = np.maximum(new.squares, INITIAL_SQUARES)
        new.moves[:] = self.moves if len(change.limits[0]) == new.price.size else 0


def make_dual_prices(rows: int) -> DualPrices:
    """Prices of 0."""
    return DualPrices(np.zeros(rows), np.full(rows, INITIAL_SQUARES), np.zeros(1, np.int64))


def is_valid_dual_prices(dual: DualPrices) -> bool:
    """Validate prices loaded from disk."""
    fair = (dual.price >= 0) & (dual.price <= MAX_DUAL_PRICE) & (dual.squares >= INITIAL_SQUARES)
    return bool(fair.all() and dual.moves[0] >= 0)


@jit
def fill_expert_prices(out: Floats, dual: DualPrices, A: Floats) -> None:
    """Write the price of every expert under all rows, sum_j lam_j A_ji."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(A.shape[0]):
        price = dual.price[j]
        if price > 0.0:
            for i in range(out.size):
                out[i] += price * A[j, i]


@jit
def update_dual_prices(
    dual: DualPrices, A: Floats, members: Ints, bounds: Floats, short: Bools
) -> None:
    """g = A(panel) - b', G2 += min(g^2, max^2), lam += step g / sqrt(G2), clipped.

    Squares are clipped and not g: else prices would settle where *clipped* costs are right on
    average. One panel of a thousand times the usual excess would shorten all later steps as much.
    The price of a limit that the available experts cannot satisfy would rise for nothing.
    """
    for j in range(bounds.size):
        if short[j]:
            continue
        g = -bounds[j]
        for i in members:
            g += A[j, i]
        dual.squares[j] += min(g * g, MAX_COUNTED_EXCESS * MAX_COUNTED_EXCESS)
        step = min(max(g / np.sqrt(dual.squares[j]), -1.0), 1.0)
        dual.price[j] = min(max(dual.price[j] + DUAL_PRICE_STEP * step, 0.0), MAX_DUAL_PRICE)
    dual.moves[0] += bounds.size > 0


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
    """The state of the Lagrangian, shared by all contexts."""

    lam: Floats  # (d,) at least 0
    spent: Floats  # (d,) realised cost of all rounds
    last: Floats  # (d,) and of the last one
    rounds: Ints

    def migrate(self, new: "Multipliers", change: ProblemChange) -> None:
        """Multipliers are per unit of the largest cost, sums in that unit; a new limit counts as
        just satisfied so far.
        """
        growth = change.growth(change.old.peaks, change.new.peaks)
        new.rounds[:] = self.rounds
        if new.lam.size:
            bounds = change.new.bounds / change.new.peaks
            new.spent[:], new.last[:] = self.rounds[0] * bounds, bounds if self.rounds[0] else 0.0
        change.copy_by_limit(self.lam, new.lam, growth)
        change.copy_by_limit(self.spent, new.spent, 1.0 / growth)
        change.copy_by_limit(self.last, new.last, 1.0 / growth)


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
    """Limits with steps of step / sqrt(T), or step / sqrt(t) if the horizon T is unknown."""
    length = step if horizon is None else step / float(np.sqrt(horizon))
    return make_knapsack_limits(problem, length, horizon is None, dual_on)


def warn_if_out_of_reach(problem: Problem) -> None:
    """Warn if no full panels can satisfy the limits."""
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
    """No limits, for a policy that ignores them."""
    none = np.zeros(0)
    return KnapsackLimits(np.zeros((0, problem.size)), none, none.copy(), 0.0, False, False)


def make_multipliers(limits: KnapsackLimits) -> Multipliers:
    """Multipliers of 0."""
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
    """Charge the cost of the distinct members of a panel."""
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
    """The current multipliers, per unit of each bound."""
    price: Floats = state.lam / problem.peaks
    return price


def is_valid_multipliers(state: Multipliers) -> bool:
    """Validate multipliers loaded from disk."""
    numbers = (state.lam >= 0).all() and (state.lam < 1e200).all() and (state.spent >= 0).all()
    return bool(numbers and (state.last >= 0).all() and state.rounds[0] >= 0)
