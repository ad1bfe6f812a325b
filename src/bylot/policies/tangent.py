"""tangent: M i.i.d. draws from q = (1 - eps) softmax(theta) + eps f0, as in the paper.

It learns by mirror ascent in the entropy, with the score of the drawn *set* as its gradient, and
projects its steps onto tangents of the exact expected costs. It is paced and guarded. Another
policy of i.i.d. draws can share all but the projection: `bylot_paper.policies.strict` does.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bylot.limits.binding import Pace, bind_limits, get_rows
from bylot.limits.guard import is_outside_bounds
from bylot.limits.pacing import DEFAULT_PACE, get_context_bounds, get_request_bounds
from bylot.limits.records import LimitRule, Limits
from bylot.limits.request import Proposal, Ticket, View
from bylot.limits.rows import ConstraintRows
from bylot.numerics import iid_sets, sampling
from bylot.numerics.conditional_poisson import fill_softmax, restrict_logits
from bylot.numerics.dispatch import dispatch_by_type, step
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.scratch_arrays import borrow_row, no_floats, scratch_floats
from bylot.policies import base, iid_limits, mirror_ascent
from bylot.policies.base import BoundPolicy, Feedback, FeedbackKind
from bylot.policies.change_detection import ChangeTest, detect_fall, make_change_test, note_reward
from bylot.policies.member_belief import (
    MemberBelief,
    add_believed_slope,
    exchange_logits,
    forget_members,
    make_member_belief,
    update_member_belief,
)
from bylot.policies.validation import check_iid_panels
from bylot.problem import Problem
from bylot.problem.change import ProblemChange, has_same_pool

IID_DOUBT_BONUS = 0.5  # per standard deviation of what is believed about an expert
MIN_IID_LOGIT = -10.0  # of theta at the start of a step, whose largest is 0


class TangentRule(NamedTuple):
    draws: int  # M
    ascent: mirror_ascent.AscentSettings
    eps: float  # share of the exploration distribution
    explore: Floats  # (K,) f0
    margin: float  # by which part independent draws can keep tighter limits
    limits: int  # d


class IidState(NamedTuple):
    """A row per context, and multipliers of all."""

    theta: Floats  # (X, K)
    q: Floats  # (X, K)
    mass: Floats  # (X, K) running sums of q, which draws are looked up in
    visits: Ints  # (X,)
    gradient: mirror_ascent.GradientState
    belief: MemberBelief  # not used if steps only get shorter
    change: ChangeTest  # not used if steps only get shorter
    multipliers: mirror_ascent.MultiplierAverage


def project_iid(rule: Any, state: Any, limits: Limits, x: int, multipliers: Floats) -> None:
    """Project theta and q of a context onto the constraint of the rule, and write multipliers.

    Compiled code picks the body by the type of the rule.
    """
    raise NotImplementedError("compiled code only")


dispatch_by_type(project_iid)


@step(project_iid, TangentRule)
def project_tangent(
    rule: TangentRule, state: IidState, limits: Limits, x: int, multipliers: Floats
) -> None:
    """`project_iid`: onto tangents of the bounds in force."""
    rows = ConstraintRows(limits.means, get_context_bounds(limits, x))
    iid_limits.project_onto_tangents(
        state.theta[x], state.q[x], multipliers, rows, rule.draws, rule.eps, rule.explore
    )


@jit_apart
def move_iid(rule: Any, state: IidState, limits: Limits, x: int) -> None:
    """One step of mirror ascent, projected onto the constraint."""
    theta, q = state.theta[x], state.q[x]
    mirror_ascent.update_baseline(state.gradient, x, rule.ascent.memory)
    mirror_ascent.clamp_logits(theta, theta.max(), MIN_IID_LOGIT, 0.0)
    if not rule.ascent.monotone:
        add_doubt(rule, state, x)
    s = mirror_ascent.take_ascent_step(theta, rule.ascent, state.gradient, x, q)
    if not rule.ascent.monotone:
        correct_course(rule, state, limits, x)
    lam = np.empty(limits.rows.size)
    project_iid(rule, state, limits, x, lam)
    mirror_ascent.add_multipliers(state.multipliers, lam, s)
    mirror_ascent.clamp_logits(theta, theta.max(), -np.inf, 0.0)
    sampling.fill_cumulative(q, state.mass[x])


@jit
def add_doubt(rule: Any, state: IidState, x: int) -> None:
    """Add a bonus for experts that little is known about: for M draws, M times that of a set."""
    g, ascent, q, belief = state.gradient.g[x], rule.ascent, state.q[x], state.belief
    miss, share = (
        mirror_ascent.compute_miss(state.gradient, x),
        state.change.arrived[x] / ascent.batch,
    )
    slope = np.zeros(g.size)
    add_believed_slope(slope, belief, x, miss, share, IID_DOUBT_BONUS)
    for i in range(g.size):
        belief.values[x, i] = 0.0  # a ticket has no inclusion probabilities to predict rewards with
        g[i] += rule.draws * (1.0 - q[i]) ** (rule.draws - 1) * slope[i]


@jit
def correct_course(rule: Any, state: IidState, limits: Limits, x: int) -> None:
    """Ask a better expert in the place of another, and start over after a fall of rewards."""
    theta, slope, prices = state.theta[x], state.gradient, np.zeros(state.theta.shape[1])
    miss = mirror_ascent.compute_miss(slope, x)
    mirror_ascent.fill_priced_costs(prices, state.multipliers, limits.means)
    asked = iid_sets.iid_inclusion(state.q[x], rule.draws)
    for i in range(prices.size):
        prices[i] /= rule.draws  # rows of tangents are divided by M
    exchange_logits(theta, asked, state.belief, x, prices, miss)
    if detect_fall(state.change, x):
        start = compute_start_logits(rule.explore)
        top = theta.max()
        for i in range(theta.size):
            theta[i] = start[i] + mirror_ascent.KEPT_AFTER_FALL * (theta[i] - top - start[i])
        mirror_ascent.reset_gradient(slope, x)
        forget_members(state.belief, x)


@jit
def compute_start_logits(explore: Floats) -> Floats:
    """The logits of the exploration distribution, the largest of which is 0."""
    logits, top = np.empty(explore.size), explore.max()
    for i in range(explore.size):
        logits[i] = (
            max(math.log(explore[i] / top), MIN_IID_LOGIT) if explore[i] > 0.0 else MIN_IID_LOGIT
        )
    return logits


@jit
def restrict_iid_distribution(rule: Any, state: IidState, view: View) -> tuple[Floats, Floats]:
    """q of a context over the available experts, and its running sums; an empty mask means all.

    If renormalising alone would break a bound in force, it is projected onto the bounds.
    """
    x, available, limits = view.context, view.available, view.limits
    if available.size == 0 and not view.narrow:
        return state.q[x], state.mass[x]
    theta = restrict_logits(state.theta[x], available).copy()
    explore = sampling.restrict_distribution(rule.explore, available)
    q, pi, mass = np.empty(theta.size), np.empty(theta.size), np.empty(theta.size)
    fill_softmax(pi, theta)
    mirror_ascent.fill_mixture(q, pi, rule.eps, explore)
    M = rule.draws
    rows = ConstraintRows(limits.means, get_request_bounds(limits))
    if is_outside_bounds(iid_sets.expected_panel_costs(q, rows.A, M), rows.b):
        lam = np.empty(rows.b.size)
        iid_limits.project_onto_tangents(theta, q, lam, rows, M, rule.eps, explore)
    sampling.fill_cumulative(q, mass)
    return q, mass


@jit_embedded
def add_set_score(gradients: Floats, ticket: Ticket, M: int, weight: float) -> None:
    """Add the score of the *set*: who was drawn, not how often.

    Among available experts it is taken along their simplex: as q.score = M, less M for each.
    """
    g, masses = borrow_row(gradients, ticket.context), scratch_floats(ticket.draws.size)
    n = sampling.fill_first(masses, ticket.draw_probabilities, ticket.draws)
    score = scratch_floats(n)
    iid_sets.fill_iid_set_score(score, masses[:n], M)
    n = 0
    for j in range(ticket.draws.size):
        if sampling.is_first_draw(ticket.draws, j):
            g[ticket.draws[j]] += weight * score[n]
            n += 1
    for i in range(ticket.available.size):
        if ticket.available[i]:
            g[i] -= weight * M


@jit_embedded
def draw_panel(rule: Any, state: IidState, view: View, rng: RngKey) -> tuple[Ints, Floats]:
    """M draws from q of the available experts."""
    if view.available.size > 0 or view.narrow:
        return draw_available(rule, state, view, rng)
    x = view.context
    return sampling.draw_iid(borrow_row(state.q, x), borrow_row(state.mass, x), rule.draws, rng)


@jit_apart
def draw_available(rule: Any, state: IidState, view: View, rng: RngKey) -> tuple[Ints, Floats]:
    """`draw_panel` where some are not available."""
    q, mass = restrict_iid_distribution(rule, state, view)
    return sampling.draw_iid(q, mass, rule.draws, rng)


def propose_iid(rule: Any, state: IidState, view: View, rng: RngKey) -> Proposal:
    """`propose`: a step every batch, then M draws."""
    x = view.context
    if state.visits[x] % rule.ascent.batch == 0 or view.begun:
        move_iid(rule, state, view.limits, x)
    state.visits[x] += 1
    draws, p = draw_panel(rule, state, view, rng)
    propensity = base.compute_iid_propensity(p, draws)
    return Proposal(draws, p, no_floats(), 1.0, 1.0, propensity, True)


def learn_iid(rule: Any, state: IidState, ticket: Ticket, feedback: Feedback) -> None:
    """`learn`: g += (r - baseline) score(A) / B, unless the guard replaced the panel."""
    x, reward = ticket.context, feedback.reward
    if not rule.ascent.monotone:
        update_member_belief(state.belief, x, ticket.draws, reward)
    if not ticket.replaced:
        based, centered = (
            state.gradient.based[x],
            mirror_ascent.center_reward(state.gradient, x, reward),
        )
        if based:
            note_reward(state.change, x, centered)
        add_set_score(state.gradient.g, ticket, rule.draws, centered / rule.ascent.batch)


def compute_iid_distribution(rule: Any, state: IidState, view: View) -> Floats:
    """`compute_distribution`: q."""
    q, _ = restrict_iid_distribution(rule, state, view)
    return q.copy()


def compute_iid_inclusion(rule: Any, state: IidState, view: View, ticket: Ticket) -> Floats:
    """`compute_inclusion`: 1 - (1 - q)^M, or the panel itself if the guard replaced the draw."""
    if ticket.replaced:
        return base.mark_members(ticket.draws, state.theta.shape[1])
    q, _ = restrict_iid_distribution(rule, state, view)
    return iid_sets.iid_inclusion(q, rule.draws)


def register_iid_steps(rule: type) -> None:
    """Register the steps of a policy of i.i.d. draws, which has a `project_iid` of its own."""
    step(base.propose, rule)(propose_iid)
    step(base.learn, rule)(learn_iid)
    step(base.compute_distribution, rule)(compute_iid_distribution)
    step(base.compute_inclusion, rule)(compute_iid_inclusion)


register_iid_steps(TangentRule)


class IidPolicy(mirror_ascent.AscentPolicy):
    """What the policies of i.i.d. draws share."""

    draws_iid = True

    def start(self, rule: Any, contexts: int = 1) -> IidState:
        """The exploration distribution in every context."""
        explore = rule.explore
        logits = np.log(np.maximum(explore / explore.max(), np.exp(MIN_IID_LOGIT)))
        return IidState(
            belief=make_member_belief(contexts, explore.size),
            change=make_change_test(contexts),
            theta=np.tile(logits, (contexts, 1)),
            q=np.tile(explore, (contexts, 1)),
            mass=np.tile(np.cumsum(explore), (contexts, 1)),
            **self.start_ascent(explore.size, rule.limits, contexts),
        )

    def is_valid_state(self, rule: Any, state: IidState) -> bool:
        return bool(
            super().is_valid_state(rule, state)
            and (state.theta <= 1e-9).all()
            and (state.q >= 0).all()
            and np.allclose(state.q.sum(axis=1), 1.0, atol=1e-9)
            and np.allclose(state.mass, np.cumsum(state.q, axis=1), atol=1e-9)
        )

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Recompute q from theta if the pool changed; else it stays until the next step."""
        rule, state = new.rule, new.state
        for x in () if has_same_pool(change.old, change.new) else np.flatnonzero(state.visits):
            theta, q, pi = state.theta[x], state.q[x], np.empty(rule.explore.size)
            mirror_ascent.clamp_logits(theta, theta.max(), MIN_IID_LOGIT, 0.0)
            fill_softmax(pi, theta)
            mirror_ascent.fill_mixture(q, pi, rule.eps, rule.explore)
            q /= q.sum()
            state.mass[x] = np.cumsum(q)
        super().finish_migration(change, old, new)


@dataclass(frozen=True)
class Tangent(IidPolicy):
    """Settings of `tangent`: those of `Distinct`, with the same defaults."""

    pace: float | None = DEFAULT_PACE
    guard: bool = field(default=True, kw_only=True)
    clip: bool = True

    name = "tangent"
    label = "tangent"
    summary = (
        "draws independently, so that a panel may have fewer members, and learns the probabilities"
    )

    def bind_limits(self, problem: Problem, horizon: int | None = None) -> LimitRule:
        """Return the limits for panels of one member or more."""
        check_iid_panels(self.name, problem)
        pace = Pace(self.pace, self.batch)
        return bind_limits(problem, horizon, 1, self.guard, pace, full=False)

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> TangentRule:
        limits = limits or self.bind_limits(problem, horizon)
        M = problem.draws
        margin, explore = iid_limits.find_iid_exploration(get_rows(limits), M, limits.margin)
        return TangentRule(
            draws=M,
            ascent=self.bind_ascent(math.log(max(2, problem.size)), clip=self.clip),
            eps=float(self.eps),
            explore=explore,
            margin=margin,
            limits=len(limits.rows),
        )

    def find_margin(self, rule: TangentRule, limits: LimitRule) -> float:
        """Return the margin of independent draws."""
        return rule.margin

    def prices(self, problem: Problem, rule: TangentRule, state: IidState) -> Floats:
        """Averaged multipliers; a tangent row is divided by M."""
        return state.multipliers.compute_prices(problem, problem.draws)
