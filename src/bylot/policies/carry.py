"""What a policy knows, carried over to a problem that was changed while it ran.

Owns which number goes where; that what comes out is sound is for the policy to say.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bylot.kernels.compile import Bools, Floats, Ints
from bylot.kernels.softmax import fill_softmax
from bylot.policies import omd
from bylot.policies.ascent import clamp
from bylot.policies.dual import Dual
from bylot.policies.guard import Account, Guard
from bylot.policies.index import IndexState
from bylot.policies.lagrangian import Multipliers
from bylot.policies.lot import LOW, LotState
from bylot.policies.onesided import units
from bylot.policies.panel import PanelState, measures
from bylot.policies.policy import Derives, Policy
from bylot.policies.posterior import VARIANCE, Posterior, fill_root
from bylot.policies.price import Till
from bylot.policies.remainder import beyond, play_on
from bylot.policies.tangents import fill_mixture
from bylot.policies.thompson import ThompsonState
from bylot.policies.toll import DEAREST, SQUARES, Toll
from bylot.problem import Problem


class Bound(NamedTuple):
    """A policy at work: the problem, the rule it binds to, and what was learned so far."""

    problem: Problem
    rule: Any
    state: Any


@dataclass(frozen=True)
class Shift:
    """What is where, in two problems: experts by their names, limits by what and which side."""

    old: Problem
    new: Problem

    @cached_property
    def experts(self) -> tuple[Ints, Ints]:
        """The places of those that are in both: in the old problem, in the new one."""
        return shared(self.old.experts, self.new.experts)

    @cached_property
    def limits(self) -> tuple[Ints, Ints]:
        """The places of limits on the same side of the same cost, whatever their bounds."""
        return shared([one.key for one in self.old.limits], [one.key for one in self.new.limits])

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


def same_pool(old: Problem, new: Problem) -> bool:
    """Are panels drawn from the same experts, as many at a time?"""
    return old.experts == new.experts and old.draws == new.draws


def shared(old: Any, new: Any) -> tuple[Ints, Ints]:
    """Where the things are that both have: in the first, in the second."""
    places = {one: i for i, one in enumerate(old)}
    pairs = [(places[one], i) for i, one in enumerate(new) if one in places]
    here, there = np.array(pairs, np.int64).reshape(-1, 2).T
    return here, there


def carried(policy: Policy, before: Bound, problem: Problem, rule: Any) -> Any:
    """The state to go on with under another problem, to which the policy was bound anew.

    Experts keep what was learned of them, by name; one that is new begins as `start` has it, one
    that is gone leaves no trace. Limits keep their prices and multipliers, in the units of the new
    problem; a new one costs nothing yet. A guard's period goes on (`remain`). A step that is taken
    once a batch is due at once, so that the next decision of every context is made under the new
    limits.
    """
    state = policy.start(rule, len(before.state.visits))
    shift = Shift(before.problem, problem)
    derived = policy.derived if isinstance(policy, Derives) else ()
    copy(before.state, state, shift, before.state.visits > 0, (*FRESH, *derived))
    if isinstance(state, LotState):
        redraw(rule, state, shift)
    elif isinstance(state, omd.OmdState):
        refloor(rule, state)
    elif isinstance(state, (IndexState, ThompsonState)):
        reorder(state.place, shift)
    if isinstance(policy, Derives):
        policy.derive(rule, state)
    if hasattr(rule, "guard"):
        remain(before, rule.guard, state.account, shift)
    make_due(rule, state.visits)
    if isinstance(state, PanelState):
        make_due(rule.explorer, state.explorer.visits)
    return state


FRESH = ("bounds", "u")
"""Fields that begin anew, beside those that follow from others."""


def copy(old: Any, new: Any, shift: Shift, used: Bools, fresh: tuple[str, ...]) -> None:
    """Write what is known into the arrays of a blank state, in the contexts that were in use."""
    for name, was, now in zip(old._fields, old, new, strict=True):
        if type(was) in PARTS:
            PARTS[type(was)](was, now, shift)
        elif isinstance(was, tuple):
            copy(was, now, shift, used, fresh)
        elif name == "paid":
            shift.by_limit(was, now, shift.growth(shift.old.peaks, shift.new.peaks))
        elif was.ndim == 2 and name not in fresh:
            here, there = shift.experts
            now[np.ix_(used, there)] = was[np.ix_(used, here)]
        elif was.ndim == 1 and name not in fresh:
            now[:] = was  # a number a context, or one for all of them


def recount(was: Account, now: Account, shift: Shift) -> None:
    """What is counted since the first decision goes on, but for periods that missed a limit which
    had another bound.
    """
    now.replaced[:] = was.replaced
    here, there = shift.limits
    same = shift.old.bounds[here] == shift.new.bounds[there]
    now.missed[there[same]] = was.missed[here[same]]


def remain(before: Bound, guard: Guard, account: Account, shift: Shift) -> None:
    """Go on with the period that was begun. A limit whose bound is the same keeps what was spent or
    saved; of one with another bound only what was overspent is kept, as what was saved was saved
    from another bound; one that is new counts as just kept so far.
    """
    old, was = before.rule.guard, before.state.account
    over, (here, there) = np.zeros(guard.b.size), shift.limits
    same = shift.old.bounds[here] == shift.new.bounds[there]
    more = beyond(old, was)[here] * units(shift.old)[here] / units(shift.new)[there]
    over[there] = np.where(same, more, np.maximum(more, 0.0))
    play_on(old, was, guard, account, over)


def reweigh(was: Dual, now: Dual, shift: Shift) -> None:
    """The dual player's point and its steps; what it was charged and has not answered is gone."""
    shift.by_limit(was.w, now.w)
    now.steps[:], now.energy[:] = was.steps, was.energy


def reprice(was: Till, now: Till, shift: Shift) -> None:
    """Prices, which are per unit of the one-sided rows."""
    shift.by_limit(was.paid, now.paid, shift.growth(units(shift.old), units(shift.new)))
    now.gone[:] = was.gone


def multiply(was: Multipliers, now: Multipliers, shift: Shift) -> None:
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


def retoll(was: Toll, now: Toll, shift: Shift) -> None:
    """Prices per unit of their rows, and the squares that their steps are measured by: where a
    limit leaves another room, steps are long again. Where one is new, prices are rehearsed as at
    the start.
    """
    growth = shift.growth(measures(shift.old), measures(shift.new))
    shift.by_limit(was.price, now.price, growth)
    shift.by_limit(was.squares, now.squares, growth == 1.0)
    now.price[:] = np.minimum(now.price, DEAREST)
    now.squares[:] = np.maximum(now.squares, SQUARES)
    now.moves[:] = was.moves if len(shift.limits[0]) == now.price.size else 0


def recall(was: Posterior, now: Posterior, shift: Shift) -> None:
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
            P, known = VARIANCE * np.eye(now.beta.shape[1]), was.root[x][:, here]
            P[np.ix_(there, there)] = known.T @ known
            fill_root(now.root[x], P)


PARTS: dict[type, Any] = {
    Account: recount,
    Dual: reweigh,
    Till: reprice,
    Multipliers: multiply,
    Toll: retoll,
    Posterior: recall,
}


def redraw(rule: Any, state: LotState, shift: Shift) -> None:
    """q = (1 - eps) softmax(theta) + eps f0 anew where the pool is another; else it stays as it is,
    up to the next step.
    """
    if same_pool(shift.old, shift.new):
        return
    for x in np.flatnonzero(state.visits):
        theta, q, pi = state.theta[x], state.q[x], np.empty(rule.mild.size)
        clamp(theta, theta.max(), LOW, 0.0)
        fill_softmax(pi, theta)
        fill_mixture(q, pi, rule.eps, rule.mild)
        q /= q.sum()
        state.mass[x] = np.cumsum(q)


def refloor(rule: omd.OmdRule, state: omd.OmdState) -> None:
    """q on the simplex above the floor: what is above the floor, scaled, where it is not so yet."""
    for x in np.flatnonzero(state.visits).tolist():
        q, spare = state.q[x], 1.0 - rule.floor * state.q.shape[1]
        if (q < rule.floor).any() or abs(q.sum() - 1.0) > 1e-12:
            above = np.maximum(q - rule.floor, 0.0)
            total = above.sum()
            q[:] = rule.floor + (above * (spare / total) if total > 0 else spare / q.size)
        omd.settle(rule, state, x)


def reorder(place: Ints, shift: Shift) -> None:
    """The order of a warm-up: of those that stay as it was, and the new ones behind them."""
    new = np.ones(place.shape[1], np.bool_)
    new[shift.experts[1]] = False
    behind = place + np.where(new, len(shift.old.experts), 0)
    place[:] = np.argsort(np.argsort(behind, axis=1, kind="stable"), axis=1, kind="stable")


def make_due(rule: Any, visits: Ints) -> None:
    """Visits rounded up to whole batches, after which a policy takes a step."""
    batch = rule.climb.batch if hasattr(rule, "climb") else getattr(rule, "batch", 1)
    visits[:] = -(-visits // batch) * batch
