"""Greedy, CUCB and CBwK: the M experts with the best index, from one reward shared by all members.

One rule: Greedy has no bonus (c = 0), and only CBwK looks at the limits.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled
from bylot.kernels.draw import is_new
from bylot.kernels.top import best
from bylot.policies import lagrangian, tally, warmup
from bylot.policies.contract import Ticket, chances, decide, law, learn, step
from bylot.policies.lagrangian import DualOn, Knapsacks, Multipliers, add_pressure, advance, charge
from bylot.policies.settings import not_negative, one_of, positive
from bylot.policies.tally import count, membership, shares, untold
from bylot.policies.warmup import round_robin, set_order
from bylot.problem import Problem


class IndexRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    warmup: int  # visits of a context that go round
    c: float  # weight of the bonus for being little known
    limits: Knapsacks


class IndexState(NamedTuple):
    """What it remembers: a line per context, and the shared multipliers."""

    visits: Ints  # (X,)
    place: Ints  # (X, K) of each expert in the warm-up
    drawn: Ints  # (X, K) n_i, rounds in which i was a member
    credited: Ints  # (X, K) those of them whose reward came
    total: Floats  # (X, K) and the sum of these rewards
    multipliers: Multipliers


@compiled
def fill_indices(
    scores: Floats, drawn: Ints, credited: Ints, total: Floats, c: float, t: int
) -> None:
    """Write mu_i + c sqrt(2 log t / n_i); infinite if i was never drawn, so that it will be.

    mu_i is the mean of the rewards that came; while none has, the best there can be.
    """
    double = 2.0 * np.log(t)
    for i in range(scores.size):
        mean = total[i] / credited[i] if credited[i] > 0 else 1.0
        index = mean + c * np.sqrt(double / max(1, drawn[i]))
        scores[i] = index if drawn[i] > 0 else np.inf


@step(decide, IndexRule)
def _(rule: IndexRule, state: IndexState, context: int, chance: Chance, up: Bools) -> Ticket:
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
        fill_indices(scores, drawn, state.credited[context], state.total[context], rule.c, turn + 1)
        add_pressure(scores, rule.limits, state.multipliers)
    draws = best(scores, rule.draws, up)
    count(drawn, draws)
    charge(rule.limits, state.multipliers, draws)
    return untold(chance.t, context, draws, up)


@step(learn, IndexRule)
def _(rule: IndexRule, state: IndexState, ticket: Ticket, reward: float) -> None:
    # The whole reward to every member: the paper's stand-in for a share nobody knows.
    credited, total = state.credited[ticket.context], state.total[ticket.context]
    for j in range(ticket.draws.size):
        if is_new(ticket.draws, j):
            credited[ticket.draws[j]] += 1
            total[ticket.draws[j]] += reward


@step(law, IndexRule)
def _(rule: IndexRule, state: IndexState, context: int, up: Bools) -> Floats:
    return shares(state.drawn[context])


@step(chances, IndexRule)
def _(rule: IndexRule, state: IndexState, ticket: Ticket) -> Floats:
    return membership(ticket.draws, state.drawn.shape[1])


def index_rule(problem: Problem, c: float, limits: Knapsacks) -> IndexRule:
    """The rule with this bonus under these limits."""
    return IndexRule(problem.draws, warmup.length(problem), float(c), limits)


def fresh(rule: IndexRule, contexts: int = 1) -> IndexState:
    """Nobody was drawn yet."""
    shape = contexts, rule.limits.rows.shape[1]
    return IndexState(
        visits=np.zeros(contexts, np.int64),
        place=np.zeros(shape, np.int64),
        drawn=np.zeros(shape, np.int64),
        credited=np.zeros(shape, np.int64),
        total=np.zeros(shape),
        multipliers=lagrangian.resting(rule.limits),
    )


def plausible(rule: IndexRule, state: IndexState) -> bool:
    """Could this be a state of ours? Asked of files, which may have been edited."""
    return bool(
        tally.counted(state.visits, state.drawn)
        and warmup.orderly(state.visits, state.place)
        and (state.credited >= 0).all()
        and (state.credited <= state.drawn).all()
        and (np.abs(state.total - 0.5 * state.credited) <= 0.5001 * state.credited).all()
        and lagrangian.sound(state.multipliers)
    )


@dataclass(frozen=True)
class Greedy:
    """After the warm-up, always the M experts with the best mean reward."""

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    start = staticmethod(fresh)
    sound = staticmethod(plausible)
    prices = staticmethod(lagrangian.unpriced)

    def bind(self, problem: Problem, horizon: int | None = None) -> IndexRule:
        """The rule for this problem; the horizon does not matter."""
        return index_rule(problem, 0.0, lagrangian.unlimited(problem))


@dataclass(frozen=True)
class Cucb:
    """Combinatorial UCB: the best mean rewards plus c sqrt(2 log t / n_i).

    c: weight of the bonus, for rewards of [0, 1]
    """

    c: float = 2.0

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    start = staticmethod(fresh)
    sound = staticmethod(plausible)
    prices = staticmethod(lagrangian.unpriced)

    def __post_init__(self) -> None:
        not_negative("c", self.c, 2.0)

    def bind(self, problem: Problem, horizon: int | None = None) -> IndexRule:
        """The rule for this problem; the horizon does not matter."""
        return index_rule(problem, self.c, lagrangian.unlimited(problem))


@dataclass(frozen=True)
class Cbwk:
    """Combinatorial bandits with knapsacks: CUCB's index, plus what the limits say.

    c:       weight of the bonus, for rewards of [0, 1]
    step:    the multipliers move in steps of step / sqrt(T), T the horizon; of step / sqrt(t) if
             there is none
    dual_on: the violation they answer: of the running "average", or of the last round ("instant")
    """

    c: float = 2.0
    step: float = 10.0
    dual_on: DualOn = "average"

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    start = staticmethod(fresh)
    sound = staticmethod(plausible)

    def __post_init__(self) -> None:
        not_negative("c", self.c, 2.0)
        positive("step", self.step, 10.0)
        one_of("dual_on", self.dual_on, "average", "instant")

    def bind(self, problem: Problem, horizon: int | None = None) -> IndexRule:
        """The rule for this problem, over a known horizon or for as long as it is asked."""
        limits = lagrangian.paced(problem, float(self.step), horizon, self.dual_on)
        return index_rule(problem, self.c, limits)

    def prices(self, problem: Problem, rule: IndexRule, state: IndexState) -> Floats:
        """The multipliers as they are now."""
        return lagrangian.prices(problem, state.multipliers)
