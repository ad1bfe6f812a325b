"""distinct: exactly M different experts, drawn as one set from a law that mirror ascent moves.

The law is conditional Poisson, P(A) ~ prod_{i in A} e^theta_i over |A| = M, mixed with a little of
the mildest law inside the limits. Its expected cost is linear in the chances to be drawn, so that
limits are rows of an entropic projection and need no stand-in. The guard sees to what is realised.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.conditional_poisson import (
    draw_set,
    fill_count_table,
    fill_fixed_set_score,
    fill_inclusion,
    log_fixed_set_probability,
    nth_largest,
    restrict_logits,
)
from bylot.numerics.inclusion import add_expected_costs
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.kl_projection import fill_covariance_diagonal, kl_project
from bylot.numerics.philox import COIN_STREAM, SET_STREAM, RngKey, draw_uniforms
from bylot.numerics.set_selection import fill_draws_from_set
from bylot.policies import budget, mirror_ascent
from bylot.policies.base import (
    MIN_PROPENSITY,
    Ticket,
    compute_distribution,
    compute_inclusion,
    decide,
    learn,
    make_set_ticket,
    step,
)
from bylot.policies.budget import DEFAULT_PACE, Pace, fill_paced_bounds, is_valid_budget, make_pace
from bylot.policies.constraint_rows import (
    find_slater_point,
    make_constraint_rows,
    solve_max_entropy,
)
from bylot.policies.guard import (
    Budget,
    Guard,
    forecast_shortfall,
    get_period,
    guard_panel,
    is_outside_bounds,
    make_guard,
    open_budget,
    plan_fallback_schedule,
)
from bylot.policies.iid_limits import fill_mixture
from bylot.policies.mirror_ascent import (
    AscentSettings,
    GradientState,
    add_gradient_step,
    begin_ascent_step,
    center_reward,
    clamp_logits,
    compute_step_length,
    make_gradient_state,
)
from bylot.policies.multipliers import (
    MultiplierAverage,
    add_multipliers,
    average_shadow_prices,
    make_multiplier_average,
)
from bylot.policies.pull_counts import mark_members
from bylot.policies.validation import check_bools
from bylot.problem import Problem

NO_CHOICE_VARIANCE = 1e-12  # a variance of being drawn that counts as none: there was no choice
MIN_PANEL_LOGIT, MAX_PANEL_LOGIT = (
    -10.0,
    8.0,
)  # of theta at the start of a step, whose M-th largest is 0
MAX_EXPONENT = 700.0  # a logarithm whose exponential is still a number
MAX_ABS_LOGIT = 1e100  # a theta beyond it could not be added up


class PanelDistribution(NamedTuple):
    """A law of m different experts, and what its draws and chances are read from."""

    theta: Floats  # (K,)
    table: Floats  # (K + 1, m + 1)
    coins: Floats  # (K,)
    pi: Floats  # (K,)
    log_z: Floats  # one number


class DistinctRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    members: int  # m = min(M, K)
    climb: AscentSettings
    eps: float  # how much of the mildest law is mixed in
    mild: PanelDistribution
    pace: Pace
    guard: Guard


class DistinctState(NamedTuple):
    """What it remembers: a line per context, and the shared account."""

    theta: Floats  # (X, K)
    table: Floats  # (X, K + 1, m + 1)
    coins: Floats  # (X, K)
    pi: Floats  # (X, K)
    log_z: Floats  # (X, 1)
    visits: Ints  # (X,)
    slope: GradientState
    till: MultiplierAverage
    account: Budget
    bounds: Floats  # (d,) in force


@jit
def refresh_panel_distribution(law: PanelDistribution, m: int) -> None:
    """Table, chances and normaliser of a theta that has changed."""
    law.log_z[0] = fill_count_table(law.table, law.coins, law.theta, m)
    fill_inclusion(law.pi, law.table, law.coins, m)


@jit
def get_panel_distribution(state: DistinctState, x: int) -> PanelDistribution:
    """The law of a context."""
    return PanelDistribution(
        state.theta[x], state.table[x], state.coins[x], state.pi[x], state.log_z[x]
    )


@jit
def refresh_all_contexts(state: DistinctState, m: int) -> None:
    """The same in every context."""
    for x in range(state.visits.size):
        refresh_panel_distribution(get_panel_distribution(state, x), m)


@jit
def move_distinct(rule: DistinctRule, state: DistinctState, x: int) -> None:
    """One step of mirror ascent, projected on the limits in force.

    The gradient in the chances is Cov^-1 times that in theta, with Cov ~ diag c - c c' / sum c: on
    the tangent space it is g / c (`fill_covariance_diagonal`). c = pi (1 - pi), right for large sets only, would
    lead to a point that is not the best under the limits.
    """
    here, slope, guard = get_panel_distribution(state, x), state.slope, rule.guard
    theta, pi = here.theta, here.pi
    spread, g = np.empty(pi.size), slope.g[x]
    fill_covariance_diagonal(spread, pi, rule.members)
    for i in range(spread.size):
        g[i] = g[i] / spread[i] if spread[i] > NO_CHOICE_VARIANCE else 0.0
    begin_ascent_step(slope, x, spread)
    s = compute_step_length(rule.climb, slope, x)
    clamp_logits(theta, nth_largest(theta, rule.members), MIN_PANEL_LOGIT, MAX_PANEL_LOGIT)
    add_gradient_step(theta, slope, x, s)
    fill_paced_bounds(state.bounds, guard, state.account, rule.pace)
    prices = np.empty(guard.b.size)
    kl_project(
        theta, pi, prices, theta, guard.A, state.bounds, rule.members, rule.eps, rule.mild.pi
    )
    add_multipliers(state.till, prices, s)
    refresh_panel_distribution(here, rule.members)


@jit
def restrict_panel_distribution(
    law: PanelDistribution, available: Bools, m: int
) -> PanelDistribution:
    """The law of m experts among those that are up."""
    part = PanelDistribution(
        restrict_logits(law.theta, available),
        np.empty((law.theta.size + 1, m + 1)),
        np.empty(law.theta.size),
        np.empty(law.theta.size),
        np.empty(1),
    )
    refresh_panel_distribution(part, m)
    return part


@jit
def compute_mixture_costs(
    A: Floats, here: PanelDistribution, mild: PanelDistribution, eps: float
) -> Floats:
    """The expected cost of a panel under each row, A ((1 - eps) pi + eps p_0)."""
    costs, p = np.zeros(A.shape[0]), np.empty(here.pi.size)
    fill_mixture(p, here.pi, eps, mild.pi)
    add_expected_costs(costs, A, p)
    return costs


@jit
def find_available_distributions(
    rule: DistinctRule, state: DistinctState, x: int, available: Bools
) -> tuple[PanelDistribution, PanelDistribution, int]:
    """The law of a context and the mildest, among those that are up, and how many are drawn.

    Where renormalising alone would break a limit in force, the law moves as little as it must.
    """
    here, mild, m = get_panel_distribution(state, x), rule.mild, rule.members
    if available.size == 0:
        return here, mild, m
    m = min(m, available.sum())
    here, mild = (
        restrict_panel_distribution(here, available, m),
        restrict_panel_distribution(mild, available, m),
    )
    A, b = rule.guard.A, state.bounds
    if is_outside_bounds(compute_mixture_costs(A, here, mild, rule.eps), b):
        prices = np.empty(b.size)
        kl_project(here.theta, here.pi, prices, here.theta, A, b, m, rule.eps, mild.pi)
        refresh_panel_distribution(here, m)
    return here, mild, m


@step(decide, DistinctRule)
def _(
    rule: DistinctRule, state: DistinctState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    if state.visits[context] % rule.climb.batch == 0:
        move_distinct(rule, state, context)
    state.visits[context] += 1
    here, mild, m = find_available_distributions(rule, state, context, available)
    costs = (
        state.bounds
        if available.size == 0
        else compute_mixture_costs(rule.guard.A, here, mild, rule.eps)
    )
    short = False
    if available.size > 0 or state.account.alarm[0]:  # else there is nothing to note or to clear
        short = forecast_shortfall(rule.guard, state.account, costs, state.bounds)
    if draw_uniforms(rng, COIN_STREAM, 1)[0] < rule.eps:
        members = draw_set(mild.table, mild.coins, m, rng, SET_STREAM)
    else:
        members = draw_set(here.table, here.coins, m, rng, SET_STREAM)
    ours = log_fixed_set_probability(members, here.theta, here.log_z[0])
    apart = log_fixed_set_probability(members, mild.theta, mild.log_z[0]) - ours
    # In logarithms: among many sets a single one may be rarer than a number can be small.
    weight = 1.0 / ((1.0 - rule.eps) + rule.eps * np.exp(min(apart, MAX_EXPONENT)))
    propensity = max(np.exp(ours - np.log(weight)), MIN_PROPENSITY)
    admitted = guard_panel(rule.guard, state.account, members, available)
    draws = np.empty(rule.draws, np.int64)
    fill_draws_from_set(draws, admitted.members)
    if admitted.replaced:
        propensity = 1.0
    feasible, inclusion = admitted.kept and not short, here.pi.copy()
    return make_set_ticket(
        rng.t,
        context,
        draws,
        inclusion,
        available,
        feasible,
        propensity,
        weight,
        admitted.replaced,
    )


@step(learn, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, ticket: Ticket, reward: float) -> None:
    x = ticket.context
    if not ticket.replaced:
        weight = ticket.weight * center_reward(state.slope, x, reward) / rule.climb.batch
        add_panel_score(state.slope.g[x], ticket.draws, ticket.inclusion, weight)


@jit
def add_panel_score(g: Floats, draws: Ints, pi: Floats, weight: float) -> None:
    """g_i += weight (1[i in A] - pi_i), the score in theta at the law that was drawn from.

    What it says of the chances is told by the covariance of the law that moves (`move_distinct`).
    """
    score = np.empty(g.size)
    fill_fixed_set_score(score, draws, pi)  # a member comes twice only where there was no choice
    for i in range(g.size):
        if pi[i] * (1.0 - pi[i]) > NO_CHOICE_VARIANCE:
            g[i] += weight * score[i]


@jit
def mix_inclusion(rule: DistinctRule, state: DistinctState, x: int, available: Bools) -> Floats:
    """The chance of every expert to be drawn, the mildest law mixed in."""
    here, mild, _ = find_available_distributions(rule, state, x, available)
    p = np.empty(here.pi.size)
    fill_mixture(p, here.pi, rule.eps, mild.pi)
    return p


@step(compute_distribution, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, context: int, available: Bools) -> Floats:
    p: Floats = mix_inclusion(rule, state, context, available)
    total = p.sum()
    for i in range(p.size):
        p[i] /= total
    return p


@step(compute_inclusion, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, ticket: Ticket) -> Floats:
    if ticket.replaced:
        return mark_members(ticket.draws, state.theta.shape[1])
    return mix_inclusion(rule, state, ticket.context, ticket.available)


@dataclass(frozen=True)
class Distinct:
    """Settings of `distinct`; one default for every pool.

    eta:      of the step, in units of what a regret bound would have
    patience: batches that count as seen before the first, so that early steps are short
    batch:    decisions of a context between two steps
    eps:      share of the mildest law in every draw
    pace:     how far limits in force may rise after frugal rounds; 1 keeps every single round
              inside the limits in expectation, None holds limits in force as they are
    guard:    replace panels after which the limits could not be kept for certain
    clip:     let no step change a logit by more than 1
    """

    eta: float = 1.0
    patience: float = 100.0
    batch: int = 10
    eps: float = 0.02
    pace: float | None = DEFAULT_PACE
    guard: bool = True
    clip: bool = True

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    derived: ClassVar[tuple[str, ...]] = ("table", "coins", "pi", "log_z")

    def __post_init__(self) -> None:
        mirror_ascent.check_ascent_settings(self.eta, self.patience, self.batch, self.eps)
        budget.check_pace(self.pace)
        check_bools(guard=self.guard, clip=self.clip)

    def bind(self, problem: Problem, horizon: int | None = None) -> DistinctRule:
        """The rule for this problem; limits are promised at the end of the horizon, or of every
        period of the problem.
        """
        members = check_full_panels(problem, "distinct")
        rows, room = make_constraint_rows(problem), find_slater_point(problem)
        period, entropy = get_period(problem, horizon), log_binomial(problem.size, members)
        plan = plan_fallback_schedule(rows, room.quota, period)
        theta, _ = solve_max_entropy(rows, members, room.margin)
        return DistinctRule(
            draws=problem.draws,
            members=members,
            climb=AscentSettings(
                float(self.eta), float(self.patience), self.batch, self.clip, False, entropy
            ),
            eps=float(self.eps),
            mild=make_panel_distribution(theta, members),
            pace=make_pace(self.pace, room.margin, rows.A, members, full=True),
            guard=make_guard(rows, plan, period, full=True, on=self.guard),
        )

    def start(self, rule: DistinctRule, contexts: int = 1) -> DistinctState:
        """The mildest law in every context, and a period with nothing spent."""
        mild, guard = rule.mild, rule.guard
        return DistinctState(
            theta=np.tile(mild.theta, (contexts, 1)),
            table=np.tile(mild.table, (contexts, 1, 1)),
            coins=np.tile(mild.coins, (contexts, 1)),
            pi=np.tile(mild.pi, (contexts, 1)),
            log_z=np.tile(mild.log_z, (contexts, 1)),
            visits=np.zeros(contexts, np.int64),
            slope=make_gradient_state(contexts, mild.theta.size),
            till=make_multiplier_average(guard.b.size),
            account=open_budget(guard),
            bounds=guard.b.copy(),
        )

    def sound(self, rule: DistinctRule, state: DistinctState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return bool(
            len(state.visits) > 0
            and (state.visits >= 0).all()
            and (np.abs(state.theta) < MAX_ABS_LOGIT).all()
            and ((state.pi >= 0) & (state.pi <= 1)).all()
            and np.allclose(state.pi.sum(axis=1), rule.members)
            and mirror_ascent.is_valid_gradient_state(state.slope)
            and is_valid_budget(rule.guard, state.account)
        )

    def prices(self, problem: Problem, rule: DistinctRule, state: DistinctState) -> Floats:
        """Multipliers of recent steps."""
        return average_shadow_prices(problem, state.till)

    def derive(self, rule: DistinctRule, state: DistinctState) -> None:
        """Fill in what follows from theta, in every context."""
        refresh_all_contexts(state, rule.members)


def check_full_panels(problem: Problem, policy: str) -> int:
    """The members of every panel, where panels of so many can keep the limits."""
    members = min(problem.draws, problem.size)
    if problem.full_conflict is not None:
        raise PolicyError(
            f"{policy} asks {members} different experts every time, which cannot keep {{limits}}",
            limits=problem.full_conflict.limits,
            remedy="use 'tangent', which may ask fewer, or fewer draws",
        )
    return members


def make_panel_distribution(theta: Floats, m: int) -> PanelDistribution:
    """A law with all that follows from its theta."""
    K = theta.size
    made = PanelDistribution(
        theta - nth_largest(theta, m),
        np.empty((K + 1, m + 1)),
        np.empty(K),
        np.empty(K),
        np.empty(1),
    )
    refresh_panel_distribution(made, m)
    return made


def log_binomial(K: int, m: int) -> float:
    """log C(K, m).

    >>> round(math.exp(log_binomial(5, 2)))
    10
    """
    return math.lgamma(K + 1) - math.lgamma(m + 1) - math.lgamma(K - m + 1)
