"""Drawing panels: i.i.d. draws from a distribution, random sets, and their costs and gradients."""

from typing import Any

import numpy as np

from bylot.numerics.embedded import jit_embedded
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.philox import DRAW_STREAM, RngKey, fill_uniforms
from bylot.numerics.scratch_arrays import (
    make_draws,
    make_probabilities,
    scratch_floats,
    scratch_ints,
)
from bylot.numerics.set_selection import repeat_members
from bylot.numerics.simd import SIMD_WIDTH, count_bits, load_inside, mask_at_most


@jit
def fill_cumulative(q: Floats, mass: Floats) -> None:
    """Write the running sums of q into mass: mass_i = q_0 + ... + q_i."""
    total = 0.0
    for i in range(q.size):
        total += q[i]
        mass[i] = total


@jit_inline
def draw_iid(q: Floats, mass: Floats, count: int, rng: RngKey) -> tuple[Ints, Floats]:
    """Draw `count` experts i.i.d. from q with running sums mass: draw_j = min{i : mass_i > u_j}.

    Returns the draws, and the probability of each.

    An expert without mass is never drawn; q is normalised by its sum.

    >>> draw_iid(np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0]), 2, RngKey(seed=0, t=0))
    (array([1, 1]), array([1., 1.]))
    """
    draws, probabilities = make_draws(rng, count), make_probabilities(rng, count)
    fill_iid_draws(draws, probabilities, q, mass, rng)
    return draws, probabilities


@jit_inline
def fill_iid_draws(
    draws: Ints, probabilities: Floats, q: Floats, mass: Floats, rng: RngKey
) -> None:
    """Write what `draw_iid` draws."""
    u, total = probabilities, mass[mass.size - 1]
    fill_uniforms(u, rng, DRAW_STREAM)
    for j in range(draws.size):
        i = find_first_above(mass, u[j] * total)
        draws[j] = i
        u[j] = q[i] / total


@jit_inline
def count_at_most(mass: Floats, level: float) -> int:
    """Count the entries that are at most the level."""
    count, whole = 0, mass.size - mass.size % SIMD_WIDTH
    for i in range(0, whole, SIMD_WIDTH):
        count += count_bits(mask_at_most(load_inside(mass, i), level))
    if mass.size < SIMD_WIDTH:
        for i in range(mass.size):
            count += mass[i] <= level
    elif whole < mass.size:  # the last eight, without those that were counted
        last = mass.size - SIMD_WIDTH
        count += count_bits(mask_at_most(load_inside(mass, last), level) >> (whole - last))
    return count


@jit_inline
def find_first_above(mass: Floats, level: float) -> int:
    """Find the first i with mass_i > level: by bisection, then by counting the last few hundred.

    Counting has no branch that could be mispredicted. Rounding may carry u * total up to the total
    itself; the answer is then the first i that reaches the total, the last expert with mass.
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
def restrict_distribution(q: Floats, available: Bools) -> Floats:
    """Restrict q to the available experts and renormalise it.

    An empty mask stands for all experts: q itself, bit for bit.

    >>> restrict_distribution(np.array([0.2, 0.3, 0.5]), np.array([True, True, False]))
    array([0.4, 0.6, 0. ])
    """
    if available.size == 0:
        return q
    part, total = np.zeros(q.size), 0.0
    for i in range(q.size):
        total += q[i] if available[i] else 0.0
    for i in range(q.size):
        part[i] = q[i] / total if available[i] else 0.0
    return part


@jit_inline
def add_gradient(g: Floats, draws: Ints, probabilities: Floats, reward: float) -> None:
    """Add to g the unbiased estimate of the gradient of the expected reward (paper, Lemma 1).

    g_i += reward / q_i * (number of draws equal to i), with probabilities = q[draws].

    >>> g = np.zeros(3)
    >>> add_gradient(g, np.array([0, 2, 2]), np.array([0.5, 0.25, 0.25]), 1.0)
    >>> g
    array([2., 0., 8.])
    """
    for j in range(draws.size):
        g[draws[j]] += reward / probabilities[j]


@jit_inline
def is_first_draw(draws: Ints, j: int) -> bool:
    """Whether draw j is the first draw of its expert."""
    new = True
    for earlier in range(j):  # no early exit, which would be mispredicted
        new &= draws[earlier] != draws[j]
    return new


@jit_embedded
def fill_first(out: Any, values: Any, draws: Ints) -> int:
    """Write the values at the first draw of each member, and return how many these are."""
    n = 0
    for j in range(draws.size):
        out[n] = values[j]
        n += is_first_draw(draws, j)
    return n


@jit
def select_first(values: Any, draws: Ints) -> Any:
    """The values at the first draw of each member; of draws themselves: the distinct members."""
    chosen = np.empty_like(values)
    return chosen[: fill_first(chosen, values, draws)]


@jit
def add_panel_cost(out: Floats, costs: Floats, draws: Ints) -> None:
    """Add the costs of a panel: out_j += sum over the distinct draws of c_ij."""
    once, seen = scratch_floats(draws.size), 0
    for j in range(draws.size):
        bit = 1 << (draws[j] & 63)  # not seen yet: no other expert with this bit came before
        once[j] = 1.0 if seen & bit == 0 or is_first_draw(draws, j) else 0.0
        seen |= bit
    for row in range(out.size):
        total, of_row = out[row], costs[row]
        for j in range(draws.size):
            total += once[j] * of_row[np.uint64(draws[j])]  # unsigned: no check for negative ones
        out[row] = total


@jit
def compute_panel_costs(panels: Ints, costs: Floats) -> Floats:
    """(T, d) cost of the distinct draws of each of T panels; costs: (d, K).

    >>> compute_panel_costs(np.array([[0, 1, 0]]), np.array([[1.0, 2.0]]))
    array([[3.]])
    """
    spend = np.zeros((panels.shape[0], costs.shape[0]))
    for t in range(panels.shape[0]):
        add_panel_cost(spend[t], costs, panels[t])
    return spend


@jit
def shuffle_front(items: Ints, count: int, rng: RngKey, stream: int) -> None:
    """Move a random `count` of the items to the front, in random order (Fisher and Yates)."""
    u = scratch_floats(count)
    fill_uniforms(u, rng, stream)
    for j in range(count):
        k = j + int(u[j] * (items.size - j))  # below items.size: u < 1 also after rounding
        items[j], items[k] = items[k], items[j]


@jit
def choose_random_experts(
    size: int, count: int, available: Bools, rng: RngKey, stream: int
) -> Ints:
    """Choose a random `count` of the available experts, in random order.

    An empty mask stands for all. If fewer are available, they repeat as in `choose_top_m`.
    """
    chosen = np.empty(count, np.int64)
    fill_random_experts(chosen, size, available, rng, stream)
    return chosen


@jit
def fill_random_experts(
    chosen: Ints, size: int, available: Bools, rng: RngKey, stream: int
) -> None:
    """Write what `choose_random_experts` chooses."""
    items, n = scratch_ints(size), 0
    for i in range(size):
        items[n] = i
        n += 1 if available.size == 0 or available[i] else 0
    n_chosen = min(n, chosen.size)
    shuffle_front(items[:n], n_chosen, rng, stream)
    for j in range(n_chosen):
        chosen[j] = items[j]
    repeat_members(chosen, n_chosen)
