"""tangent: M i.i.d. draws as in the paper, under limits on their exact expected cost.

Mirror ascent in the entropy, with the score of the drawn *set* as its gradient, projected on the
tangents of the exact costs (`tangents`), paced and guarded.
"""

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.errors import OutOfReachWarning
from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, compiled
from bylot.kernels.draw import accumulate
from bylot.policies import ascent, lot, pacing
from bylot.policies.ascent import Climb, clamp, climb_by, stride, taken
from bylot.policies.contract import Ticket, decide, step
from bylot.policies.guard import KEPT, Guard, guarded, planned, promised
from bylot.policies.lot import LOW, LotState, drawn, playing
from bylot.policies.onesided import Rows, one_sided
from bylot.policies.pacing import HI, Pace, fill_in_force, paced
from bylot.policies.price import in_rewards, pay
from bylot.policies.settings import yes_or_no
from bylot.policies.slater import slater
from bylot.policies.tangents import floor_of_draws, keep, margin_of_draws, mildest_draws
from bylot.problem import Problem


class TangentRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    climb: Climb
    eps: float  # how much of the mildest law is mixed in
    mild: Floats  # (K,) f0
    pace: Pace
    guard: Guard


@compiled
def move(rule: TangentRule, state: LotState, x: int) -> None:
    """One step of mirror ascent, projected on the limits in force."""
    theta, q, slope, guard = state.theta[x], state.q[x], state.slope, rule.guard
    taken(slope, x, q)
    s = stride(rule.climb, slope, x)
    clamp(theta, theta.max(), LOW, 0.0)
    climb_by(theta, slope, x, s)
    fill_in_force(state.bounds, guard, state.account, rule.pace)
    prices = np.empty(guard.b.size)
    keep(theta, q, prices, guard.A, state.bounds, rule.draws, rule.eps, rule.mild)
    pay(state.till, prices, s)
    clamp(theta, theta.max(), -np.inf, 0.0)
    accumulate(q, state.mass[x])


@step(decide, TangentRule)
def _(rule: TangentRule, state: LotState, context: int, chance: Chance, up: Bools) -> Ticket:
    if state.visits[context] % rule.climb.batch == 0:
        move(rule, state, context)
    state.visits[context] += 1
    return drawn(rule, state, context, chance, up)


playing(TangentRule)


@dataclass(frozen=True)
class Tangent:
    """Settings of `tangent`; one default for every pool.

    eta:      of the step, in units of what a regret bound would have
    patience: batches that count as seen before the first, so that early steps are short
    batch:    decisions of a context between two steps
    eps:      share of the mildest law in every draw
    pace:     how far limits in force may rise after frugal rounds; 1 keeps every single round
              inside the limits in expectation, None holds limits in force as they are
    guard:    replace panels after which the limits could not be kept for certain
    clip:     let no step change a logit by more than 1
    """

    eta: float = 1.0
    patience: float = 100.0
    batch: int = 10
    eps: float = 0.02
    pace: float | None = HI
    guard: bool = True
    clip: bool = True

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        ascent.checked(self.eta, self.patience, self.batch, self.eps)
        pacing.checked(self.pace)
        yes_or_no(guard=self.guard, clip=self.clip)

    def bind(self, problem: Problem, horizon: int | None = None) -> TangentRule:
        """The rule for this problem; limits are promised at the end of the horizon, or of every
        period of the problem.
        """
        rows, M = one_sided(problem), problem.draws
        room = slater(problem, fewer=True)
        margin = margin_of_draws(rows, M, room.margin)
        if margin <= 0.0:
            warn_if_missed(problem, rows)
        period = promised(problem, horizon)
        plan = planned(rows, room.quota, period)
        entropy = math.log(max(2, problem.size))
        return TangentRule(
            draws=M,
            climb=Climb(
                float(self.eta), float(self.patience), self.batch, self.clip, False, entropy
            ),
            eps=float(self.eps),
            mild=floor_of_draws(rows, M, margin),
            pace=paced(self.pace, margin, rows.A, min(M, problem.size), full=False),
            guard=guarded(rows, plan, period, full=False, on=self.guard),
        )

    def start(self, rule: TangentRule, contexts: int = 1) -> LotState:
        """The mildest law in every context, and a period with nothing spent."""
        return lot.started(rule.guard, rule.mild, contexts)

    def sound(self, rule: TangentRule, state: LotState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return lot.sound(rule.guard, state)

    def prices(self, problem: Problem, rule: TangentRule, state: LotState) -> Floats:
        """Multipliers of recent steps; a tangent row is divided by M."""
        return in_rewards(problem, state.till, problem.draws)


def warn_if_missed(problem: Problem, rows: Rows) -> None:
    """Say so if no law of independent draws was found to keep the limits in expectation."""
    if mildest_draws(rows, problem.draws, 0.0).excess > KEPT:
        warnings.warn(
            "independent draws were not found to keep all limits, so the guard will replace many "
            "panels; 'distinct' asks different experts, which can give more to minimum shares",
            OutOfReachWarning,
            stacklevel=3,
        )
