"""panel: the set of M experts that is best under a model drawn from what is believed, less prices.

What a set misses is learned by a noisy-or model (`noisy_or_posterior`), what limits cost by prices that
follow what is chosen (`multipliers`). Beliefs are per context, prices shared. The guard, which is all that
is promised, the pace and, in rounds that are set aside for exploring, the law are those of
`distinct`, whose rule and state are parts of ours: one period is kept, whoever plays.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import EXPLORE_STREAM, MODEL_STREAM, RngKey, draw_uniforms
from bylot.numerics.sampling import is_first_draw
from bylot.numerics.set_selection import choose_greedy_set, fill_draws_from_set
from bylot.numerics.variates import Xoshiro, next_word, open_stream, open_uniform_from_word
from bylot.policies import budget, multipliers, noisy_or_posterior, pull_counts
from bylot.policies.base import (
    Ticket,
    compute_distribution,
    compute_inclusion,
    decide,
    learn,
    make_plain_ticket,
    step,
)
from bylot.policies.budget import DEFAULT_PACE, fill_paced_bounds
from bylot.policies.constraint_rows import compute_row_units
from bylot.policies.distinct import Distinct, DistinctRule, DistinctState, check_full_panels
from bylot.policies.guard import Budget, Guard, forecast_shortfall, guard_panel
from bylot.policies.multipliers import (
    DualPrices,
    fill_expert_prices,
    make_dual_prices,
    update_dual_prices,
)
from bylot.policies.noisy_or_posterior import (
    Posterior,
    estimate_noise,
    make_prior,
    sample_posterior,
    update_posterior,
)
from bylot.policies.pull_counts import compute_pull_shares, count_members, mark_members
from bylot.policies.validation import check_bools
from bylot.problem import Problem

REHEARSAL_BATCH = 10  # decisions of a context between two rehearsals
FIRST_REHEARSAL_PANELS, LATER_REHEARSAL_PANELS = 200, 20  # panels of a rehearsal
MIN_SAMPLING_SCALE, WIDE_SAMPLING_SCALE = 0.5, 1.5  # scales of a draw from what is believed
WIDE_SAMPLING_SHARE = 0.03  # how often it is the wide one
MIN_SAMPLED_LOGIT, MAX_SAMPLED_LOGIT = -8.0, 0.5  # of a drawn b_i
MIN_RELATIVE_SLACK = 1e-6  # that a limit is taken to leave, in parts of the guard's unit
MAX_POSTERIOR_BYTES = 2**30  # bytes that the roots of all contexts may take


class NoisyOrRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    explore: float  # how often `distinct` plays
    batch: int
    A: Floats  # (d, K) the guard's rows, in units in which prices are moderate
    units: Floats  # (d,) these, in the guard's
    explorer: DistinctRule

    @property
    def guard(self) -> Guard:
        """The one that watches over both."""
        return self.explorer.guard


class NoisyOrState(NamedTuple):
    """What it remembers: a line per context, shared prices, and all that `distinct` has."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    belief: Posterior
    toll: DualPrices
    explorer: DistinctState  # of the rounds in which it plays; its account is of all rounds

    @property
    def account(self) -> Budget:
        """What was spent in this period, whoever played."""
        return self.explorer.account

    @property
    def bounds(self) -> Floats:
        """(d,) in force."""
        return self.explorer.bounds


@jit
def compute_sampling_scale(belief: Posterior, x: int) -> float:
    """The scale of most draws from what is believed: sqrt(phi), but at least NARROW and at most 1.

    Less than all that is unknown pays as long as rewards say soon who is wrong; where they are loud
    it would stay with whoever was lucky first.
    """
    return min(max(math.sqrt(estimate_noise(belief, x)), MIN_SAMPLING_SCALE), 1.0)


@jit
def sample_panel(
    rule: NoisyOrRule, state: NoisyOrState, x: int, available: Bools, stream: Xoshiro
) -> tuple[Ints, Xoshiro]:
    """SAMPLE: b from what is believed, and A with the least prod_A e^b + sum_A toll."""
    belief, A = state.belief, rule.A
    bits, s = next_word(stream)
    scale = (
        WIDE_SAMPLING_SCALE
        if open_uniform_from_word(bits) < WIDE_SAMPLING_SHARE
        else compute_sampling_scale(belief, x)
    )
    b, s = sample_posterior(belief.beta[x], belief.root[x], scale, s)
    dues, m = np.empty(b.size), rule.explorer.members
    fill_expert_prices(dues, state.toll, A)
    for i in range(b.size):
        b[i] = np.exp(min(max(b[i], MIN_SAMPLED_LOGIT), MAX_SAMPLED_LOGIT))
    return choose_greedy_set(
        b, dues, m if available.size == 0 else min(m, available.sum()), available
    ), s


@jit
def rehearse_prices(
    rule: NoisyOrRule, state: NoisyOrState, x: int, available: Bools, stream: Xoshiro
) -> Xoshiro:
    """Every batch: prices that fit the model, by panels that are chosen and charged, not played."""
    s, account = stream, state.explorer.account
    if rule.units.size > 0:
        for _ in range(
            FIRST_REHEARSAL_PANELS if state.toll.moves[0] == 0 else LATER_REHEARSAL_PANELS
        ):
            members, s = sample_panel(rule, state, x, available, s)
            update_dual_prices(
                state.toll, rule.A, members, state.explorer.bounds * rule.units, account.short
            )
    return s


@jit
def compute_least_costs(A: Floats, m: int, available: Bools) -> Floats:
    """(d,) what the cheapest m of those that are up cost, under each row by itself."""
    costs = np.zeros(A.shape[0])
    for j in range(A.shape[0]):
        costs[j] = np.sort(A[j][available])[:m].sum()
    return costs


@jit
def forecast_available(rule: NoisyOrRule, state: NoisyOrState, available: Bools) -> None:
    """Note which limits those who are up cannot keep; where all are, there is nothing to note."""
    explorer, account, bounds = rule.explorer, state.explorer.account, state.explorer.bounds
    if available.size > 0:
        costs = compute_least_costs(
            explorer.guard.A, min(explorer.members, available.sum()), available
        )
        forecast_shortfall(explorer.guard, account, costs, bounds)
    elif account.alarm[0]:
        forecast_shortfall(explorer.guard, account, bounds, bounds)


@jit
def choose_model_panel(
    rule: NoisyOrRule, state: NoisyOrState, x: int, t: int, available: Bools, stream: Xoshiro
) -> Ticket:
    """Every round: a set that is best under a model drawn, if the guard lets it pass. Prices answer
    it if it does: the rota's are not their doing.
    """
    account, bounds = state.explorer.account, state.explorer.bounds
    members, _ = sample_panel(rule, state, x, available, stream)
    admitted = guard_panel(rule.explorer.guard, account, members, available)
    if not admitted.replaced:
        update_dual_prices(state.toll, rule.A, members, bounds * rule.units, account.short)
    draws = np.empty(rule.explorer.draws, np.int64)
    fill_draws_from_set(draws, admitted.members)
    kept = admitted.kept and not account.alarm[0]
    return make_plain_ticket(t, x, draws, available, kept, admitted.replaced)


@jit
def choose_or_explore(
    rule: NoisyOrRule, state: NoisyOrState, x: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: by a coin that looks at nothing, `distinct`'s law plays, or the model. Every batch
    the bounds in force are those of the pace.
    """
    s, explorer = open_stream(rng, MODEL_STREAM), rule.explorer
    due = state.visits[x] % rule.batch == 0
    if due:
        fill_paced_bounds(
            state.explorer.bounds, explorer.guard, state.explorer.account, explorer.pace
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
    """Was it `distinct`'s round? Only its law can tell a chance."""
    return not math.isnan(ticket.propensity)


@jit
def update_beliefs(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket, reward: float) -> None:
    """`learn`: what a set earns is news of its members, whoever chose it and why. The rota looks at
    no rewards, so that sets it was asked for mislead nobody; only `distinct` needs its odds.
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
def compute_noisy_or_inclusion(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket) -> Floats:
    """`compute_inclusion`: those of `distinct` in its rounds, else the panel itself."""
    if is_exploration(ticket):
        return compute_inclusion(rule.explorer, state.explorer, ticket)
    return mark_members(ticket.draws, state.drawn.shape[1])


@step(decide, NoisyOrRule)
def _(
    rule: NoisyOrRule, state: NoisyOrState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    return choose_or_explore(rule, state, context, rng, available)


@step(learn, NoisyOrRule)
def _(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket, reward: float) -> None:
    update_beliefs(rule, state, ticket, reward)


@step(compute_distribution, NoisyOrRule)
def _(rule: NoisyOrRule, state: NoisyOrState, context: int, available: Bools) -> Floats:
    return compute_pull_shares(state.drawn[context])


@step(compute_inclusion, NoisyOrRule)
def _(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket) -> Floats:
    return compute_noisy_or_inclusion(rule, state, ticket)


@dataclass(frozen=True)
class NoisyOr:
    """Settings of `noisy-or`; one default for every pool.

    explore: how often `distinct` draws the panel instead, with a chance that is told exactly: what
             a log needs to be evaluated by
    pace:    how far limits in force may rise after frugal rounds; 1: not beyond the limits, None
             holds limits in force as they are
    guard:   replace panels after which the limits could not be kept for certain
    """

    explore: float = 0.0
    pace: float | None = DEFAULT_PACE
    guard: bool = True

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    derived: ClassVar[tuple[str, ...]] = Distinct.derived

    def __post_init__(self) -> None:
        number = isinstance(self.explore, (int, float)) and not isinstance(self.explore, bool)
        if not (number and 0 <= self.explore <= 1):
            raise PolicyError(
                f"explore={self.explore!r} is no share of the rounds; use 0.02, or 0 for none"
            )
        budget.check_pace(self.pace)
        check_bools(guard=self.guard)

    def bind(self, problem: Problem, horizon: int | None = None) -> NoisyOrRule:
        """The rule for this problem; limits are promised at the end of the horizon, or of every
        period of the problem.
        """
        check_full_panels(problem, "noisy-or")
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
        """Nothing known of anybody, nothing spent; refused where the beliefs would not fit."""
        K = rule.A.shape[1]
        if count_posterior_bytes(contexts, K) > MAX_POSTERIOR_BYTES:
            raise PolicyError(
                f"beliefs about pairs of {K:,} experts in {contexts:,} contexts take "
                f"{count_posterior_bytes(contexts, K) / 2**30:.3g} GiB, and panel takes at most {MAX_POSTERIOR_BYTES / 2**30:g}; "
                "use fewer, coarser contexts, or 'distinct', which remembers no pairs"
            )
        return NoisyOrState(
            visits=np.zeros(contexts, np.int64),
            drawn=np.zeros((contexts, K), np.int64),
            belief=make_prior(contexts, K, rule.explorer.members),
            toll=make_dual_prices(rule.units.size),
            explorer=Distinct().start(rule.explorer, contexts),
        )

    def most_contexts(self, size: int) -> int:
        """Contexts of so many experts whose beliefs fit."""
        return MAX_POSTERIOR_BYTES // count_posterior_bytes(1, size)

    def sound(self, rule: NoisyOrRule, state: NoisyOrState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return bool(
            pull_counts.has_valid_counts(state.visits, state.drawn)
            and noisy_or_posterior.is_valid_posterior(state.belief)
            and multipliers.is_valid_dual_prices(state.toll)
            and Distinct().sound(rule.explorer, state.explorer)
        )

    def prices(self, problem: Problem, rule: NoisyOrRule, state: NoisyOrState) -> Floats:
        """The prices as they are now; not known of a limit that leaves no choice of panels."""
        if state.toll.moves[0] == 0:
            return np.full(len(problem.limits), np.nan)
        measure = compute_price_units(problem)
        tight = measure <= MIN_RELATIVE_SLACK * compute_row_units(problem)
        return np.where(tight, np.nan, state.toll.price / measure)

    def derive(self, rule: NoisyOrRule, state: NoisyOrState) -> None:
        """Fill in what follows from `distinct`'s parameters."""
        Distinct().derive(rule.explorer, state.explorer)


def count_posterior_bytes(contexts: int, size: int) -> int:
    """Bytes that the roots of so many contexts take."""
    return 8 * contexts * size**2


def compute_price_units(problem: Problem) -> Floats:
    """How much of each limit a price is asked for, so that a price of 1 is much under any of them.

    What a maximum leaves beyond the cheapest panel, or the dearest panel has beyond a minimum: as a
    reward is at most 1, that is worth no more than 1 in all, and by concavity neither is the last
    of it. What all experts have in common is paid by every panel, and plays no part. But no more
    than two experts differ by, as most minima are small shares.
    """
    rows, members = np.sort(problem.rows), min(problem.draws, problem.size)
    below = problem.bounds - rows[:, :members].sum(axis=1)
    above = rows[:, -members:].sum(axis=1) - problem.bounds
    left = np.minimum(np.where(problem.signs > 0, above, below), np.ptp(rows, axis=1))
    return np.asarray(np.maximum(left, MIN_RELATIVE_SLACK * compute_row_units(problem)))
