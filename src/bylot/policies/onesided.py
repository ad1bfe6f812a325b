"""Limits as one kind: signed and scaled, every one of them says A p <= b."""

from typing import NamedTuple

from bylot.kernels.compile import Floats
from bylot.problem import Problem


class Rows(NamedTuple):
    """A (d, K) and b (d,): cost over the largest such cost, turned round where it is a minimum."""

    A: Floats
    b: Floats


def one_sided(problem: Problem) -> Rows:
    """The limits of a problem, in units in which a change of unit changes nothing.

    >>> from bylot.problem import at_least, at_most
    >>> costs = {"usd": [2.0, 4.0], "junior": [0, 1]}
    >>> limits = [at_most("usd", 3.0), at_least("junior", 0.3)]
    >>> rows = one_sided(Problem(["a", "b"], costs, limits, draws=1))
    >>> rows.A.tolist(), rows.b.tolist()
    ([[0.5, 1.0], [-0.0, -1.0]], [0.75, -0.3])
    """
    turn = -problem.signs / problem.peaks
    return Rows(problem.rows * turn[:, None], problem.bounds * turn)
