"""MoE: a gate of one logit an expert, opened by Gumbel noise and trained by REINFORCE.

Limits act on what it learns from, not on the choice: a panel that breaks them is worth less.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled
from bylot.kernels.draw import add_cost, is_new
from bylot.kernels.gumbel import add_gumbels
from bylot.kernels.softmax import fill_softmax
from bylot.kernels.top import best
from bylot.policies import lagrangian, tally
from bylot.policies.contract import Ticket, chances, decide, law, learn, step
from bylot.policies.lagrangian import DualOn, Knapsacks, Multipliers, advance, charge
from bylot.policies.settings import one_of, positive
from bylot.policies.tally import count, membership, shares, untold
from bylot.problem import Problem

NOISE = 3  # the stream of chance that the noise is drawn from


class GateRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    rate: float
    limits: Knapsacks


class GateState(NamedTuple):
    """What it remembers: a line per context, and the shared multipliers."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    theta: Floats  # (X, K) logits
    multipliers: Multipliers


@compiled
def reinforce(theta: Floats, draws: Ints, length: float) -> None:
    """theta_i += length (1[i in panel] - p_i) with p = softmax(theta)."""
    p = np.empty(theta.size)
    fill_softmax(p, theta)
    for i in range(theta.size):
        theta[i] -= length * p[i]
    for j in range(draws.size):
        theta[draws[j]] += length if is_new(draws, j) else 0.0


@step(decide, GateRule)
def _(rule: GateRule, state: GateState, context: int, chance: Chance, up: Bools) -> Ticket:
    # lam answers what was spent; it moves even if no reward ever comes: the cost was owed.
    advance(rule.limits, state.multipliers)
    state.visits[context] += 1
    scores = state.theta[context].copy()
    add_gumbels(scores, chance, NOISE)
    draws = best(scores, rule.draws, up)
    count(state.drawn[context], draws)
    charge(rule.limits, state.multipliers, draws)
    return untold(chance.t, context, draws, up)


@step(learn, GateRule)
def _(rule: GateRule, state: GateState, ticket: Ticket, reward: float) -> None:
    # For a prompt reward p and lam are those of the decision; a late one meets them as they are
    # then, as the gate has moved and the gradient is to be taken where it stands.
    limits, lam = rule.limits, state.multipliers.lam
    cost = np.zeros(lam.size)
    add_cost(cost, limits.rows, ticket.draws)
    effective = reward
    for j in range(lam.size):
        effective += lam[j] * limits.signs[j] * cost[j]
    reinforce(state.theta[ticket.context], ticket.draws, rule.rate * effective)


@step(law, GateRule)
def _(rule: GateRule, state: GateState, context: int, up: Bools) -> Floats:
    return shares(state.drawn[context])


@step(chances, GateRule)
def _(rule: GateRule, state: GateState, ticket: Ticket) -> Floats:
    return membership(ticket.draws, state.drawn.shape[1])


@dataclass(frozen=True)
class Moe:
    """Constrained online gating: the M largest of theta_i + Gumbel noise.

    rate:    theta moves by rate * r_eff * (1_A - softmax(theta)), r_eff being the reward, in
             [0, 1], plus sum_j lam_j sign_j cost_j
    step:    the multipliers move in steps of this length, whatever the horizon
    dual_on: the violation they answer: of the running "average", or of the last round ("instant")
    """

    rate: float = 0.01
    step: float = 4e-4
    dual_on: DualOn = "average"

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("rate", self.rate, 0.01)
        positive("step", self.step, 4e-4)
        one_of("dual_on", self.dual_on, "average", "instant")

    def bind(self, problem: Problem, horizon: int | None = None) -> GateRule:
        """The rule for this problem; the horizon does not matter."""
        limits = lagrangian.knapsacks(problem, float(self.step), False, self.dual_on)
        return GateRule(problem.draws, float(self.rate), limits)

    def start(self, rule: GateRule, contexts: int = 1) -> GateState:
        """An open gate: all logits zero."""
        shape = contexts, rule.limits.rows.shape[1]
        return GateState(
            visits=np.zeros(contexts, np.int64),
            drawn=np.zeros(shape, np.int64),
            theta=np.zeros(shape),
            multipliers=lagrangian.resting(rule.limits),
        )

    def sound(self, rule: GateRule, state: GateState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        counted = tally.counted(state.visits, state.drawn)
        bounded = (np.abs(state.theta) < 1e200).all()
        return bool(counted and bounded and lagrangian.sound(state.multipliers))

    def prices(self, problem: Problem, rule: GateRule, state: GateState) -> Floats:
        """The multipliers as they are now."""
        return lagrangian.prices(problem, state.multipliers)
