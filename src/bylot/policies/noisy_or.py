"""noisy-or: the best set of M experts under a model sampled from the posterior, less prices.

A noisy-or model learns what sets miss (`noisy_or_posterior`); prices of the limits follow the
chosen panels (`multipliers`). Beliefs are per context, prices shared. Guard, pacing and, in
exploration rounds, the distribution are those of `distinct`, whose rule and state are parts of
this one: there is one budget.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import EXPLORE_STREAM, MODEL_STREAM, RngKey, RngStream, draw_uniforms
from bylot.numerics.sampling import is_first_draw
from bylot.numerics.set_selection import choose_greedy_set, fill_draws_from_set
from bylot.numerics.variates import Xoshiro, next_word, open_stream, open_uniform_from_word
from bylot.policies.base import (
    BoundPolicy,
    Policy,
    ProblemChange,
    Ticket,
    compute_distribution,
    compute_inclusion,
    decide,
    learn,
    make_plain_ticket,
    round_up_visits,
    step,
)
from bylot.policies.budget import DEFAULT_PACE, check_pace, fill_paced_bounds
from bylot.policies.constraint_rows import (
    MIN_RELATIVE_SLACK,
    compute_price_units,
    compute_row_units,
)
from bylot.policies.distinct import Distinct, DistinctRule, DistinctState, check_full_panels
from bylot.policies.guard import Budget, Guard, forecast_shortfall, guard_panel
from bylot.policies.multipliers import (
    DualPrices,
    fill_expert_prices,
    is_valid_dual_prices,
    make_dual_prices,
    update_dual_prices,
)
from bylot.policies.noisy_or_posterior import (
    Posterior,
    estimate_noise,
    is_valid_posterior,
    make_prior,
    sample_posterior,
    update_posterior,
)
from bylot.policies.pull_counts import (
    compute_pull_shares,
    count_members,
    has_valid_counts,
    mark_members,
)
from bylot.policies.validation import check_bools
from bylot.problem import Problem

REHEARSAL_BATCH = 10  # decisions of a context between two rehearsals
FIRST_REHEARSAL_PANELS, LATER_REHEARSAL_PANELS = 200, 20  # panels of a rehearsal
MIN_SAMPLING_SCALE, WIDE_SAMPLING_SCALE = 0.5, 1.5  # of posterior samples
WIDE_SAMPLING_SHARE = 0.03  # share of wide samples
MIN_SAMPLED_LOGIT, MAX_SAMPLED_LOGIT = -8.0, 0.5  # of a sampled b_i
MAX_POSTERIOR_BYTES = 2**30  # of the covariance roots of all contexts


class NoisyOrRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    explore: float  # share of rounds of `distinct`
    batch: int
    A: Floats  # (d, K) the rows of the guard, in price units
    units: Floats  # (d,) row units over price units
    explorer: DistinctRule

    @property
    def guard(self) -> Guard:
        """The guard of both."""
        return self.explorer.guard


class NoisyOrState(NamedTuple):
    """A line per context, shared prices, and the state of `distinct`."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    belief: Posterior
    dual_prices: DualPrices
    explorer: DistinctState  # of its rounds; its budget is of all rounds

    @property
    def budget(self) -> Budget:
        """The budget of all rounds."""
        return self.explorer.budget

    @property
    def bounds(self) -> Floats:
        """(d,) in force."""
        return self.explorer.bounds


@jit
def compute_sampling_scale(belief: Posterior, x: int) -> float:
    """The scale of most posterior samples: sqrt(phi), clipped to [0.5, 1].

    Less than the full posterior pays if rewards correct a wrong belief soon; with noisy rewards it
    would stay with experts that were lucky first.
    """
    return min(max(math.sqrt(estimate_noise(belief, x)), MIN_SAMPLING_SCALE), 1.0)


@jit
def sample_panel(
    rule: NoisyOrRule, state: NoisyOrState, x: int, available: Bools, stream: Xoshiro
) -> tuple[Ints, Xoshiro]:
    """SAMPLE: b from the posterior, and A with the least prod_A e^b + sum_A price."""
    belief, A = state.belief, rule.A
    bits, s = next_word(stream)
    scale = (
        WIDE_SAMPLING_SCALE
        if open_uniform_from_word(bits) < WIDE_SAMPLING_SHARE
        else compute_sampling_scale(belief, x)
    )
    b, s = sample_posterior(belief.beta[x], belief.root[x], scale, s)
    dues, m = np.empty(b.size), rule.explorer.members
    fill_expert_prices(dues, state.dual_prices, A)
    for i in range(b.size):
        b[i] = np.exp(min(max(b[i], MIN_SAMPLED_LOGIT), MAX_SAMPLED_LOGIT))
    return choose_greedy_set(
        b, dues, m if available.size == 0 else min(m, available.sum()), available
    ), s


@jit
def rehearse_prices(
    rule: NoisyOrRule, state: NoisyOrState, x: int, available: Bools, stream: Xoshiro
) -> Xoshiro:
    """Every batch: fit prices to the model by panels that are chosen and charged, not played."""
    s, budget = stream, state.explorer.budget
    if rule.units.size > 0:
        for _ in range(
            FIRST_REHEARSAL_PANELS if state.dual_prices.moves[0] == 0 else LATER_REHEARSAL_PANELS
        ):
            members, s = sample_panel(rule, state, x, available, s)
            update_dual_prices(
                state.dual_prices, rule.A, members, state.explorer.bounds * rule.units, budget.short
            )
    return s


@jit
def compute_least_costs(A: Floats, m: int, available: Bools) -> Floats:
    """(d,) the cost of the cheapest m available experts, under each row by itself."""
    costs = np.zeros(A.shape[0])
    for j in range(A.shape[0]):
        costs[j] = np.sort(A[j][available])[:m].sum()
    return costs


@jit
def forecast_available(rule: NoisyOrRule, state: NoisyOrState, available: Bools) -> None:
    """Mark the limits that the available experts cannot satisfy, if some are unavailable."""
    explorer, budget, bounds = rule.explorer, state.explorer.budget, state.explorer.bounds
    if available.size > 0:
        costs = compute_least_costs(
            explorer.guard.A, min(explorer.members, available.sum()), available
        )
        forecast_shortfall(explorer.guard, budget, costs, bounds)
    elif budget.alarm[0]:
        forecast_shortfall(explorer.guard, budget, bounds, bounds)


@jit
def choose_model_panel(
    rule: NoisyOrRule, state: NoisyOrState, x: int, t: int, available: Bools, stream: Xoshiro
) -> Ticket:
    """Play the best set under a sampled model, or the guard's panel. Prices follow the former
    only.
    """
    budget, bounds = state.explorer.budget, state.explorer.bounds
    members, _ = sample_panel(rule, state, x, available, stream)
    admitted = guard_panel(rule.explorer.guard, budget, members, available)
    if not admitted.replaced:
        update_dual_prices(state.dual_prices, rule.A, members, bounds * rule.units, budget.short)
    draws = np.empty(rule.explorer.draws, np.int64)
    fill_draws_from_set(draws, admitted.members)
    kept = admitted.kept and not budget.alarm[0]
    return make_plain_ticket(t, x, draws, available, kept, admitted.replaced)


@jit
def choose_or_explore(
    rule: NoisyOrRule, state: NoisyOrState, x: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: `distinct` in a random share of the rounds, else the model. Bounds are paced every
    batch.
    """
    s, explorer = open_stream(rng, MODEL_STREAM), rule.explorer
    due = state.visits[x] % rule.batch == 0
    if due:
        fill_paced_bounds(
            state.explorer.bounds, explorer.guard, state.explorer.budget, explorer.pace
        )
    forecast_available(rule, state, available)
    if due:
        s = rehearse_prices(rule, state, x, available, s)
    state.visits[x] += 1
    if rule.explore > 0.0 and draw_uniforms(rng, EXPLORE_STREAM, 1)[0] < rule.explore:
        ticket = decide(explorer, state.explorer, x, rng, available)
    else:
        ticket = choose_model_panel(rule, state, x, rng.t, available, s)
    count_members(state.drawn[x], ticket.draws)
    return ticket


@jit
def is_exploration(ticket: Ticket) -> bool:
    """Was it a round of `distinct`? Only these have propensities."""
    return not math.isnan(ticket.propensity)


@jit
def update_beliefs(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket, reward: float) -> None:
    """`learn`: update the posterior, whoever chose the panel: the schedule ignores rewards.
    `distinct` learns from its own rounds.
    """
    if is_exploration(ticket):
        learn(rule.explorer, state.explorer, ticket, reward)
    members, n = np.empty(ticket.draws.size, np.int64), 0
    for j in range(ticket.draws.size):
        if is_first_draw(ticket.draws, j):
            members[n] = ticket.draws[j]
            n += 1
    update_posterior(state.belief, ticket.context, members[:n], reward)


@jit
def find_inclusion_by_round(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket) -> Floats:
    """`compute_inclusion`: of `distinct` in its rounds, else the panel itself."""
    if is_exploration(ticket):
        return compute_inclusion(rule.explorer, state.explorer, ticket)
    return mark_members(ticket.draws, state.drawn.shape[1])


@step(decide, NoisyOrRule)
def decide_noisy_or(
    rule: NoisyOrRule, state: NoisyOrState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`."""
    return choose_or_explore(rule, state, context, rng, available)


@step(learn, NoisyOrRule)
def learn_noisy_or(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket, reward: float) -> None:
    """`learn`."""
    update_beliefs(rule, state, ticket, reward)


@step(compute_distribution, NoisyOrRule)
def compute_noisy_or_distribution(
    rule: NoisyOrRule, state: NoisyOrState, context: int, available: Bools
) -> Floats:
    """`compute_distribution`: how often each expert was drawn."""
    return compute_pull_shares(state.drawn[context])


@step(compute_inclusion, NoisyOrRule)
def compute_noisy_or_inclusion(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket) -> Floats:
    """`compute_inclusion`: of `distinct` in its rounds, else the panel itself."""
    return find_inclusion_by_round(rule, state, ticket)


@dataclass(frozen=True)
class NoisyOr(Policy):
    """Settings of `noisy-or`; one default for every pool.

    explore: share of rounds in which `distinct` draws the panel and records its propensity, as
             off-policy evaluation needs
    pace:    factor by which bounds in force may exceed the limits after cheap rounds; 1: not at
             all, None keeps the bounds fixed
    guard:   replace panels after which the limits could not be guaranteed
    """

    explore: float = 0.0
    pace: float | None = DEFAULT_PACE
    guard: bool = True

    name: ClassVar[str] = "noisy-or"
    label: ClassVar[str] = "noisy-or"
    summary: ClassVar[str] = (
        "draws panels of different experts and learns a model of their joint value"
    )
    streams: ClassVar[tuple[RngStream, ...]] = (
        RngStream.EXPLORE,
        RngStream.MODEL,
        *Distinct.streams,
    )
    needs_full_panels: ClassVar[bool] = True
    derived: ClassVar[tuple[str, ...]] = Distinct.derived
    restarted: ClassVar[tuple[str, ...]] = Distinct.restarted

    @property
    def has_propensities(self) -> bool:
        """Only if every round explores."""
        return self.explore == 1

    def __post_init__(self) -> None:
        number = isinstance(self.explore, (int, float)) and not isinstance(self.explore, bool)
        if not (number and 0 <= self.explore <= 1):
            raise PolicyError(
                f"explore={self.explore!r} is no share of the rounds; use 0.02, or 0 for none"
            )
        check_pace(self.pace)
        check_bools(guard=self.guard)

    def bind(self, problem: Problem, horizon: int | None = None) -> NoisyOrRule:
        """Make the rule; limits hold at the end of the horizon, or of every period."""
        check_full_panels(problem, self.name)
        explorer = Distinct(pace=self.pace, guard=self.guard).bind(problem, horizon)
        scale = compute_row_units(problem) / compute_price_units(problem)
        return NoisyOrRule(
            explore=float(self.explore),
            batch=REHEARSAL_BATCH,
            A=explorer.guard.A * scale[:, None],
            units=scale,
            explorer=explorer,
        )

    def start(self, rule: NoisyOrRule, contexts: int = 1) -> NoisyOrState:
        """The prior in every context; raises if the beliefs take too much memory."""
        K = rule.A.shape[1]
        needed = count_posterior_bytes(contexts, K)
        if needed > MAX_POSTERIOR_BYTES:
            raise PolicyError(
                f"beliefs about pairs of {K:,} experts in {contexts:,} contexts take "
                f"{needed / 2**30:.3g} GiB, and noisy-or takes at most "
                f"{MAX_POSTERIOR_BYTES / 2**30:g}; "
                "use fewer, coarser contexts, or 'distinct', which remembers no pairs"
            )
        return NoisyOrState(
            visits=np.zeros(contexts, np.int64),
            drawn=np.zeros((contexts, K), np.int64),
            belief=make_prior(contexts, K, rule.explorer.members),
            dual_prices=make_dual_prices(rule.units.size),
            explorer=Distinct().start(rule.explorer, contexts),
        )

    def max_contexts(self, size: int) -> int:
        """Contexts whose beliefs fit into the memory."""
        return MAX_POSTERIOR_BYTES // count_posterior_bytes(1, size)

    def is_valid_state(self, rule: NoisyOrRule, state: NoisyOrState) -> bool:
        """Validate a state loaded from disk."""
        return bool(
            has_valid_counts(state.visits, state.drawn)
            and is_valid_posterior(state.belief)
            and is_valid_dual_prices(state.dual_prices)
            and Distinct().is_valid_state(rule.explorer, state.explorer)
        )

    def prices(self, problem: Problem, rule: NoisyOrRule, state: NoisyOrState) -> Floats:
        """The current prices; unknown for a limit that leaves no choice of panels."""
        if state.dual_prices.moves[0] == 0:
            return np.full(len(problem.limits), np.nan)
        unit = compute_price_units(problem)
        tight = unit <= MIN_RELATIVE_SLACK * compute_row_units(problem)
        return np.where(tight, np.nan, state.dual_prices.price / unit)

    def derive(self, rule: NoisyOrRule, state: NoisyOrState) -> None:
        """Compute the derived fields of `distinct`."""
        Distinct().derive(rule.explorer, state.explorer)

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """The budget is that of `distinct`; a rehearsal is due at once."""
        parts = (
            BoundPolicy(one.problem, one.rule.explorer, one.state.explorer) for one in (old, new)
        )
        Distinct().finish_migration(change, *parts)
        round_up_visits(new.state.visits, new.rule.batch)


def count_posterior_bytes(contexts: int, size: int) -> int:
    """Bytes of the covariance roots of so many contexts."""
    return 8 * contexts * size**2
