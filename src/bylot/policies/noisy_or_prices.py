"""The rule and the state of `noisy-or`, and its prices of limits, which rehearsals fit."""

from typing import NamedTuple

import numpy as np

from bylot.limits.budget import Budget, Guard, get_mean_rows
from bylot.limits.guard import forecast_shortfall
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.scratch_arrays import scratch_floats
from bylot.numerics.set_selection import choose_greedy_set, count_available
from bylot.numerics.variates import Xoshiro, next_word, open_uniform_from_word
from bylot.policies import panel_model
from bylot.policies.distinct import DistinctRule, DistinctState
from bylot.policies.dual_prices import DualPrices, fill_expert_prices, update_dual_prices
from bylot.policies.panel_sizes import compute_least_costs
from bylot.policies.price_curves import CURVE_PRICES, PriceCurves, draw_curve_price, note_panel

REHEARSAL_BATCH = 10  # decisions between two rehearsals
FIRST_REHEARSAL_PANELS, LATER_REHEARSAL_PANELS = 200, 10  # panels of a rehearsal
MAX_BOUND_JUMP = 1.3  # of a bound in force between two rehearsals: prices are then fitted again
RECENT_CONTEXTS = 64  # last decisions whose contexts a rehearsal draws from


class NoisyOrRule(NamedTuple):
    kind: int  # of feedback, by panel_model.FEEDBACK_CODES
    explore: float  # share of rounds of `distinct`
    batch: int
    growth: float  # factor of variances per reward, from the half-life; 1: nothing is forgotten
    fewest: int  # members of a panel
    most: int
    A: Floats  # (d, K) the rows of the guard, in price units
    units: Floats  # (d,) row units over price units
    kept: float  # of the squares that shorten steps of prices, after each panel
    tenants: bool  # has each tenant limits of its own?
    explorer: DistinctRule

    @property
    def guard(self) -> Guard:
        """The guard of both."""
        return self.explorer.guard


class NoisyOrState(NamedTuple):
    """A row per context, a shared belief, shared prices, and the state of `distinct`."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    rounds: Ints  # one number: of all contexts; a rehearsal is due after every batch
    recent: Ints  # (64,) contexts of the last rounds
    model: panel_model.PanelModel
    dual_prices: DualPrices
    curves: PriceCurves  # of limits for each tenant
    explorer: DistinctState  # of its rounds; its budget is of all rounds

    @property
    def belief(self) -> panel_model.Posterior:
        """What panels miss."""
        return self.model.belief

    @property
    def budget(self) -> Budget:
        """The budget of all rounds."""
        return self.explorer.budget

    @property
    def bounds(self) -> Floats:
        """(d,) in force."""
        return self.explorer.bounds


@jit_embedded
def get_price_rows(rule: NoisyOrRule, state: NoisyOrState) -> Floats:
    """(d, K) what a call of each expert costs on average, in price units."""
    costs = state.explorer.budget.costs
    if costs.plans[0] == 0:  # nothing was reported
        return rule.A
    rows: Floats = costs.means.copy()
    for j in range(rule.units.size):
        for i in range(rule.A.shape[1]):
            rows[j, i] *= rule.units[j]
    return rows


@jit_embedded
def choose_best_set(
    rule: NoisyOrRule,
    state: NoisyOrState,
    x: int,
    factors: Floats,
    A: Floats,
    available: Bools,
    stream: Xoshiro,
) -> tuple[Ints, Xoshiro]:
    """The set with the least of what it misses under a sampled model, plus its price under A.

    factors: (K,) a row of `panel_model.sample_models`
    """
    prices, most = np.empty(factors.size), rule.most
    fill_expert_prices(prices, state.dual_prices, A, get_counting_limits(state, x))
    if available.size > 0:
        most = min(most, count_available(available))
    fewest = min(rule.fewest, most)
    if panel_model.has_classes(state.model):
        weights, miss, s = panel_model.sample_misses(state.model, x, factors, stream)
        return choose_greedy_set(weights, miss, prices, fewest, most, available), s
    one = scratch_floats(1)
    one[0] = 1.0
    return choose_greedy_set(one, factors.reshape((1, -1)), prices, fewest, most, available), stream


@jit
def get_counting_limits(state: NoisyOrState, x: int) -> Bools:
    """(d,) which limits count requests of context x."""
    windows = state.explorer.budget.windows
    return windows.by_context[x] if windows.by_context.shape[0] > 0 else windows.applies


@jit_embedded
def mark_fixed_prices(rule: NoisyOrRule, state: NoisyOrState, x: int) -> Bools:
    """(d,) the limits whose prices a panel of context x does not move: those that do not count it,
    those that the available experts cannot satisfy, and those of tenants.
    """
    budget, scoped = state.explorer.budget, rule.explorer.guard.windows.scoped
    if not rule.tenants and budget.windows.by_context.shape[0] == 0:
        return budget.short
    counting = get_counting_limits(state, x)
    fixed = budget.short.copy()
    for j in range(fixed.size):
        fixed[j] |= scoped[j] or not counting[j]
    return fixed


@jit
def draw_recent_contexts(
    state: NoisyOrState, x: int, count: int, stream: Xoshiro
) -> tuple[Ints, Xoshiro]:
    """Contexts of recent rounds, drawn at random: prices are for the mix of contexts."""
    drawn, s = np.full(count, x), stream
    if panel_model.has_contexts(state.model):
        for n in range(count):
            bits, s = next_word(s)
            known = min(state.rounds[0], RECENT_CONTEXTS)
            drawn[n] = state.recent[int(open_uniform_from_word(bits) * known)]
    return drawn, s


@jit_apart
def rehearse_prices(
    rule: NoisyOrRule, state: NoisyOrState, x: int, available: Bools, stream: Xoshiro
) -> Xoshiro:
    """Every batch: fit prices to the model by panels that are chosen and charged, not played."""
    s, dual, bounds = stream, state.dual_prices, state.explorer.bounds * rule.units
    if bounds.size > 0:
        new = dual.moves[0] == 0 or (rule.tenants and state.curves.panels.max() == 0.0)
        count = FIRST_REHEARSAL_PANELS if new else LATER_REHEARSAL_PANELS
        contexts, s = draw_recent_contexts(state, x, count, s)
        factors, s = panel_model.sample_models(state.model, contexts, rule.most, s)
        A = get_price_rows(rule, state)
        for n in range(count):
            members, s = choose_best_set(rule, state, contexts[n], factors[n], A, available, s)
            fixed = mark_fixed_prices(rule, state, contexts[n])
            update_dual_prices(dual, A, members, bounds, fixed, rule.kept)
            if rule.tenants:
                s = rehearse_curve(rule, state, n, contexts[n], factors[n], A, available, s)
    return s


@jit_apart
def rehearse_curve(
    rule: NoisyOrRule,
    state: NoisyOrState,
    n: int,
    x: int,
    factors: Floats,
    A: Floats,
    available: Bools,
    stream: Xoshiro,
) -> Xoshiro:
    """Choose a panel at another price of a limit for each tenant, and learn what it costs."""
    dual, s, turn = state.dual_prices, stream, state.rounds[0] + n
    for j in range(A.shape[0]):
        if rule.explorer.guard.windows.scoped[j] and get_counting_limits(state, x)[j]:
            price, place = dual.price[j], turn % CURVE_PRICES.size
            dual.price[j] = CURVE_PRICES[place]
            members, s = choose_best_set(rule, state, x, factors, A, available, s)
            note_panel(state.curves, A, j, place, members)
            dual.price[j] = price
    return s


@jit_apart
def fill_tenant_prices(rule: NoisyOrRule, state: NoisyOrState, stream: Xoshiro) -> Xoshiro:
    """Draw the prices of limits for each tenant by its bounds in force."""
    s = stream
    for j in range(rule.units.size):
        if rule.explorer.guard.windows.scoped[j]:
            bits, s = next_word(s)
            bound, u = state.explorer.bounds[j] * rule.units[j], open_uniform_from_word(bits)
            state.dual_prices.price[j] = draw_curve_price(state.curves, j, bound, u)
    return s


@jit_embedded
def forecast_available(rule: NoisyOrRule, state: NoisyOrState, available: Bools) -> None:
    """Mark the limits that the available experts cannot satisfy, if some are unavailable."""
    guard, budget, bounds = rule.explorer.guard, state.explorer.budget, state.explorer.bounds
    if available.size > 0:
        rows = get_mean_rows(guard, budget)
        costs = compute_least_costs(rows, rule.fewest, rule.most, available)
        forecast_shortfall(guard, budget, costs, bounds)
    elif budget.alarm[0]:
        forecast_shortfall(guard, budget, bounds, bounds)


@jit_embedded
def note_context(state: NoisyOrState, x: int) -> None:
    """Count a round of this context."""
    state.model.belief.deviations.contexts[0] += state.visits[x] == 0
    state.recent[state.rounds[0] % RECENT_CONTEXTS] = x
    state.visits[x] += 1
    state.rounds[0] += 1


@jit
def has_jumped(before: Floats, bounds: Floats, scoped: Bools) -> bool:
    """Is any bound in force far from what it was, as in a new window of the calendar?"""
    jumped = False
    for j in range(bounds.size):
        low, high = min(before[j], bounds[j]), max(before[j], bounds[j])
        jumped |= low >= 0.0 and high > MAX_BOUND_JUMP * low and not scoped[j]
    return jumped
