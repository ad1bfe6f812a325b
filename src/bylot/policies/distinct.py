"""distinct: M different experts, drawn as one set from a distribution moved by mirror ascent.

The distribution is conditional Poisson, P(A) ~ prod_{i in A} e^theta_i over |A| = M, mixed with a
little of the maximum-entropy distribution inside the limits. Its expected cost is linear in the
inclusion probabilities, so limits are rows of an entropic projection and need no surrogate. The
guard keeps the realised cost inside the limits.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylot.distributions import FixedSizeSets, MixedSets
from bylot.numerics import conditional_poisson
from bylot.numerics.iid_sets import add_expected_costs
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.kl_projection import fill_covariance_diagonal, kl_project
from bylot.numerics.philox import COIN_STREAM, PANEL_STREAM, RngKey, RngStream, draw_uniforms
from bylot.numerics.set_selection import count_available, fill_draws_from_set
from bylot.policies import base, mirror_ascent
from bylot.policies.base import BoundPolicy, Feedback, FeedbackKind, ProblemChange, Ticket, step
from bylot.policies.budget import (
    DEFAULT_PACE,
    Budget,
    Guard,
    Pace,
    fill_paced_bounds,
    get_mean_rows,
    make_pace,
)
from bylot.policies.constraint_rows import ConstraintRows, solve_max_entropy
from bylot.policies.guard import (
    bind_guard,
    check_full_panels,
    forecast_shortfall,
    guard_panel,
    is_outside_bounds,
)
from bylot.problem import Problem

NO_CHOICE_VARIANCE = 1e-12  # a smaller variance of being drawn means that there was no choice
MIN_PANEL_LOGIT, MAX_PANEL_LOGIT = -10.0, 8.0  # at the start of a step; the M-th largest is 0
MAX_EXPONENT = 700.0  # exp of it is still finite
MAX_ABS_LOGIT = 1e100  # sums of larger logits could overflow


class SetTables(NamedTuple):
    """A distribution of sets of m experts, and the tables that draws and probabilities need."""

    theta: Floats  # (K,)
    table: Floats  # (K + 1, m + 1)
    coins: Floats  # (K,)
    pi: Floats  # (K,) inclusion probabilities
    log_z: Floats  # one number


class DistinctRule(NamedTuple):
    draws: int  # M
    members: int  # m = min(M, K)
    ascent: mirror_ascent.AscentSettings
    eps: float  # share of the exploration distribution
    explore: SetTables
    pace: Pace
    guard: Guard


class DistinctState(NamedTuple):
    """A row per context, and the shared budget."""

    theta: Floats  # (X, K)
    table: Floats  # (X, K + 1, m + 1)
    coins: Floats  # (X, K)
    pi: Floats  # (X, K)
    log_z: Floats  # (X, 1)
    visits: Ints  # (X,)
    gradient: mirror_ascent.GradientState
    multipliers: mirror_ascent.MultiplierAverage
    budget: Budget
    bounds: Floats  # (d,) in force


@jit
def refresh_tables(tables: SetTables, m: int) -> None:
    """Compute what follows from theta."""
    table, coins = tables.table, tables.coins
    tables.log_z[0] = conditional_poisson.fill_count_table(table, coins, tables.theta, m)
    conditional_poisson.fill_inclusion(tables.pi, table, coins, m)


@jit
def make_tables(theta: Floats, m: int) -> SetTables:
    """A distribution with all that follows from its theta."""
    K = theta.size
    made = SetTables(theta, np.empty((K + 1, m + 1)), np.empty(K), np.empty(K), np.empty(1))
    refresh_tables(made, m)
    return made


@jit_inline
def get_tables(state: Any, x: int) -> SetTables:
    """The distribution of a context: views into the state."""
    return SetTables(state.theta[x], state.table[x], state.coins[x], state.pi[x], state.log_z[x])


@jit
def refresh_all_contexts(tables: SetTables, m: int) -> None:
    """Compute what follows from theta in every context: arrays have an axis more, of contexts."""
    for x in range(tables.theta.shape[0]):
        refresh_tables(get_tables(tables, x), m)


@jit
def move_distinct(
    here: SetTables,
    gradient: mirror_ascent.GradientState,
    multipliers: mirror_ascent.MultiplierAverage,
    x: int,
    m: int,
    ascent: mirror_ascent.AscentSettings,
    rows: ConstraintRows,
    eps: float,
    p0: Floats,
) -> None:
    """One step of mirror ascent, projected onto the bounds in force.

    The gradient in the inclusion probabilities is Cov^-1 times that in theta, with
    Cov ~ diag c - c c' / sum c: on the tangent space it is g / c (`fill_covariance_diagonal`).
    c = pi (1 - pi), right for large sets only, would lead to a suboptimal point.
    """
    theta, pi = here.theta, here.pi
    spread, g, lam = np.empty(pi.size), gradient.g[x], np.empty(rows.b.size)
    fill_covariance_diagonal(spread, pi, m)
    for i in range(spread.size):
        g[i] = g[i] / spread[i] if spread[i] > NO_CHOICE_VARIANCE else 0.0
    top = conditional_poisson.nth_largest(theta, m)
    mirror_ascent.clamp_logits(theta, top, MIN_PANEL_LOGIT, MAX_PANEL_LOGIT)
    s = mirror_ascent.take_ascent_step(theta, ascent, gradient, x, spread)
    kl_project(theta, pi, lam, theta, rows.A, rows.b, m, eps, p0)
    mirror_ascent.add_multipliers(multipliers, lam, s)
    refresh_tables(here, m)


@jit
def mix_inclusion(learned: SetTables, explore: SetTables, eps: float) -> Floats:
    """The inclusion probabilities of the mixture, (1 - eps) pi + eps p_0."""
    p = np.empty(learned.pi.size)
    mirror_ascent.fill_mixture(p, learned.pi, eps, explore.pi)
    return p


@jit
def compute_mixture_costs(A: Floats, learned: SetTables, explore: SetTables, eps: float) -> Floats:
    """The expected cost of a panel of the mixture under each row."""
    costs = np.zeros(A.shape[0])
    add_expected_costs(costs, A, mix_inclusion(learned, explore, eps))
    return costs


@jit_inline
def find_available_distributions(
    rule: DistinctRule, state: DistinctState, x: int, available: Bools
) -> tuple[SetTables, SetTables, int]:
    """The learned and the exploration distribution over available experts, and the set size."""
    here, b = get_tables(state, x), state.bounds
    A = get_mean_rows(rule.guard, state.budget)
    return restrict_tables(here, rule.explore, rule.members, rule.eps, A, b, available)


@jit
def restrict_tables(
    here: SetTables, explore: SetTables, m: int, eps: float, A: Floats, b: Floats, available: Bools
) -> tuple[SetTables, SetTables, int]:
    """Restrict two distributions to the available experts; an empty mask stands for all.

    If renormalising alone would break a bound in force, the former is projected onto the bounds.
    """
    if available.size == 0:
        return here, explore, m
    m = min(m, count_available(available))
    here = make_tables(conditional_poisson.restrict_logits(here.theta, available), m)
    explore = make_tables(conditional_poisson.restrict_logits(explore.theta, available), m)
    if is_outside_bounds(compute_mixture_costs(A, here, explore, eps), b):
        theta, lam = here.theta, np.empty(b.size)
        kl_project(theta, here.pi, lam, theta, A, b, m, eps, explore.pi)
        refresh_tables(here, m)
    return here, explore, m


@jit_inline
def forecast_distinct(
    rule: DistinctRule, state: DistinctState, learned: SetTables, explore: SetTables, some: bool
) -> bool:
    """Would panels of these distributions miss a limit? Only asked if only `some` are available."""
    short = False
    if some or state.budget.alarm[0]:  # else there is nothing to forecast or clear
        costs = state.bounds
        if some:
            A = get_mean_rows(rule.guard, state.budget)
            costs = compute_mixture_costs(A, learned, explore, rule.eps)
        short = forecast_shortfall(rule.guard, state.budget, costs, state.bounds)
    return short


@jit_inline
def draw_from_mixture(here: SetTables, explore: SetTables, eps: float, m: int, rng: RngKey) -> Ints:
    """A set from the exploration distribution with probability eps, else from the learned one."""
    if draw_uniforms(rng, COIN_STREAM, 1)[0] < eps:
        members = conditional_poisson.draw_set(explore.table, explore.coins, m, rng, PANEL_STREAM)
    else:
        members = conditional_poisson.draw_set(here.table, here.coins, m, rng, PANEL_STREAM)
    return members


@jit_inline
def compute_mixture_propensity(
    members: Ints, here: SetTables, explore: SetTables, eps: float
) -> tuple[float, float]:
    """P(A) = (1 - eps) P_learned(A) + eps P_0(A), and the weight P_learned(A) / P(A).

    In logarithms: one of many sets may have a probability that is too small for a float.
    """
    ours = conditional_poisson.log_fixed_set_probability(members, here.theta, here.log_z[0])
    other = conditional_poisson.log_fixed_set_probability(members, explore.theta, explore.log_z[0])
    weight = 1.0 / ((1.0 - eps) + eps * math.exp(min(other - ours, MAX_EXPONENT)))
    return max(math.exp(ours - math.log(weight)), base.MIN_PROPENSITY), weight


@step(base.decide, DistinctRule)
def decide_distinct(
    rule: DistinctRule, state: DistinctState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: a step every batch, then one set, or the guard's panel in its place."""
    if state.visits[context] % rule.ascent.batch == 0:
        fill_paced_bounds(state.bounds, rule.guard, state.budget, rule.pace)
        here, A = get_tables(state, context), get_mean_rows(rule.guard, state.budget)
        rows = ConstraintRows(A, state.bounds)
        g, average, m, p0 = state.gradient, state.multipliers, rule.members, rule.explore.pi
        move_distinct(here, g, average, context, m, rule.ascent, rows, rule.eps, p0)
    state.visits[context] += 1
    learned, explore, m = find_available_distributions(rule, state, context, available)
    short = forecast_distinct(rule, state, learned, explore, available.size > 0)
    members = draw_from_mixture(learned, explore, rule.eps, m, rng)
    propensity, weight = compute_mixture_propensity(members, learned, explore, rule.eps)
    panel = guard_panel(rule.guard, state.budget, members, available)  # drawn, or the schedule's
    draws, pi = np.empty(rule.draws, np.int64), learned.pi.copy()
    fill_draws_from_set(draws, panel.members)
    none, kept, p = np.empty(0), panel.kept and not short, 1.0 if panel.replaced else propensity
    return Ticket(rng.t, context, draws, none, pi, available, 1.0, kept, p, weight, panel.replaced)


mirror_ascent.register_settlement(DistinctRule)


@step(base.learn, DistinctRule)
def learn_distinct(
    rule: DistinctRule, state: DistinctState, ticket: Ticket, feedback: Feedback
) -> None:
    """`learn`: g += w (r - baseline) score(A) / B, unless the guard replaced the panel."""
    x = ticket.context
    if not ticket.replaced:
        centered = mirror_ascent.center_reward(state.gradient, x, feedback.reward)
        weight = ticket.weight * centered / rule.ascent.batch
        members = base.select_first(ticket.draws, ticket.draws)
        add_panel_score(state.gradient.g[x], members, ticket.inclusion, weight)


@jit
def add_panel_score(g: Floats, draws: Ints, pi: Floats, weight: float) -> None:
    """g_i += weight (1[i in A] - pi_i), the score in theta of the distribution that was drawn from.

    `move_distinct` converts it by the covariance of the distribution that moves.
    """
    score = np.empty(g.size)
    conditional_poisson.fill_fixed_set_score(score, draws, pi)
    for i in range(g.size):
        if pi[i] * (1.0 - pi[i]) > NO_CHOICE_VARIANCE:
            g[i] += weight * score[i]


@jit_inline
def compute_available_inclusion(
    rule: DistinctRule, state: DistinctState, x: int, available: Bools
) -> Floats:
    """The inclusion probabilities of the mixture over the available experts."""
    learned, explore, _ = find_available_distributions(rule, state, x, available)
    return mix_inclusion(learned, explore, rule.eps)


@step(base.compute_distribution, DistinctRule)
def compute_distinct_distribution(
    rule: DistinctRule, state: DistinctState, context: int, available: Bools
) -> Floats:
    """`compute_distribution`: inclusion probabilities over their sum."""
    return base.compute_shares(compute_available_inclusion(rule, state, context, available))


@step(base.compute_inclusion, DistinctRule)
def compute_distinct_inclusion(rule: DistinctRule, state: DistinctState, ticket: Ticket) -> Floats:
    """`compute_inclusion`: of the mixture, or the panel itself if the guard replaced the draw."""
    if ticket.replaced:
        return base.mark_members(ticket.draws, state.theta.shape[1])
    return compute_available_inclusion(rule, state, ticket.context, ticket.available)


@dataclass(frozen=True)
class Distinct(mirror_ascent.AscentPolicy):
    """Settings of `distinct`; one default for every pool.

    eta:      step size, in units of what a regret bound would have
    patience: batches that count as seen before the first, so that early steps are short
    batch:    decisions of a context between two steps
    eps:      share of the exploration distribution in every draw
    pace:     factor by which bounds in force may exceed the limits after cheap rounds; 1 keeps
              every round inside the limits in expectation, None keeps the bounds fixed
    guard:    replace panels after which the limits could not be guaranteed
    clip:     let no step change a logit by more than 1
    """

    pace: float | None = DEFAULT_PACE
    guard: bool = True
    clip: bool = True

    name = "distinct"
    label = "distinct"
    summary = "draws panels of different experts and learns how often to ask each"
    streams = (RngStream.COIN, RngStream.PANEL)
    draws_sets = True
    derived = ("table", "coins", "pi", "log_z", *mirror_ascent.AscentPolicy.derived)

    def bind(
        self, problem: Problem, horizon: int | None = None, feedback: FeedbackKind = "panel"
    ) -> DistinctRule:
        members = check_full_panels(problem, self.name)
        guard, margin = bind_guard(problem, horizon, fewest=members, on=self.guard)
        theta, _ = solve_max_entropy(guard.rows, members, margin)
        K, m = problem.size, members
        entropy = math.lgamma(K + 1) - math.lgamma(m + 1) - math.lgamma(K - m + 1)  # log C(K, m)
        return DistinctRule(
            draws=problem.draws,
            members=members,
            ascent=self.bind_ascent(entropy, clip=self.clip),
            eps=float(self.eps),
            explore=make_tables(theta - np.sort(theta)[-members], members),
            pace=make_pace(self.pace, margin, guard.A, members, full=True),
            guard=guard,
        )

    def start(self, rule: DistinctRule, contexts: int = 1) -> DistinctState:
        """The exploration distribution in every context, and a period with nothing spent."""
        explore = rule.explore
        return DistinctState(
            theta=np.tile(explore.theta, (contexts, 1)),
            table=np.tile(explore.table, (contexts, 1, 1)),
            coins=np.tile(explore.coins, (contexts, 1)),
            pi=np.tile(explore.pi, (contexts, 1)),
            log_z=np.tile(explore.log_z, (contexts, 1)),
            **self.start_ascent(rule.guard, contexts),
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
        super().derive(rule, state)

    def distribution(
        self, rule: DistinctRule, state: DistinctState, context: int, available: Bools
    ) -> MixedSets:
        """The mixture of the learned and the exploration distribution."""
        learned, explore, m = find_available_distributions(rule, state, context, available)
        parts = tuple(FixedSizeSets(one.theta.copy(), int(m)) for one in (learned, explore))
        return MixedSets(parts, np.array([1.0 - rule.eps, rule.eps]))

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Compute what follows from theta, and continue the period."""
        self.derive(new.rule, new.state)
        super().finish_migration(change, old, new)
