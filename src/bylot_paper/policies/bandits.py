"""Greedy, CUCB, CBwK, TS, TS-BwK and MoE: the M experts with the best index.

All learn from one reward shared by all members; all but MoE learn from scores of members or from
the winner if these are reported (`baselines.fill_evidence`). The index is a mean with a bonus
(CUCB, and Greedy without one), or a sample from independent beliefs (TS); CBwK and TS-BwK add the
multipliers of the limits. MoE is a gate of one logit per expert, sampled with Gumbel noise and
trained by REINFORCE: limits act on its learning signal, not on the choice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bylot.limits.records import LimitRule
from bylot.limits.request import Proposal, Ticket, View
from bylot.numerics.conditional_poisson import fill_softmax
from bylot.numerics.dispatch import dispatch_by_type, step
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.philox import BELIEF_STREAM, GUMBEL_STREAM, RngKey, RngStream
from bylot.numerics.sampling import add_panel_cost, is_first_draw
from bylot.numerics.scratch_arrays import make_draws, scratch_floats
from bylot.numerics.set_selection import fill_top_m
from bylot.numerics.variates import add_gumbels, fill_betas
from bylot.policies import base
from bylot.policies.base import Feedback, FeedbackKind, learn, propose
from bylot.problem import Problem
from bylot_paper.policies import baselines
from bylot_paper.policies.baselines import DualOn, KnapsackLimits, Multipliers


class UcbRule(NamedTuple):
    draws: int  # M
    warmup: int  # visits of a context in the warm-up
    c: float  # weight of the confidence bonus
    evidence: int  # what it learns from: see `baselines.fill_evidence`
    limits: KnapsackLimits


class UcbState(NamedTuple):
    """A row per context, and the shared multipliers."""

    visits: Ints  # (X,)
    place: Ints  # (X, K) of each expert in the warm-up
    drawn: Ints  # (X, K) n_i, rounds in which i was a member
    credited: Ints  # (X, K) those of them whose reward or score came
    total: Floats  # (X, K) and the sum of these
    multipliers: Multipliers


class ThompsonRule(NamedTuple):
    draws: int  # M
    warmup: int  # visits of a context in the warm-up
    evidence: int  # what it learns from: see `baselines.fill_evidence`
    limits: KnapsackLimits


class ThompsonState(NamedTuple):
    """A row per context, and the shared multipliers."""

    visits: Ints  # (X,)
    place: Ints  # (X, K) of each expert in the warm-up
    drawn: Ints  # (X, K) rounds in which i was a member
    alpha: Floats  # (X, K) the belief about i is Beta(alpha_i, beta_i)
    beta: Floats
    multipliers: Multipliers


def fill_indices(rule: Any, state: Any, context: int, rng: RngKey, scores: Floats) -> None:
    """Write the index of every expert; compiled code picks the body by the type of the rule."""
    raise NotImplementedError("compiled code only")


dispatch_by_type(fill_indices)


@step(fill_indices, UcbRule)
def fill_ucb_indices(rule: UcbRule, state: UcbState, x: int, rng: RngKey, scores: Floats) -> None:
    """mu_i + c sqrt(2 log t / n_i) at the t-th visit; infinite if i was never drawn.

    mu_i is the mean of the rewards or scores that came, and 1 before the first.
    """
    double = 2.0 * np.log(state.visits[x])
    for i in range(scores.size):
        credited = state.credited[x, i]
        mean = state.total[x, i] / credited if credited > 0 else 1.0
        index = mean + rule.c * np.sqrt(double / max(1, state.drawn[x, i]))
        scores[i] = index if state.drawn[x, i] > 0 else np.inf


@step(fill_indices, ThompsonRule)
def fill_thompson_indices(
    rule: ThompsonRule, state: ThompsonState, context: int, rng: RngKey, scores: Floats
) -> None:
    """Draw a sample from the belief about every expert."""
    fill_betas(scores, state.alpha[context], state.beta[context], rng, BELIEF_STREAM)


def propose_by_index(rule: Any, state: Any, view: View, rng: RngKey) -> Proposal:
    """Choose by the warm-up, then by the best indices; multipliers move even without rewards."""
    context = view.context
    baselines.step_multipliers(rule.limits, state.multipliers)
    turn = state.visits[context]
    state.visits[context] = turn + 1
    scores = scratch_floats(state.drawn.shape[1])
    if turn == 0:
        baselines.draw_warmup_order(state.place[context], rng)
    if turn < rule.warmup:
        baselines.fill_warmup_scores(scores, state.place[context], turn, rule.draws)
    else:
        fill_indices(rule, state, context, rng, scores)
        baselines.add_multiplier_terms(scores, rule.limits, state.multipliers)
    draws = make_draws(rng, rule.draws)
    fill_top_m(draws, scores, view.available)
    return base.propose_members(draws)


for index_rule in (UcbRule, ThompsonRule):
    step(propose, index_rule)(propose_by_index)
    step(base.note_played, index_rule)(baselines.note_panel)
    base.register_pull_steps(index_rule)


step(learn, UcbRule)(baselines.learn_totals)


@step(learn, ThompsonRule)
def learn_thompson(
    rule: ThompsonRule, state: ThompsonState, ticket: Ticket, feedback: Feedback
) -> None:
    """Learn what was seen of every member, clipped as rounding may leave [0, 1]."""
    evidence = scratch_floats(ticket.draws.size)
    baselines.fill_evidence(evidence, rule.evidence, ticket.draws, feedback)
    for j in range(evidence.size):
        if not np.isnan(evidence[j]):
            r = min(max(evidence[j], 0.0), 1.0)
            state.alpha[ticket.context, ticket.draws[j]] += r
            state.beta[ticket.context, ticket.draws[j]] += 1.0 - r


class UcbPolicy(baselines.WarmupPolicy):
    """The state that Greedy, CUCB and CBwK share."""

    def start(self, rule: UcbRule, contexts: int = 1) -> UcbState:
        shape = contexts, rule.limits.rows.shape[1]
        return UcbState(
            visits=np.zeros(contexts, np.int64),
            place=np.zeros(shape, np.int64),
            drawn=np.zeros(shape, np.int64),
            credited=np.zeros(shape, np.int64),
            total=np.zeros(shape),
            multipliers=baselines.make_multipliers(rule.limits),
        )

    def is_valid_state(self, rule: UcbRule, state: UcbState) -> bool:
        return super().is_valid_state(rule, state) and baselines.has_valid_totals(
            state.drawn, state.credited, state.total
        )

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> UcbRule:
        return UcbRule(
            draws=problem.draws,
            warmup=baselines.count_warmup_visits(problem),
            c=float(self.to_settings().get("c", 0.0)),  # Greedy has no bonus
            evidence=baselines.EVIDENCE[feedback],
            limits=self.bind_knapsack(problem, horizon),
        )


@dataclass(frozen=True)
class Greedy(UcbPolicy):
    """After the warm-up, always the M experts with the best mean reward."""

    name = "greedy"
    label = "Greedy"
    summary = "asks the experts with the highest mean reward so far; it ignores limits"
    uses_limits = False


@dataclass(frozen=True)
class Cucb(UcbPolicy):
    """Combinatorial UCB: the best mean rewards plus c sqrt(2 log t / n_i).

    c: weight of the bonus, for rewards of [0, 1]
    """

    c: float = 2.0

    name = "cucb"
    label = "CUCB"
    summary = "asks the experts with the highest upper confidence bounds; it ignores limits"
    uses_limits = False


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

    name = "cbwk"
    label = "CBwK"
    summary = "is cucb with a price on each limit"
    variants: ClassVar[Mapping[str, tuple[Mapping[str, Any], str]]] = {
        "cbwk-instant": ({"dual_on": "instant"}, "is cbwk with prices that follow each request")
    }


class ThompsonPolicy(baselines.WarmupPolicy):
    """The state that TS and TS-BwK share."""

    streams = (RngStream.WARMUP, RngStream.BELIEFS)

    def start(self, rule: ThompsonRule, contexts: int = 1) -> ThompsonState:
        """Begin with a uniform belief about every expert: Beta(1, 1)."""
        shape = contexts, rule.limits.rows.shape[1]
        return ThompsonState(
            visits=np.zeros(contexts, np.int64),
            place=np.zeros(shape, np.int64),
            drawn=np.zeros(shape, np.int64),
            alpha=np.ones(shape),
            beta=np.ones(shape),
            multipliers=baselines.make_multipliers(rule.limits),
        )

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> ThompsonRule:
        return ThompsonRule(
            draws=problem.draws,
            warmup=baselines.count_warmup_visits(problem),
            evidence=baselines.EVIDENCE[feedback],
            limits=self.bind_knapsack(problem, horizon),
        )

    def is_valid_state(self, rule: ThompsonRule, state: ThompsonState) -> bool:
        return bool(
            super().is_valid_state(rule, state)
            and (state.alpha >= 1).all()
            and (state.beta >= 1).all()
            and (state.alpha + state.beta <= 2 + 1.0001 * state.drawn).all()
        )


@dataclass(frozen=True)
class Ts(ThompsonPolicy):
    """Thompson sampling: s_i ~ Beta(alpha_i, beta_i), and the M largest are asked."""

    name = "ts"
    label = "TS"
    summary = "asks the experts with the highest posterior samples (Thompson); it ignores limits"
    uses_limits = False


@dataclass(frozen=True)
class TsBwk(ThompsonPolicy):
    """Thompson sampling with knapsacks: the same samples plus the multipliers of the limits.

    step:    multipliers move in steps of step / sqrt(T), or step / sqrt(t) without a horizon T
    dual_on: the violation they follow: of the running "average", or of the last round ("instant")
    """

    step: float = 10.0
    dual_on: DualOn = "average"

    name = "ts-bwk"
    label = "TS-BwK"
    summary = "is ts with a price on each limit"
    variants: ClassVar[Mapping[str, tuple[Mapping[str, Any], str]]] = {
        "ts-bwk-instant": ({"dual_on": "instant"}, "is ts-bwk with prices that follow each request")
    }


class MoeRule(NamedTuple):
    draws: int  # M
    rate: float
    limits: KnapsackLimits


class MoeState(NamedTuple):
    """A row per context, and the shared multipliers."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    theta: Floats  # (X, K) logits
    multipliers: Multipliers


@jit
def reinforce_logits(theta: Floats, draws: Ints, length: float) -> None:
    """theta_i += length (1[i in panel] - p_i) with p = softmax(theta)."""
    p = scratch_floats(theta.size)
    fill_softmax(p, theta)
    for i in range(theta.size):
        theta[i] -= length * p[i]
    for j in range(draws.size):
        theta[draws[j]] += length if is_first_draw(draws, j) else 0.0


@step(propose, MoeRule)
def propose_moe(rule: MoeRule, state: MoeState, view: View, rng: RngKey) -> Proposal:
    """Choose the M largest noisy logits; multipliers move even if no reward comes."""
    x = view.context
    baselines.step_multipliers(rule.limits, state.multipliers)
    state.visits[x] += 1
    theta = state.theta[x]
    scores = scratch_floats(theta.size)
    scores[:] = theta
    add_gumbels(scores, rng, GUMBEL_STREAM)
    draws = make_draws(rng, rule.draws)
    fill_top_m(draws, scores, view.available)
    return base.propose_members(draws)


step(base.note_played, MoeRule)(baselines.note_panel)


@step(learn, MoeRule)
def learn_moe(rule: MoeRule, state: MoeState, ticket: Ticket, feedback: Feedback) -> None:
    """Take a REINFORCE step at the logits and multipliers of now, also for a late reward.

    There is no step if a member was replaced.
    """
    lam = state.multipliers.lam
    cost = scratch_floats(lam.size)
    cost[:] = 0.0
    add_panel_cost(cost, rule.limits.rows, ticket.draws)
    effective = feedback.reward
    for j in range(lam.size):
        effective += lam[j] * rule.limits.signs[j] * cost[j]
    if not ticket.replaced:
        reinforce_logits(state.theta[ticket.context], ticket.draws, rule.rate * effective)


base.register_pull_steps(MoeRule)


@dataclass(frozen=True)
class Moe(baselines.BaselinePolicy):
    """Constrained online gating: the M largest of theta_i + Gumbel noise.

    rate:    theta moves by rate * r_eff * (1_A - softmax(theta)), r_eff being the reward, in
             [0, 1], plus sum_j lam_j sign_j cost_j
    step:    the multipliers move in steps of this length, whatever the horizon
    dual_on: the violation they follow: of the running "average", or of the last round ("instant")
    """

    rate: float = 0.01
    step: float = 4e-4
    dual_on: DualOn = "average"

    name = "moe"
    label = "MoE"
    summary = "learns a gate over experts (mixture of experts), with a price on each limit"
    streams = (RngStream.GUMBEL,)

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> MoeRule:
        return MoeRule(
            draws=problem.draws,
            rate=float(self.rate),
            limits=baselines.make_knapsack(problem, self.step, False, self.dual_on),
        )

    def start(self, rule: MoeRule, contexts: int = 1) -> MoeState:
        shape = contexts, rule.limits.rows.shape[1]
        return MoeState(
            visits=np.zeros(contexts, np.int64),
            drawn=np.zeros(shape, np.int64),
            theta=np.zeros(shape),
            multipliers=baselines.make_multipliers(rule.limits),
        )

    def is_valid_state(self, rule: MoeRule, state: MoeState) -> bool:
        return super().is_valid_state(rule, state) and bool((np.abs(state.theta) < 1e200).all())
