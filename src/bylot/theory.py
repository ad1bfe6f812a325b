"""The right-hand sides of the paper's theorems, as regret per round.

Rewards lie in [0, 1], as in the theory: divide larger ones by their largest value first. What was
measured, and whether it stays below, is left to the metrics.

Parameters of all functions
---------------------------
T, K, M, floor
    Rounds, experts, draws, and gamma. G^2 = K M (1/gamma + M - 1) bounds the expected squared
    length of the gradient estimate (paper, proof of Theorem 1, step 3).
most
    The largest cost cbar_j of each of the d limits.
visits
    The number of rounds T_x of each context x.
tight
    Use the smaller constant that the same proof allows, and not the one that the paper states.
"""

from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from bylot.problem import Problem


def second_moment(K: int, M: int, floor: float) -> float:
    """G^2 = K M (1/gamma + M - 1) >= E |g_t|^2.

    >>> second_moment(K=2, M=1, floor=0.25)
    8.0
    """
    return K * M * (1.0 / floor + M - 1)


def eta_star(T: int, K: int, M: int, floor: float, *, tight: bool = False) -> float:
    """The proximal parameter that minimises `theorem_1`: sqrt(2 T) G; if tight, half of it.

    >>> eta_star(T=4, K=2, M=1, floor=0.25), eta_star(T=4, K=2, M=1, floor=0.25, tight=True)
    (8.0, 4.0)
    """
    return sqrt(2 * T * second_moment(K, M, floor)) / (2 if tight else 1)


def theorem_1(
    T: int, K: int, M: int, floor: float, eta: float | None = None, *, tight: bool = False
) -> float:
    """E R1(T) <= (eta + 2 T G^2 / eta) / T; with eta_star, if none is given, 2 sqrt(2 / T) G.

    Tight: (eta + T G^2 / (2 eta)) / T, at best sqrt(2 / T) G. The proof of Theorem 1 needs
    g.d <= a |g|^2 + (eta / 2) |d|^2, which it has with a = 2 / eta; by Young's inequality
    a = 1 / (2 eta) is enough, the rest stands.

    >>> theorem_1(T=4, K=2, M=1, floor=0.25), theorem_1(T=4, K=2, M=1, floor=0.25, tight=True)
    (4.0, 2.0)
    """
    eta = eta_star(T, K, M, floor, tight=tight) if eta is None else eta
    G2 = second_moment(K, M, floor)
    return (eta + (T * G2 / (2 * eta) if tight else 2 * T * G2 / eta)) / T


def slope_bound(problem: Problem) -> float:
    """How steep the dual's f_t can be: >= |u - x| for all mean costs u = rows @ q and all x in S.

    In coordinate j: u_j from the least to the largest cost, x_j in S_j.

    >>> from bylot.problem import at_most
    >>> slope_bound(Problem(["a", "b"], {"usd": [1.0, 3.0]}, [at_most("usd", 4.0)], draws=2))
    3.0
    """
    low, high = problem.box.low, problem.box.high
    least, most = problem.rows.min(axis=1), problem.rows.max(axis=1)
    return float(np.linalg.norm(np.maximum(most - low, high - least)))


def fixed_step_regret(step: float, slope: float, T: int) -> float:
    """Regret_T of gradient ascent on the unit ball from w = 0 with one step, all slopes <= slope:

    |w* - w_1|^2 / (2 step) + step T slope^2 / 2, and |w* - 0| <= 1.

    >>> fixed_step_regret(step=0.5, slope=1.0, T=4)
    2.0
    """
    return 1 / (2 * step) + step * T * slope**2 / 2


def sampling_error(T: int, M: int, most: ArrayLike, *, tight: bool = False) -> float:
    """E |mean of costs paid - mean of expected costs| <= M |cbar| L sqrt(log(2d) / T), where

    L = sqrt(2) + 1 / (sqrt(2) log(2d)) from the integral in the paper's sampling lemma. (With one
    cbar for all, |cbar| is cbar sqrt(d), as the paper has it.)

    Tight: M |cbar| / (2 sqrt(T)). The deviations of different rounds are uncorrelated, so that the
    mean square of their mean is the sum of their variances over T^2; what lies in [0, M cbar_j]
    varies by (M cbar_j)^2 / 4.

    >>> round(sampling_error(T=100, M=1, most=[1.0]), 6)
    0.202673
    >>> sampling_error(T=100, M=1, most=[1.0], tight=True)
    0.05
    """
    cbar = np.asarray(most, dtype=np.float64)
    if cbar.size == 0:
        return 0.0
    if tight:
        return M * float(np.linalg.norm(cbar)) / (2 * sqrt(T))
    logarithm = log(2 * cbar.size)
    L = sqrt(2) + 1 / (sqrt(2) * logarithm)
    return M * float(np.linalg.norm(cbar)) * L * sqrt(logarithm / T)


def theorem_2(T: int, M: int, most: ArrayLike, regret: float, *, tight: bool = False) -> float:
    """E R2(T) <= M Regret_T / T + sampling error, for a dual player with this Regret_T.

    >>> round(theorem_2(T=100, M=1, most=[1.0], regret=fixed_step_regret(0.1, 1.0, 100)), 6)
    0.302673
    >>> theorem_2(T=100, M=1, most=[1.0], regret=10.0, tight=True)
    0.15000000000000002
    """
    return M * regret / T + sampling_error(T, M, most, tight=tight)


def corollary(T: int, K: int, M: int, floor: float, contexts: int) -> float:
    """E R1^ctx(T) <= 4 sqrt(|X| / T) G, with eta = 2 G sqrt(n_x) and |X| contexts.

    >>> corollary(T=4, K=2, M=1, floor=0.5, contexts=4)
    8.0
    """
    return 4 * sqrt(contexts * second_moment(K, M, floor) / T)


def context_rate(K: int, M: int, floor: float) -> float:
    """The a of the Corollary's eta = a sqrt(n_x): 2 G, which minimises `corollary_by_visits`.

    >>> context_rate(K=2, M=1, floor=0.5)
    4.0
    """
    return 2 * sqrt(second_moment(K, M, floor))


def corollary_by_visits(
    visits: ArrayLike, K: int, M: int, floor: float, a: float | None = None, *, tight: bool = False
) -> float:
    """The Corollary before its last step: (a + 4 G^2 / a) sum_x sqrt(T_x) / T.

    Equal visits give the most, and with a = 2 G, the default, the Corollary as stated.
    Tight: (a + G^2 / a) sum_x sqrt(T_x) / T, at best 2 G sum_x sqrt(T_x) / T with a = G, as in
    `theorem_1`, with sum_s G^2 / (2 a sqrt(s)) <= G^2 sqrt(T_x) / a.

    >>> corollary_by_visits([1, 1, 1, 1], K=2, M=1, floor=0.5)
    8.0
    >>> corollary_by_visits([1, 1, 1, 1], K=2, M=1, floor=0.5, tight=True)
    4.0
    """
    a = context_rate(K, M, floor) / (2 if tight else 1) if a is None else a
    counts = np.asarray(visits, dtype=np.float64)
    factor = a + (1 if tight else 4) * second_moment(K, M, floor) / a
    return factor * float(np.sqrt(counts).sum() / counts.sum())
