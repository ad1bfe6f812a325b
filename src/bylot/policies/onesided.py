"""Limits as one kind: signed and scaled, every one of them says A p <= b."""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats
from bylot.problem import Problem


class Rows(NamedTuple):
    """A (d, K) and b (d,): costs in units of their own, turned round where there is a minimum."""

    A: Floats
    b: Floats


def one_sided(problem: Problem) -> Rows:
    """The limits of a problem, in units in which a change of unit changes nothing.

    >>> from bylot.problem import at_least, at_most
    >>> costs = {"usd": [2.0, 4.0], "junior": [0, 1]}
    >>> limits = [at_most("usd", 3.0), at_least("junior", 0.3)]
    >>> rows = one_sided(Problem(["a", "b"], costs, limits, draws=1))
    >>> rows.A.tolist(), rows.b.tolist()
    ([[0.6666666666666666, 1.3333333333333333], [-0.0, -3.3333333333333335]], [1.0, -1.0])
    """
    turn = -problem.signs / units(problem)
    return Rows(problem.rows * turn[:, None], problem.bounds * turn)


def units(problem: Problem) -> Floats:
    """What each row is measured in: the bound, or the largest cost if that is less or the bound 0.

    Not simply the largest cost: beside a price of 100 a budget of 0.001 would be a rounding error.
    """
    bounded = (problem.bounds > 0) & (problem.bounds < problem.peaks)
    return np.where(bounded, problem.bounds, problem.peaks)
