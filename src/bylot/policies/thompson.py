"""TS and TS-BwK: the M experts that look best in a draw from what is believed of each.

One rule: TS is TS-BwK without limits to look at.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.kernels.beta import fill_betas
from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints
from bylot.kernels.draw import is_new
from bylot.kernels.top import best
from bylot.policies import lagrangian, tally, warmup
from bylot.policies.contract import Ticket, chances, decide, law, learn, step
from bylot.policies.lagrangian import DualOn, Knapsacks, Multipliers, add_pressure, advance, charge
from bylot.policies.settings import one_of, positive
from bylot.policies.tally import count, membership, shares, untold
from bylot.policies.warmup import round_robin, set_order
from bylot.problem import Problem

BELIEFS = 2  # the stream of chance that beliefs are drawn from


class ThompsonRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    warmup: int  # visits of a context that go round
    limits: Knapsacks


class ThompsonState(NamedTuple):
    """What it remembers: a line per context, and the shared multipliers."""

    visits: Ints  # (X,)
    place: Ints  # (X, K) of each expert in the warm-up
    drawn: Ints  # (X, K) rounds in which i was a member
    alpha: Floats  # (X, K) the belief about i is Beta(alpha_i, beta_i)
    beta: Floats
    multipliers: Multipliers


@step(decide, ThompsonRule)
def _(rule: ThompsonRule, state: ThompsonState, context: int, chance: Chance, up: Bools) -> Ticket:
    # lam answers what was spent; it moves even if no reward ever comes: the cost was owed.
    advance(rule.limits, state.multipliers)
    turn = state.visits[context]
    state.visits[context] = turn + 1
    place, drawn = state.place[context], state.drawn[context]
    scores = np.empty(drawn.size)
    if turn == 0:
        set_order(place, chance)
    if turn < rule.warmup:
        round_robin(scores, place, turn, rule.draws)
    else:
        fill_betas(scores, state.alpha[context], state.beta[context], chance, BELIEFS)
        add_pressure(scores, rule.limits, state.multipliers)
    draws = best(scores, rule.draws, up)
    count(drawn, draws)
    charge(rule.limits, state.multipliers, draws)
    return untold(chance.t, context, draws, up)


@step(learn, ThompsonRule)
def _(rule: ThompsonRule, state: ThompsonState, ticket: Ticket, reward: float) -> None:
    # The whole reward to every member. Rounding may carry it past 0 or 1, a belief never below 1.
    r = min(max(reward, 0.0), 1.0)
    alpha, beta = state.alpha[ticket.context], state.beta[ticket.context]
    for j in range(ticket.draws.size):
        if is_new(ticket.draws, j):
            alpha[ticket.draws[j]] += r
            beta[ticket.draws[j]] += 1.0 - r


@step(law, ThompsonRule)
def _(rule: ThompsonRule, state: ThompsonState, context: int, up: Bools) -> Floats:
    return shares(state.drawn[context])


@step(chances, ThompsonRule)
def _(rule: ThompsonRule, state: ThompsonState, ticket: Ticket) -> Floats:
    return membership(ticket.draws, state.drawn.shape[1])


def fresh(rule: ThompsonRule, contexts: int = 1) -> ThompsonState:
    """Every expert may be anything: Beta(1, 1)."""
    shape = contexts, rule.limits.rows.shape[1]
    return ThompsonState(
        visits=np.zeros(contexts, np.int64),
        place=np.zeros(shape, np.int64),
        drawn=np.zeros(shape, np.int64),
        alpha=np.ones(shape),
        beta=np.ones(shape),
        multipliers=lagrangian.resting(rule.limits),
    )


def plausible(rule: ThompsonRule, state: ThompsonState) -> bool:
    """Could this be a state of ours? Asked of files, which may have been edited."""
    return bool(
        tally.counted(state.visits, state.drawn)
        and warmup.orderly(state.visits, state.place)
        and (state.alpha >= 1).all()
        and (state.beta >= 1).all()
        and (state.alpha + state.beta <= 2 + 1.0001 * state.drawn).all()
        and lagrangian.sound(state.multipliers)
    )


@dataclass(frozen=True)
class Ts:
    """Thompson sampling: s_i ~ Beta(alpha_i, beta_i), and the M largest are asked."""

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    start = staticmethod(fresh)
    sound = staticmethod(plausible)
    prices = staticmethod(lagrangian.unpriced)

    def bind(self, problem: Problem, horizon: int | None = None) -> ThompsonRule:
        """The rule for this problem; the horizon does not matter."""
        return ThompsonRule(problem.draws, warmup.length(problem), lagrangian.unlimited(problem))


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
    start = staticmethod(fresh)
    sound = staticmethod(plausible)

    def __post_init__(self) -> None:
        positive("step", self.step, 10.0)
        one_of("dual_on", self.dual_on, "average", "instant")

    def bind(self, problem: Problem, horizon: int | None = None) -> ThompsonRule:
        """The rule for this problem, over a known horizon or for as long as it is asked."""
        limits = lagrangian.paced(problem, float(self.step), horizon, self.dual_on)
        return ThompsonRule(problem.draws, warmup.length(problem), limits)

    def prices(self, problem: Problem, rule: ThompsonRule, state: ThompsonState) -> Floats:
        """The multipliers as they are now."""
        return lagrangian.prices(problem, state.multipliers)
