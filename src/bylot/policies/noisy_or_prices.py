"""The rule and the state of `noisy-or`, and its prices of limits, which rehearsals fit."""

from typing import NamedTuple

import numpy as np

from bylot.limits.records import Limits
from bylot.limits.request import View
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.scratch_arrays import scratch_floats
from bylot.numerics.set_selection import choose_greedy_set, count_available
from bylot.numerics.variates import Xoshiro, next_word, open_uniform_from_word
from bylot.policies import panel_model
from bylot.policies.dual_prices import DualPrices, fill_expert_prices, update_dual_prices
from bylot.policies.price_curves import CURVE_PRICES, PriceCurves, draw_curve_price, note_panel
from bylot.policies.set_distributions import SetTables

REHEARSAL_BATCH = 10  # decisions between two rehearsals
FIRST_REHEARSAL_PANELS, LATER_REHEARSAL_PANELS = 200, 10  # panels of a rehearsal
MAX_BOUND_JUMP = 1.3  # of a bound in force between two rehearsals: prices are then fitted again
RECENT_CONTEXTS = 64  # last decisions whose contexts a rehearsal draws from


class NoisyOrRule(NamedTuple):
    kind: int  # of feedback, by panel_model.FEEDBACK_CODES
    explore: float  # share of rounds of exploration
    batch: int
    growth: float  # factor of variances per reward, from the half-life; 1: nothing is forgotten
    fewest: int  # members of a panel
    most: int
    A: Floats  # (d, K) the rows of the guard, in price units
    units: Floats  # (d,) row units over price units
    bounds: Floats  # (d,) of the limits
    kept: float  # of the squares that shorten steps of prices, after each panel
    all_limits: Bools  # (d,) of True
    members: int  # of panels of exploration
    sets: SetTables  # which these are drawn from


class NoisyOrState(NamedTuple):
    """A row per context, a shared belief, and shared prices."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    rounds: Ints  # one number: of all contexts; a rehearsal is due after every batch
    recent: Ints  # (64,) contexts of the last rounds
    model: panel_model.PanelModel
    dual_prices: DualPrices
    curves: PriceCurves  # of limits for each tenant
    bounds: Floats  # (d,) in force at the last rehearsal

    @property
    def belief(self) -> panel_model.Posterior:
        """What panels miss."""
        return self.model.belief


@jit_embedded
def get_price_rows(rule: NoisyOrRule, limits: Limits) -> Floats:
    """Return (d, K) what a call of each expert costs on average, in price units."""
    if limits.clock[0].settled == 0:  # nothing was reported
        return rule.A
    rows: Floats = limits.means.copy()
    for j in range(rule.units.size):
        for i in range(rule.A.shape[1]):
            rows[j, i] *= rule.units[j]
    return rows


@jit_embedded
def choose_best_set(
    rule: NoisyOrRule,
    state: NoisyOrState,
    limits: Limits,
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
    fill_expert_prices(prices, state.dual_prices, A, get_counting_limits(rule, limits, x))
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
def get_counting_limits(rule: NoisyOrRule, limits: Limits, x: int) -> Bools:
    """Return (d,) which limits count requests of context x."""
    return limits.counts[x] if limits.counts.shape[0] > 0 else rule.all_limits


@jit_embedded
def mark_fixed_prices(rule: NoisyOrRule, limits: Limits, x: int) -> Bools:
    """Return (d,) the limits whose prices a panel of context x does not move: those that do not
    count it, those that the available experts cannot satisfy, and those of tenants.
    """
    counting = get_counting_limits(rule, limits, x)
    fixed = np.empty(counting.size, np.bool_)
    for j in range(fixed.size):
        fixed[j] = limits.learned[j].short or limits.rows[j].column >= 0 or not counting[j]
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
def rehearse_prices(rule: NoisyOrRule, state: NoisyOrState, view: View, stream: Xoshiro) -> Xoshiro:
    """Every batch: fit prices to the model by panels that are chosen and charged, not played."""
    limits, x, available = view.limits, view.context, view.available
    s, dual, bounds = stream, state.dual_prices, limits.bounds * rule.units
    if bounds.size > 0:
        new = dual.moves[0] == 0 or (limits.columns > 0 and state.curves.panels.max() == 0.0)
        count = FIRST_REHEARSAL_PANELS if new else LATER_REHEARSAL_PANELS
        contexts, s = draw_recent_contexts(state, x, count, s)
        factors, s = panel_model.sample_models(state.model, contexts, rule.most, s)
        A = get_price_rows(rule, limits)
        for n in range(count):
            at = contexts[n]
            members, s = choose_best_set(rule, state, limits, at, factors[n], A, available, s)
            fixed = mark_fixed_prices(rule, limits, at)
            update_dual_prices(dual, A, members, bounds, fixed, rule.kept)
            if limits.columns > 0:
                s = rehearse_curve(rule, state, limits, n, at, factors[n], A, available, s)
    return s


@jit_apart
def rehearse_curve(
    rule: NoisyOrRule,
    state: NoisyOrState,
    limits: Limits,
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
        if limits.rows[j].column >= 0 and get_counting_limits(rule, limits, x)[j]:
            price, place = dual.price[j], turn % CURVE_PRICES.size
            dual.price[j] = CURVE_PRICES[place]
            members, s = choose_best_set(rule, state, limits, x, factors, A, available, s)
            note_panel(state.curves, A, j, place, members)
            dual.price[j] = price
    return s


@jit_apart
def fill_tenant_prices(
    rule: NoisyOrRule, state: NoisyOrState, limits: Limits, stream: Xoshiro
) -> Xoshiro:
    """Draw the prices of limits for each tenant by its bounds in force."""
    s = stream
    for j in range(rule.units.size):
        if limits.rows[j].column >= 0:
            bits, s = next_word(s)
            bound, u = limits.bounds[j] * rule.units[j], open_uniform_from_word(bits)
            state.dual_prices.price[j] = draw_curve_price(state.curves, j, bound, u)
    return s


@jit_embedded
def note_context(state: NoisyOrState, x: int) -> None:
    """Count a round of this context."""
    state.model.belief.deviations.contexts[0] += state.visits[x] == 0
    state.recent[state.rounds[0] % RECENT_CONTEXTS] = x
    state.visits[x] += 1
    state.rounds[0] += 1


@jit_apart
def follow_bounds(state: NoisyOrState, limits: Limits) -> bool:
    """Note the bounds in force, and return whether any has jumped, as in a new window."""
    jumped = False
    for j in range(limits.rows.size):
        low = min(state.bounds[j], limits.bounds[j])
        high = max(state.bounds[j], limits.bounds[j])
        jumped |= low >= 0.0 and high > MAX_BOUND_JUMP * low and limits.rows[j].column < 0
        state.bounds[j] = limits.bounds[j]
    return jumped
