"""strict: M i.i.d. draws on a fixed safe set, for a world that may be against you.

Mirror ascent in the entropy over {q : A q <= b*}, the largest half-spaces that stand in safely for
the limits (`safeset`; the paper's are inside them), with steps that only get shorter and are not
clipped, no pacing, and unless it is asked for no guard: what the regret bound of mirror ascent on
a concave reward assumes, and nothing else.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, compiled
from bylot.kernels.draw import accumulate
from bylot.kernels.tilt import tilt
from bylot.policies import ascent, lot
from bylot.policies.ascent import Climb, clamp, climb_by, stride, taken
from bylot.policies.contract import Ticket, decide, step
from bylot.policies.guard import KEPT, Guard, guarded, planned, promised
from bylot.policies.lot import LOW, LotState, drawn, playing
from bylot.policies.mildest import mildest
from bylot.policies.onesided import Rows, one_sided
from bylot.policies.price import in_rewards, pay
from bylot.policies.safeset import safe_rows
from bylot.policies.settings import yes_or_no
from bylot.policies.slater import slater
from bylot.policies.tangents import fill_mixture
from bylot.problem import Problem


class StrictRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    climb: Climb
    eps: float  # how much of the mildest law is mixed in
    mild: Floats  # (K,) f0
    safe: Rows
    guard: Guard


@compiled
def move(rule: StrictRule, state: LotState, x: int) -> None:
    """One step of mirror ascent, projected on the safe set."""
    theta, q, slope, safe = state.theta[x], state.q[x], state.slope, rule.safe
    taken(slope, x, q)
    s = stride(rule.climb, slope, x)
    clamp(theta, theta.max(), LOW, 0.0)
    climb_by(theta, slope, x, s)
    prices, pi = np.empty(safe.b.size), np.empty(q.size)
    tilt(theta, pi, prices, theta, safe.A, safe.b, 1, rule.eps, rule.mild)
    fill_mixture(q, pi, rule.eps, rule.mild)
    pay(state.till, prices, s)
    clamp(theta, theta.max(), -np.inf, 0.0)
    accumulate(q, state.mass[x])


@step(decide, StrictRule)
def _(rule: StrictRule, state: LotState, context: int, chance: Chance, up: Bools) -> Ticket:
    if state.visits[context] % rule.climb.batch == 0:
        move(rule, state, context)
    state.visits[context] += 1
    return drawn(rule, state, context, chance, up)


playing(StrictRule)


@dataclass(frozen=True)
class Strict:
    """Settings of `strict`.

    eta:      of the step, in units of what a regret bound would have
    patience: batches that count as seen before the first, so that early steps are short
    batch:    decisions of a context between two steps
    eps:      share of the mildest law in every draw
    guard:    replace panels after which the limits could not be kept for certain; a replaced panel
              is one that the regret bound does not speak of
    """

    eta: float = 1.0
    patience: float = 100.0
    batch: int = 10
    eps: float = 0.02
    guard: bool = False

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        ascent.checked(self.eta, self.patience, self.batch, self.eps)
        yes_or_no(guard=self.guard)

    def bind(self, problem: Problem, horizon: int | None = None) -> StrictRule:
        """The rule for this problem, if its safe set is not empty."""
        rows, M = one_sided(problem), problem.draws
        safe = safe_rows(rows, M)
        period = promised(problem, horizon)
        plan = planned(rows, slater(problem, fewer=True).quota, period)
        entropy = math.log(max(2, problem.size))
        return StrictRule(
            draws=M,
            climb=Climb(float(self.eta), float(self.patience), self.batch, False, True, entropy),
            eps=float(self.eps),
            mild=inside(problem, safe),
            safe=safe,
            guard=guarded(rows, plan, period, full=False, on=self.guard),
        )

    def start(self, rule: StrictRule, contexts: int = 1) -> LotState:
        """The mildest law in every context, and a period with nothing spent."""
        return lot.started(rule.guard, rule.mild, contexts)

    def sound(self, rule: StrictRule, state: LotState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return lot.sound(rule.guard, state)

    def prices(self, problem: Problem, rule: StrictRule, state: LotState) -> Floats:
        """Multipliers of recent steps, in units of the limits: b* is taken to move as b does."""
        safe, b = rule.safe.b, rule.guard.b
        moves: Floats = np.divide(safe, b, out=np.full(b.size, 1.0 / rule.draws), where=b != 0)
        return in_rewards(problem, state.till) * moves


def inside(problem: Problem, safe: Rows) -> Floats:
    """The mildest law inside the safe set, with a little room where there is some."""
    for margin in (1.0, 0.0):
        law = mildest(safe, 1, margin)
        if (safe.A @ law.chances - safe.b).max(initial=0.0) <= KEPT:
            return law.chances
    limits = ", ".join(map(str, problem.limits))
    raise PolicyError(
        f"no fixed set of laws keeps {limits} for certain, which 'strict' needs; take 'tangent', "
        "whose set moves with its law, or loosen the limits"
    )
