"""noisy-or: the best set of M experts under a model sampled from the posterior, less prices.

A model learns what panels miss (`panel_model`); contexts share a belief and prices, and add what
they differ by. Prices of the limits follow the panels that are played (`dual_prices`). In rounds of
exploration the panel is drawn from a fixed distribution, the maximum-entropy one inside the limits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bylot.errors import PolicyError
from bylot.limits.binding import Pace, bind_limits, check_full_panels
from bylot.limits.pacing import DEFAULT_PACE
from bylot.limits.records import LimitRule, Limits
from bylot.limits.request import Proposal, Ticket, View
from bylot.limits.rows import MIN_ROW_SLACK, compute_price_units, compute_row_units
from bylot.numerics.dispatch import step
from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.philox import EXPLORE_STREAM, MODEL_STREAM, RngKey, RngStream, draw_uniform
from bylot.numerics.sampling import select_first
from bylot.numerics.scratch_arrays import no_floats, scratch_floats, scratch_ints
from bylot.numerics.variates import Xoshiro, open_stream
from bylot.policies import base, panel_model
from bylot.policies.base import BoundPolicy, Feedback, FeedbackKind, compute_inclusion, learn
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
    follow_bounds,
    get_price_rows,
    mark_fixed_prices,
    note_context,
    rehearse_prices,
)
from bylot.policies.panel_sizes import find_exploration
from bylot.policies.price_curves import forget_curves, make_price_curves
from bylot.policies.set_distributions import draw_fixed_set, restrict_fixed_sets
from bylot.policies.validation import PACE_SETTING, SHARE, SettingKind, is_number_in
from bylot.problem import Problem
from bylot.problem.change import ProblemChange

MAX_POSTERIOR_BYTES = 2**30  # of the covariance root and what contexts add
HALF_LIFE = SettingKind(
    "a number of rewards, at least 10, or None to forget nothing",
    lambda value: value is None or is_number_in(value, 10, 1e12),
)


@step(base.propose, NoisyOrRule)
def propose_noisy_or(rule: NoisyOrRule, state: NoisyOrState, view: View, rng: RngKey) -> Proposal:
    """`propose`: a panel of exploration in a random share of the rounds, else the model's."""
    s = open_stream(rng, MODEL_STREAM)
    due = state.rounds[0] % rule.batch == 0 or view.begun
    note_context(state, view.context)
    if due and follow_bounds(state, view.limits) and rule.kept < 1.0:
        restart_prices(state.dual_prices, 1.0)
    if view.limits.columns > 0:
        s = fill_tenant_prices(rule, state, view.limits, s)
    if due:
        s = rehearse_prices(rule, state, view, s)
    if rule.explore > 0.0 and draw_uniform(rng, EXPLORE_STREAM) < rule.explore:
        return explore_panel(rule, view, rng)
    return choose_model_panel(rule, state, view, s)


@jit_embedded
def choose_model_panel(
    rule: NoisyOrRule, state: NoisyOrState, view: View, stream: Xoshiro
) -> Proposal:
    """Choose the best set under a sampled model."""
    contexts = scratch_ints(1)
    contexts[0] = view.context
    limits = view.limits
    factors, s = panel_model.sample_models(state.model, contexts, rule.most, stream)
    A = get_price_rows(rule, limits)
    members, _ = choose_best_set(
        rule, state, limits, view.context, factors[0], A, view.available, s
    )
    return base.propose_members(members)


@jit_apart
def explore_panel(rule: NoisyOrRule, view: View, rng: RngKey) -> Proposal:
    """Draw a panel of the available experts from the fixed distribution."""
    sets, m = restrict_fixed_sets(rule.sets, rule.members, view.available)
    members, propensity = draw_fixed_set(sets, m, rng)
    return Proposal(members, no_floats(), sets.pi.copy(), 1.0, 1.0, propensity, True)


@step(base.note_played, NoisyOrRule)
def note_noisy_or(rule: NoisyOrRule, state: NoisyOrState, view: View, ticket: Ticket) -> None:
    """`note_played`: count the members, and let prices follow the model's panels."""
    base.count_members(state.drawn[ticket.context], ticket.draws)
    if not ticket.replaced and not is_exploration(ticket):
        move_prices(rule, state, view.limits, ticket)


@step(base.note_past, NoisyOrRule)
def note_past_round(
    rule: NoisyOrRule, state: NoisyOrState, view: View, draws: Ints, rng: RngKey
) -> None:
    """`note_past`: count the members, and fit prices to the model, as others chose the panel."""
    if state.rounds[0] % rule.batch == 0:
        rehearse_prices(rule, state, view, open_stream(rng, MODEL_STREAM))
    note_context(state, view.context)
    base.count_members(state.drawn[view.context], draws)


@jit_embedded
def move_prices(rule: NoisyOrRule, state: NoisyOrState, limits: Limits, ticket: Ticket) -> None:
    """Let prices follow a panel that is played."""
    b = scratch_floats(limits.rows.size)
    for j in range(b.size):
        b[j] = limits.bounds[j] * rule.units[j]
    fixed = mark_fixed_prices(rule, limits, ticket.context)
    members = select_first(ticket.draws, ticket.draws)
    A = get_price_rows(rule, limits)
    update_dual_prices(state.dual_prices, A, members, b, fixed, rule.kept)


@jit
def is_exploration(ticket: Ticket) -> bool:
    """Was it a round of exploration? Only these have propensities."""
    return not math.isnan(ticket.propensity)


@step(learn, NoisyOrRule)
def learn_noisy_or(
    rule: NoisyOrRule, state: NoisyOrState, ticket: Ticket, feedback: Feedback
) -> None:
    """`learn`: update the posterior, whoever chose the panel."""
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


step(base.compute_distribution, NoisyOrRule)(base.compute_pull_distribution)


@step(compute_inclusion, NoisyOrRule)
def compute_noisy_or_inclusion(
    rule: NoisyOrRule, state: NoisyOrState, view: View, ticket: Ticket
) -> Floats:
    """`compute_inclusion`: of the fixed distribution in its rounds, else the panel itself."""
    if is_exploration(ticket) and not ticket.replaced:
        return ticket.inclusion.copy()
    return base.mark_members(ticket.draws, state.drawn.shape[1])


@dataclass(frozen=True)
class NoisyOr(base.Policy):
    """Settings of `noisy-or`; one default for every pool.

    explore: share of rounds in which the panel is drawn from a fixed distribution, the
             maximum-entropy one inside the limits, and has a propensity, as off-policy evaluation
             needs
    pace:    factor by which bounds in force may exceed the limits after cheap rounds; 1: not at
             all, None keeps the bounds fixed
    guard:   replace panels after which the limits could not be guaranteed
    forget:  half-life of what is learned, in rewards; None: nothing is forgotten, unless alarms or
             bets on a recent belief show a change
    """

    explore: float = 0.0
    pace: float | None = DEFAULT_PACE
    guard: bool = field(default=True, kw_only=True)
    forget: float | None = None

    name = "noisy-or"
    label = "noisy-or"
    summary = "draws panels of different experts and learns a model of their joint value"
    streams = (RngStream.EXPLORE, RngStream.MODEL, RngStream.PANEL)
    restarted = ("bounds",)
    learns_from_logs = True
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

    def bind_limits(self, problem: Problem, horizon: int | None = None) -> LimitRule:
        """Return the limits for panels of the sizes that the problem allows."""
        if problem.min_draws is None:
            check_full_panels(problem, self.name)
        fewest = problem.min_members
        return bind_limits(problem, horizon, fewest, self.guard, Pace(self.pace, REHEARSAL_BATCH))

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> NoisyOrRule:
        limits = limits or self.bind_limits(problem, horizon)
        sets, members = find_exploration(problem, limits, self.explore > 0)
        scale = compute_row_units(problem) / compute_price_units(problem)
        return NoisyOrRule(
            kind=panel_model.FEEDBACK_CODES[feedback],
            explore=float(self.explore),
            batch=REHEARSAL_BATCH,
            growth=1.0 if self.forget is None else 2.0 ** (1.0 / self.forget),
            fewest=problem.min_members,
            most=min(problem.draws, problem.size),
            A=limits.A * scale[:, None],
            units=scale,
            bounds=limits.rows["bound"].copy(),
            kept=CALENDAR_KEPT_SQUARES if (limits.rows["window"] >= 0).any() else 1.0,
            all_limits=np.ones(len(scale), np.bool_),
            members=members,
            sets=sets,
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
            curves=make_price_curves(d),
            bounds=rule.bounds.copy(),
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

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Let a rehearsal be due at once."""
        base.round_up_visits(new.state.rounds, new.rule.batch)


def count_posterior_bytes(contexts: int, size: int) -> int:
    """Bytes of the covariance root, and of what so many contexts add."""
    return 8 * size**2 + contexts * panel_model.count_context_bytes(size)
