"""distinct: exactly M different experts, drawn as one set from a law that mirror ascent moves.

The law is conditional Poisson, P(A) ~ prod_{i in A} e^theta_i over |A| = M, mixed with a little of
the mildest law inside the limits. Its expected cost is linear in the chances to be drawn, so that
limits are rows of an entropic projection and need no stand-in. The guard sees to what is realised.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.kernels.chance import Chance, uniforms
from bylot.kernels.compile import Bools, Floats, Ints, compiled
from bylot.kernels.inclusion import add_costs
from bylot.kernels.poisson import (
    draw_set,
    fill_inclusion,
    fill_score,
    fill_table,
    log_probability,
    nth_largest,
    restricted,
)
from bylot.kernels.tilt import fill_spread, tilt
from bylot.kernels.top import seat
from bylot.policies import ascent, pacing
from bylot.policies.ascent import (
    Climb,
    Slope,
    centred,
    clamp,
    climb_by,
    level,
    stride,
    taken,
)
from bylot.policies.books import fair
from bylot.policies.contract import RAREST, Ticket, chances, decide, law, learn, step
from bylot.policies.guard import (
    Account,
    Guard,
    admit,
    foresee,
    guarded,
    opened,
    outside,
    planned,
    promised,
)
from bylot.policies.mildest import mildest
from bylot.policies.onesided import one_sided
from bylot.policies.pacing import HI, Pace, fill_in_force, paced
from bylot.policies.price import Till, empty, in_rewards, pay
from bylot.policies.settings import yes_or_no
from bylot.policies.slater import slater
from bylot.policies.tally import membership
from bylot.policies.tangents import fill_mixture
from bylot.problem import Problem

SURE = 1e-12  # a variance of being drawn that counts as none: there was no choice
COIN, SET = 4, 5  # streams of chance: which law to draw from, and the set
LOW, HIGH = -10.0, 8.0  # of theta at the start of a step, whose M-th largest is 0
FURTHEST = 700.0  # a logarithm whose exponential is still a number
FAR = 1e100  # a theta beyond it could not be added up


class Law(NamedTuple):
    """A law of m different experts, and what its draws and chances are read from."""

    theta: Floats  # (K,)
    table: Floats  # (K + 1, m + 1)
    coins: Floats  # (K,)
    pi: Floats  # (K,)
    log_z: Floats  # one number


class DistinctRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    members: int  # m = min(M, K)
    climb: Climb
    eps: float  # how much of the mildest law is mixed in
    mild: Law
    pace: Pace
    guard: Guard


class DistinctState(NamedTuple):
    """What it remembers: a line per context, and the shared account."""

    theta: Floats  # (X, K)
    table: Floats  # (X, K + 1, m + 1)
    coins: Floats  # (X, K)
    pi: Floats  # (X, K)
    log_z: Floats  # (X, 1)
    visits: Ints  # (X,)
    slope: Slope
    till: Till
    account: Account
    bounds: Floats  # (d,) in force


@compiled
def refresh(law: Law, m: int) -> None:
    """Table, chances and normaliser of a theta that has changed."""
    law.log_z[0] = fill_table(law.table, law.coins, law.theta, m)
    fill_inclusion(law.pi, law.table, law.coins, m)


@compiled
def line(state: DistinctState, x: int) -> Law:
    """The law of a context."""
    return Law(state.theta[x], state.table[x], state.coins[x], state.pi[x], state.log_z[x])


@compiled
def refresh_all(state: DistinctState, m: int) -> None:
    """The same in every context."""
    for x in range(state.visits.size):
        refresh(line(state, x), m)


@compiled
def move(rule: DistinctRule, state: DistinctState, x: int) -> None:
    """One step of mirror ascent, projected on the limits in force.

    The gradient in the chances is Cov^-1 times that in theta, with Cov ~ diag c - c c' / sum c: on
    the tangent space it is g / c (`fill_spread`). c = pi (1 - pi), right for large sets only, would
    lead to a point that is not the best under the limits.
    """
    here, slope, guard = line(state, x), state.slope, rule.guard
    theta, pi = here.theta, here.pi
    spread, g = np.empty(pi.size), slope.g[x]
    fill_spread(spread, pi, rule.members)
    for i in range(spread.size):
        g[i] = g[i] / spread[i] if spread[i] > SURE else 0.0
    taken(slope, x, spread)
    s = stride(rule.climb, slope, x)
    clamp(theta, nth_largest(theta, rule.members), LOW, HIGH)
    climb_by(theta, slope, x, s)
    fill_in_force(state.bounds, guard, state.account, rule.pace)
    prices = np.empty(guard.b.size)
    tilt(theta, pi, prices, theta, guard.A, state.bounds, rule.members, rule.eps, rule.mild.pi)
    pay(state.till, prices, s)
    refresh(here, rule.members)


@compiled
def among(law: Law, up: Bools, m: int) -> Law:
    """The law of m experts among those that are up."""
    part = Law(
        restricted(law.theta, up),
        np.empty((law.theta.size + 1, m + 1)),
        np.empty(law.theta.size),
        np.empty(law.theta.size),
        np.empty(1),
    )
    refresh(part, m)
    return part


@compiled
def costs_of(A: Floats, here: Law, mild: Law, eps: float) -> Floats:
    """The expected cost of a panel under each row, A ((1 - eps) pi + eps p_0)."""
    costs, p = np.zeros(A.shape[0]), np.empty(here.pi.size)
    fill_mixture(p, here.pi, eps, mild.pi)
    add_costs(costs, A, p)
    return costs


@compiled
def laws(rule: DistinctRule, state: DistinctState, x: int, up: Bools) -> tuple[Law, Law, int]:
    """The law of a context and the mildest, among those that are up, and how many are drawn.

    Where renormalising alone would break a limit in force, the law moves as little as it must.
    """
    here, mild, m = line(state, x), rule.mild, rule.members
    if up.size == 0:
        return here, mild, m
    m = min(m, up.sum())
    here, mild = among(here, up, m), among(mild, up, m)
    A, b = rule.guard.A, state.bounds
    if outside(costs_of(A, here, mild, rule.eps), b):
        prices = np.empty(b.size)
        tilt(here.theta, here.pi, prices, here.theta, A, b, m, rule.eps, mild.pi)
        refresh(here, m)
    return here, mild, m


@step(decide, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, context: int, chance: Chance, up: Bools) -> Ticket:
    if state.visits[context] % rule.climb.batch == 0:
        move(rule, state, context)
    state.visits[context] += 1
    here, mild, m = laws(rule, state, context, up)
    costs = state.bounds if up.size == 0 else costs_of(rule.guard.A, here, mild, rule.eps)
    short = False
    if up.size > 0 or state.account.alarm[0]:  # else there is nothing to note or to clear
        short = foresee(rule.guard, state.account, costs, state.bounds)
    if uniforms(chance, COIN, 1)[0] < rule.eps:
        members = draw_set(mild.table, mild.coins, m, chance, SET)
    else:
        members = draw_set(here.table, here.coins, m, chance, SET)
    ours = log_probability(members, here.theta, here.log_z[0])
    apart = log_probability(members, mild.theta, mild.log_z[0]) - ours
    # In logarithms: among many sets a single one may be rarer than a number can be small.
    weight = 1.0 / ((1.0 - rule.eps) + rule.eps * np.exp(min(apart, FURTHEST)))
    told = max(np.exp(ours - np.log(weight)), RAREST)
    admitted = admit(rule.guard, state.account, members, up)
    draws = np.empty(rule.draws, np.int64)
    seat(draws, admitted.members)
    if admitted.replaced:
        told = 1.0
    odds, kept, replaced = here.pi.copy(), admitted.kept and not short, admitted.replaced
    if odds.size == draws.size:  # all that are up: to be read draw by draw, as the size says
        odds[:] = 1.0
    return Ticket(chance.t, context, draws, odds, up, 1.0, kept, told, weight, replaced)


@step(learn, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, ticket: Ticket, reward: float) -> None:
    x = ticket.context
    if not ticket.replaced:
        weight = ticket.weight * centred(state.slope, x, reward) / rule.climb.batch
        add_score(state.slope.g[x], ticket.draws, ticket.odds, weight)


@compiled
def add_score(g: Floats, draws: Ints, pi: Floats, weight: float) -> None:
    """g_i += weight (1[i in A] - pi_i), the score in theta at the law that was drawn from.

    What it says of the chances is told by the covariance of the law that moves (`move`).
    """
    score = np.empty(g.size)
    fill_score(score, draws, pi)  # a member comes twice only where there was no choice
    for i in range(g.size):
        if pi[i] * (1.0 - pi[i]) > SURE:
            g[i] += weight * score[i]


@compiled
def mixed(rule: DistinctRule, state: DistinctState, x: int, up: Bools) -> Floats:
    """The chance of every expert to be drawn, the mildest law mixed in."""
    here, mild, _ = laws(rule, state, x, up)
    p = np.empty(here.pi.size)
    fill_mixture(p, here.pi, rule.eps, mild.pi)
    return p


@step(law, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, context: int, up: Bools) -> Floats:
    p: Floats = mixed(rule, state, context, up)
    total = p.sum()
    for i in range(p.size):
        p[i] /= total
    return p


@step(chances, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, ticket: Ticket) -> Floats:
    if ticket.replaced:
        return membership(ticket.draws, state.theta.shape[1])
    return mixed(rule, state, ticket.context, ticket.up)


@dataclass(frozen=True)
class Distinct:
    """Settings of `distinct`; one default for every pool.

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
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    derived: ClassVar[tuple[str, ...]] = ("table", "coins", "pi", "log_z")

    def __post_init__(self) -> None:
        ascent.checked(self.eta, self.patience, self.batch, self.eps)
        pacing.checked(self.pace)
        yes_or_no(guard=self.guard, clip=self.clip)

    def bind(self, problem: Problem, horizon: int | None = None) -> DistinctRule:
        """The rule for this problem; limits are promised at the end of the horizon, or of every
        period of the problem.
        """
        members = always_full(problem, "distinct")
        rows, room = one_sided(problem), slater(problem)
        period, entropy = promised(problem, horizon), log_binomial(problem.size, members)
        plan = planned(rows, room.quota, period)
        theta, _ = mildest(rows, members, room.margin)
        return DistinctRule(
            draws=problem.draws,
            members=members,
            climb=Climb(
                float(self.eta), float(self.patience), self.batch, self.clip, False, entropy
            ),
            eps=float(self.eps),
            mild=filled(theta, members),
            pace=paced(self.pace, room.margin, rows.A, members, full=True),
            guard=guarded(rows, plan, period, full=True, on=self.guard),
        )

    def start(self, rule: DistinctRule, contexts: int = 1) -> DistinctState:
        """The mildest law in every context, and a period with nothing spent."""
        mild, guard = rule.mild, rule.guard
        return DistinctState(
            theta=np.tile(mild.theta, (contexts, 1)),
            table=np.tile(mild.table, (contexts, 1, 1)),
            coins=np.tile(mild.coins, (contexts, 1)),
            pi=np.tile(mild.pi, (contexts, 1)),
            log_z=np.tile(mild.log_z, (contexts, 1)),
            visits=np.zeros(contexts, np.int64),
            slope=level(contexts, mild.theta.size),
            till=empty(guard.b.size),
            account=opened(guard),
            bounds=guard.b.copy(),
        )

    def sound(self, rule: DistinctRule, state: DistinctState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return bool(
            len(state.visits) > 0
            and (state.visits >= 0).all()
            and (np.abs(state.theta) < FAR).all()
            and ((state.pi >= 0) & (state.pi <= 1)).all()
            and np.allclose(state.pi.sum(axis=1), rule.members)
            and ascent.sound(state.slope)
            and fair(rule.guard, state.account)
        )

    def prices(self, problem: Problem, rule: DistinctRule, state: DistinctState) -> Floats:
        """Multipliers of recent steps."""
        return in_rewards(problem, state.till)

    def derive(self, rule: DistinctRule, state: DistinctState) -> None:
        """Fill in what follows from theta, in every context."""
        refresh_all(state, rule.members)


def always_full(problem: Problem, policy: str) -> int:
    """The members of every panel, where panels of so many can keep the limits."""
    members = min(problem.draws, problem.size)
    if problem.full_conflict is not None:
        raise PolicyError(
            f"{policy} asks {members} different experts every time, which cannot keep "
            f"{problem.full_conflict}; take 'tangent', which may ask fewer, or fewer draws"
        )
    return members


def filled(theta: Floats, m: int) -> Law:
    """A law with all that follows from its theta."""
    K = theta.size
    made = Law(
        theta - nth_largest(theta, m),
        np.empty((K + 1, m + 1)),
        np.empty(K),
        np.empty(K),
        np.empty(1),
    )
    refresh(made, m)
    return made


def log_binomial(K: int, m: int) -> float:
    """log C(K, m).

    >>> round(math.exp(log_binomial(5, 2)))
    10
    """
    return math.lgamma(K + 1) - math.lgamma(m + 1) - math.lgamma(K - m + 1)
