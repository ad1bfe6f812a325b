"""M i.i.d. draws from q = (1 - eps) softmax(theta) + eps f0, learned by the score of their set.

`tangent` and `strict` say which constraint q satisfies and how a step is projected onto it.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba.extending import overload

from bylot.numerics.conditional_poisson import fill_softmax, restrict_logits
from bylot.numerics.iid_sets import (
    expected_panel_costs,
    fill_iid_set_score,
    iid_inclusion,
    log_iid_set_probability,
)
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.philox import RngKey, RngStream
from bylot.numerics.sampling import IidDraws, draw_iid, fill_cumulative, is_first_draw
from bylot.numerics.set_selection import fill_draws_from_set
from bylot.policies.base import (
    MIN_PROPENSITY,
    STEP_BODIES,
    BoundPolicy,
    Policy,
    ProblemChange,
    Ticket,
    compute_distribution,
    compute_inclusion,
    decide,
    has_same_pool,
    learn,
    make_iid_ticket,
    round_up_visits,
    step,
)
from bylot.policies.budget import is_valid_budget, migrate_period
from bylot.policies.guard import (
    Budget,
    forecast_shortfall,
    guard_panel,
    is_outside_bounds,
    open_budget,
)
from bylot.policies.iid_limits import fill_mixture, project_onto_tangents
from bylot.policies.mirror_ascent import (
    GradientState,
    add_gradient_step,
    begin_ascent_step,
    center_reward,
    clamp_logits,
    compute_step_length,
    is_valid_gradient_state,
    make_gradient_state,
)
from bylot.policies.multipliers import (
    MultiplierAverage,
    add_multipliers,
    make_multiplier_average,
)
from bylot.policies.pull_counts import mark_members

MIN_IID_LOGIT = -10.0  # of theta at the start of a step, whose largest is 0


class IidState(NamedTuple):
    """A line per context, and the shared budget."""

    theta: Floats  # (X, K)
    q: Floats  # (X, K)
    mass: Floats  # (X, K) running sums of q, which draws are looked up in
    visits: Ints  # (X,)
    gradient: GradientState
    multipliers: MultiplierAverage
    budget: Budget
    bounds: Floats  # (d,) in force


class IidDistribution(NamedTuple):
    """What one panel is drawn from."""

    q: Floats
    mass: Floats


class IidPolicy(Policy):
    """What the policies of i.i.d. draws share."""

    draws_iid: ClassVar[bool] = True
    streams: ClassVar[tuple[RngStream, ...]] = (RngStream.DRAWS,)
    restarted: ClassVar[tuple[str, ...]] = ("bounds",)

    def start(self, rule: Any, contexts: int = 1) -> IidState:
        """The exploration distribution in every context, and a period with nothing spent."""
        explore, guard = rule.explore, rule.guard
        logits = np.log(np.maximum(explore / explore.max(), np.exp(MIN_IID_LOGIT)))
        return IidState(
            theta=np.tile(logits, (contexts, 1)),
            q=np.tile(explore, (contexts, 1)),
            mass=np.tile(np.cumsum(explore), (contexts, 1)),
            visits=np.zeros(contexts, np.int64),
            gradient=make_gradient_state(contexts, explore.size),
            multipliers=make_multiplier_average(guard.b.size),
            budget=open_budget(guard),
            bounds=guard.b.copy(),
        )

    def is_valid_state(self, rule: Any, state: IidState) -> bool:
        """Validate a state loaded from disk."""
        return bool(
            len(state.visits) > 0
            and (state.visits >= 0).all()
            and (state.theta <= 1e-9).all()
            and (state.q >= 0).all()
            and np.allclose(state.q.sum(axis=1), 1.0, atol=1e-9)
            and np.allclose(state.mass, np.cumsum(state.q, axis=1), atol=1e-9)
            and is_valid_gradient_state(state.gradient)
            and is_valid_budget(rule.guard, state.budget)
        )

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Recompute q = (1 - eps) softmax(theta) + eps f0 if the pool changed; else it stays as it
        is until the next step, which is due.
        """
        rule, state = new.rule, new.state
        for x in np.flatnonzero(state.visits):
            if has_same_pool(change.old, change.new):
                break
            theta, q, pi = state.theta[x], state.q[x], np.empty(rule.explore.size)
            clamp_logits(theta, theta.max(), MIN_IID_LOGIT, 0.0)
            fill_softmax(pi, theta)
            fill_mixture(q, pi, rule.eps, rule.explore)
            q /= q.sum()
            state.mass[x] = np.cumsum(q)
        migrate_period(change, old, new)
        round_up_visits(state.visits, rule.ascent.batch)


def project_iid(rule: Any, state: Any, x: int, multipliers: Floats) -> None:
    """Project theta and q of a context onto the constraint of the rule, and write multipliers.

    Compiled code picks the body by the type of the rule (`register_iid_steps`).
    """
    raise NotImplementedError("compiled code only")


@overload(project_iid, strict=False)  # type: ignore[untyped-decorator]
def find_iid_projection(rule: Any, state: Any, x: Any, multipliers: Any) -> Any:
    return STEP_BODIES[project_iid, rule.instance_class]


@jit
def move_iid(rule: Any, state: IidState, x: int) -> None:
    """One step of mirror ascent, projected onto the constraint."""
    theta, q, gradient = state.theta[x], state.q[x], state.gradient
    begin_ascent_step(gradient, x, q)
    s = compute_step_length(rule.ascent, gradient, x)
    clamp_logits(theta, theta.max(), MIN_IID_LOGIT, 0.0)
    add_gradient_step(theta, gradient, x, s)
    lam = np.empty(state.bounds.size)
    project_iid(rule, state, x, lam)
    add_multipliers(state.multipliers, lam, s)
    clamp_logits(theta, theta.max(), -np.inf, 0.0)
    fill_cumulative(q, state.mass[x])


@jit
def restrict_iid_distribution(
    rule: Any, state: IidState, x: int, available: Bools
) -> IidDistribution:
    """The distribution of a context over the available experts; an empty mask stands for all.

    If renormalising alone would break a bound in force, it is projected onto the bounds.
    """
    if available.size == 0:
        return IidDistribution(state.q[x], state.mass[x])
    theta, explore = restrict_logits(state.theta[x], available), np.zeros(available.size)
    q, pi, whole = np.empty(available.size), np.empty(available.size), 0.0
    for i in range(available.size):
        explore[i] = rule.explore[i] if available[i] else 0.0
        whole += explore[i]
    for i in range(available.size):
        explore[i] /= whole
    fill_softmax(pi, theta)
    fill_mixture(q, pi, rule.eps, explore)
    if is_outside_bounds(expected_panel_costs(q, rule.guard.A, rule.draws), state.bounds):
        prices = np.empty(state.bounds.size)
        project_onto_tangents(
            theta, q, prices, rule.guard.A, state.bounds, rule.draws, rule.eps, explore
        )
    mass = np.empty(available.size)
    fill_cumulative(q, mass)
    return IidDistribution(q, mass)


@jit_inline
def draw_iid_panel(
    rule: Any, state: IidState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """M draws, or the guard's panel, and the propensity of the set that they form."""
    q, mass, costs = state.q[context], state.mass[context], state.bounds
    if available.size > 0:
        q, mass = restrict_iid_distribution(rule, state, context, available)
        costs = expected_panel_costs(q, rule.guard.A, rule.draws)
    short = False
    if available.size > 0 or state.budget.alarm[0]:  # else there is nothing to forecast or clear
        short = forecast_shortfall(rule.guard, state.budget, costs, state.bounds)
    panel = draw_iid(q, mass, rule.draws, rng)
    admitted = guard_panel(rule.guard, state.budget, panel.draws, available)
    replaced, propensity = admitted.replaced, 1.0
    if replaced:
        replace_draws(panel, admitted.members)
    else:
        masses = select_member_probabilities(panel.probabilities, panel.draws)
        propensity = max(np.exp(log_iid_set_probability(masses, rule.draws)), MIN_PROPENSITY)
    feasible = admitted.kept and not short
    return make_iid_ticket(rng.t, context, panel, available, 1.0, feasible, propensity, replaced)


@jit
def replace_draws(panel: IidDraws, members: Ints) -> None:
    """Write the guard's panel into the draws; its members have probability 1."""
    fill_draws_from_set(panel.draws, members)
    for k in range(panel.probabilities.size):
        panel.probabilities[k] = 1.0


@jit
def select_member_probabilities(probabilities: Floats, draws: Ints) -> Floats:
    """The probabilities of the distinct members, in the order in which they were first drawn."""
    masses, n = np.empty(draws.size), 0
    for j in range(draws.size):
        if is_first_draw(draws, j):
            masses[n] = probabilities[j]
            n += 1
    return masses[:n]


@jit
def add_set_score(g: Floats, ticket: Ticket, M: int, weight: float) -> None:
    """Add the score of the *set*: who was drawn, not how often.

    Among available experts it is taken along their simplex: as q.score = M, less M for each.
    """
    masses = select_member_probabilities(ticket.draw_probabilities, ticket.draws)
    score, n = np.empty(masses.size), 0
    fill_iid_set_score(score, masses, M)
    for j in range(ticket.draws.size):
        if is_first_draw(ticket.draws, j):
            g[ticket.draws[j]] += weight * score[n]
            n += 1
    for i in range(ticket.available.size):
        if ticket.available[i]:
            g[i] -= weight * M


def decide_iid(rule: Any, state: IidState, context: int, rng: RngKey, available: Bools) -> Ticket:
    """`decide`: a step every batch, then M draws."""
    if state.visits[context] % rule.ascent.batch == 0:
        move_iid(rule, state, context)
    state.visits[context] += 1
    return draw_iid_panel(rule, state, context, rng, available)


def learn_iid(rule: Any, state: IidState, ticket: Ticket, reward: float) -> None:
    """`learn`: g += (r - baseline) score(A) / B, unless the guard replaced the panel."""
    if not ticket.replaced:
        weight = center_reward(state.gradient, ticket.context, reward) / rule.ascent.batch
        add_set_score(state.gradient.g[ticket.context], ticket, rule.draws, weight)


def compute_iid_distribution(rule: Any, state: IidState, context: int, available: Bools) -> Floats:
    """`compute_distribution`: q."""
    q: Floats = restrict_iid_distribution(rule, state, context, available).q.copy()
    return q


def compute_iid_inclusion(rule: Any, state: IidState, ticket: Ticket) -> Floats:
    """`compute_inclusion`: 1 - (1 - q)^M, or the panel itself if the guard replaced the draw."""
    if ticket.replaced:
        return mark_members(ticket.draws, state.theta.shape[1])
    return iid_inclusion(
        restrict_iid_distribution(rule, state, ticket.context, ticket.available).q, rule.draws
    )


def register_iid_steps(rule: type, project: Callable[..., None]) -> None:
    """Register the steps of a policy of i.i.d. draws with this projection."""
    step(project_iid, rule)(project)
    step(decide, rule)(decide_iid)
    step(learn, rule)(learn_iid)
    step(compute_distribution, rule)(compute_iid_distribution)
    step(compute_inclusion, rule)(compute_iid_inclusion)
