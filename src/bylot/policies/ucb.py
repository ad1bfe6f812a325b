"""Greedy, CUCB and CBwK: the M experts with the best index, from one reward shared by all members.

One rule: Greedy has no bonus (c = 0), and only CBwK uses the limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import is_first_draw
from bylot.numerics.set_selection import choose_top_m
from bylot.policies.base import Ticket, decide, learn, make_plain_ticket, step
from bylot.policies.multipliers import (
    DualOn,
    KnapsackLimits,
    Multipliers,
    add_multiplier_terms,
    charge_multipliers,
    is_valid_multipliers,
    make_horizon_limits,
    make_multipliers,
    make_no_limits,
    step_multipliers,
)
from bylot.policies.pull_counts import (
    WarmupPolicy,
    count_members,
    count_warmup_visits,
    draw_warmup_order,
    fill_warmup_scores,
    has_valid_counts,
    has_valid_warmup_order,
    register_pull_steps,
)
from bylot.policies.validation import check_choice, check_not_negative, check_positive
from bylot.problem import Problem


class UcbRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    warmup: int  # visits of a context in the warm-up
    c: float  # weight of the confidence bonus
    limits: KnapsackLimits


class UcbState(NamedTuple):
    """A line per context, and the shared multipliers."""

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
    """Write mu_i + c sqrt(2 log t / n_i); infinite if i was never drawn.

    mu_i is the mean of the rewards that came, and 1 before the first.
    """
    double = 2.0 * np.log(t)
    for i in range(scores.size):
        mean = total[i] / credited[i] if credited[i] > 0 else 1.0
        index = mean + c * np.sqrt(double / max(1, drawn[i]))
        scores[i] = index if drawn[i] > 0 else np.inf


@step(decide, UcbRule)
def decide_ucb(
    rule: UcbRule, state: UcbState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: the warm-up, then the best indices. Multipliers move even if no reward comes."""
    step_multipliers(rule.limits, state.multipliers)
    turn = state.visits[context]
    state.visits[context] = turn + 1
    place, drawn = state.place[context], state.drawn[context]
    credited, total = state.credited[context], state.total[context]
    scores = np.empty(drawn.size)
    if turn == 0:
        draw_warmup_order(place, rng)
    if turn < rule.warmup:
        fill_warmup_scores(scores, place, turn, rule.draws)
    else:
        fill_ucb_indices(scores, drawn, credited, total, rule.c, turn + 1)
        add_multiplier_terms(scores, rule.limits, state.multipliers)
    draws = choose_top_m(scores, rule.draws, available)
    count_members(drawn, draws)
    charge_multipliers(rule.limits, state.multipliers, draws)
    return make_plain_ticket(rng.t, context, draws, available, True, False)


@step(learn, UcbRule)
def learn_ucb(rule: UcbRule, state: UcbState, ticket: Ticket, reward: float) -> None:
    """`learn`: the whole reward to every member, as the paper does."""
    credited, total = state.credited[ticket.context], state.total[ticket.context]
    for j in range(ticket.draws.size):
        if is_first_draw(ticket.draws, j):
            credited[ticket.draws[j]] += 1
            total[ticket.draws[j]] += reward


register_pull_steps(UcbRule)


class UcbPolicy(WarmupPolicy):
    """The state that Greedy, CUCB and CBwK share."""

    def start(self, rule: UcbRule, contexts: int = 1) -> UcbState:
        """Nobody was drawn yet."""
        shape = contexts, rule.limits.rows.shape[1]
        return UcbState(
            visits=np.zeros(contexts, np.int64),
            place=np.zeros(shape, np.int64),
            drawn=np.zeros(shape, np.int64),
            credited=np.zeros(shape, np.int64),
            total=np.zeros(shape),
            multipliers=make_multipliers(rule.limits),
        )

    def is_valid_state(self, rule: UcbRule, state: UcbState) -> bool:
        """Validate a state loaded from disk."""
        return bool(
            has_valid_counts(state.visits, state.drawn)
            and has_valid_warmup_order(state.visits, state.place)
            and (state.credited >= 0).all()
            and (state.credited <= state.drawn).all()
            and (np.abs(state.total - 0.5 * state.credited) <= 0.5001 * state.credited).all()
            and is_valid_multipliers(state.multipliers)
        )


def make_ucb_rule(problem: Problem, c: float, limits: KnapsackLimits) -> UcbRule:
    """The rule with this bonus under these limits."""
    return UcbRule(problem.draws, count_warmup_visits(problem), float(c), limits)


@dataclass(frozen=True)
class Greedy(UcbPolicy):
    """After the warm-up, always the M experts with the best mean reward."""

    name: ClassVar[str] = "greedy"
    label: ClassVar[str] = "Greedy"
    summary: ClassVar[str] = (
        "asks the experts with the highest mean reward so far; it ignores limits"
    )
    uses_limits: ClassVar[bool] = False

    def bind(self, problem: Problem, horizon: int | None = None) -> UcbRule:
        """Make the rule; the horizon does not matter."""
        return make_ucb_rule(problem, 0.0, make_no_limits(problem))


@dataclass(frozen=True)
class Cucb(UcbPolicy):
    """Combinatorial UCB: the best mean rewards plus c sqrt(2 log t / n_i).

    c: weight of the bonus, for rewards of [0, 1]
    """

    c: float = 2.0

    name: ClassVar[str] = "cucb"
    label: ClassVar[str] = "CUCB"
    summary: ClassVar[str] = (
        "asks the experts with the highest upper confidence bounds; it ignores limits"
    )
    uses_limits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_not_negative("c", self.c, 2.0)

    def bind(self, problem: Problem, horizon: int | None = None) -> UcbRule:
        """Make the rule; the horizon does not matter."""
        return make_ucb_rule(problem, self.c, make_no_limits(problem))


@dataclass(frozen=True)
class Cbwk(UcbPolicy):
    """Combinatorial bandits with knapsacks: CUCB's index plus the multipliers of the limits.

    c:       weight of the bonus, for rewards of [0, 1]
    step:    multipliers move in steps of step / sqrt(T), or step / sqrt(t) without a horizon T
    dual_on: the violation they follow: of the running "average", or of the last round ("instant")
    """

    c: float = 2.0
    step: float = 10.0
    dual_on: DualOn = "average"

    name: ClassVar[str] = "cbwk"
    label: ClassVar[str] = "CBwK"
    summary: ClassVar[str] = "is cucb with a price on each limit"
    variants: ClassVar[Mapping[str, tuple[Mapping[str, Any], str]]] = {
        "cbwk-instant": (
            {"dual_on": "instant"},
            "is a variant of cbwk whose prices follow each request",
        )
    }

    def __post_init__(self) -> None:
        check_not_negative("c", self.c, 2.0)
        check_positive("step", self.step, 10.0)
        check_choice("dual_on", self.dual_on, "average", "instant")

    def bind(self, problem: Problem, horizon: int | None = None) -> UcbRule:
        """Make the rule; the horizon is None if it is unknown."""
        limits = make_horizon_limits(problem, float(self.step), horizon, self.dual_on)
        return make_ucb_rule(problem, self.c, limits)
