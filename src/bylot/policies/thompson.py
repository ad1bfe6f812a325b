"""TS and TS-BwK: the M experts that look best in a sample from independent beliefs.

One rule: TS is TS-BwK without limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints
from bylot.numerics.philox import BELIEF_STREAM, RngKey, RngStream
from bylot.numerics.sampling import is_first_draw
from bylot.numerics.set_selection import choose_top_m
from bylot.numerics.variates import fill_betas
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
from bylot.policies.validation import check_choice, check_positive
from bylot.problem import Problem


class ThompsonRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    warmup: int  # visits of a context in the warm-up
    limits: KnapsackLimits


class ThompsonState(NamedTuple):
    """A line per context, and the shared multipliers."""

    visits: Ints  # (X,)
    place: Ints  # (X, K) of each expert in the warm-up
    drawn: Ints  # (X, K) rounds in which i was a member
    alpha: Floats  # (X, K) the belief about i is Beta(alpha_i, beta_i)
    beta: Floats
    multipliers: Multipliers


@step(decide, ThompsonRule)
def decide_thompson(
    rule: ThompsonRule, state: ThompsonState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: the warm-up, then the best samples. Multipliers move even if no reward comes."""
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
def learn_thompson(rule: ThompsonRule, state: ThompsonState, ticket: Ticket, reward: float) -> None:
    """`learn`: the whole reward to every member, clipped as rounding may leave [0, 1]."""
    r = min(max(reward, 0.0), 1.0)
    alpha, beta = state.alpha[ticket.context], state.beta[ticket.context]
    for j in range(ticket.draws.size):
        if is_first_draw(ticket.draws, j):
            alpha[ticket.draws[j]] += r
            beta[ticket.draws[j]] += 1.0 - r


register_pull_steps(ThompsonRule)


class ThompsonPolicy(WarmupPolicy):
    """The state that TS and TS-BwK share."""

    streams: ClassVar[tuple[RngStream, ...]] = (RngStream.WARMUP, RngStream.BELIEFS)

    def start(self, rule: ThompsonRule, contexts: int = 1) -> ThompsonState:
        """A uniform belief about every expert: Beta(1, 1)."""
        shape = contexts, rule.limits.rows.shape[1]
        return ThompsonState(
            visits=np.zeros(contexts, np.int64),
            place=np.zeros(shape, np.int64),
            drawn=np.zeros(shape, np.int64),
            alpha=np.ones(shape),
            beta=np.ones(shape),
            multipliers=make_multipliers(rule.limits),
        )

    def is_valid_state(self, rule: ThompsonRule, state: ThompsonState) -> bool:
        """Validate a state loaded from disk."""
        return bool(
            has_valid_counts(state.visits, state.drawn)
            and has_valid_warmup_order(state.visits, state.place)
            and (state.alpha >= 1).all()
            and (state.beta >= 1).all()
            and (state.alpha + state.beta <= 2 + 1.0001 * state.drawn).all()
            and is_valid_multipliers(state.multipliers)
        )


@dataclass(frozen=True)
class Ts(ThompsonPolicy):
    """Thompson sampling: s_i ~ Beta(alpha_i, beta_i), and the M largest are asked."""

    name: ClassVar[str] = "ts"
    label: ClassVar[str] = "TS"
    summary: ClassVar[str] = (
        "asks the experts with the highest posterior samples (Thompson); it ignores limits"
    )
    uses_limits: ClassVar[bool] = False

    def bind(self, problem: Problem, horizon: int | None = None) -> ThompsonRule:
        """Make the rule; the horizon does not matter."""
        return ThompsonRule(problem.draws, count_warmup_visits(problem), make_no_limits(problem))


@dataclass(frozen=True)
class TsBwk(ThompsonPolicy):
    """Thompson sampling with knapsacks: the same samples plus the multipliers of the limits.

    step:    multipliers move in steps of step / sqrt(T), or step / sqrt(t) without a horizon T
    dual_on: the violation they follow: of the running "average", or of the last round ("instant")
    """

    step: float = 10.0
    dual_on: DualOn = "average"

    name: ClassVar[str] = "ts-bwk"
    label: ClassVar[str] = "TS-BwK"
    summary: ClassVar[str] = "is ts with a price on each limit"
    variants: ClassVar[Mapping[str, tuple[Mapping[str, Any], str]]] = {
        "ts-bwk-instant": (
            {"dual_on": "instant"},
            "is a variant of ts-bwk whose prices follow each request",
        )
    }

    def __post_init__(self) -> None:
        check_positive("step", self.step, 10.0)
        check_choice("dual_on", self.dual_on, "average", "instant")

    def bind(self, problem: Problem, horizon: int | None = None) -> ThompsonRule:
        """Make the rule; the horizon is None if it is unknown."""
        limits = make_horizon_limits(problem, float(self.step), horizon, self.dual_on)
        return ThompsonRule(problem.draws, count_warmup_visits(problem), limits)
