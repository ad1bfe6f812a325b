"""Drawing a panel from a distribution, and what its reward says about the gradient."""

from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.philox import RngKey, draw_uniforms
from bylot.numerics.set_selection import repeat_members

DRAW_STREAM = 0  # the stream that panels are drawn from; other uses of chance take other numbers


class IidDraws(NamedTuple):
    """M i.i.d. draws, and the probability that each of them had."""

    draws: Ints
    odds: Floats


@jit
def fill_cumulative(q: Floats, mass: Floats) -> None:
    """Write the running sums of q into mass: mass_i = q_0 + ... + q_i."""
    total = 0.0
    for i in range(q.size):
        total += q[i]
        mass[i] = total


@jit_inline
def draw_iid(q: Floats, mass: Floats, count: int, chance: RngKey) -> IidDraws:
    """`count` i.i.d. draws from q with running sums mass: draw_j = min{i : mass_i > u_j}.

    An expert without mass is never drawn. q need not sum to one: it is normalised by its sum.

    >>> draw_iid(np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0]), 2, RngKey(seed=0, t=0))
    IidDraws(draws=array([1, 1]), odds=array([1., 1.]))
    """
    draws, odds = np.empty(count, np.int64), draw_uniforms(chance, DRAW_STREAM, count)
    total = mass[-1]
    for j in range(count):
        i = find_first_above(mass, odds[j] * total)
        draws[j] = i
        odds[j] = q[i] / total
    return IidDraws(draws, odds)


@jit
def count_at_most(mass: Floats, level: float) -> int:
    """The number of entries that are at most the level."""
    count = 0
    for i in range(mass.size):  # an index, not an iterator: this form is vectorised
        count += mass[i] <= level
    return count


@jit
def find_first_above(mass: Floats, level: float) -> int:
    """The first i with mass_i > level: bisection, and counting once few are left.

    Counting needs no branch that chance could mislead; up to a few hundred it is the faster way.
    Rounding may carry u * total up to the total itself; the answer is then the first i that
    reaches the total: the last expert that has mass.
    """
    low, high = 0, mass.size
    while high - low > 256:
        middle = (low + high) // 2
        if mass[middle - 1] <= level:
            low = middle
        else:
            high = middle
    found = low + count_at_most(mass[low:high], level)
    if found == mass.size:
        found -= 1
        while found > 0 and mass[found - 1] == mass[found]:
            found -= 1
    return found


@jit
def restrict_distribution(q: Floats, up: Bools) -> Floats:
    """q on the experts that are up, renormalised: q_i 1[up_i] / sum of q over those up.

    An empty mask stands for all experts: q itself, bit for bit.

    >>> restrict_distribution(np.array([0.2, 0.3, 0.5]), np.array([True, True, False]))
    array([0.4, 0.6, 0. ])
    """
    if up.size == 0:
        return q
    held, total = np.zeros(q.size), 0.0
    for i in range(q.size):
        total += q[i] if up[i] else 0.0
    for i in range(q.size):
        held[i] = q[i] / total if up[i] else 0.0
    return held


@jit_inline
def add_gradient(g: Floats, draws: Ints, odds: Floats, reward: float) -> None:
    """Add to g the unbiased estimate of the gradient of the expected reward (paper, Lemma 1).

    g_i += reward / q_i * (number of draws equal to i), with odds = q[draws].
    """
    for j in range(draws.size):
        g[draws[j]] += reward / odds[j]


@jit
def estimate_gradient(draws: Ints, odds: Floats, reward: float, size: int) -> Floats:
    """The estimate of Lemma 1 on its own.

    >>> estimate_gradient(np.array([0, 2, 2]), np.array([0.5, 0.25, 0.25]), 1.0, 3)
    array([2., 0., 8.])
    """
    g = np.zeros(size)
    add_gradient(g, draws, odds, reward)
    return g


@jit_inline
def is_first_draw(draws: Ints, j: int) -> bool:
    """Is draw j the first of its expert?"""
    new = True
    for earlier in range(j):  # no early exit: chance would mislead the branch
        new &= draws[earlier] != draws[j]
    return new


@jit_inline
def add_panel_cost(out: Floats, costs: Floats, draws: Ints) -> None:
    """Add to out what the panel costs: out_j += sum over the distinct draws of c_ij."""
    for j in range(draws.size):
        once = 1.0 if is_first_draw(draws, j) else 0.0
        for row in range(out.size):
            out[row] += once * costs[row, draws[j]]


@jit
def shuffle_front(items: Ints, count: int, chance: RngKey, stream: int) -> None:
    """Bring a random `count` of the items to the front, in random order (Fisher and Yates)."""
    u = draw_uniforms(chance, stream, count)
    for j in range(count):
        k = j + int(u[j] * (items.size - j))  # below items.size: u < 1 also after rounding
        items[j], items[k] = items[k], items[j]


@jit
def choose_random_experts(size: int, count: int, up: Bools, chance: RngKey, stream: int) -> Ints:
    """A random `count` of the experts that are up, in random order; an empty mask stands for all.

    If they are fewer, all of them, coming round again as in `top.best`.
    """
    items, n, chosen = np.empty(size, np.int64), 0, np.empty(count, np.int64)
    for i in range(size):
        items[n] = i
        n += 1 if up.size == 0 or up[i] else 0
    n_chosen = min(n, count)
    shuffle_front(items[:n], n_chosen, chance, stream)
    for j in range(n_chosen):
        chosen[j] = items[j]
    repeat_members(chosen, n_chosen)
    return chosen
