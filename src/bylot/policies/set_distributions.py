"""Distributions of sets of M experts, P(A) ~ prod_{i in A} e^theta_i, and mixtures of two of them.

They are drawn from, evaluated, and restricted to the available experts. Moving them is left to the
policies.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.limits.guard import is_outside_bounds
from bylot.numerics import conditional_poisson
from bylot.numerics.embedded import jit_embedded
from bylot.numerics.iid_sets import add_expected_costs
from bylot.numerics.jit import Bools, Floats, Ints, jit, jit_inline
from bylot.numerics.kl_projection import kl_project
from bylot.numerics.philox import (
    COIN_STREAM,
    PANEL_STREAM,
    RngKey,
    draw_uniform,
)
from bylot.numerics.scratch_arrays import borrow_row
from bylot.numerics.set_selection import count_available
from bylot.policies.base import MIN_PROPENSITY
from bylot.policies.mirror_ascent import fill_mixture

MAX_EXPONENT = 700.0  # exp of it is still finite


class SetTables(NamedTuple):
    """A distribution of sets of m experts, and the tables that draws and probabilities need."""

    theta: Floats  # (K,)
    table: Floats  # (K + 1, m + 1)
    coins: Floats  # (K,)
    pi: Floats  # (K,) inclusion probabilities
    log_z: Floats  # one number


@jit
def refresh_tables(tables: SetTables, m: int) -> None:
    """Compute what follows from theta."""
    table, coins = tables.table, tables.coins
    tables.log_z[0] = conditional_poisson.fill_count_table(table, coins, tables.theta, m)
    conditional_poisson.fill_inclusion(tables.pi, table, coins, m)


@jit
def make_tables(theta: Floats, m: int) -> SetTables:
    """A distribution with all that follows from its theta."""
    K = theta.size
    made = SetTables(theta, np.empty((K + 1, m + 1)), np.empty(K), np.empty(K), np.empty(1))
    refresh_tables(made, m)
    return made


@jit_inline
def get_tables(state: Any, x: int) -> SetTables:
    """The distribution of a context: views into the state."""
    return SetTables(state.theta[x], state.table[x], state.coins[x], state.pi[x], state.log_z[x])


@jit_embedded
def borrow_tables(state: Any, x: int) -> SetTables:
    """`get_tables` for compiled code that holds the state."""
    theta, table = borrow_row(state.theta, x), borrow_row(state.table, x)
    coins, pi = borrow_row(state.coins, x), borrow_row(state.pi, x)
    return SetTables(theta, table, coins, pi, borrow_row(state.log_z, x))


@jit
def refresh_all_contexts(tables: SetTables, m: int) -> None:
    """Compute what follows from theta in every context: arrays have an axis more, of contexts."""
    for x in range(tables.theta.shape[0]):
        refresh_tables(get_tables(tables, x), m)


@jit
def mix_inclusion(learned: SetTables, explore: SetTables, eps: float) -> Floats:
    """The inclusion probabilities of the mixture, (1 - eps) pi + eps p_0."""
    p = np.empty(learned.pi.size)
    fill_mixture(p, learned.pi, eps, explore.pi)
    return p


@jit
def compute_mixture_costs(A: Floats, learned: SetTables, explore: SetTables, eps: float) -> Floats:
    """The expected cost of a panel of the mixture under each row."""
    costs = np.zeros(A.shape[0])
    add_expected_costs(costs, A, mix_inclusion(learned, explore, eps))
    return costs


@jit
def restrict_tables(
    here: SetTables,
    explore: SetTables,
    m: int,
    eps: float,
    A: Floats,
    b: Floats,
    available: Bools,
    narrow: bool,
) -> tuple[SetTables, SetTables, int]:
    """Restrict two distributions to the available experts; an empty mask stands for all.

    If renormalising alone would break a bound in force, the former is projected onto the bounds.

    narrow: bounds may be other than those that the former was projected onto
    """
    if available.size == 0 and not narrow:
        return here, explore, m
    explore, m = restrict_fixed_sets(explore, m, available)
    here = make_tables(conditional_poisson.restrict_logits(here.theta, available).copy(), m)
    if is_outside_bounds(compute_mixture_costs(A, here, explore, eps), b):
        theta, lam = here.theta, np.empty(b.size)
        kl_project(theta, here.pi, lam, theta, A, b, m, eps, explore.pi)
        refresh_tables(here, m)
    return here, explore, m


@jit_embedded
def draw_from_mixture(here: SetTables, explore: SetTables, eps: float, m: int, rng: RngKey) -> Ints:
    """A set from the exploration distribution with probability eps, else from the learned one."""
    if draw_uniform(rng, COIN_STREAM) < eps:
        return conditional_poisson.draw_set(explore.table, explore.coins, m, rng, PANEL_STREAM)
    return conditional_poisson.draw_set(here.table, here.coins, m, rng, PANEL_STREAM)


@jit_embedded
def compute_mixture_propensity(
    members: Ints, here: SetTables, explore: SetTables, eps: float
) -> tuple[float, float]:
    """P(A) = (1 - eps) P_learned(A) + eps P_0(A), and the weight P_learned(A) / P(A).

    In logarithms: one of many sets may have a probability that is too small for a float.
    """
    ours = conditional_poisson.log_fixed_set_probability(members, here.theta, here.log_z[0])
    other = conditional_poisson.log_fixed_set_probability(members, explore.theta, explore.log_z[0])
    weight = 1.0 / ((1.0 - eps) + eps * math.exp(min(other - ours, MAX_EXPONENT)))
    return max(math.exp(ours - math.log(weight)), MIN_PROPENSITY), weight


@jit
def restrict_fixed_sets(sets: SetTables, m: int, available: Bools) -> tuple[SetTables, int]:
    """Restrict a distribution to the available experts, and return the size of its sets."""
    if available.size == 0:
        return sets, m
    m = min(m, count_available(available))
    return make_tables(conditional_poisson.restrict_logits(sets.theta, available), m), m


@jit
def draw_fixed_set(sets: SetTables, m: int, rng: RngKey) -> tuple[Ints, float]:
    """Draw a set, and return its probability too."""
    members = conditional_poisson.draw_set(sets.table, sets.coins, m, rng, PANEL_STREAM)
    log_p = conditional_poisson.log_fixed_set_probability(members, sets.theta, sets.log_z[0])
    return members, max(math.exp(log_p), MIN_PROPENSITY)
