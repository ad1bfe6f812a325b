"""Greedy, CUCB and CBwK: the M experts with the best index, from one reward shared by all members.

One rule: Greedy has no bonus (c = 0), and only CBwK looks at the limits.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import is_first_draw
from bylot.numerics.set_selection import choose_top_m
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
from bylot.policies.validation import check_choice, check_not_negative, check_positive
from bylot.problem import Problem


class UcbRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    warmup: int  # visits of a context that go round
    c: float  # weight of the bonus for being little known
    limits: KnapsackLimits


class UcbState(NamedTuple):
    """What it remembers: a line per context, and the shared multipliers."""

    visits: Ints  # (X,)
    place: Ints  # (X, K) of each expert in the warm-up
    drawn: Ints  # (X, K) n_i, rounds in which i was a member
    credited: Ints  # (X, K) those of them whose reward came
    total: Floats  # (X, K) and the sum of these rewards
    multipliers: Multipliers


@jit
def fill_ucb_indices(
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


@step(decide, UcbRule)
def _(rule: UcbRule, state: UcbState, context: int, rng: RngKey, available: Bools) -> Ticket:
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
        fill_ucb_indices(
            scores, drawn, state.credited[context], state.total[context], rule.c, turn + 1
        )
        add_multiplier_terms(scores, rule.limits, state.multipliers)
    draws = choose_top_m(scores, rule.draws, available)
    count_members(drawn, draws)
    charge_multipliers(rule.limits, state.multipliers, draws)
    return make_plain_ticket(rng.t, context, draws, available, True, False)


@step(learn, UcbRule)
def _(rule: UcbRule, state: UcbState, ticket: Ticket, reward: float) -> None:
    # The whole reward to every member: the paper's stand-in for a share nobody knows.
    credited, total = state.credited[ticket.context], state.total[ticket.context]
    for j in range(ticket.draws.size):
        if is_first_draw(ticket.draws, j):
            credited[ticket.draws[j]] += 1
            total[ticket.draws[j]] += reward


@step(compute_distribution, UcbRule)
def _(rule: UcbRule, state: UcbState, context: int, available: Bools) -> Floats:
    return compute_pull_shares(state.drawn[context])


@step(compute_inclusion, UcbRule)
def _(rule: UcbRule, state: UcbState, ticket: Ticket) -> Floats:
    return mark_members(ticket.draws, state.drawn.shape[1])


def make_ucb_rule(problem: Problem, c: float, limits: KnapsackLimits) -> UcbRule:
    """The rule with this bonus under these limits."""
    return UcbRule(problem.draws, pull_counts.count_warmup_visits(problem), float(c), limits)


def start_ucb(rule: UcbRule, contexts: int = 1) -> UcbState:
    """Nobody was drawn yet."""
    shape = contexts, rule.limits.rows.shape[1]
    return UcbState(
        visits=np.zeros(contexts, np.int64),
        place=np.zeros(shape, np.int64),
        drawn=np.zeros(shape, np.int64),
        credited=np.zeros(shape, np.int64),
        total=np.zeros(shape),
        multipliers=multipliers.make_multipliers(rule.limits),
    )


def is_valid_ucb_state(rule: UcbRule, state: UcbState) -> bool:
    """Could this be a state of ours? Asked of files, which may have been edited."""
    return bool(
        pull_counts.has_valid_counts(state.visits, state.drawn)
        and pull_counts.has_valid_warmup_order(state.visits, state.place)
        and (state.credited >= 0).all()
        and (state.credited <= state.drawn).all()
        and (np.abs(state.total - 0.5 * state.credited) <= 0.5001 * state.credited).all()
        and multipliers.is_valid_multipliers(state.multipliers)
    )


@dataclass(frozen=True)
class Greedy:
    """After the warm-up, always the M experts with the best mean reward."""

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    start = staticmethod(start_ucb)
    sound = staticmethod(is_valid_ucb_state)
    prices = staticmethod(multipliers.make_unknown_prices)

    def bind(self, problem: Problem, horizon: int | None = None) -> UcbRule:
        """The rule for this problem; the horizon does not matter."""
        return make_ucb_rule(problem, 0.0, multipliers.make_no_limits(problem))


@dataclass(frozen=True)
class Cucb:
    """Combinatorial UCB: the best mean rewards plus c sqrt(2 log t / n_i).

    c: weight of the bonus, for rewards of [0, 1]
    """

    c: float = 2.0

    aware: ClassVar[bool] = False
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    start = staticmethod(start_ucb)
    sound = staticmethod(is_valid_ucb_state)
    prices = staticmethod(multipliers.make_unknown_prices)

    def __post_init__(self) -> None:
        check_not_negative("c", self.c, 2.0)

    def bind(self, problem: Problem, horizon: int | None = None) -> UcbRule:
        """The rule for this problem; the horizon does not matter."""
        return make_ucb_rule(problem, self.c, multipliers.make_no_limits(problem))


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
    start = staticmethod(start_ucb)
    sound = staticmethod(is_valid_ucb_state)

    def __post_init__(self) -> None:
        check_not_negative("c", self.c, 2.0)
        check_positive("step", self.step, 10.0)
        check_choice("dual_on", self.dual_on, "average", "instant")

    def bind(self, problem: Problem, horizon: int | None = None) -> UcbRule:
        """The rule for this problem, over a known horizon or for as long as it is asked."""
        limits = multipliers.make_horizon_limits(problem, float(self.step), horizon, self.dual_on)
        return make_ucb_rule(problem, self.c, limits)

    def prices(self, problem: Problem, rule: UcbRule, state: UcbState) -> Floats:
        """The multipliers as they are now."""
        return multipliers.compute_multiplier_prices(problem, state.multipliers)
