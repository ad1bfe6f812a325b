"""Inclusion probabilities of i.i.d. draws, 1 - (1 - q)^M, and exact expected costs of panels."""

import numpy as np

from bylot.numerics.jit import Floats, jit


@jit
def iid_inclusion(q: Floats, M: int) -> Floats:
    """Compute the probability of being drawn at least once: p_i = 1 - (1 - q_i)^M.

    By p <- p (1 - q) + q, M times: sums of positive terms only, so a tiny q keeps all its digits.

    >>> iid_inclusion(np.array([0.5, 0.25]), 2)
    array([0.75  , 0.4375])
    """
    p = np.zeros(q.size)
    for _ in range(M):
        for i in range(q.size):
            p[i] = p[i] * (1.0 - q[i]) + q[i]
    return p


@jit
def iid_inclusion_slope(q: Floats, M: int) -> Floats:
    """Compute the derivative of `iid_inclusion`: M (1 - q_i)^(M-1).

    >>> iid_inclusion_slope(np.array([0.5, 0.25]), 2)
    array([1. , 1.5])
    """
    slope = np.full_like(q, M)
    for _ in range(M - 1):
        slope = slope * (1.0 - q)
    return slope


@jit
def expected_panel_costs(q: Floats, rows: Floats, M: int) -> Floats:
    """Compute expected costs h_j(q) = sum_i rows[j, i] (1 - (1 - q_i)^M), concave in q.

    >>> expected_panel_costs(np.array([0.5, 0.5]), np.array([[1.0, 3.0]]), 2)
    array([3.])
    """
    costs = np.zeros(rows.shape[0])
    add_expected_costs(costs, rows, iid_inclusion(q, M))
    return costs


@jit
def add_expected_costs(out: Floats, rows: Floats, p: Floats) -> None:
    """Add expected costs sum_i rows[j, i] p_i to out, given inclusion probabilities p."""
    for j in range(rows.shape[0]):
        for i in range(p.size):
            out[j] += rows[j, i] * p[i]


@jit
def expected_panel_costs_slope(q: Floats, rows: Floats, M: int) -> Floats:
    """Compute gradients of `expected_panel_costs`, by cost: rows[j, i] M (1 - q_i)^(M-1).

    >>> expected_panel_costs_slope(np.array([0.5, 0.5]), np.array([[1.0, 3.0]]), 2)
    array([[1., 3.]])
    """
    return rows * iid_inclusion_slope(q, M)
