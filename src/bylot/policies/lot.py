"""M i.i.d. draws from q = (1 - eps) softmax(theta) + eps f0, learned by the score of their set.

What q has to keep, and how a step is projected on that, is left to `tangent` and `strict`.
"""

from typing import Any, NamedTuple

import numpy as np

from bylot.kernels.chance import Chance
from bylot.kernels.compile import Bools, Floats, Ints, compiled, inlined
from bylot.kernels.draw import Panel, accumulate, draw, is_new
from bylot.kernels.inclusion import expected_costs, inclusion
from bylot.kernels.poisson import restricted
from bylot.kernels.sets import fill_set_score, log_set_probability
from bylot.kernels.softmax import fill_softmax
from bylot.kernels.top import seat
from bylot.policies import ascent
from bylot.policies.ascent import Slope, centred, level
from bylot.policies.books import fair
from bylot.policies.contract import RAREST, Ticket, chances, law, learn, step
from bylot.policies.guard import Account, Guard, admit, foresee, opened, outside
from bylot.policies.price import Till, empty
from bylot.policies.tally import membership
from bylot.policies.tangents import fill_mixture, keep

LOW = -10.0  # of theta at the start of a step, whose largest is 0


class LotState(NamedTuple):
    """What is remembered: a line per context, and the shared account."""

    theta: Floats  # (X, K)
    q: Floats  # (X, K)
    mass: Floats  # (X, K) running sums of q, which draws are looked up in
    visits: Ints  # (X,)
    slope: Slope
    till: Till
    account: Account
    bounds: Floats  # (d,) in force


class Lot(NamedTuple):
    """What one panel is drawn from."""

    q: Floats
    mass: Floats


def started(guard: Guard, mild: Floats, contexts: int) -> LotState:
    """The mildest law in every context, and a period with nothing spent."""
    return LotState(
        theta=np.tile(np.log(np.maximum(mild / mild.max(), np.exp(LOW))), (contexts, 1)),
        q=np.tile(mild, (contexts, 1)),
        mass=np.tile(np.cumsum(mild), (contexts, 1)),
        visits=np.zeros(contexts, np.int64),
        slope=level(contexts, mild.size),
        till=empty(guard.b.size),
        account=opened(guard),
        bounds=guard.b.copy(),
    )


def sound(guard: Guard, state: LotState) -> bool:
    """Could this be a state of ours? Asked of files, which may have been edited."""
    return bool(
        len(state.visits) > 0
        and (state.visits >= 0).all()
        and (state.theta <= 1e-9).all()
        and (state.q >= 0).all()
        and np.allclose(state.q.sum(axis=1), 1.0, atol=1e-9)
        and np.allclose(state.mass, np.cumsum(state.q, axis=1), atol=1e-9)
        and ascent.sound(state.slope)
        and fair(guard, state.account)
    )


@compiled
def among(rule: Any, state: LotState, x: int, up: Bools) -> Lot:
    """The law of a context among the experts that are up, an empty mask standing for all.

    Where renormalising alone would break a limit in force, it moves as little as it must.
    """
    if up.size == 0:
        return Lot(state.q[x], state.mass[x])
    theta, mild = restricted(state.theta[x], up), np.zeros(up.size)
    q, pi, whole = np.empty(up.size), np.empty(up.size), 0.0
    for i in range(up.size):
        mild[i] = rule.mild[i] if up[i] else 0.0
        whole += mild[i]
    for i in range(up.size):
        mild[i] /= whole
    fill_softmax(pi, theta)
    fill_mixture(q, pi, rule.eps, mild)
    if outside(expected_costs(q, rule.guard.A, rule.draws), state.bounds):
        prices = np.empty(state.bounds.size)
        keep(theta, q, prices, rule.guard.A, state.bounds, rule.draws, rule.eps, mild)
    mass = np.empty(up.size)
    accumulate(q, mass)
    return Lot(q, mass)


@inlined
def drawn(rule: Any, state: LotState, context: int, chance: Chance, up: Bools) -> Ticket:
    """M draws, if the guard lets them pass, and the chance of the set that they make."""
    q, mass, costs = state.q[context], state.mass[context], state.bounds
    if up.size > 0:
        q, mass = among(rule, state, context, up)
        costs = expected_costs(q, rule.guard.A, rule.draws)
    short = False
    if up.size > 0 or state.account.alarm[0]:  # else there is nothing to note or to clear
        short = foresee(rule.guard, state.account, costs, state.bounds)
    panel = draw(q, mass, rule.draws, chance)
    admitted = admit(rule.guard, state.account, panel.draws, up)
    replaced, told = admitted.replaced, 1.0
    if replaced:
        stand(panel, admitted.members)
    else:
        masses = of_members(panel.odds, panel.draws)
        told = max(np.exp(log_set_probability(masses, rule.draws)), RAREST)
    kept = admitted.kept and not short
    return Ticket(chance.t, context, panel.draws, panel.odds, up, 1.0, kept, told, 1.0, replaced)


@compiled
def stand(panel: Panel, members: Ints) -> None:
    """Write the members into a panel's draws; nothing about them was left to chance."""
    seat(panel.draws, members)
    for k in range(panel.odds.size):
        panel.odds[k] = 1.0


@compiled
def of_members(odds: Floats, draws: Ints) -> Floats:
    """The masses of a panel's distinct members, in the order in which they were first drawn."""
    masses, n = np.empty(draws.size), 0
    for j in range(draws.size):
        if is_new(draws, j):
            masses[n] = odds[j]
            n += 1
    return masses[:n]


@compiled
def add_set_score(g: Floats, ticket: Ticket, M: int, weight: float) -> None:
    """Add the score of the *set*: who was drawn, not how often.

    Among experts that are up it is taken along their simplex: as q.score = M, less M for each.
    """
    masses = of_members(ticket.odds, ticket.draws)
    score, n = np.empty(masses.size), 0
    fill_set_score(score, masses, M)
    for j in range(ticket.draws.size):
        if is_new(ticket.draws, j):
            g[ticket.draws[j]] += weight * score[n]
            n += 1
    for i in range(ticket.up.size):
        if ticket.up[i]:
            g[i] -= weight * M


def credited(rule: Any, state: LotState, ticket: Ticket, reward: float) -> None:
    """`learn`: g += (r - baseline) score(A) / B, if the panel was one that was drawn."""
    if not ticket.replaced:
        weight = centred(state.slope, ticket.context, reward) / rule.climb.batch
        add_set_score(state.slope.g[ticket.context], ticket, rule.draws, weight)


def law_among(rule: Any, state: LotState, context: int, up: Bools) -> Floats:
    """`law`: q."""
    q: Floats = among(rule, state, context, up).q.copy()
    return q


def chances_of(rule: Any, state: LotState, ticket: Ticket) -> Floats:
    """`chances`: 1 - (1 - q)^M, or the panel itself where it was put in the place of a draw."""
    if ticket.replaced:
        return membership(ticket.draws, state.theta.shape[1])
    return inclusion(among(rule, state, ticket.context, ticket.up).q, rule.draws)


def playing(rule: type) -> None:
    """Register what all policies of i.i.d. draws have in common; `decide` is their own."""
    step(learn, rule)(credited)
    step(law, rule)(law_among)
    step(chances, rule)(chances_of)
