"""OMD-Approachability, the paper's policy: Algorithm 1, its batched form, and Algorithm 2.

One iterate q per context (Algorithm 1 is the case of one context), one dual player for all.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from bylot.errors import SurrogateWarning
from bylot.limits.records import LimitRule
from bylot.limits.request import Proposal, Ticket, View
from bylot.numerics.box import box_support, clip_to_unit_ball, dual_slope_at
from bylot.numerics.dispatch import step
from bylot.numerics.iid_sets import add_expected_costs, iid_inclusion
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.philox import RngKey
from bylot.numerics.sampling import (
    add_gradient,
    fill_cumulative,
    fill_iid_draws,
    restrict_distribution,
)
from bylot.numerics.scratch_arrays import make_draws, make_probabilities, no_floats, scratch_floats
from bylot.numerics.simplex_projection import fill_halfspace_projection, project_onto_halfspace
from bylot.policies import base
from bylot.policies.base import BoundPolicy, Feedback, FeedbackKind
from bylot.policies.validation import SettingKind, check_iid_panels, is_positive_number, one_of
from bylot.problem import Problem
from bylot.problem.change import ProblemChange
from bylot.theory import context_rate, eta_star


class DualPlayer(NamedTuple):
    """The dual player: online gradient ascent on the unit ball, which weighs the limits.

    It maximises f_t(w) = w.u_t - h_S(w), whose best value in hindsight is the distance of the mean
    surrogate cost from S (paper, Lemma 4). Its steps have one size, as in the paper.
    """

    w: Floats  # its point in the unit ball, one coordinate a limit
    u: Floats  # surrogate cost of the policies played since its last step, summed
    rounds: Ints  # how many of them

    def migrate(self, new: "DualPlayer", change: ProblemChange) -> None:
        """Keep the point; charges that were not answered yet are dropped."""
        change.copy_by_limit(self.w, new.w)

    def is_valid(self, rule: Any) -> bool:
        return bool(self.rounds[0] >= 0 and (np.abs(self.w) <= 1 + 1e-9).all())


@jit_inline
def step_dual_player(length: float, dual: DualPlayer, low: Floats, high: Floats) -> None:
    """One step up f at the mean of what was charged: w <- project(w + length * slope)."""
    for j in range(dual.w.size):  # in place: a temporary array costs more than all of this
        slope = dual_slope_at(low[j], high[j], dual.u[j] / dual.rounds[0], dual.w[j])
        dual.w[j] += length * slope
        dual.u[j] = 0.0
    clip_to_unit_ball(dual.w)
    dual.rounds[0] = 0


PAPER_DUAL_STEP = 0.05
PLAIN_SETTINGS: Mapping[str, Any] = {"eta_mult": 1.0, "batch": 1, "baseline": False}


class OmdRule(NamedTuple):
    """The settings of one run, bound to a problem whose costs are scaled to [0, 1]."""

    draws: int  # M
    floor: float  # gamma
    rows: Floats  # (d, K): cost j of expert i over the largest such cost
    low: Floats  # the box S, scaled likewise
    high: Floats
    eta: float  # proximal parameter, or a in a sqrt(n_x) if anytime
    anytime: bool
    batch: int  # q moves at every batch-th visit of a context
    weight: float  # of one reward in a batch's gradient: 1/batch for the mean, 1 for the sum
    baseline: bool
    freeze: bool  # the dual too moves only when q does
    dual_step: float


class OmdState(NamedTuple):
    """A row per context, and the shared dual."""

    q: Floats  # (X, K)
    mass: Floats  # (X, K) running sums of q, which draws are looked up in
    u: Floats  # (X, d) surrogate cost of q
    g: Floats  # (X, K) gradient collected since q last moved
    feasible: Bools  # (X,) could the step that led to q keep its constraint?
    visits: Ints  # (X,)
    rewards: Ints  # (X,) how many
    total: Floats  # (X,) and their sum
    dual: DualPlayer
    paid: Floats  # (d,) multipliers of the steps so far, summed
    moves: Ints  # and how many steps that were


@jit
def move_omd(rule: OmdRule, state: OmdState, x: int) -> None:
    """The proximal step (paper, eq. 8) for context x.

    max over q >= gamma of q.g - eta/2 |q - q_x|^2  s.t.  w.(C q) <= h_S(w), which is the
    projection of q_x + g/eta on a slice of the simplex.
    """
    w, a = state.dual.w, scratch_floats(rule.rows.shape[1])
    b = fill_halfspace(a, rule, w)
    eta = rule.eta * np.sqrt(state.visits[x] + 1.0) if rule.anytime else rule.eta
    q, g = state.q[x], state.g[x]
    for i in range(q.size):
        q[i] += g[i] / eta
        g[i] = 0.0
    multiplier, feasible = fill_halfspace_projection(q, q, rule.floor, a, b)
    state.feasible[x] = feasible
    refresh_omd_context(rule, state, x)
    for j in range(w.size):
        state.paid[j] += eta * multiplier * w[j]
    state.moves[0] += 1


@jit
def fill_halfspace(a: Floats, rule: OmdRule, w: Floats) -> float:
    """Write the half-space of w, a.q <= b with a = w C and b = h_S(w); returns b."""
    a[:] = 0.0
    for j in range(w.size):
        for i in range(a.size):
            a[i] += w[j] * rule.rows[j, i]
    return box_support(rule.low, rule.high, w)


@jit
def refresh_omd_context(rule: OmdRule, state: OmdState, x: int) -> None:
    """Compute the running sums and the surrogate cost u = C q, which the paper charges a policy."""
    q, u = state.q[x], state.u[x]
    fill_cumulative(q, state.mass[x])
    u[:] = 0.0
    add_expected_costs(u, rule.rows, q)


@jit
def keep_available_halfspace(rule: OmdRule, state: OmdState, x: int, available: Bools) -> bool:
    """Project q so that q renormalised on the available experts is in w's half-space; False, and q
    unchanged, if that is impossible.

    a.q_up / sum(q_up) <= b is linear in q: sum over available i of (a_i - b) q_i <= 0. Without it,
    an outage of cheap experts would move their mass to expensive ones.
    """
    row = scratch_floats(rule.rows.shape[1])
    b = fill_halfspace(row, rule, state.dual.w)
    q, cost = state.q[x], 0.0
    for i in range(q.size):
        row[i] = row[i] - b if available[i] else 0.0
        cost += row[i] * q[i]
    if cost <= 0.0:
        return True
    found = project_onto_halfspace(q, rule.floor, row, 0.0)
    if found.feasible:
        for i in range(q.size):
            q[i] = found.q[i]
        refresh_omd_context(rule, state, x)
    return found.feasible


@step(base.propose, OmdRule)
def propose_omd(rule: OmdRule, state: OmdState, view: View, rng: RngKey) -> Proposal:
    x, available = view.context, view.available
    dual, visits = state.dual, state.visits
    due = visits[x] % rule.batch == 0
    # (a, b) w follows the costs of what was played; it moves even if no reward comes.
    if dual.rounds[0] > 0 and (due or not rule.freeze):
        step_dual_player(rule.dual_step, dual, rule.low, rule.high)
    if due:  # (c)
        move_omd(rule, state, x)
    visits[x] += 1
    # (d) from the available experts, whose cost is charged
    draws, p = make_draws(rng, rule.draws), make_probabilities(rng, rule.draws)
    feasible, share = state.feasible[x], 1.0
    if available.size == 0:
        u, charged = state.u[x], dual.u
        for j in range(u.size):
            charged[j] += u[j]
        fill_iid_draws(draws, p, state.q[x], state.mass[x], rng)
    else:
        feasible = keep_available_halfspace(rule, state, x, available)  # may move q
        share = fill_available_draws(draws, p, rule, state, x, rng, available)
    dual.rounds[0] += 1
    # The propensity takes long to compute: `draw_and_book` does it, the simulator does not.
    return Proposal(draws, p, no_floats(), share, 1.0, np.nan, feasible)


@jit
def fill_available_draws(
    draws: Ints,
    probabilities: Floats,
    rule: OmdRule,
    state: OmdState,
    x: int,
    rng: RngKey,
    available: Bools,
) -> float:
    """Draw from q on the available experts, and charge its cost; returns the share of q there."""
    q, share = state.q[x], 0.0
    for i in range(q.size):
        share += q[i] if available[i] else 0.0
    part, mass = restrict_distribution(q, available), np.empty(q.size)
    fill_cumulative(part, mass)
    cost = np.zeros(rule.rows.shape[0])
    add_expected_costs(cost, rule.rows, part)
    for j in range(cost.size):
        state.dual.u[j] += cost[j]
    fill_iid_draws(draws, probabilities, part, mass, rng)
    return share


@step(base.learn, OmdRule)
def learn_omd(rule: OmdRule, state: OmdState, ticket: Ticket, feedback: Feedback) -> None:
    """Add to the gradient, g += weight (r - baseline) (draws of i) / q_i, and to the baseline.

    Where a member was replaced, the draws are not the panel, and nothing is learned.
    """
    if ticket.replaced:
        return
    x, rewards, total = ticket.context, state.rewards, state.total
    reward = feedback.reward
    centred = reward
    if rule.baseline:  # the mean of earlier rewards; the first one says nothing yet
        centred = reward - total[x] / rewards[x] if rewards[x] > 0 else 0.0
    weighted = rule.weight * centred / ticket.share
    add_gradient(state.g[x], ticket.draws, ticket.draw_probabilities, weighted)
    # Being available must not be rewarded. With all experts available (an empty mask) this is a
    # constant shift, which the simplex projection ignores.
    for i in range(ticket.available.size):
        if ticket.available[i]:
            state.g[x, i] -= weighted * rule.draws
    rewards[x] += 1
    total[x] += reward


@step(base.compute_distribution, OmdRule)
def compute_omd_distribution(rule: OmdRule, state: OmdState, view: View) -> Floats:
    return restrict_distribution(state.q[view.context], view.available).copy()


@step(base.compute_inclusion, OmdRule)
def compute_omd_inclusion(rule: OmdRule, state: OmdState, view: View, ticket: Ticket) -> Floats:
    if ticket.replaced:
        return base.mark_members(ticket.draws, rule.rows.shape[1])
    q = restrict_distribution(state.q[view.context], view.available)
    return iid_inclusion(q, rule.draws)


@dataclass(frozen=True)
class Omd(base.Policy):
    """Settings of OMD-Approachability; the defaults are those of the paper's experiments.

    eta:             the proximal parameter itself, or None for Theorem 1's (with a horizon) and
                     Algorithm 2's anytime one (without), either times `eta_mult`
    batch:           q is held for this many visits of a context, then moves once
    batch_gradient:  "mean" over the rounds of a batch, or their "sum"; a reward that comes late
                     enters the next batch with the same weight, one that never comes with none
    baseline:        subtract the running mean of the rewards from each reward
    freeze_dual_in_batch: hold the dual too, so that (in one context) every q played satisfies its
                     constraint
    dual:            the step size of the dual player
    """

    eta: float | None = None
    eta_mult: float = 0.05
    batch: int = 10
    batch_gradient: Literal["mean", "sum"] = "mean"
    baseline: bool = True
    freeze_dual_in_batch: bool = False
    dual: float = PAPER_DUAL_STEP

    name = "omd"
    label = "OMD"
    summary = "is the paper's algorithm: independent draws under a surrogate of the limits"
    variants: ClassVar[Mapping[str, tuple[Mapping[str, Any], str]]] = {
        "omd-plain": (PLAIN_SETTINGS, "is the algorithm of the paper's theorems"),
        "omd-sum": ({"batch_gradient": "sum"}, "is omd with the summed gradients of a batch"),
        "omd-frozen": ({"freeze_dual_in_batch": True}, "is omd with a dual that moves by batches"),
    }
    draws_iid = True
    restarted = ("u", "paid")

    checks: ClassVar[Mapping[str, SettingKind]] = {
        "eta": SettingKind(
            "a positive number, or None for the paper's",
            lambda value: value is None or is_positive_number(value),
        ),
        "batch_gradient": one_of("mean", "sum"),
    }

    @classmethod
    def plain(cls, dual: float = PAPER_DUAL_STEP) -> "Omd":
        """Algorithm 1 to the letter, as in the theorems."""
        return cls(dual=dual, **PLAIN_SETTINGS)

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> OmdRule:
        check_iid_panels(self.name, problem)
        if problem.surrogate_conflict is not None:
            warning = SurrogateWarning(
                "the limits can be kept, but the paper's linear surrogate of {limits} cannot "
                f"with a floor of {problem.floor:.3g} for every expert, so OMD will play the "
                "least-violating point",
                limits=problem.surrogate_conflict.limits,
                remedy="loosen these limits or lower the floor",
            )
            warnings.warn(warning, stacklevel=3)
        peak = problem.peaks  # so that a change of unit changes no decision
        return OmdRule(
            draws=problem.draws,
            floor=problem.floor,
            rows=problem.rows / peak[:, None],
            low=problem.box.low / peak,
            high=problem.box.high / peak,
            eta=self.proximal(problem, horizon),
            anytime=self.eta is None and horizon is None,
            batch=self.batch,
            weight=1.0 / self.batch if self.batch_gradient == "mean" else 1.0,
            baseline=self.baseline,
            freeze=self.freeze_dual_in_batch,
            dual_step=float(self.dual),
        )

    def proximal(self, problem: Problem, horizon: int | None) -> float:
        """eta as given; else eta_mult times Theorem 1's, or the Corollary's a of a sqrt(n_x)."""
        if self.eta is not None:
            return float(self.eta)
        pool = problem.size, problem.draws, problem.floor
        paper = context_rate(*pool) if horizon is None else eta_star(horizon, *pool)
        return self.eta_mult * paper

    def start(self, rule: OmdRule, contexts: int = 1) -> OmdState:
        d, K = rule.rows.shape
        return OmdState(
            q=np.full((contexts, K), 1.0 / K),
            mass=np.zeros((contexts, K)),
            u=np.zeros((contexts, d)),
            g=np.zeros((contexts, K)),
            feasible=np.ones(contexts, np.bool_),
            visits=np.zeros(contexts, np.int64),
            rewards=np.zeros(contexts, np.int64),
            total=np.zeros(contexts),
            dual=DualPlayer(
                w=np.zeros(d),  # it constrains nothing
                u=np.zeros(d),
                rounds=np.zeros(1, np.int64),
            ),
            paid=np.zeros(d),
            moves=np.zeros(1, np.int64),
        )

    def is_valid_state(self, rule: OmdRule, state: OmdState) -> bool:
        used = state.visits > 0
        return bool(
            super().is_valid_state(rule, state)
            and (state.rewards >= 0).all()
            and (state.q >= rule.floor * (1 - 1e-9)).all()
            and (state.q <= 1 + 1e-9).all()
            and np.allclose(state.q.sum(axis=1), 1.0, atol=1e-9)
            and np.allclose(state.mass[used], np.cumsum(state.q, axis=1)[used], atol=1e-9)
            and state.moves[0] >= 0
        )

    def prices(self, problem: Problem, rule: OmdRule, state: OmdState) -> Floats:
        """The mean multipliers, in rewards of [0, 1] per unit of each bound.

        The surrogate's upper bound is u/M, so a unit of u loosens it by 1/M only. The multipliers
        of an empty surrogate grow without end and say nothing.
        """
        if problem.surrogate_conflict is not None:
            return np.full(len(problem.limits), np.nan)
        per_row = np.abs(state.paid) / max(1, int(state.moves[0])) / problem.peaks
        per_round = per_row / (rule.weight * rule.batch)
        return np.where(problem.signs < 0, per_round / problem.draws, per_round)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Omd":
        """Return the settings of stored data, in which 0.1.0 wrote the dual's step as an object."""
        dual = settings.get("dual")
        if isinstance(dual, Mapping) and dual.get("kind") == "fixed":
            return cls(**{**settings, "dual": dual.get("step")})
        return cls(**settings)

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Put q back on the simplex above the floor, by scaling what is above it; a step is due."""
        rule, state = new.rule, new.state
        growth = change.growth(change.old.peaks, change.new.peaks)
        change.copy_by_limit(old.state.paid, state.paid, growth)
        for x in np.flatnonzero(state.visits).tolist():
            q, spare = state.q[x], 1.0 - rule.floor * state.q.shape[1]
            if (q < rule.floor).any() or abs(q.sum() - 1.0) > 1e-12:
                above = np.maximum(q - rule.floor, 0.0)
                total = above.sum()
                q[:] = rule.floor + (above * (spare / total) if total > 0 else spare / q.size)
            refresh_omd_context(rule, state, x)
        base.round_up_visits(state.visits, rule.batch)
