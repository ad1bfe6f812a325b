"""panel: the set of M experts that is best under a model drawn from what is believed, less prices.

What a set misses is learned by a noisy-or model (`posterior`), what limits cost by prices that
follow what is chosen (`toll`). Beliefs are per context, prices shared. The guard, which is all that
is promised, the pace and, in rounds that are set aside for exploring, the law are those of
`distinct`, whose rule and state are parts of ours: one period is kept, whoever plays.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.kernels.chance import Chance, uniforms
from bylot.kernels.compile import Bools, Floats, Ints, compiled
from bylot.kernels.draw import is_new
from bylot.kernels.pick import pick_set
from bylot.kernels.stream import Stream, inside, opened, word
from bylot.kernels.top import seat
from bylot.policies import pacing, posterior, tally, toll
from bylot.policies.contract import Ticket, chances, decide, law, learn, step
from bylot.policies.distinct import Distinct, DistinctRule, DistinctState, always_full
from bylot.policies.guard import Account, Guard, admit, foresee
from bylot.policies.onesided import units
from bylot.policies.pacing import HI, fill_in_force
from bylot.policies.posterior import Posterior, drawn_belief, noise, observe, prior
from bylot.policies.settings import yes_or_no
from bylot.policies.tally import count, membership, shares
from bylot.policies.toll import Toll, charge, fill_toll, free
from bylot.problem import Problem

BATCH = 10  # decisions of a context between two rehearsals
FIRST, LATER = 200, 20  # panels of a rehearsal
NARROW, WIDE = 0.5, 1.5  # scales of a draw from what is believed
BOLD = 0.03  # how often it is the wide one
LEAST, MOST = -8.0, 0.5  # of a drawn b_i
EXPLORE, MODEL = 6, 7  # streams of chance: whether to explore, and the models drawn
LEAST_ROOM = 1e-6  # that a limit is taken to leave, in parts of the guard's unit
MEMORY = 2**30  # bytes that the roots of all contexts may take


class PanelRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    explore: float  # how often `distinct` plays
    batch: int
    A: Floats  # (d, K) the guard's rows, in units in which prices are moderate
    units: Floats  # (d,) these, in the guard's
    explorer: DistinctRule

    @property
    def guard(self) -> Guard:
        """The one that watches over both."""
        return self.explorer.guard


class PanelState(NamedTuple):
    """What it remembers: a line per context, shared prices, and all that `distinct` has."""

    visits: Ints  # (X,)
    drawn: Ints  # (X, K) rounds in which i was a member
    belief: Posterior
    toll: Toll
    explorer: DistinctState  # of the rounds in which it plays; its account is of all rounds

    @property
    def account(self) -> Account:
        """What was spent in this period, whoever played."""
        return self.explorer.account

    @property
    def bounds(self) -> Floats:
        """(d,) in force."""
        return self.explorer.bounds


@compiled
def spread(belief: Posterior, x: int) -> float:
    """The scale of most draws from what is believed: sqrt(phi), but at least NARROW and at most 1.

    Less than all that is unknown pays as long as rewards say soon who is wrong; where they are loud
    it would stay with whoever was lucky first.
    """
    return min(max(math.sqrt(noise(belief, x)), NARROW), 1.0)


@compiled
def sample(
    rule: PanelRule, state: PanelState, x: int, up: Bools, stream: Stream
) -> tuple[Ints, Stream]:
    """SAMPLE: b from what is believed, and A with the least prod_A e^b + sum_A toll."""
    belief, A = state.belief, rule.A
    bits, s = word(stream)
    scale = WIDE if inside(bits) < BOLD else spread(belief, x)
    b, s = drawn_belief(belief.beta[x], belief.root[x], scale, s)
    dues, m = np.empty(b.size), rule.explorer.members
    fill_toll(dues, state.toll, A)
    for i in range(b.size):
        b[i] = np.exp(min(max(b[i], LEAST), MOST))
    return pick_set(b, dues, m if up.size == 0 else min(m, up.sum()), up), s


@compiled
def rehearse(rule: PanelRule, state: PanelState, x: int, up: Bools, stream: Stream) -> Stream:
    """Every batch: prices that fit the model, by panels that are chosen and charged, not played."""
    s, account = stream, state.explorer.account
    if rule.units.size > 0:
        for _ in range(FIRST if state.toll.moves[0] == 0 else LATER):
            members, s = sample(rule, state, x, up, s)
            charge(state.toll, rule.A, members, state.explorer.bounds * rule.units, account.short)
    return s


@compiled
def least_costs(A: Floats, m: int, up: Bools) -> Floats:
    """(d,) what the cheapest m of those that are up cost, under each row by itself."""
    costs = np.zeros(A.shape[0])
    for j in range(A.shape[0]):
        costs[j] = np.sort(A[j][up])[:m].sum()
    return costs


@compiled
def look_ahead(rule: PanelRule, state: PanelState, up: Bools) -> None:
    """Note which limits those who are up cannot keep; where all are, there is nothing to note."""
    explorer, account, bounds = rule.explorer, state.explorer.account, state.explorer.bounds
    if up.size > 0:
        costs = least_costs(explorer.guard.A, min(explorer.members, up.sum()), up)
        foresee(explorer.guard, account, costs, bounds)
    elif account.alarm[0]:
        foresee(explorer.guard, account, bounds, bounds)


@compiled
def chosen(rule: PanelRule, state: PanelState, x: int, t: int, up: Bools, stream: Stream) -> Ticket:
    """Every round: a set that is best under a model drawn, if the guard lets it pass. Prices answer
    it if it does: the rota's are not their doing.
    """
    account, bounds = state.explorer.account, state.explorer.bounds
    members, _ = sample(rule, state, x, up, stream)
    admitted = admit(rule.explorer.guard, account, members, up)
    if not admitted.replaced:
        charge(state.toll, rule.A, members, bounds * rule.units, account.short)
    draws = np.empty(rule.explorer.draws, np.int64)
    seat(draws, admitted.members)
    kept = admitted.kept and not account.alarm[0]
    return Ticket(t, x, draws, np.empty(0), up, 1.0, kept, 0.0, 1.0, admitted.replaced)


@compiled
def asked(rule: PanelRule, state: PanelState, x: int, chance: Chance, up: Bools) -> Ticket:
    """`decide`: by a coin that looks at nothing, `distinct`'s law plays, or the model. Every batch
    the bounds in force are those of the pace.
    """
    s, explorer = opened(chance, MODEL), rule.explorer
    due = state.visits[x] % rule.batch == 0
    if due:
        fill_in_force(state.explorer.bounds, explorer.guard, state.explorer.account, explorer.pace)
    look_ahead(rule, state, up)
    if due:
        s = rehearse(rule, state, x, up, s)
    state.visits[x] += 1
    if rule.explore > 0.0 and uniforms(chance, EXPLORE, 1)[0] < rule.explore:
        ticket = decide(explorer, state.explorer, x, chance, up)
    else:
        ticket = chosen(rule, state, x, chance.t, up, s)
    count(state.drawn[x], ticket.draws)
    return ticket


@compiled
def explored(ticket: Ticket) -> bool:
    """Was it `distinct`'s round? Only its law can tell a chance."""
    return ticket.chance > 0.0


@compiled
def credited(rule: PanelRule, state: PanelState, ticket: Ticket, reward: float) -> None:
    """`learn`: what a set earns is news of its members, whoever chose it and why. The rota looks at
    no rewards, so that sets it was asked for mislead nobody; only `distinct` needs its odds.
    """
    if explored(ticket):
        learn(rule.explorer, state.explorer, ticket, reward)
    members, n = np.empty(ticket.draws.size, np.int64), 0
    for j in range(ticket.draws.size):
        if is_new(ticket.draws, j):
            members[n] = ticket.draws[j]
            n += 1
    observe(state.belief, ticket.context, members[:n], reward)


@compiled
def included(rule: PanelRule, state: PanelState, ticket: Ticket) -> Floats:
    """`chances`: those of `distinct` in its rounds, else the panel itself."""
    if explored(ticket):
        return chances(rule.explorer, state.explorer, ticket)
    return membership(ticket.draws, state.drawn.shape[1])


@step(decide, PanelRule)
def _(rule: PanelRule, state: PanelState, context: int, chance: Chance, up: Bools) -> Ticket:
    return asked(rule, state, context, chance, up)


@step(learn, PanelRule)
def _(rule: PanelRule, state: PanelState, ticket: Ticket, reward: float) -> None:
    credited(rule, state, ticket, reward)


@step(law, PanelRule)
def _(rule: PanelRule, state: PanelState, context: int, up: Bools) -> Floats:
    return shares(state.drawn[context])


@step(chances, PanelRule)
def _(rule: PanelRule, state: PanelState, ticket: Ticket) -> Floats:
    return included(rule, state, ticket)


@dataclass(frozen=True)
class Panel:
    """Settings of `panel`; one default for every pool.

    explore: how often `distinct` draws the panel instead, with a chance that is told exactly: what
             a log needs to be evaluated by
    pace:    how far limits in force may rise after frugal rounds; 1: not beyond the limits, None
             holds limits in force as they are
    guard:   replace panels after which the limits could not be kept for certain
    """

    explore: float = 0.0
    pace: float | None = HI
    guard: bool = True

    aware: ClassVar[bool] = True
    multinomial: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    derived: ClassVar[tuple[str, ...]] = Distinct.derived

    def __post_init__(self) -> None:
        number = isinstance(self.explore, (int, float)) and not isinstance(self.explore, bool)
        if not (number and 0 <= self.explore <= 1):
            raise PolicyError(
                f"explore={self.explore!r} is no share of the rounds; use 0.02, or 0 for none"
            )
        pacing.checked(self.pace)
        yes_or_no(guard=self.guard)

    def bind(self, problem: Problem, horizon: int | None = None) -> PanelRule:
        """The rule for this problem; limits are promised at the end of the horizon, or of every
        period of the problem.
        """
        always_full(problem, "panel")
        explorer = Distinct(pace=self.pace, guard=self.guard).bind(problem, horizon)
        scale = units(problem) / measures(problem)
        return PanelRule(
            explore=float(self.explore),
            batch=BATCH,
            A=explorer.guard.A * scale[:, None],
            units=scale,
            explorer=explorer,
        )

    def start(self, rule: PanelRule, contexts: int = 1) -> PanelState:
        """Nothing known of anybody, nothing spent; refused where the beliefs would not fit."""
        K = rule.A.shape[1]
        if room(contexts, K) > MEMORY:
            raise PolicyError(
                f"beliefs about pairs of {K:,} experts in {contexts:,} contexts take "
                f"{room(contexts, K) / 2**30:.3g} GiB, and panel takes at most {MEMORY / 2**30:g}; "
                "use fewer, coarser contexts, or 'distinct', which remembers no pairs"
            )
        return PanelState(
            visits=np.zeros(contexts, np.int64),
            drawn=np.zeros((contexts, K), np.int64),
            belief=prior(contexts, K, rule.explorer.members),
            toll=free(rule.units.size),
            explorer=Distinct().start(rule.explorer, contexts),
        )

    def most_contexts(self, size: int) -> int:
        """Contexts of so many experts whose beliefs fit."""
        return MEMORY // room(1, size)

    def sound(self, rule: PanelRule, state: PanelState) -> bool:
        """Could this be a state of ours? Asked of files, which may have been edited."""
        return bool(
            tally.counted(state.visits, state.drawn)
            and posterior.sound(state.belief)
            and toll.sound(state.toll)
            and Distinct().sound(rule.explorer, state.explorer)
        )

    def prices(self, problem: Problem, rule: PanelRule, state: PanelState) -> Floats:
        """The prices as they are now; not known of a limit that leaves no choice of panels."""
        if state.toll.moves[0] == 0:
            return np.full(len(problem.limits), np.nan)
        measure = measures(problem)
        tight = measure <= LEAST_ROOM * units(problem)
        return np.where(tight, np.nan, state.toll.price / measure)

    def derive(self, rule: PanelRule, state: PanelState) -> None:
        """Fill in what follows from `distinct`'s parameters."""
        Distinct().derive(rule.explorer, state.explorer)


def room(contexts: int, size: int) -> int:
    """Bytes that the roots of so many contexts take."""
    return 8 * contexts * size**2


def measures(problem: Problem) -> Floats:
    """How much of each limit a price is asked for, so that a price of 1 is much under any of them.

    What a maximum leaves beyond the cheapest panel, or the dearest panel has beyond a minimum: as a
    reward is at most 1, that is worth no more than 1 in all, and by concavity neither is the last
    of it. What all experts have in common is paid by every panel, and plays no part. But no more
    than two experts differ by, as most minima are small shares.
    """
    rows, members = np.sort(problem.rows), min(problem.draws, problem.size)
    below = problem.bounds - rows[:, :members].sum(axis=1)
    above = rows[:, -members:].sum(axis=1) - problem.bounds
    left = np.minimum(np.where(problem.signs > 0, above, below), np.ptp(rows, axis=1))
    return np.asarray(np.maximum(left, LEAST_ROOM * units(problem)))
