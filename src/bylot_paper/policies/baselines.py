"""What baselines share: multipliers of the limits, a round-robin warm-up, and what they see.

Multipliers move by subgradient ascent on a Lagrangian. The first ceil(K / M) visits of a context go
through all experts in a random order of its own.
"""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from bylot.errors import OutOfReachWarning
from bylot.limits.request import Ticket, View
from bylot.numerics.jit import Floats, Ints, jit, jit_inline
from bylot.numerics.philox import WARMUP_STREAM, RngKey, RngStream
from bylot.numerics.sampling import add_panel_cost, is_first_draw, shuffle_front
from bylot.numerics.scratch_arrays import scratch_floats
from bylot.policies.base import (
    NO_WINNER,
    BoundPolicy,
    Feedback,
    FeedbackKind,
    Policy,
    count_members,
    has_valid_counts,
)
from bylot.policies.validation import NOT_NEGATIVE, SettingKind, one_of
from bylot.problem import Problem
from bylot.problem.change import ProblemChange

DualOn = Literal["average", "instant"]


class KnapsackLimits(NamedTuple):
    """The limits, in units of the largest cost under each, and how their multipliers move."""

    rows: Floats  # (d, K)
    bounds: Floats  # (d,)
    signs: Floats  # (d,) -1 for an upper bound, +1 for a lower one
    step: float
    anytime: bool  # the step is divided by sqrt(t)
    instant: bool  # the violation is the last round's, not that of the running average


class Multipliers(NamedTuple):
    """The state of the Lagrangian, shared by all contexts."""

    lam: Floats  # (d,) at least 0
    spent: Floats  # (d,) realised cost of all rounds
    last: Floats  # (d,) and of the last one
    rounds: Ints

    def migrate(self, new: "Multipliers", change: ProblemChange) -> None:
        """Sums are in units of the largest cost; a new limit counts as just satisfied so far."""
        growth = change.growth(change.old.peaks, change.new.peaks)
        new.rounds[:] = self.rounds
        if new.lam.size:
            bounds = change.new.bounds / change.new.peaks
            new.spent[:], new.last[:] = self.rounds[0] * bounds, bounds if self.rounds[0] else 0.0
        change.copy_by_limit(self.lam, new.lam, growth)
        change.copy_by_limit(self.spent, new.spent, 1.0 / growth)
        change.copy_by_limit(self.last, new.last, 1.0 / growth)

    def is_valid(self, rule: Any) -> bool:
        return bool(all((part >= 0).all() for part in self) and (self.lam < 1e200).all())


def make_knapsack(problem: Problem, step: float, anytime: bool, dual_on: DualOn) -> KnapsackLimits:
    """Return the limits of a problem, scaled so that a change of unit changes no decision."""
    if problem.full_conflict is not None:
        warning = OutOfReachWarning(
            f"this policy asks {min(problem.draws, problem.size)} different experts every time, "
            "which cannot keep {limits}",
            limits=problem.full_conflict.limits,
            remedy="use a policy that draws with replacement, such as 'omd', or fewer draws",
        )
        warnings.warn(warning, stacklevel=4)
    peak = problem.peaks
    return KnapsackLimits(
        rows=problem.rows / peak[:, None],
        bounds=problem.bounds / peak,
        signs=problem.signs.astype(np.float64),
        step=float(step),
        anytime=anytime,
        instant=dual_on == "instant",
    )


def make_multipliers(limits: KnapsackLimits) -> Multipliers:
    """Return multipliers of 0."""
    d = limits.bounds.size
    return Multipliers(np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(1, np.int64))


@jit_inline
def step_multipliers(limits: KnapsackLimits, state: Multipliers) -> None:
    """lam_j <- max(0, lam_j - step sign_j (cost_j - bound_j)), the cost being what was charged."""
    rounds = state.rounds[0]
    if rounds > 0:
        step = limits.step / np.sqrt(rounds) if limits.anytime else limits.step
        for j in range(state.lam.size):
            cost = state.last[j] if limits.instant else state.spent[j] / rounds
            lower = state.lam[j] - step * limits.signs[j] * (cost - limits.bounds[j])
            state.lam[j] = max(0.0, lower)


@jit_inline
def charge_multipliers(limits: KnapsackLimits, state: Multipliers, draws: Ints) -> None:
    """Charge the cost of the distinct members of a panel."""
    for j in range(state.last.size):
        state.last[j] = 0.0
    add_panel_cost(state.last, limits.rows, draws)
    for j in range(state.last.size):
        state.spent[j] += state.last[j]
    state.rounds[0] += 1


def note_panel(rule: Any, state: Any, view: View, ticket: Ticket) -> None:
    """Count the members of the panel that is played, and charge their cost."""
    count_members(state.drawn[ticket.context], ticket.draws)
    charge_multipliers(rule.limits, state.multipliers, ticket.draws)


@jit_inline
def add_multiplier_terms(scores: Floats, limits: KnapsackLimits, state: Multipliers) -> None:
    """score_i += sum_j lam_j sign_j c_ij: down for what an upper bound limits, up for a lower."""
    for j in range(state.lam.size):
        weight = state.lam[j] * limits.signs[j]
        for i in range(scores.size):
            scores[i] += weight * limits.rows[j, i]


def count_warmup_visits(problem: Problem) -> int:
    """Return the visits of a context until every expert had a turn: ceil(K / M)."""
    return -(-problem.size // problem.draws)


@jit
def draw_warmup_order(place: Ints, rng: RngKey) -> None:
    """Draw a random order, and write the place of each expert in it."""
    order = np.arange(place.size)
    shuffle_front(order, place.size, rng, WARMUP_STREAM)
    for n in range(place.size):
        place[order[n]] = n


@jit
def fill_warmup_scores(scores: Floats, place: Ints, turn: int, draws: int) -> None:
    """Write scores whose best M are next in the order: place M turn and the following ones.

    An unavailable expert is passed over for the next in the order.
    """
    for i in range(scores.size):
        scores[i] = -float((place[i] - turn * draws) % scores.size)


EVIDENCE: dict[FeedbackKind, int] = {"panel": 0, "members": 1, "winner": 2}
SHARED_REWARD = EVIDENCE["panel"]  # for compiled code
OWN_SCORES = EVIDENCE["members"]


@jit
def fill_evidence(evidence: Floats, kind: int, draws: Ints, feedback: Feedback) -> None:
    """Write what is seen of each draw's expert: NaN if nothing is, or if it was drawn before.

    panel:   the whole reward, to all members, as the paper does
    members: the own score of each, as semi-bandits do; nothing of a member whose score is missing
    winner:  the reward to the winner and 0 to the others, or 0 to all if nothing was earned;
             nothing if the winner of a positive reward is unknown
    """
    for j in range(draws.size):
        evidence[j] = np.nan
        if not is_first_draw(draws, j):
            continue
        if kind == SHARED_REWARD:
            evidence[j] = feedback.reward
        elif kind == OWN_SCORES:
            evidence[j] = feedback.scores[j] if feedback.scores.size > 0 else np.nan
        elif feedback.winner != NO_WINNER or feedback.reward <= 0.0:
            evidence[j] = feedback.reward if draws[j] == feedback.winner else 0.0


def learn_totals(rule: Any, state: Any, ticket: Ticket, feedback: Feedback) -> None:
    """Add what was seen of each draw's expert to its sum and its count."""
    evidence = scratch_floats(ticket.draws.size)
    fill_evidence(evidence, rule.evidence, ticket.draws, feedback)
    for j in range(evidence.size):
        if not np.isnan(evidence[j]):
            state.credited[ticket.context, ticket.draws[j]] += 1
            state.total[ticket.context, ticket.draws[j]] += evidence[j]


def has_valid_totals(drawn: Ints, credited: Ints, total: Floats) -> bool:
    """Validate sums of numbers of [0, 1], and how many they are, loaded from disk."""
    return bool(
        (credited >= 0).all()
        and (credited <= drawn).all()
        and (np.abs(total - 0.5 * credited) <= 0.5001 * credited).all()
    )


class BaselinePolicy(Policy):
    """What the learning baselines share; states have `drawn` and `multipliers`."""

    checks: ClassVar[Mapping[str, SettingKind]] = {
        "c": NOT_NEGATIVE,
        "dual_on": one_of("average", "instant"),
    }

    def bind_knapsack(self, problem: Problem, horizon: int | None) -> KnapsackLimits:
        """Return limits with steps of step / sqrt(T), or step / sqrt(t) without a horizon T."""
        if not self.uses_limits:
            none = np.zeros(0)
            return KnapsackLimits(np.zeros((0, problem.size)), none, none.copy(), 0.0, False, False)
        settings = self.to_settings()
        length = settings["step"] / (1.0 if horizon is None else float(np.sqrt(horizon)))
        return make_knapsack(problem, length, horizon is None, settings["dual_on"])

    def is_valid_state(self, rule: Any, state: Any) -> bool:
        return super().is_valid_state(rule, state) and has_valid_counts(state.visits, state.drawn)

    def prices(self, problem: Problem, rule: Any, state: Any) -> Floats:
        """Return the multipliers per unit of each bound, or NaN if the policy ignores limits."""
        if not self.uses_limits:
            return super().prices(problem, rule, state)
        return np.asarray(state.multipliers.lam / problem.peaks)


class WarmupPolicy(BaselinePolicy):
    """A baseline with a round-robin warm-up; `place` is the order of the experts in it."""

    streams: ClassVar[tuple[RngStream, ...]] = (RngStream.WARMUP,)
    feedback: ClassVar[tuple[FeedbackKind, ...]] = ("panel", "members", "winner")

    def is_valid_state(self, rule: Any, state: Any) -> bool:
        used = np.sort(state.place[state.visits > 0], axis=1)
        ordered = (used == np.arange(state.place.shape[1])).all()
        return bool(ordered) and super().is_valid_state(rule, state)

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Keep the order of the experts that stay; new ones come after them in the warm-up."""
        place = new.state.place
        joined = np.ones(place.shape[1], np.bool_)
        joined[change.experts[1]] = False
        behind = place + np.where(joined, len(change.old.experts), 0)
        place[:] = np.argsort(np.argsort(behind, axis=1, kind="stable"), axis=1, kind="stable")
