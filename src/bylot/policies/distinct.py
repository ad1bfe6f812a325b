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
from bylot.kernels.poisson import (
    draw_set,
    fill_inclusion,
    fill_score,
    fill_table,
    log_probability,
    nth_largest,
    restricted,
)
from bylot.kernels.tilt import tilt
from bylot.kernels.top import again
from bylot.policies.contract import Ticket, chances, decide, law, learn, step
from bylot.policies.guard import Account, Guard, cost_of, guarded, opened, safe, settle
from bylot.policies.mildest import mildest
from bylot.policies.onesided import one_sided
from bylot.policies.pacing import fill_in_force
from bylot.policies.schedule import schedule
from bylot.policies.settings import positive
from bylot.policies.slater import slater
from bylot.policies.tally import membership
from bylot.problem import Problem

COIN, SET = 4, 5  # streams of chance: which law to draw from, and the set
LOW, HIGH = -10.0, 8.0  # of theta, whose M-th largest is 0: without an end it would run away
PERIOD = 5_000  # rounds, where there is neither a horizon nor a period of the problem


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
    batch: int
    eta: float
    patience: float  # batches that count as seen before the first
    eps: float  # how much of the mildest law is mixed in
    log_sets: float  # log of the number of sets
    margin: float
    most: Floats  # (d,) that one round can cost
    guard: Guard
    mild: Law


class DistinctState(NamedTuple):
    """What it remembers: a line per context, and the shared account."""

    theta: Floats  # (X, K)
    table: Floats  # (X, K + 1, m + 1)
    coins: Floats  # (X, K)
    pi: Floats  # (X, K)
    log_z: Floats  # (X, 1)
    g: Floats  # (X, K) gradient collected since theta last moved
    energy: Floats  # (X,) sum of its squares so far
    batches: Ints  # (X,)
    visits: Ints  # (X,)
    rewards: Ints  # (X,) how many
    total: Floats  # (X,) and their sum
    feasible: Bools  # (X,) could the last projection keep the limits in force?
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
def stepsize(rule: DistinctRule, state: DistinctState, x: int, d: Floats) -> float:
    """Centre g on the tangent space of pi, and tell how far to go along it.

    eta sqrt(log C(K, M) / (S (b + n0) / b)), at most 1 / max |g|, with S the sum of squares so far.
    """
    g, mean, total, top = state.g[x], 0.0, 0.0, 0.0
    for i in range(g.size):
        mean += d[i] * g[i]
        total += d[i]
    for i in range(g.size):
        g[i] -= mean / total if total > 0.0 else 0.0
        state.energy[x] += d[i] * g[i] * g[i]
        top = max(top, abs(g[i]))
    b = state.batches[x]
    if state.energy[x] <= 0.0 or top <= 0.0:
        return 0.0
    s = rule.eta * np.sqrt(rule.log_sets / (state.energy[x] * (b + rule.patience) / b))
    return float(min(s, 1.0 / top))


@compiled
def move(rule: DistinctRule, state: DistinctState, x: int) -> None:
    """One step of mirror ascent, projected on the limits in force."""
    here, guard, account = line(state, x), rule.guard, state.account
    theta, pi, g = here.theta, here.pi, state.g[x]
    d = np.empty(pi.size)
    for i in range(d.size):
        d[i] = pi[i] * (1.0 - pi[i])
    state.batches[x] += 1
    s = stepsize(rule, state, x, d)
    for i in range(g.size):
        theta[i] += s * g[i]
        g[i] = 0.0
    fill_in_force(
        state.bounds, guard.b, account.spent, account.left[0], guard.period, rule.margin, rule.most
    )
    prices = np.empty(guard.b.size)
    found = tilt(
        theta, pi, prices, theta, guard.A, state.bounds, rule.members, rule.eps, rule.mild.pi
    )
    state.feasible[x] = found.excess <= 1e-9
    top = nth_largest(theta, rule.members)
    for i in range(theta.size):
        theta[i] = min(max(theta[i] - top, LOW), HIGH)
    refresh(here, rule.members)


@compiled
def stand_in(guard: Guard, place: int, members: Ints, up: Bools) -> Ints:
    """The schedule's next set; whoever of it is down gives way to one that was drawn."""
    planned: Ints = guard.schedule.sets[place].copy()
    if up.size == 0:
        return planned
    out, n = np.empty(members.size, np.int64), 0
    for k in range(planned.size):
        if up[planned[k]] and n < out.size:
            out[n] = planned[k]
            n += 1
    for k in range(members.size):
        new = n < out.size
        for j in range(n):
            new &= out[j] != members[k]
        if new:
            out[n] = members[k]
            n += 1
    return out[:n]


@step(decide, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, context: int, chance: Chance, up: Bools) -> Ticket:
    if state.visits[context] % rule.batch == 0:
        move(rule, state, context)
    state.visits[context] += 1
    m, here, mild = rule.members, line(state, context), rule.mild
    if up.size > 0:
        m = min(m, up.sum())
        here, mild = among(here, up, m), among(mild, up, m)
    if uniforms(chance, COIN, 1)[0] < rule.eps:
        members = draw_set(mild.table, mild.coins, m, chance, SET)
    else:
        members = draw_set(here.table, here.coins, m, chance, SET)
    ours = np.exp(log_probability(members, here.theta, here.log_z[0]))
    told = (1.0 - rule.eps) * ours
    told += rule.eps * np.exp(log_probability(members, mild.theta, mild.log_z[0]))
    cost, weight = cost_of(rule.guard.A, members), ours / told
    fits = safe(rule.guard, state.account, cost)
    replaced = not fits
    if replaced:
        members = stand_in(rule.guard, state.account.place[0], members, up)
        cost = cost_of(rule.guard.A, members)
        fits = up.size == 0 or safe(rule.guard, state.account, cost)
        told = 1.0
    settle(rule.guard, state.account, cost, replaced)
    draws = np.empty(rule.draws, np.int64)
    for k in range(members.size):
        draws[k] = members[k]
    again(draws, members.size)
    feasible = fits and state.feasible[context]
    odds = here.pi.copy()
    return Ticket(chance.t, context, draws, odds, up, 1.0, feasible, told, weight, replaced)


@step(learn, DistinctRule)
def _(rule: DistinctRule, state: DistinctState, ticket: Ticket, reward: float) -> None:
    x = ticket.context
    if not ticket.replaced:
        centred = reward - state.total[x] / state.rewards[x] if state.rewards[x] > 0 else 0.0
        add_score(state.g[x], ticket.draws, ticket.odds, ticket.weight * centred / rule.batch)
        state.rewards[x] += 1
        state.total[x] += reward


@compiled
def add_score(g: Floats, draws: Ints, pi: Floats, weight: float) -> None:
    """g_i += weight (1[i in A] - pi_i) / (pi_i (1 - pi_i)); nothing where the set had no choice."""
    score = np.empty(g.size)
    fill_score(score, draws, pi)  # a member comes twice only where there was no choice
    for i in range(g.size):
        spread = pi[i] * (1.0 - pi[i])
        if spread > 1e-12:
            g[i] += weight * score[i] / spread


@compiled
def mixed(rule: DistinctRule, state: DistinctState, x: int, up: Bools) -> Floats:
    """The chance of every expert to be drawn, the mildest law mixed in."""
    here, mild = line(state, x), rule.mild
    if up.size > 0:
        m = min(rule.members, up.sum())
        here, mild = among(here, up, m), among(mild, up, m)
    p = np.empty(here.pi.size)
    for i in range(p.size):
        p[i] = (1.0 - rule.eps) * here.pi[i] + rule.eps * mild.pi[i]
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
    """

    eta: float = 1.0
    patience: float = 100.0
    batch: int = 10
    eps: float = 0.02

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("eta", self.eta, 1.0)
        positive("patience", self.patience, 100.0)
        positive("eps", self.eps, 0.02)
        if self.eps >= 1:
            raise PolicyError(f"eps={self.eps} leaves nothing to learn; use less than 1")
        if type(self.batch) is not int or not 1 <= self.batch < 2**31:
            raise PolicyError(f"batch={self.batch!r} is not a number of rounds")

    def bind(self, problem: Problem, horizon: int | None = None) -> DistinctRule:
        """The rule for this problem; limits are promised at the end of the horizon, or of every
        period of the problem.
        """
        members = min(problem.draws, problem.size)
        if problem.full_conflict is not None:
            raise PolicyError(
                f"distinct asks {members} different experts every time, which cannot keep "
                f"{problem.full_conflict}; take 'omd', which may ask fewer, or fewer draws"
            )
        rows, room = one_sided(problem), slater(problem)
        plan = schedule(room.quota, rows.A)
        theta, _ = mildest(rows, members, room.margin)
        return DistinctRule(
            draws=problem.draws,
            members=members,
            batch=self.batch,
            eta=float(self.eta),
            patience=float(self.patience),
            eps=float(self.eps),
            log_sets=log_binomial(problem.size, members),
            margin=room.margin,
            most=members * np.abs(rows.A).max(axis=1, initial=0.0),
            guard=guarded(rows, plan, horizon or problem.period or PERIOD),
            mild=filled(theta, members),
        )

    def start(self, rule: DistinctRule, contexts: int = 1) -> DistinctState:
        """The mildest law in every context, and a period with nothing spent."""
        mild, K = rule.mild, rule.guard.A.shape[1]
        return DistinctState(
            theta=np.tile(mild.theta, (contexts, 1)),
            table=np.tile(mild.table, (contexts, 1, 1)),
            coins=np.tile(mild.coins, (contexts, 1)),
            pi=np.tile(mild.pi, (contexts, 1)),
            log_z=np.tile(mild.log_z, (contexts, 1)),
            g=np.zeros((contexts, K)),
            energy=np.zeros(contexts),
            batches=np.zeros(contexts, np.int64),
            visits=np.zeros(contexts, np.int64),
            rewards=np.zeros(contexts, np.int64),
            total=np.zeros(contexts),
            feasible=np.ones(contexts, np.bool_),
            account=opened(rule.guard),
            bounds=rule.guard.b.copy(),
        )

    def sound(self, rule: DistinctRule, state: DistinctState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        account = state.account
        return bool(
            len(state.visits) > 0
            and (state.visits >= 0).all()
            and (state.rewards >= 0).all()
            and (state.batches >= 0).all()
            and (state.theta >= LOW - 1e-9).all()
            and (state.theta <= HIGH + 1e-9).all()
            and ((state.pi > 0) & (state.pi <= 1)).all()
            and np.allclose(state.pi.sum(axis=1), rule.members)
            and 1 <= account.left[0] <= rule.guard.period
            and 0 <= account.place[0] < len(rule.guard.schedule.sets)
        )

    def prices(self, problem: Problem, rule: DistinctRule, state: DistinctState) -> Floats:
        """NaN: a step's prices are of its projection, not of rewards."""
        return np.full(len(problem.limits), np.nan)


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
