"""tangent: M i.i.d. draws from q = (1 - eps) softmax(theta) + eps f0, as in the paper.

It learns by mirror ascent in the entropy, with the score of the drawn *set* as its gradient, and
projects its steps onto tangents of the exact expected costs. It is paced and guarded. Another
policy of i.i.d. draws can share all but the projection: `bylot_paper.policies.strict` does.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylot.limits.budget import Budget, Guard, get_mean_rows
from bylot.limits.guard import bind_guard, forecast_shortfall, guard_panel, is_outside_bounds
from bylot.limits.pacing import DEFAULT_PACE, Pace, fill_paced_bounds, make_pace
from bylot.limits.rows import ConstraintRows
from bylot.numerics import iid_sets, sampling
from bylot.numerics.conditional_poisson import fill_softmax, restrict_logits
from bylot.numerics.dispatch import dispatch_by_type, step
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import RngKey
from bylot.numerics.scratch_arrays import borrow_row, scratch_floats
from bylot.numerics.set_selection import fill_draws_from_set
from bylot.policies import base, iid_limits, mirror_ascent
from bylot.policies.base import Feedback, FeedbackKind, Ticket
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
from bylot.problem.change import BoundPolicy, ProblemChange, has_same_pool

IID_DOUBT_BONUS = 0.5  # per standard deviation of what is believed about an expert
MIN_IID_LOGIT = -10.0  # of theta at the start of a step, whose largest is 0


class TangentRule(NamedTuple):
    draws: int  # M
    ascent: mirror_ascent.AscentSettings
    eps: float  # share of the exploration distribution
    explore: Floats  # (K,) f0
    pace: Pace
    guard: Guard


class IidState(NamedTuple):
    """A row per context, and the shared budget."""

    theta: Floats  # (X, K)
    q: Floats  # (X, K)
    mass: Floats  # (X, K) running sums of q, which draws are looked up in
    visits: Ints  # (X,)
    gradient: mirror_ascent.GradientState
    belief: MemberBelief  # not used if steps only get shorter
    change: ChangeTest  # not used if steps only get shorter
    multipliers: mirror_ascent.MultiplierAverage
    budget: Budget
    bounds: Floats  # (d,) in force


def project_iid(rule: Any, state: Any, x: int, multipliers: Floats) -> None:
    """Project theta and q of a context onto the constraint of the rule, and write multipliers.

    Compiled code picks the body by the type of the rule.
    """
    raise NotImplementedError("compiled code only")


dispatch_by_type(project_iid)


@step(project_iid, TangentRule)
def project_tangent(rule: TangentRule, state: IidState, x: int, multipliers: Floats) -> None:
    """`project_iid`: onto tangents of the bounds in force."""
    rows = ConstraintRows(get_mean_rows(rule.guard, state.budget), state.bounds)
    fill_paced_bounds(rows.b, rule.guard, state.budget, rule.pace)
    iid_limits.project_onto_tangents(
        state.theta[x], state.q[x], multipliers, rows, rule.draws, rule.eps, rule.explore
    )


@jit_apart
def move_iid(rule: Any, state: IidState, x: int) -> None:
    """One step of mirror ascent, projected onto the constraint."""
    theta, q = state.theta[x], state.q[x]
    mirror_ascent.update_baseline(state.gradient, x, rule.ascent.memory)
    mirror_ascent.clamp_logits(theta, theta.max(), MIN_IID_LOGIT, 0.0)
    if not rule.ascent.monotone:
        add_doubt(rule, state, x)
    s = mirror_ascent.take_ascent_step(theta, rule.ascent, state.gradient, x, q)
    if not rule.ascent.monotone:
        correct_course(rule, state, x)
    lam = np.empty(state.bounds.size)
    project_iid(rule, state, x, lam)
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
def correct_course(rule: Any, state: IidState, x: int) -> None:
    """Ask a better expert in the place of another, and start over after a fall of rewards."""
    theta, slope, prices = state.theta[x], state.gradient, np.zeros(state.theta.shape[1])
    A, miss = get_mean_rows(rule.guard, state.budget), mirror_ascent.compute_miss(slope, x)
    mirror_ascent.fill_priced_costs(prices, state.multipliers, A)
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
def restrict_iid_distribution(
    rule: Any, state: IidState, x: int, available: Bools
) -> tuple[Floats, Floats]:
    """q of a context over the available experts, and its running sums; an empty mask means all.

    If renormalising alone would break a bound in force, it is projected onto the bounds.
    """
    if available.size == 0:
        return state.q[x], state.mass[x]
    theta = restrict_logits(state.theta[x], available)
    explore = sampling.restrict_distribution(rule.explore, available)
    q, pi, mass = np.empty(theta.size), np.empty(theta.size), np.empty(theta.size)
    fill_softmax(pi, theta)
    mirror_ascent.fill_mixture(q, pi, rule.eps, explore)
    A, M = get_mean_rows(rule.guard, state.budget), rule.draws
    rows = ConstraintRows(A, state.bounds)
    if is_outside_bounds(iid_sets.expected_panel_costs(q, rows.A, M), rows.b):
        lam = np.empty(rows.b.size)
        iid_limits.project_onto_tangents(theta, q, lam, rows, M, rule.eps, explore)
    sampling.fill_cumulative(q, mass)
    return q, mass


@jit
def replace_draws(panel: sampling.IidDraws, members: Ints) -> None:
    """Write the guard's panel into the draws; its members have probability 1."""
    fill_draws_from_set(panel.draws, members)
    for k in range(panel.probabilities.size):
        panel.probabilities[k] = 1.0


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
def draw_panel(
    rule: Any, state: IidState, x: int, rng: RngKey, available: Bools
) -> tuple[sampling.IidDraws, bool]:
    """M draws, and whether panels of the available experts would miss a limit."""
    if available.size > 0 or state.budget.alarm[0]:  # else there is nothing to forecast or clear
        return draw_available(rule, state, x, rng, available)
    q, mass = borrow_row(state.q, x), borrow_row(state.mass, x)
    return sampling.draw_iid(q, mass, rule.draws, rng), False


@jit_apart
def draw_available(
    rule: Any, state: IidState, x: int, rng: RngKey, available: Bools
) -> tuple[sampling.IidDraws, bool]:
    """`draw_panel` where some are not available, or were not."""
    q, mass = restrict_iid_distribution(rule, state, x, available)
    costs = state.bounds
    if available.size > 0:
        A = get_mean_rows(rule.guard, state.budget)
        costs = iid_sets.expected_panel_costs(q, A, rule.draws)
    short = forecast_shortfall(rule.guard, state.budget, costs, state.bounds)
    return sampling.draw_iid(q, mass, rule.draws, rng), short


def decide_iid(rule: Any, state: IidState, context: int, rng: RngKey, available: Bools) -> Ticket:
    """`decide`: a step every batch, then M draws, or the guard's panel in their place."""
    if state.visits[context] % rule.ascent.batch == 0 or state.budget.windows.begun[0]:
        move_iid(rule, state, context)
    state.visits[context] += 1
    panel, short = draw_panel(rule, state, context, rng, available)
    admitted = guard_panel(rule.guard, state.budget, panel.draws, available)
    replaced, propensity = admitted.replaced, 1.0
    if replaced:
        replace_draws(panel, admitted.members)
    else:
        propensity = base.compute_iid_propensity(panel.probabilities, panel.draws)
    kept, none = admitted.kept and not short, state.bounds[:0]
    draws, p = panel.draws, panel.probabilities
    return Ticket(rng.t, context, draws, p, none, available, 1.0, kept, propensity, 1.0, replaced)


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


def compute_iid_distribution(rule: Any, state: IidState, context: int, available: Bools) -> Floats:
    """`compute_distribution`: q."""
    q, _ = restrict_iid_distribution(rule, state, context, available)
    return q.copy()


def compute_iid_inclusion(rule: Any, state: IidState, ticket: Ticket) -> Floats:
    """`compute_inclusion`: 1 - (1 - q)^M, or the panel itself if the guard replaced the draw."""
    if ticket.replaced:
        return base.mark_members(ticket.draws, state.theta.shape[1])
    q, _ = restrict_iid_distribution(rule, state, ticket.context, ticket.available)
    return iid_sets.iid_inclusion(q, rule.draws)


def register_iid_steps(rule: type) -> None:
    """Register the steps of a policy of i.i.d. draws; its rule has a `project_iid` of its own."""
    step(base.decide, rule)(decide_iid)
    step(base.learn, rule)(learn_iid)
    mirror_ascent.register_budget(rule)
    step(base.compute_distribution, rule)(compute_iid_distribution)
    step(base.compute_inclusion, rule)(compute_iid_inclusion)


register_iid_steps(TangentRule)


class IidPolicy(mirror_ascent.AscentPolicy):
    """What the policies of i.i.d. draws share."""

    draws_iid = True

    def start(self, rule: Any, contexts: int = 1) -> IidState:
        """The exploration distribution in every context, and a period with nothing spent."""
        explore = rule.explore
        logits = np.log(np.maximum(explore / explore.max(), np.exp(MIN_IID_LOGIT)))
        return IidState(
            belief=make_member_belief(contexts, explore.size),
            change=make_change_test(contexts),
            theta=np.tile(logits, (contexts, 1)),
            q=np.tile(explore, (contexts, 1)),
            mass=np.tile(np.cumsum(explore), (contexts, 1)),
            **self.start_ascent(rule.guard, contexts),
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
    guard: bool = True
    clip: bool = True

    name = "tangent"
    label = "tangent"
    summary = (
        "draws independently, so that a panel may have fewer members, and learns the probabilities"
    )

    def bind(
        self, problem: Problem, horizon: int | None = None, feedback: FeedbackKind = "panel"
    ) -> TangentRule:
        check_iid_panels(self.name, problem)
        M, entropy = problem.draws, math.log(max(2, problem.size))
        guard, margin = bind_guard(problem, horizon, fewest=1, on=self.guard)
        margin, explore = iid_limits.find_iid_exploration(guard.rows, M, margin)
        return TangentRule(
            draws=M,
            ascent=self.bind_ascent(entropy, clip=self.clip),
            eps=float(self.eps),
            explore=explore,
            pace=make_pace(self.pace, margin, guard.A, min(M, problem.size), full=False),
            guard=guard,
        )

    def prices(self, problem: Problem, rule: TangentRule, state: IidState) -> Floats:
        """Averaged multipliers; a tangent row is divided by M."""
        return state.multipliers.compute_prices(problem, problem.draws)
