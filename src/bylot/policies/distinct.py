"""distinct: M different experts, drawn as one set from a distribution moved by mirror ascent.

The distribution is conditional Poisson, P(A) ~ prod_{i in A} e^theta_i over |A| = M, mixed with a
little of the maximum-entropy distribution inside the limits. Its expected cost is linear in the
inclusion probabilities, so limits are rows of an entropic projection and need no surrogate. The
guard keeps the realised cost inside the limits.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bylot.distributions import FixedSizeSets, MixedSets
from bylot.limits.binding import Pace, bind_limits, check_full_panels, get_rows
from bylot.limits.guard import is_outside_bounds
from bylot.limits.pacing import (
    DEFAULT_PACE,
    get_context_bounds,
    get_request_bounds,
    loosen_bounds,
)
from bylot.limits.records import LimitRule, Limits
from bylot.limits.request import Proposal, Ticket, View
from bylot.limits.rows import solve_max_entropy
from bylot.numerics import conditional_poisson
from bylot.numerics.dispatch import step
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Floats, Ints, jit, jit_inline
from bylot.numerics.kl_projection import fill_covariance_diagonal, kl_project
from bylot.numerics.philox import RngKey, RngStream
from bylot.numerics.sampling import fill_first
from bylot.numerics.scratch_arrays import borrow_row, no_floats, scratch_floats, scratch_ints
from bylot.policies import base, mirror_ascent
from bylot.policies.base import BoundPolicy, Feedback, FeedbackKind
from bylot.policies.change_detection import CHANGE_EVIDENCE, detect_fall, note_reward, restart_sums
from bylot.policies.member_belief import (
    add_believed_slope,
    adopt_members,
    compare_recent,
    exchange_logits,
    forget_members,
    subtract_prediction,
)
from bylot.policies.set_distributions import (
    SetTables,
    borrow_tables,
    compute_mixture_costs,
    compute_mixture_propensity,
    draw_from_mixture,
    get_tables,
    make_tables,
    mix_inclusion,
    refresh_all_contexts,
    refresh_tables,
    restrict_tables,
)
from bylot.policies.shared_ascent import SharedAscent, make_shared_ascent, update_context_baseline
from bylot.problem import Problem
from bylot.problem.change import ProblemChange

NO_CHOICE_VARIANCE = 1e-12  # a smaller variance of being drawn means that there was no choice
MIN_PANEL_LOGIT, MAX_PANEL_LOGIT = -10.0, 8.0  # at the start of a step; the M-th largest is 0
DOUBT_BONUS = 1.0  # per standard deviation of what is believed about an expert
CONTEXT_STEP = 0.5  # length of a step of delta, relative to one of theta
MAX_CONTEXT_LOGIT = 8.0  # of delta
MAX_ABS_LOGIT = 1e100  # sums of larger logits could overflow


class DistinctRule(NamedTuple):
    draws: int  # M
    members: int  # m = min(M, K)
    ascent: mirror_ascent.AscentSettings
    eps: float  # share of the exploration distribution
    explore: SetTables
    limits: int  # d


class DistinctState(NamedTuple):
    """A row per context, and what all contexts share."""

    theta: Floats  # (X, K) of the last decision: shared.theta + delta
    delta: Floats  # (X, K)
    moved: Ints  # (X,) steps of shared.theta that theta has followed
    shared: SharedAscent
    table: Floats  # (X, K + 1, m + 1)
    coins: Floats  # (X, K)
    pi: Floats  # (X, K)
    log_z: Floats  # (X, 1)
    visits: Ints  # (X,)
    gradient: mirror_ascent.GradientState
    multipliers: mirror_ascent.MultiplierAverage


@jit_apart
def move_shared(rule: DistinctRule, state: DistinctState, limits: Limits) -> None:
    """One step of mirror ascent with the rewards of all contexts, projected onto the looser bounds.

    The gradient in the inclusion probabilities is Cov^-1 times that in theta, with
    Cov ~ diag c - c c' / sum c: on the tangent space it is g / c (`fill_covariance_diagonal`).
    c = pi (1 - pi), right for large sets only, would lead to a suboptimal point.
    """
    shared, m, ascent = state.shared, rule.members, rule.ascent
    theta, pi, slope = shared.theta[0], shared.inclusion[0], shared.gradient
    g, A, spread = slope.g[0], limits.means, np.empty(pi.size)
    fill_covariance_diagonal(spread, pi, m)
    for i in range(spread.size):
        if shared.counted[0] > 0:
            spread[i] = shared.spread[0, i] / shared.counted[0]
            shared.spread[0, i] = 0.0
        g[i] = g[i] / spread[i] if spread[i] > NO_CHOICE_VARIANCE else 0.0
    shared.counted[0] = 0
    miss, share = mirror_ascent.compute_miss(slope, 0), shared.change.arrived[0] / ascent.batch
    add_believed_slope(g, shared.belief, 0, miss, share, DOUBT_BONUS)
    mirror_ascent.update_baseline(slope, 0, ascent.memory)
    top = conditional_poisson.nth_largest(theta, m)
    mirror_ascent.clamp_logits(theta, top, MIN_PANEL_LOGIT, MAX_PANEL_LOGIT)
    s = mirror_ascent.take_ascent_step(theta, ascent, slope, 0, spread)
    prices = np.zeros(theta.size)
    mirror_ascent.fill_priced_costs(prices, state.multipliers, A)
    exchange_logits(theta, pi, shared.belief, 0, prices, miss)
    if detect_fall(shared.change, 0):
        forget_members(shared.recent, 0)
        forget_members(shared.belief, 0)
        forget_all(rule, state, mirror_ascent.KEPT_AFTER_FALL)
    elif shared.evidence[0] >= CHANGE_EVIDENCE:
        adopt_members(shared.belief, shared.recent)
        forget_all(rule, state, mirror_ascent.KEPT_AFTER_CHANGE)
    lam, loose = np.empty(limits.rows.size), loosen_bounds(limits)
    kl_project(theta, pi, lam, theta, A, loose, m, rule.eps, rule.explore.pi)
    mirror_ascent.add_multipliers(state.multipliers, lam, s)


@jit_apart
def forget_all(rule: DistinctRule, state: DistinctState, keep: float) -> None:
    """Start over, in all contexts; logits keep a part of what they had learned."""
    shared, theta, start = state.shared, state.shared.theta[0], rule.explore.theta
    top = conditional_poisson.nth_largest(theta, rule.members)
    for i in range(theta.size):
        theta[i] = start[i] + keep * (theta[i] - top - start[i])
    mirror_ascent.reset_gradient(shared.gradient, 0)
    shared.evidence[0] = 0.0
    restart_sums(shared.change, 0)
    for x in range(state.delta.shape[0]):
        mirror_ascent.reset_gradient(state.gradient, x)
        for i in range(theta.size):
            state.delta[x, i] *= keep


@jit_embedded
def follow_shared(rule: DistinctRule, state: DistinctState, limits: Limits, x: int) -> None:
    """Bring a context up to date: its own step if one is due, and what all have learned."""
    shared, pooled = state.shared, state.shared.contexts[0] > 1
    due, steps = state.visits[x] % rule.ascent.batch == 0, shared.decisions[0] // rule.ascent.batch
    if due or not state.gradient.based[x] or state.moved[x] != steps:
        update_context(rule, state, limits, x, due)
    if pooled:
        spread = np.empty(state.delta.shape[1])
        fill_covariance_diagonal(spread, state.pi[x], rule.members)
        for i in range(spread.size):
            shared.spread[0, i] += spread[i]
        shared.counted[0] += 1


@jit_apart
def update_context(
    rule: DistinctRule, state: DistinctState, limits: Limits, x: int, due: bool
) -> None:
    """`follow_shared`, if there is something to do."""
    shared, slope, pooled = state.shared, state.gradient, state.shared.contexts[0] > 1
    if due or not slope.based[x]:
        update_context_baseline(slope, x, shared.gradient, rule.ascent.memory)
    if due and pooled:
        move_context(rule, state, x)
    if due or state.moved[x] != shared.decisions[0] // rule.ascent.batch:
        for i in range(state.delta.shape[1]):
            state.theta[x, i] = shared.theta[0, i] + state.delta[x, i]
        refresh_tables(get_tables(state, x), rule.members)
        project_context(rule, state, limits, x, pooled)
        state.moved[x] = shared.decisions[0] // rule.ascent.batch


@jit
def move_context(rule: DistinctRule, state: DistinctState, x: int) -> None:
    """A step of delta by the rewards of its context, half as long."""
    g, delta, spread = state.gradient.g[x], state.delta[x], np.empty(state.delta.shape[1])
    fill_covariance_diagonal(spread, state.pi[x], rule.members)
    for i in range(spread.size):
        g[i] = g[i] / spread[i] if spread[i] > NO_CHOICE_VARIANCE else 0.0
    mirror_ascent.take_ascent_step(delta, rule.ascent, state.gradient, x, spread, CONTEXT_STEP)
    for i in range(spread.size):
        delta[i] = min(max(delta[i], -MAX_CONTEXT_LOGIT), MAX_CONTEXT_LOGIT)


@jit
def project_context(
    rule: DistinctRule, state: DistinctState, limits: Limits, x: int, pooled: bool
) -> None:
    """Project theta + delta onto the bounds in force; where contexts differ, delta keeps the
    correction.
    """
    here, A, b = get_tables(state, x), limits.means, get_context_bounds(limits, x)
    if is_outside_bounds(compute_mixture_costs(A, here, rule.explore, rule.eps), b):
        theta, lam = here.theta, np.empty(b.size)
        kl_project(theta, here.pi, lam, theta, A, b, rule.members, rule.eps, rule.explore.pi)
        if pooled:
            for i in range(theta.size):
                state.delta[x, i] = theta[i] - state.shared.theta[0, i]
        refresh_tables(here, rule.members)


@jit_inline
def find_available_distributions(
    rule: DistinctRule, state: DistinctState, view: View
) -> tuple[SetTables, SetTables, int]:
    """The learned and the exploration distribution over available experts, and the set size."""
    here, limits = get_tables(state, view.context), view.limits
    A, b = limits.means, get_request_bounds(limits)
    return restrict_tables(
        here, rule.explore, rule.members, rule.eps, A, b, view.available, view.narrow
    )


@step(base.propose, DistinctRule)
def propose_distinct(rule: DistinctRule, state: DistinctState, view: View, rng: RngKey) -> Proposal:
    """`propose`: a step every batch, then one set."""
    context, limits = view.context, view.limits
    if state.visits[context] == 0:
        state.shared.contexts[0] += 1
    if state.shared.decisions[0] % rule.ascent.batch == 0:
        move_shared(rule, state, limits)
    elif view.begun:
        state.moved[:] = -1  # every context follows the bounds of the new window
    follow_shared(rule, state, limits, context)
    state.visits[context] += 1
    state.shared.decisions[0] += 1
    if view.available.size > 0 or view.narrow:
        return propose_available(rule, state, view, rng)
    return draw_one_set(borrow_tables(state, context), rule.explore, rule.eps, rule.members, rng)


@jit_apart
def propose_available(
    rule: DistinctRule, state: DistinctState, view: View, rng: RngKey
) -> Proposal:
    """Draw a set where some experts are not available, or the request has its own bounds."""
    learned, explore, m = find_available_distributions(rule, state, view)
    return draw_one_set(learned, explore, rule.eps, m, rng)


@jit_embedded
def draw_one_set(
    learned: SetTables, explore: SetTables, eps: float, m: int, rng: RngKey
) -> Proposal:
    """Draw a set of m members, with its probability."""
    members = draw_from_mixture(learned, explore, eps, m, rng)
    propensity, weight = compute_mixture_propensity(members, learned, explore, eps)
    return Proposal(members, no_floats(), learned.pi.copy(), 1.0, weight, propensity, True)


@step(base.learn, DistinctRule)
def learn_distinct(
    rule: DistinctRule, state: DistinctState, ticket: Ticket, feedback: Feedback
) -> None:
    """`learn`: g += w (r - baseline - prediction) score(A) / B, unless the guard replaced it."""
    learn_panel(rule, state, ticket, feedback.reward)


@jit_embedded
def learn_panel(rule: DistinctRule, state: DistinctState, ticket: Ticket, reward: float) -> None:
    """Learn from a reward in its context, and for all of them."""
    shared, x, slope = state.shared, ticket.context, state.gradient
    compare_recent(shared.recent, shared.evidence, shared.belief, ticket.draws, reward)
    if not ticket.replaced:
        members = scratch_ints(ticket.draws.size)
        members = members[: fill_first(members, ticket.draws, ticket.draws)]
        shared.gradient.rewards[0] += 1.0
        shared.gradient.total[0] += reward
        based, centered = slope.based[x], mirror_ascent.center_reward(slope, x, reward)
        if based:  # the first rewards of all only make a baseline
            note_reward(shared.change, 0, centered)
            left = subtract_prediction(shared.belief, 0, members, ticket.inclusion, centered)
            weight = ticket.weight * left / rule.ascent.batch
            add_panel_score(shared.gradient.g, 0, members, ticket.inclusion, weight)
            if shared.contexts[0] > 1:
                weight = ticket.weight * centered / rule.ascent.batch
                add_panel_score(slope.g, x, members, ticket.inclusion, weight)


@jit
def add_panel_score(gradients: Floats, x: int, members: Ints, pi: Floats, weight: float) -> None:
    """g_i += weight (1[i in A] - pi_i), the score in theta of the distribution that was drawn from.

    `move_shared` and `move_context` convert it by the covariance of what they move.
    """
    g, before = borrow_row(gradients, x), scratch_floats(members.size)
    for j in range(members.size):
        before[j] = g[members[j]]
    for i in range(g.size):
        if pi[i] * (1.0 - pi[i]) > NO_CHOICE_VARIANCE:
            g[i] += weight * -pi[i]
    for j in range(members.size):
        i = members[j]
        if pi[i] * (1.0 - pi[i]) > NO_CHOICE_VARIANCE:
            g[i] = before[j] + weight * (-pi[i] + 1.0)


@jit_inline
def compute_available_inclusion(rule: DistinctRule, state: DistinctState, view: View) -> Floats:
    """The inclusion probabilities of the mixture over the available experts."""
    learned, explore, _ = find_available_distributions(rule, state, view)
    return mix_inclusion(learned, explore, rule.eps)


@step(base.compute_distribution, DistinctRule)
def compute_distinct_distribution(rule: DistinctRule, state: DistinctState, view: View) -> Floats:
    """`compute_distribution`: inclusion probabilities over their sum."""
    return base.compute_shares(compute_available_inclusion(rule, state, view))


@step(base.compute_inclusion, DistinctRule)
def compute_distinct_inclusion(
    rule: DistinctRule, state: DistinctState, view: View, ticket: Ticket
) -> Floats:
    """`compute_inclusion`: of the mixture, or the panel itself if the guard replaced the draw."""
    if ticket.replaced:
        return base.mark_members(ticket.draws, state.theta.shape[1])
    return compute_available_inclusion(rule, state, view)


@dataclass(frozen=True)
class Distinct(mirror_ascent.AscentPolicy):
    """Settings of `distinct`; one default for every pool.

    eta:      step size, in units of what a regret bound would have
    patience: batches that count as seen before the first, so that early steps are short
    batch:    decisions between two steps, and decisions of a context between two of its own
    eps:      share of the exploration distribution in every draw
    pace:     factor by which bounds in force may exceed the limits after cheap rounds; 1 keeps
              every round inside the limits in expectation, None keeps the bounds fixed
    guard:    replace panels after which the limits could not be guaranteed
    clip:     let no step change a logit by more than 1
    """

    pace: float | None = DEFAULT_PACE
    guard: bool = field(default=True, kw_only=True)
    clip: bool = True

    name = "distinct"
    label = "distinct"
    summary = "draws panels of different experts and learns how often to ask each"
    streams = (RngStream.COIN, RngStream.PANEL)
    draws_sets = True
    derived = ("table", "coins", "pi", "log_z")

    def bind_limits(self, problem: Problem, horizon: int | None = None) -> LimitRule:
        """Return the limits for full panels."""
        members = check_full_panels(problem, self.name)
        return bind_limits(problem, horizon, members, self.guard, Pace(self.pace, self.batch))

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> DistinctRule:
        limits = limits or self.bind_limits(problem, horizon)
        members = limits.fewest
        theta, _ = solve_max_entropy(get_rows(limits), members, limits.margin)
        K, m = problem.size, members
        entropy = math.lgamma(K + 1) - math.lgamma(m + 1) - math.lgamma(K - m + 1)  # log C(K, m)
        return DistinctRule(
            draws=problem.draws,
            members=members,
            ascent=self.bind_ascent(entropy, clip=self.clip),
            eps=float(self.eps),
            explore=make_tables(theta - np.sort(theta)[-members], members),
            limits=len(limits.rows),
        )

    def start(self, rule: DistinctRule, contexts: int = 1) -> DistinctState:
        """The exploration distribution in every context."""
        explore = rule.explore
        return DistinctState(
            theta=np.tile(explore.theta, (contexts, 1)),
            delta=np.zeros((contexts, explore.theta.size)),
            moved=np.zeros(contexts, np.int64),
            shared=make_shared_ascent(explore.theta, explore.pi),
            table=np.tile(explore.table, (contexts, 1, 1)),
            coins=np.tile(explore.coins, (contexts, 1)),
            pi=np.tile(explore.pi, (contexts, 1)),
            log_z=np.tile(explore.log_z, (contexts, 1)),
            **self.start_ascent(explore.theta.size, rule.limits, contexts),
        )

    def is_valid_state(self, rule: DistinctRule, state: DistinctState) -> bool:
        return bool(
            super().is_valid_state(rule, state)
            and (np.abs(state.theta) < MAX_ABS_LOGIT).all()
            and ((state.pi >= 0) & (state.pi <= 1)).all()
            and np.allclose(state.pi.sum(axis=1), rule.members)
        )

    def derive(self, rule: DistinctRule, state: DistinctState) -> None:
        tables = SetTables(state.theta, state.table, state.coins, state.pi, state.log_z)
        refresh_all_contexts(tables, rule.members)

    def distribution(self, rule: DistinctRule, state: DistinctState, view: View) -> MixedSets:
        """The mixture of the learned and the exploration distribution."""
        learned, explore, m = find_available_distributions(rule, state, view)
        parts = tuple(FixedSizeSets(one.theta.copy(), int(m)) for one in (learned, explore))
        return MixedSets(parts, np.array([1.0 - rule.eps, rule.eps]))

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Compute what follows from theta, and let a step be due at once."""
        self.derive(new.rule, new.state)
        shared = new.state.shared
        shared.inclusion[0] = make_tables(shared.theta[0].copy(), new.rule.members).pi
        base.round_up_visits(shared.decisions, new.rule.ascent.batch)
        super().finish_migration(change, old, new)
