"""What a policy knows, carried over to a problem that was changed while it ran.

Owns which number goes where; that what comes out is sound is for the policy to say.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.conditional_poisson import fill_softmax
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.policies import omd
from bylot.policies.base import HasDerivedState, Policy
from bylot.policies.budget import compute_overspend, continue_period
from bylot.policies.constraint_rows import compute_row_units
from bylot.policies.guard import Budget, Guard
from bylot.policies.iid_draws import MIN_IID_LOGIT, IidState
from bylot.policies.iid_limits import fill_mixture
from bylot.policies.mirror_ascent import clamp_logits
from bylot.policies.multipliers import (
    INITIAL_SQUARES,
    MAX_DUAL_PRICE,
    DualPrices,
    MultiplierAverage,
    Multipliers,
)
from bylot.policies.noisy_or import NoisyOrState, compute_price_units
from bylot.policies.noisy_or_posterior import PRIOR_VARIANCE, Posterior, fill_cholesky_root
from bylot.policies.omd import DualPlayer
from bylot.policies.thompson import ThompsonState
from bylot.policies.ucb import UcbState
from bylot.problem import Problem


class BoundPolicy(NamedTuple):
    """A policy at work: the problem, the rule it binds to, and what was learned so far."""

    problem: Problem
    rule: Any
    state: Any


@dataclass(frozen=True)
class ProblemChange:
    """What is where, in two problems: experts by their names, limits by what and which side."""

    old: Problem
    new: Problem

    @cached_property
    def experts(self) -> tuple[Ints, Ints]:
        """The places of those that are in both: in the old problem, in the new one."""
        return match_positions(self.old.experts, self.new.experts)

    @cached_property
    def limits(self) -> tuple[Ints, Ints]:
        """The places of limits on the same side of the same cost, whatever their bounds."""
        return match_positions(
            [one.key for one in self.old.limits], [one.key for one in self.new.limits]
        )

    def by_limit(self, was: Floats, now: Floats, growth: Any = 1.0) -> None:
        """Copy a number a limit; a policy that looks at no limits has none."""
        if was.size and now.size:
            here, there = self.limits
            now[there] = was[here] * np.broadcast_to(growth, now.shape)[there]

    def growth(self, old: Floats, new: Floats) -> Floats:
        """By how much the unit of each limit has grown; 1 for a new one."""
        factor, (here, there) = np.ones(new.size), self.limits
        factor[there] = new[there] / old[here]
        return factor


def has_same_pool(old: Problem, new: Problem) -> bool:
    """Are panels drawn from the same experts, as many at a time?"""
    return old.experts == new.experts and old.draws == new.draws


def match_positions(old: Any, new: Any) -> tuple[Ints, Ints]:
    """Where the things are that both have: in the first, in the second."""
    places = {one: i for i, one in enumerate(old)}
    pairs = [(places[one], i) for i, one in enumerate(new) if one in places]
    here, there = np.array(pairs, np.int64).reshape(-1, 2).T
    return here, there


def migrate_state(policy: Policy, before: BoundPolicy, problem: Problem, rule: Any) -> Any:
    """The state to go on with under another problem, to which the policy was bound anew.

    Experts keep what was learned of them, by name; one that is new begins as `start` has it, one
    that is gone leaves no trace. Limits keep their prices and multipliers, in the units of the new
    problem; a new one costs nothing yet. A guard's period goes on (`migrate_budget`). A step that is taken
    once a batch is due at once, so that the next decision of every context is made under the new
    limits.
    """
    state = policy.start(rule, len(before.state.visits))
    shift = ProblemChange(before.problem, problem)
    derived = policy.derived if isinstance(policy, HasDerivedState) else ()
    copy_state_arrays(
        before.state, state, shift, before.state.visits > 0, (*UNMIGRATED_FIELDS, *derived)
    )
    if isinstance(state, IidState):
        migrate_iid_state(rule, state, shift)
    elif isinstance(state, omd.OmdState):
        migrate_omd_state(rule, state)
    elif isinstance(state, (UcbState, ThompsonState)):
        migrate_warmup_order(state.place, shift)
    if isinstance(policy, HasDerivedState):
        policy.derive(rule, state)
    if hasattr(rule, "guard"):
        migrate_budget(before, rule.guard, state.account, shift)
    round_up_visits(rule, state.visits)
    if isinstance(state, NoisyOrState):
        round_up_visits(rule.explorer, state.explorer.visits)
    return state


UNMIGRATED_FIELDS = ("bounds", "u")
"""Fields that begin anew, beside those that follow from others."""


def copy_state_arrays(
    old: Any, new: Any, shift: ProblemChange, used: Bools, fresh: tuple[str, ...]
) -> None:
    """Write what is known into the arrays of a blank state, in the contexts that were in use."""
    for name, was, now in zip(old._fields, old, new, strict=True):
        if type(was) in PART_MIGRATIONS:
            PART_MIGRATIONS[type(was)](was, now, shift)
        elif isinstance(was, tuple):
            copy_state_arrays(was, now, shift, used, fresh)
        elif name == "paid":
            shift.by_limit(was, now, shift.growth(shift.old.peaks, shift.new.peaks))
        elif was.ndim == 2 and name not in fresh:
            here, there = shift.experts
            now[np.ix_(used, there)] = was[np.ix_(used, here)]
        elif was.ndim == 1 and name not in fresh:
            now[:] = was  # a number a context, or one for all of them


def migrate_period(was: Budget, now: Budget, shift: ProblemChange) -> None:
    """What is counted since the first decision goes on, but for periods that missed a limit which
    had another bound.
    """
    now.replaced[:] = was.replaced
    here, there = shift.limits
    same = shift.old.bounds[here] == shift.new.bounds[there]
    now.missed[there[same]] = was.missed[here[same]]


def migrate_budget(
    before: BoundPolicy, guard: Guard, account: Budget, shift: ProblemChange
) -> None:
    """Go on with the period that was begun. A limit whose bound is the same keeps what was spent or
    saved; of one with another bound only what was overspent is kept, as what was saved was saved
    from another bound; one that is new counts as just kept so far.
    """
    old, was = before.rule.guard, before.state.account
    over, (here, there) = np.zeros(guard.b.size), shift.limits
    same = shift.old.bounds[here] == shift.new.bounds[there]
    more = (
        compute_overspend(old, was)[here]
        * compute_row_units(shift.old)[here]
        / compute_row_units(shift.new)[there]
    )
    over[there] = np.where(same, more, np.maximum(more, 0.0))
    continue_period(old, was, guard, account, over)


def migrate_dual_player(was: DualPlayer, now: DualPlayer, shift: ProblemChange) -> None:
    """The dual player's point and its steps; what it was charged and has not answered is gone."""
    shift.by_limit(was.w, now.w)
    now.steps[:], now.energy[:] = was.steps, was.energy


def migrate_multiplier_average(
    was: MultiplierAverage, now: MultiplierAverage, shift: ProblemChange
) -> None:
    """Prices, which are per unit of the one-sided rows."""
    shift.by_limit(
        was.paid, now.paid, shift.growth(compute_row_units(shift.old), compute_row_units(shift.new))
    )
    now.gone[:] = was.gone


def migrate_multipliers(was: Multipliers, now: Multipliers, shift: ProblemChange) -> None:
    """Multipliers per unit of the largest cost, and sums in that unit; a limit that is new counts
    as just kept so far.
    """
    growth = shift.growth(shift.old.peaks, shift.new.peaks)
    now.rounds[:] = was.rounds
    if now.lam.size:
        bounds = shift.new.bounds / shift.new.peaks
        now.spent[:], now.last[:] = was.rounds[0] * bounds, bounds if was.rounds[0] else 0.0
    shift.by_limit(was.lam, now.lam, growth)
    shift.by_limit(was.spent, now.spent, 1.0 / growth)
    shift.by_limit(was.last, now.last, 1.0 / growth)


def migrate_dual_prices(was: DualPrices, now: DualPrices, shift: ProblemChange) -> None:
    """Prices per unit of their rows, and the squares that their steps are measured by: where a
    limit leaves another room, steps are long again. Where one is new, prices are rehearsed as at
    the start.
    """
    growth = shift.growth(compute_price_units(shift.old), compute_price_units(shift.new))
    shift.by_limit(was.price, now.price, growth)
    shift.by_limit(was.squares, now.squares, growth == 1.0)
    now.price[:] = np.minimum(now.price, MAX_DUAL_PRICE)
    now.squares[:] = np.maximum(now.squares, INITIAL_SQUARES)
    now.moves[:] = was.moves if len(shift.limits[0]) == now.price.size else 0


def migrate_posterior(was: Posterior, now: Posterior, shift: ProblemChange) -> None:
    """Beliefs about those that stay and about what they have in common, where there are any yet;
    one that is new has nothing in common with anybody.
    """
    used, (here, there) = np.flatnonzero(was.rewards), shift.experts
    now.squares[used], now.missed[used] = was.squares[used], was.missed[used]
    now.rewards[used] = was.rewards[used]
    for old, new in ((was.beta, now.beta), (was.drift, now.drift)):
        new[np.ix_(used, there)] = old[np.ix_(used, here)]
    for x in used:
        if shift.old.experts == shift.new.experts:
            now.root[x] = was.root[x]
        else:
            P, known = PRIOR_VARIANCE * np.eye(now.beta.shape[1]), was.root[x][:, here]
            P[np.ix_(there, there)] = known.T @ known
            fill_cholesky_root(now.root[x], P)


PART_MIGRATIONS: dict[type, Any] = {
    Budget: migrate_period,
    DualPlayer: migrate_dual_player,
    MultiplierAverage: migrate_multiplier_average,
    Multipliers: migrate_multipliers,
    DualPrices: migrate_dual_prices,
    Posterior: migrate_posterior,
}


def migrate_iid_state(rule: Any, state: IidState, shift: ProblemChange) -> None:
    """q = (1 - eps) softmax(theta) + eps f0 anew where the pool is another; else it stays as it is,
    up to the next step.
    """
    if has_same_pool(shift.old, shift.new):
        return
    for x in np.flatnonzero(state.visits):
        theta, q, pi = state.theta[x], state.q[x], np.empty(rule.mild.size)
        clamp_logits(theta, theta.max(), MIN_IID_LOGIT, 0.0)
        fill_softmax(pi, theta)
        fill_mixture(q, pi, rule.eps, rule.mild)
        q /= q.sum()
        state.mass[x] = np.cumsum(q)


def migrate_omd_state(rule: omd.OmdRule, state: omd.OmdState) -> None:
    """q on the simplex above the floor: what is above the floor, scaled, where it is not so yet."""
    for x in np.flatnonzero(state.visits).tolist():
        q, spare = state.q[x], 1.0 - rule.floor * state.q.shape[1]
        if (q < rule.floor).any() or abs(q.sum() - 1.0) > 1e-12:
            above = np.maximum(q - rule.floor, 0.0)
            total = above.sum()
            q[:] = rule.floor + (above * (spare / total) if total > 0 else spare / q.size)
        omd.refresh_omd_context(rule, state, x)


def migrate_warmup_order(place: Ints, shift: ProblemChange) -> None:
    """The order of a warm-up: of those that stay as it was, and the new ones behind them."""
    new = np.ones(place.shape[1], np.bool_)
    new[shift.experts[1]] = False
    behind = place + np.where(new, len(shift.old.experts), 0)
    place[:] = np.argsort(np.argsort(behind, axis=1, kind="stable"), axis=1, kind="stable")


def round_up_visits(rule: Any, visits: Ints) -> None:
    """Visits rounded up to whole batches, after which a policy takes a step."""
    batch = rule.climb.batch if hasattr(rule, "climb") else getattr(rule, "batch", 1)
    visits[:] = -(-visits // batch) * batch
