"""noisy-or: the best set of M experts under a model sampled from the posterior, less prices.

A noisy-or model learns what sets miss (`noisy_or_posterior`); prices of the limits follow the
chosen panels (`multipliers`). Beliefs are per context, prices shared. Guard, pacing and, in
exploration rounds, the distribution are those of `distinct`, whose rule and state are parts of
this one: there is one budget.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import EXPLORE_STREAM, MODEL_STREAM, RngKey, RngStream, draw_uniforms
from bylot.numerics.set_selection import choose_greedy_set, count_available, fill_draws_from_set
from bylot.numerics.variates import Xoshiro, next_word, open_stream, open_uniform_from_word
from bylot.policies import base
from bylot.policies import noisy_or_posterior as posterior
from bylot.policies.base import (
    BoundPolicy,
    Feedback,
    FeedbackKind,
    ProblemChange,
    Ticket,
    compute_inclusion,
    learn,
    step,
)
from bylot.policies.budget import (
    DEFAULT_PACE,
    PACE_SETTING,
    Budget,
    Guard,
    fill_paced_bounds,
    get_mean_rows,
)
from bylot.policies.constraint_rows import MIN_ROW_SLACK, compute_price_units, compute_row_units
from bylot.policies.distinct import Distinct, DistinctRule, DistinctState
from bylot.policies.guard import check_full_panels, forecast_shortfall, guard_panel
from bylot.policies.validation import SHARE, SettingKind
from bylot.problem import Problem

REHEARSAL_BATCH = 10  # decisions of a context between two rehearsals
FIRST_REHEARSAL_PANELS, LATER_REHEARSAL_PANELS = 200, 20  # panels of a rehearsal
MIN_SAMPLING_SCALE, WIDE_SAMPLING_SCALE = 0.5, 1.5  # of posterior samples
WIDE_SAMPLING_SHARE = 0.03  # share of wide samples
MIN_SAMPLED_LOGIT, MAX_SAMPLED_LOGIT = -8.0, 0.5  # of a sampled b_i
MAX_POSTERIOR_BYTES = 2**30  # of the covariance roots of all contexts
DUAL_PRICE_STEP = 0.2  # longest step of a price
MAX_DUAL_PRICE = 5.0
MAX_COUNTED_EXCESS = 30.0  # excess cost of a panel that shortens later steps
INITIAL_SQUARES = 0.01  # sum of squares before the first panel


class DualPrices(NamedTuple):
    """A price per unit of each row, in rewards of [0, 1], that follows the cost of panels."""

    price: Floats  # (d,) lam
    squares: Floats  # (d,) G2, sum of squared excess over the bounds in force
    moves: Ints  # one number: how often prices have moved

    def migrate(self, new: "DualPrices", change: ProblemChange) -> None:
        """Prices are per unit of their rows. Where a limit leaves more or less slack than before,
        steps are long again; where one is new, prices are rehearsed as at the start.
        """
        growth = change.growth(compute_price_units(change.old), compute_price_units(change.new))
        change.copy_by_limit(self.price, new.price, growth)
        change.copy_by_limit(self.squares, new.squares, growth == 1.0)
        new.price[:] = np.minimum(new.price, MAX_DUAL_PRICE)
        new.squares[:] = np.maximum(new.squares, INITIAL_SQUARES)
        new.moves[:] = self.moves if len(change.limits[0]) == new.price.size else 0

    def is_valid(self, rule: Any) -> bool:
        priced = (self.price >= 0) & (self.price <= MAX_DUAL_PRICE)
        return bool((priced & (self.squares >= INITIAL_SQUARES)).all() and self.moves[0] >= 0)


@jit
def fill_expert_prices(out: Floats, dual: DualPrices, A: Floats) -> None:
    """Write the price of every expert under all rows, sum_j lam_j A_ji."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(A.shape[0]):
        price = dual.price[j]
        if price > 0.0:
            for i in range(out.size):
                out[i] += price * A[j, i]


@jit
def update_dual_prices(dual: DualPrices, A: Floats, members: Ints, b: Floats, short: Bools) -> None:
    """g = A(panel) - b, G2 += min(g^2, max^2), lam += step g / sqrt(G2), clipped.

    Squares are clipped and not g: else prices would settle where *clipped* costs are right on
    average. One panel of a thousand times the usual excess would shorten all later steps as much.
    The price of a limit that the available experts cannot satisfy would rise for nothing.
    """
    for j in range(b.size):
        if short[j]:
            continue
        g = -b[j]
        for i in members:
            g += A[j, i]
        dual.squares[j] += min(g * g, MAX_COUNTED_EXCESS * MAX_COUNTED_EXCESS)
        step = min(max(g / np.sqrt(dual.squares[j]), -1.0), 1.0)
        dual.price[j] = min(max(dual.price[j] + DUAL_PRICE_STEP * step, 0.0), MAX_DUAL_PRICE)
    dual.moves[0] += b.size > 0


class NoisyOrRule(NamedTuple):
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
    """A row per context, shared prices, and the state of `distinct`."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    belief: posterior.Posterior
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
def get_price_rows(rule: NoisyOrRule, state: NoisyOrState) -> Floats:
    """(d, K) what a call of each expert costs on average, in price units."""
    return rule.A


@jit
def sample_panel(
    rule: NoisyOrRule, state: NoisyOrState, x: int, available: Bools, stream: Xoshiro
) -> tuple[Ints, Xoshiro]:
    """b from the posterior, and the A with the least prod_A e^b + sum_A price.

    The scale of most samples is sqrt(phi), clipped to [0.5, 1]. Less than the full posterior pays
    if rewards correct a wrong belief soon; with noisy rewards it would stay with experts that were
    lucky first.
    """
    belief, m = state.belief, rule.explorer.members
    bits, s = next_word(stream)
    scale = min(max(math.sqrt(posterior.estimate_noise(belief, x)), MIN_SAMPLING_SCALE), 1.0)
    if open_uniform_from_word(bits) < WIDE_SAMPLING_SHARE:
        scale = WIDE_SAMPLING_SCALE
    b, s = posterior.sample_posterior(belief.beta[x], belief.root[x], scale, s)
    prices = np.empty(b.size)
    fill_expert_prices(prices, state.dual_prices, get_price_rows(rule, state))
    for i in range(b.size):
        b[i] = np.exp(min(max(b[i], MIN_SAMPLED_LOGIT), MAX_SAMPLED_LOGIT))
    size = m if available.size == 0 else min(m, count_available(available))
    return choose_greedy_set(b, prices, size, available), s


@jit
def rehearse_prices(
    rule: NoisyOrRule, state: NoisyOrState, x: int, available: Bools, stream: Xoshiro
) -> Xoshiro:
    """Every batch: fit prices to the model by panels that are chosen and charged, not played."""
    s, dual, bounds = stream, state.dual_prices, state.explorer.bounds * rule.units
    if bounds.size > 0:
        for _ in range(FIRST_REHEARSAL_PANELS if dual.moves[0] == 0 else LATER_REHEARSAL_PANELS):
            members, s = sample_panel(rule, state, x, available, s)
            A = get_price_rows(rule, state)
            update_dual_prices(dual, A, members, bounds, state.explorer.budget.short)
    return s


@jit
def forecast_available(rule: NoisyOrRule, state: NoisyOrState, available: Bools) -> None:
    """Mark the limits that the available experts cannot satisfy, if some are unavailable."""
    guard, budget, bounds = rule.explorer.guard, state.explorer.budget, state.explorer.bounds
    if available.size > 0:
        m, costs = min(rule.explorer.members, count_available(available)), np.zeros(bounds.size)
        for j in range(bounds.size):  # of the cheapest m, under each row by itself
            costs[j] = np.sort(get_mean_rows(guard, budget)[j][available])[:m].sum()
        forecast_shortfall(guard, budget, costs, bounds)
    elif budget.alarm[0]:
        forecast_shortfall(guard, budget, bounds, bounds)


@jit
def choose_model_panel(
    rule: NoisyOrRule, state: NoisyOrState, x: int, t: int, available: Bools, stream: Xoshiro
) -> Ticket:
    """Play the best set under a sampled model, which prices follow, or the guard's panel."""
    budget, bounds = state.explorer.budget, state.explorer.bounds
    members, _ = sample_panel(rule, state, x, available, stream)
    admitted = guard_panel(rule.explorer.guard, budget, members, available)
    if not admitted.replaced:
        A = get_price_rows(rule, state)
        update_dual_prices(state.dual_prices, A, members, bounds * rule.units, budget.short)
    draws = np.empty(rule.explorer.draws, np.int64)
    fill_draws_from_set(draws, admitted.members)
    kept = admitted.kept and not budget.alarm[0]
    return base.make_plain_ticket(t, x, draws, available, kept, admitted.replaced)


@step(base.decide, NoisyOrRule)
def decide_noisy_or(
    rule: NoisyOrRule, state: NoisyOrState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: `distinct` in a random share of the rounds, else the model."""
    s, explorer, learned = open_stream(rng, MODEL_STREAM), rule.explorer, state.explorer
    due = state.visits[context] % rule.batch == 0
    if due:
        fill_paced_bounds(learned.bounds, explorer.guard, learned.budget, explorer.pace)
    forecast_available(rule, state, available)
    if due:
        s = rehearse_prices(rule, state, context, available, s)
    state.visits[context] += 1
    if rule.explore > 0.0 and draw_uniforms(rng, EXPLORE_STREAM, 1)[0] < rule.explore:
        ticket = base.decide(explorer, learned, context, rng, available)
    else:
        ticket = choose_model_panel(rule, state, context, rng.t, available, s)
    base.count_members(state.drawn[context], ticket.draws)
    return ticket


@jit
def is_exploration(ticket: Ticket) -> bool:
    """Was it a round of `distinct`? Only these have propensities."""
    return not math.isnan(ticket.propensity)


@step(learn, NoisyOrRule)
def learn_noisy_or(
    rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket, feedback: Feedback
) -> None:
    """`learn`: update the posterior, whoever chose the panel; `distinct` learns from its rounds."""
    if is_exploration(ticket):
        learn(rule.explorer, state.explorer, ticket, feedback)
    members = base.select_first(ticket.draws, ticket.draws)
    posterior.update_posterior(state.belief, ticket.context, members, feedback.reward)


step(base.compute_distribution, NoisyOrRule)(base.compute_pull_distribution)


@step(compute_inclusion, NoisyOrRule)
def compute_noisy_or_inclusion(rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket) -> Floats:
    """`compute_inclusion`: of `distinct` in its rounds, else the panel itself."""
    if is_exploration(ticket):
        return compute_inclusion(rule.explorer, state.explorer, ticket)
    return base.mark_members(ticket.draws, state.drawn.shape[1])


@dataclass(frozen=True)
class NoisyOr(base.Policy):
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

    name = "noisy-or"
    label = "noisy-or"
    summary = "draws panels of different experts and learns a model of their joint value"
    streams = (RngStream.EXPLORE, RngStream.MODEL, *Distinct.streams)
    derived = Distinct.derived
    restarted = Distinct.restarted
    checks: ClassVar[Mapping[str, SettingKind]] = {"explore": SHARE, "pace": PACE_SETTING}

    @property
    def has_propensities(self) -> bool:
        """Only if every round explores."""
        return self.explore == 1

    def bind(
        self, problem: Problem, horizon: int | None = None, feedback: FeedbackKind = "panel"
    ) -> NoisyOrRule:
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
        d, K = rule.A.shape
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
            belief=posterior.make_prior(contexts, K, rule.explorer.members),
            dual_prices=DualPrices(np.zeros(d), np.full(d, INITIAL_SQUARES), np.zeros(1, np.int64)),
            explorer=Distinct().start(rule.explorer, contexts),
        )

    def max_contexts(self, size: int) -> int:
        """Contexts whose beliefs fit into the memory."""
        return MAX_POSTERIOR_BYTES // count_posterior_bytes(1, size)

    def is_valid_state(self, rule: NoisyOrRule, state: NoisyOrState) -> bool:
        return (
            super().is_valid_state(rule, state)
            and base.has_valid_counts(state.visits, state.drawn)
            and Distinct().is_valid_state(rule.explorer, state.explorer)
        )

    def prices(self, problem: Problem, rule: NoisyOrRule, state: NoisyOrState) -> Floats:
        """The current prices; unknown for a limit that leaves no choice of panels."""
        if state.dual_prices.moves[0] == 0:
            return np.full(len(problem.limits), np.nan)
        unit = compute_price_units(problem)
        tight = unit <= MIN_ROW_SLACK * compute_row_units(problem)
        return np.where(tight, np.nan, state.dual_prices.price / unit)

    def derive(self, rule: NoisyOrRule, state: NoisyOrState) -> None:
        """Compute the derived fields of `distinct`."""
        Distinct().derive(rule.explorer, state.explorer)

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """The budget is that of `distinct`; a rehearsal is due at once."""
        parts = [BoundPolicy(x.problem, x.rule.explorer, x.state.explorer) for x in (old, new)]
        Distinct().finish_migration(change, *parts)
        base.round_up_visits(new.state.visits, new.rule.batch)


def count_posterior_bytes(contexts: int, size: int) -> int:
    """Bytes of the covariance roots of so many contexts."""
    return 8 * contexts * size**2
