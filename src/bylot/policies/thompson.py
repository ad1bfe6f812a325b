"""TS and TS-BwK: the M experts that look best in a draw from what is believed of each.

One rule: TS is TS-BwK without limits to look at.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints
from bylot.numerics.philox import BELIEF_STREAM, RngKey
from bylot.numerics.sampling import is_first_draw
from bylot.numerics.set_selection import choose_top_m
from bylot.numerics.variates import fill_betas
from bylot.policies import multipliers, pull_counts
from bylot.policies.base import (
    Ticket,
    compute_distribution,
    compute_inclusion,
    decide,
    learn,
    make_plain_ticket,
    step,
)
from bylot.policies.multipliers import (
    DualOn,
    KnapsackLimits,
    Multipliers,
    add_multiplier_terms,
    charge_multipliers,
    step_multipliers,
)
from bylot.policies.pull_counts import (
    compute_pull_shares,
    count_members,
    draw_warmup_order,
    fill_warmup_scores,
    mark_members,
)
from bylot.policies.validation import check_choice, check_positive
from bylot.problem import Problem


class ThompsonRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    warmup: int  # visits of a context that go round
    limits: KnapsackLimits


class ThompsonState(NamedTuple):
    """What it remembers: a line per context, and the shared multipliers."""

    visits: Ints  # (X,)
    place: Ints  # (X, K) of each expert in the warm-up
    drawn: Ints  # (X, K) rounds in which i was a member
    alpha: Floats  # (X, K) the belief about i is Beta(alpha_i, beta_i)
    beta: Floats
    multipliers: Multipliers


@step(decide, ThompsonRule)
def _(
    rule: ThompsonRule, state: ThompsonState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    # lam answers what was spent; it moves even if no reward ever comes: the cost was owed.
    step_multipliers(rule.limits, state.multipliers)
    turn = state.visits[context]
    state.visits[context] = turn + 1
    place, drawn = state.place[context], state.drawn[context]
    scores = np.empty(drawn.size)
    if turn == 0:
        draw_warmup_order(place, rng)
    if turn < rule.warmup:
        fill_warmup_scores(scores, place, turn, rule.draws)
    else:
        fill_betas(scores, state.alpha[context], state.beta[context], rng, BELIEF_STREAM)
        add_multiplier_terms(scores, rule.limits, state.multipliers)
    draws = choose_top_m(scores, rule.draws, available)
    count_members(drawn, draws)
    charge_multipliers(rule.limits, state.multipliers, draws)
    return make_plain_ticket(rng.t, context, draws, available, True, False)


@step(learn, ThompsonRule)
def _(rule: ThompsonRule, state: ThompsonState, ticket: Ticket, reward: float) -> None:
    # The whole reward to every member. Rounding may carry it past 0 or 1, a belief never below 1.
    r = min(max(reward, 0.0), 1.0)
    alpha, beta = state.alpha[ticket.context], state.beta[ticket.context]
    for j in range(ticket.draws.size):
        if is_first_draw(ticket.draws, j):
            alpha[ticket.draws[j]] += r
            beta[ticket.draws[j]] += 1.0 - r


@step(compute_distribution, ThompsonRule)
def _(rule: ThompsonRule, state: ThompsonState, context: int, available: Bools) -> Floats:
    return compute_pull_shares(state.drawn[context])


@step(compute_inclusion, ThompsonRule)
def _(rule: ThompsonRule, state: ThompsonState, ticket: Ticket) -> Floats:
    return mark_members(ticket.draws, state.drawn.shape[1])


def start_thompson(rule: ThompsonRule, contexts: int = 1) -> ThompsonState:
    """Every expert may be anything: Beta(1, 1)."""
    shape = contexts, rule.limits.rows.shape[1]
    return ThompsonState(
        visits=np.zeros(contexts, np.int64),
        place=np.zeros(shape, np.int64),
        drawn=np.zeros(shape, np.int64),
        alpha=np.ones(shape),
        beta=np.ones(shape),
        multipliers=multipliers.make_multipliers(rule.limits),
    )


def is_valid_thompson_state(rule: ThompsonRule, state: ThompsonState) -> bool:
    """Could this be a state of ours? Asked of files, which may have been edited."""
    return bool(
        pull_counts.has_valid_counts(state.visits, state.drawn)
        and pull_counts.has_valid_warmup_order(state.visits, state.place)
        and (state.alpha >= 1).all()
        and (state.beta >= 1).all()
        and (state.alpha + state.beta <= 2 + 1.0001 * state.drawn).all()
        and multipliers.is_valid_multipliers(state.multipliers)
    )


@dataclass(frozen=True)
class Ts:
    """Thompson sampling: s_i ~ Beta(alpha_i, beta_i), and the M largest are asked."""

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    start = staticmethod(start_thompson)
    sound = staticmethod(is_valid_thompson_state)
    prices = staticmethod(multipliers.make_unknown_prices)

    def bind(self, problem: Problem, horizon: int | None = None) -> ThompsonRule:
        """The rule for this problem; the horizon does not matter."""
        return ThompsonRule(
            problem.draws,
            pull_counts.count_warmup_visits(problem),
            multipliers.make_no_limits(problem),
        )


@dataclass(frozen=True)
class TsBwk:
    """Thompson sampling with knapsacks: the same draws, plus what the limits say.

    step:    the multipliers move in steps of step / sqrt(T), T the horizon; of step / sqrt(t) if
             there is none
    dual_on: the violation they answer: of the running "average", or of the last round ("instant")
    """

    step: float = 10.0
    dual_on: DualOn = "average"

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    start = staticmethod(start_thompson)
    sound = staticmethod(is_valid_thompson_state)

    def __post_init__(self) -> None:
        check_positive("step", self.step, 10.0)
        check_choice("dual_on", self.dual_on, "average", "instant")

    def bind(self, problem: Problem, horizon: int | None = None) -> ThompsonRule:
        """The rule for this problem, over a known horizon or for as long as it is asked."""
        limits = multipliers.make_horizon_limits(problem, float(self.step), horizon, self.dual_on)
        return ThompsonRule(problem.draws, pull_counts.count_warmup_visits(problem), limits)

    def prices(self, problem: Problem, rule: ThompsonRule, state: ThompsonState) -> Floats:
        """The multipliers as they are now."""
        return multipliers.compute_multiplier_prices(problem, state.multipliers)
