"""noisy-or: the best set of M experts under a model sampled from the posterior, less prices.

A model learns what panels miss (`panel_model`); contexts share a belief and prices, and add what
they differ by. Prices of the limits follow the chosen panels (`dual_prices`). Guard, pacing and,
in exploration rounds, the distribution are those of `distinct`, whose rule and state are parts of
this one: there is one budget.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bylot.errors import PolicyError
from bylot.limits.budget import advance_windows
from bylot.limits.guard import (
    advance,
    enter,
    find_spent,
    find_spent_limit,
    guard_panel,
    note_refused,
)
from bylot.limits.pacing import DEFAULT_PACE, fill_paced_bounds, fill_tenant_bounds
from bylot.limits.rows import MIN_ROW_SLACK, compute_price_units, compute_row_units
from bylot.limits.settlement import settle, settle_calls
from bylot.limits.tenant_ledgers import (
    Ledgers,
    begin_tenant,
    begin_windows,
    load_rows,
    load_tenant,
    store_rows,
    store_tenant,
)
from bylot.limits.windows import count_requests, enter_context
from bylot.numerics.dispatch import step
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.numerics.philox import EXPLORE_STREAM, MODEL_STREAM, RngKey, RngStream, draw_uniforms
from bylot.numerics.scratch_arrays import scratch_floats, scratch_ints
from bylot.numerics.set_selection import fill_draws_from_set
from bylot.numerics.variates import Xoshiro, open_stream
from bylot.policies import base, panel_model
from bylot.policies.base import Feedback, FeedbackKind, Ticket, compute_inclusion, learn
from bylot.policies.distinct import Distinct, DistinctRule, DistinctState
from bylot.policies.dual_prices import (
    CALENDAR_KEPT_SQUARES,
    make_dual_prices,
    restart_prices,
    update_dual_prices,
)
from bylot.policies.noisy_or_prices import (
    RECENT_CONTEXTS,
    REHEARSAL_BATCH,
    NoisyOrRule,
    NoisyOrState,
    choose_best_set,
    fill_tenant_prices,
    forecast_available,
    get_price_rows,
    has_jumped,
    mark_fixed_prices,
    note_context,
    rehearse_prices,
)
from bylot.policies.panel_sizes import bind_explorer
from bylot.policies.price_curves import forget_curves, make_price_curves
from bylot.policies.validation import PACE_SETTING, SHARE, SettingKind, is_number_in
from bylot.problem import Problem
from bylot.problem.change import BoundPolicy, ProblemChange

MAX_POSTERIOR_BYTES = 2**30  # of the covariance root and what contexts add
HALF_LIFE = SettingKind(
    "a number of rewards, at least 10, or None to forget nothing",
    lambda value: value is None or is_number_in(value, 10, 1e12),
)


@jit_embedded
def choose_model_panel(
    rule: NoisyOrRule, state: NoisyOrState, x: int, t: int, available: Bools, stream: Xoshiro
) -> Ticket:
    """Play the best set under a sampled model, which prices follow, or the guard's panel."""
    budget, bounds = state.explorer.budget, state.explorer.bounds
    contexts, b = scratch_ints(1), scratch_floats(bounds.size)
    contexts[0] = x
    factors, s = panel_model.sample_models(state.model, contexts, rule.most, stream)
    A = get_price_rows(rule, state)
    members, _ = choose_best_set(rule, state, x, factors[0], A, available, s)
    admitted = guard_panel(rule.explorer.guard, budget, members, available)
    if not admitted.replaced:
        for j in range(b.size):
            b[j] = bounds[j] * rule.units[j]
        fixed = mark_fixed_prices(rule, state, x)
        update_dual_prices(state.dual_prices, A, members, b, fixed, rule.kept)
    draws = np.empty(rule.explorer.draws, np.int64)
    fill_draws_from_set(draws, admitted.members)
    kept = admitted.kept and not budget.alarm[0]
    return base.make_plain_ticket(t, x, draws, available, kept, admitted.replaced)


@jit_apart
def explore_panel(
    rule: DistinctRule, state: DistinctState, x: int, rng: RngKey, available: Bools
) -> Ticket:
    """A round of `distinct`."""
    return base.decide(rule, state, x, rng, available)


@jit_apart
def learn_exploration(
    rule: DistinctRule, state: DistinctState, ticket: Ticket, feedback: Feedback
) -> None:
    """Learn from a round of `distinct`."""
    learn(rule, state, ticket, feedback)


@step(base.decide, NoisyOrRule)
def decide_noisy_or(
    rule: NoisyOrRule, state: NoisyOrState, context: int, rng: RngKey, available: Bools
) -> Ticket:
    """`decide`: `distinct` in a random share of the rounds, else the model."""
    s, explorer, learned = open_stream(rng, MODEL_STREAM), rule.explorer, state.explorer
    due = state.rounds[0] % rule.batch == 0 or learned.budget.windows.begun[0]
    note_context(state, context)
    if due:
        before = learned.bounds.copy()
        fill_paced_bounds(learned.bounds, explorer.guard, learned.budget, explorer.pace)
        scoped = explorer.guard.windows.scoped
        if rule.kept < 1.0 and has_jumped(before, learned.bounds, scoped):
            restart_prices(state.dual_prices, 1.0)
    elif rule.tenants:
        fill_tenant_bounds(learned.bounds, explorer.guard, learned.budget, explorer.pace)
    if rule.tenants:
        s = fill_tenant_prices(rule, state, s)
    forecast_available(rule, state, available)
    if due:
        s = rehearse_prices(rule, state, context, available, s)
    if rule.explore > 0.0 and draw_uniforms(rng, EXPLORE_STREAM, 1)[0] < rule.explore:
        ticket = explore_panel(explorer, learned, context, rng, available)
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
        learn_exploration(rule.explorer, state.explorer, ticket, feedback)
    learn_report(rule, state, ticket, feedback)


@jit_embedded
def learn_report(
    rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket, feedback: Feedback
) -> None:
    """Update the model; with another scale of rewards, prices are in another unit."""
    interval = state.model.belief.scale.interval
    width = interval[1]
    if rule.growth > 1.0:
        panel_model.forget_some(state.model, ticket.context, rule.growth)
    if panel_model.learn_panel(state.model, rule.kind, ticket, feedback):
        restart_prices(state.dual_prices, width / interval[1])
        forget_curves(state.curves)


@step(settle, NoisyOrRule)
def settle_noisy_or(
    rule: NoisyOrRule,
    state: NoisyOrState,
    t: int,
    members: Ints,
    more: Floats,
    spend: Floats,
    held: Floats,
) -> None:
    """`settle`: in the budget of all rounds."""
    settle_calls(rule.explorer.guard, state.explorer.budget, t, members, more, spend, held)


@step(enter, NoisyOrRule)
def enter_noisy_or(rule: NoisyOrRule, state: NoisyOrState, x: int) -> None:
    """`enter`: in the budget of all rounds."""
    enter_context(state.explorer.budget.windows, x)


@step(load_tenant, NoisyOrRule)
def load_noisy_or(rule: NoisyOrRule, state: NoisyOrState, ledgers: Ledgers, slot: int) -> None:
    """`load_tenant`: into the budget of all rounds."""
    load_rows(rule.explorer.guard, state.explorer.budget, ledgers, slot)


@step(store_tenant, NoisyOrRule)
def store_noisy_or(rule: NoisyOrRule, state: NoisyOrState, ledgers: Ledgers, slot: int) -> None:
    """`store_tenant`: from the budget of all rounds."""
    store_rows(rule.explorer.guard, state.explorer.budget, ledgers, slot)


@step(begin_tenant, NoisyOrRule)
def begin_noisy_or(
    rule: NoisyOrRule, state: NoisyOrState, ledgers: Ledgers, slot: int, tenants: int, keep: bool
) -> None:
    """`begin_tenant`: in the budget of all rounds."""
    begin_windows(rule.explorer.guard, state.explorer.budget, ledgers, slot, tenants, keep)


@step(advance, NoisyOrRule)
def advance_noisy_or(rule: NoisyOrRule, state: NoisyOrState, at: int) -> None:
    """`advance`: the budget of all rounds."""
    advance_windows(rule.explorer.guard, state.explorer.budget, at)


@step(find_spent, NoisyOrRule)
def find_spent_noisy_or(rule: NoisyOrRule, state: NoisyOrState, at: int, available: Bools) -> int:
    """`find_spent`: by the budget of all rounds."""
    return find_spent_limit(rule.explorer.guard, state.explorer.budget, at, available)


@step(note_refused, NoisyOrRule)
def note_refused_noisy_or(rule: NoisyOrRule, state: NoisyOrState, at: int, requests: int) -> None:
    """`note_refused`: in the budget of all rounds."""
    count_requests(state.explorer.budget.windows, at, float(requests))


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
    forget:  half-life of what is learned, in rewards; None: nothing is forgotten, unless alarms or
             bets on a recent belief show a change
    """

    explore: float = 0.0
    pace: float | None = DEFAULT_PACE
    guard: bool = True
    forget: float | None = None

    name = "noisy-or"
    label = "noisy-or"
    summary = "draws panels of different experts and learns a model of their joint value"
    streams = (RngStream.EXPLORE, RngStream.MODEL, *Distinct.streams)
    derived = Distinct.derived
    restarted = Distinct.restarted
    keeps_windows = True
    keeps_groups = True
    feedback: ClassVar[tuple[FeedbackKind, ...]] = ("panel", "members", "winner")
    checks: ClassVar[Mapping[str, SettingKind]] = {
        "explore": SHARE,
        "pace": PACE_SETTING,
        "forget": HALF_LIFE,
    }

    @property
    def has_propensities(self) -> bool:
        """Only if every round explores."""
        return self.explore == 1

    def bind(
        self, problem: Problem, horizon: int | None = None, feedback: FeedbackKind = "panel"
    ) -> NoisyOrRule:
        if self.explore > 0 and problem.needs_labels:
            what = "rounds of exploration know no limits of some contexts or of each tenant"
            raise PolicyError(what, remedy="use explore=0, or limits for all requests")
        settings = Distinct(pace=self.pace, guard=self.guard)
        explorer = bind_explorer(problem, horizon, settings, self.explore > 0)
        scale = compute_row_units(problem) / compute_price_units(problem)
        return NoisyOrRule(
            kind=panel_model.FEEDBACK_CODES[feedback],
            explore=float(self.explore),
            batch=REHEARSAL_BATCH,
            growth=1.0 if self.forget is None else 2.0 ** (1.0 / self.forget),
            fewest=problem.min_members,
            most=min(problem.draws, problem.size),
            A=explorer.guard.A * scale[:, None],
            units=scale,
            kept=CALENDAR_KEPT_SQUARES if problem.calendars else 1.0,
            tenants=problem.has_tenants,
            explorer=explorer,
        )

    def start(self, rule: NoisyOrRule, contexts: int = 1) -> NoisyOrState:
        """The prior in every context; raises if the beliefs take too much memory."""
        d, K = rule.A.shape
        needed = count_posterior_bytes(contexts, K)
        if needed > MAX_POSTERIOR_BYTES:
            raise PolicyError(
                f"beliefs about pairs of {K:,} experts and {contexts:,} contexts take "
                f"{needed / 2**30:.3g} GiB, and noisy-or takes at most "
                f"{MAX_POSTERIOR_BYTES / 2**30:g}; "
                "use fewer, coarser contexts, or 'distinct', which remembers no pairs"
            )
        return NoisyOrState(
            visits=np.zeros(contexts, np.int64),
            drawn=np.zeros((contexts, K), np.int64),
            rounds=np.zeros(1, np.int64),
            recent=np.zeros(RECENT_CONTEXTS, np.int64),
            model=panel_model.make_panel_model(rule.kind, contexts, K, rule.most),
            dual_prices=make_dual_prices(d),
            curves=make_price_curves(d if rule.tenants else 0),
            explorer=Distinct().start(rule.explorer, contexts),
        )

    def max_contexts(self, size: int) -> int:
        """Contexts whose beliefs fit into the memory."""
        left = MAX_POSTERIOR_BYTES - count_posterior_bytes(0, size)
        return max(0, left // panel_model.count_context_bytes(size))

    def is_valid_state(self, rule: NoisyOrRule, state: NoisyOrState) -> bool:
        listed = (state.recent >= 0) & (state.recent < len(state.visits))
        return (
            super().is_valid_state(rule, state)
            and bool(state.rounds[0] >= 0 and listed.all())
            and base.has_valid_counts(state.visits, state.drawn)
            and Distinct().is_valid_state(rule.explorer, state.explorer)
        )

    def prices(self, problem: Problem, rule: NoisyOrRule, state: NoisyOrState) -> Floats:
        """The current prices; unknown for a limit that leaves no choice of panels."""
        if state.dual_prices.moves[0] == 0:
            return np.full(len(problem.limits), np.nan)
        unit = compute_row_units(problem) / rule.units
        tight = rule.units * MIN_ROW_SLACK >= 1.0 - 1e-9
        width = state.belief.scale.interval[1]  # of rewards, which the model works on
        return np.where(tight, np.nan, width * state.dual_prices.price / unit)

    def predict_random_panels(
        self, rule: NoisyOrRule, state: NoisyOrState, context: int
    ) -> float | None:
        """Return what the posterior mean expects of them, once enough rewards are known."""
        return panel_model.predict_random_panels(state.model, context, rule.most)

    def derive(self, rule: NoisyOrRule, state: NoisyOrState) -> None:
        """Compute the derived fields of `distinct`."""
        Distinct().derive(rule.explorer, state.explorer)

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """The budget is that of `distinct`; a rehearsal is due at once."""
        parts = [BoundPolicy(x.problem, x.rule.explorer, x.state.explorer) for x in (old, new)]
        Distinct().finish_migration(change, *parts)
        base.round_up_visits(new.state.rounds, new.rule.batch)


def count_posterior_bytes(contexts: int, size: int) -> int:
    """Bytes of the covariance root, and of what so many contexts add."""
    return 8 * size**2 + contexts * panel_model.count_context_bytes(size)
