"""MoE: a gate of one logit per expert, sampled with Gumbel noise and trained by REINFORCE.

Limits act on the learning signal, not on the choice: a panel that breaks them is worth less.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.numerics.conditional_poisson import fill_softmax
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import GUMBEL_STREAM, RngKey, RngStream
from bylot.numerics.sampling import add_panel_cost, is_first_draw
from bylot.numerics.set_selection import choose_top_m
from bylot.numerics.variates import add_gumbels
from bylot.policies.base import Ticket, decide, learn, make_plain_ticket, step
from bylot.policies.multipliers import (
    DualOn,
    KnapsackLimits,
    Multipliers,
    charge_multipliers,
    is_valid_multipliers,
    make_knapsack_limits,
    make_multipliers,
    step_multipliers,
)
from bylot.policies.pull_counts import (
    BaselinePolicy,
    count_members,
    has_valid_counts,
    register_pull_steps,
)
from bylot.policies.validation import check_choice, check_positive
from bylot.problem import Problem


class MoeRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    rate: float
    limits: KnapsackLimits


class MoeState(NamedTuple):
    """A line per context, and the shared multipliers."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    theta: Floats  # (X, K) logits
    multipliers: Multipliers


@jit
def reinforce_logits(theta: Floats, draws: Ints, length: float) -> None:
    """theta_i += length (1[i in panel] - p_i) with p = softmax(theta)."""
    p = np.empty(theta.size)
    fill_softmax(p, theta)
    for i in range(theta.size):
        theta[i] -= length * p[i]
    for j in range(draws.size):
        theta[draws[j]] += length if is_first_draw(draws, j) else 0.0


@step(decide, MoeRule)
def decide_moe(
    rule: MoeRule, state: MoeState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: the M largest noisy logits. Multipliers move even if no reward comes."""
    step_multipliers(rule.limits, state.multipliers)
    state.visits[context] += 1
    scores = state.theta[context].copy()
    add_gumbels(scores, rng, GUMBEL_STREAM)
    draws = choose_top_m(scores, rule.draws, available)
    count_members(state.drawn[context], draws)
    charge_multipliers(rule.limits, state.multipliers, draws)
    return make_plain_ticket(rng.t, context, draws, available, True, False)


@step(learn, MoeRule)
def learn_moe(rule: MoeRule, state: MoeState, ticket: Ticket, reward: float) -> None:
    """`learn`: a REINFORCE step. A late reward meets the logits and multipliers of now: the
    gradient is to be taken where the gate stands.
    """
    limits, lam = rule.limits, state.multipliers.lam
    cost = np.zeros(lam.size)
    add_panel_cost(cost, limits.rows, ticket.draws)
    effective = reward
    for j in range(lam.size):
        effective += lam[j] * limits.signs[j] * cost[j]
    reinforce_logits(state.theta[ticket.context], ticket.draws, rule.rate * effective)


register_pull_steps(MoeRule)


@dataclass(frozen=True)
class Moe(BaselinePolicy):
    """Constrained online gating: the M largest of theta_i + Gumbel noise.

    rate:    theta moves by rate * r_eff * (1_A - softmax(theta)), r_eff being the reward, in
             [0, 1], plus sum_j lam_j sign_j cost_j
    step:    the multipliers move in steps of this length, whatever the horizon
    dual_on: the violation they follow: of the running "average", or of the last round ("instant")
    """

    rate: float = 0.01
    step: float = 4e-4
    dual_on: DualOn = "average"

    name: ClassVar[str] = "moe"
    label: ClassVar[str] = "MoE"
    summary: ClassVar[str] = (
        "learns a gate over experts (mixture of experts), with a price on each limit"
    )
    streams: ClassVar[tuple[RngStream, ...]] = (RngStream.GUMBEL,)

    def __post_init__(self) -> None:
        check_positive("rate", self.rate, 0.01)
        check_positive("step", self.step, 4e-4)
        check_choice("dual_on", self.dual_on, "average", "instant")

    def bind(self, problem: Problem, horizon: int | None = None) -> MoeRule:
        """Make the rule; the horizon does not matter."""
        limits = make_knapsack_limits(problem, float(self.step), False, self.dual_on)
        return MoeRule(problem.draws, float(self.rate), limits)

    def start(self, rule: MoeRule, contexts: int = 1) -> MoeState:
        """Logits of 0."""
        shape = contexts, rule.limits.rows.shape[1]
        return MoeState(
            visits=np.zeros(contexts, np.int64),
            drawn=np.zeros(shape, np.int64),
            theta=np.zeros(shape),
            multipliers=make_multipliers(rule.limits),
        )

    def is_valid_state(self, rule: MoeRule, state: MoeState) -> bool:
        """Validate a state loaded from disk."""
        counted = has_valid_counts(state.visits, state.drawn)
        bounded = (np.abs(state.theta) < 1e200).all()
        return bool(counted and bounded and is_valid_multipliers(state.multipliers))
