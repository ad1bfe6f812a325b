"""How much room the limits leave: the Slater margin, and how often to ask whom to have it all."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from bylot.kernels.compile import Floats
from bylot.policies.onesided import one_sided
from bylot.problem import Problem


class Slater(NamedTuple):
    """delta, and the inclusion probabilities that keep all limits tightened by delta of themselves.

    They are a corner of a polytope: all but d + 1 of them are 0 or 1.
    """

    margin: float
    quota: Floats  # (K,), of sum min(M, K), or less where panels may have fewer members


def slater(problem: Problem, fewer: bool = False) -> Slater:
    """The largest delta with C_j p <= (1 - delta) u_j and C_j p >= (1 + delta) l_j for all limits.

    sum p = min(M, K); with `fewer` it may be anything from 1 to that.

    >>> from bylot.problem import at_most
    >>> pair = Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", 2.0)], draws=2)
    >>> slater(pair)
    Slater(margin=0.5, quota=array([1., 1.]))
    >>> slater(pair, fewer=True)
    Slater(margin=1.0, quota=array([1., 0.]))
    """
    A, b = one_sided(problem)
    K, members = problem.size, min(problem.draws, problem.size)
    found = linprog(  # over p, the places that stay empty, and delta
        np.append(np.zeros(K + 1), -1.0),
        A_ub=np.column_stack([A, np.zeros(len(b)), np.abs(b)]) if len(b) else None,
        b_ub=b if len(b) else None,
        A_eq=np.append(np.ones(K + 1), 0.0)[None],
        b_eq=[float(members)],
        bounds=[*[(0.0, 1.0)] * K, (0.0, members - 1.0 if fewer else 0.0), (0.0, 1.0)],
        method="highs-ds",  # a corner, not a point inside a face
    )
    if found.x is None:  # HiGHS misses an interior thinner than its tolerance
        return Slater(0.0, np.full(K, members / K))
    return Slater(float(found.x[-1]), np.clip(found.x[:K], 0.0, 1.0))
