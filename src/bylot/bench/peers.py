"""General QP solvers on our projection, each called the quickest way its own interface offers.

The problem: min 1/2 |q - z|^2 over sum q = 1, q >= floor, a.q <= b, where z, a and b are new at
every call and the rest stays. Whatever a solver can set up once for the unchanging rest is set up
outside the clock, and it may start from its last answer; sparse where the solver is sparse.
Tolerances are the solvers' defaults: 1e-6 to 1e-8, but only 1e-3 for osqp.
"""

from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

import numpy as np
import scipy.sparse as sp

from bylot.kernels.compile import Floats

Solve = Callable[[Floats, Floats, float], Floats]  # z, a, b -> q


def daqp(K: int, floor: float) -> Solve:
    """Dual active set, dense, from the last active set."""
    model = import_module("daqp").Model()
    A, upper, lower = np.ones((2, K)), np.full(K + 2, 1e30), np.full(K + 2, floor)
    upper[K], lower[K], lower[K + 1] = 1.0, 1.0, -1e30
    sense = np.zeros(K + 2, np.int32)
    sense[K] = 5  # an equality
    model.setup(np.eye(K), np.zeros(K), A, upper, lower, sense)

    def solve(z: Floats, a: Floats, b: float) -> Floats:
        A[1], upper[K + 1] = a, b
        model.update(f=-z, A=A, bupper=upper)
        q: Floats = model.solve()[0]
        return q

    return solve


def quadprog(K: int, floor: float) -> Solve:
    """Goldfarb and Idnani's dual method, dense, told that the Hessian is factorised."""
    solver = import_module("quadprog")
    H, rows, sides = np.eye(K), np.zeros((K, K + 2)), np.full(K + 2, floor)
    rows[:, 0], rows[:, 2:], sides[0] = 1.0, np.eye(K), 1.0

    def solve(z: Floats, a: Floats, b: float) -> Floats:
        rows[:, 1], sides[1] = -a, -b
        q: Floats = solver.solve_qp(H, z, rows, sides, 1, True)[0]
        return q

    return solve


def piqp(K: int, floor: float) -> Solve:
    """Proximal interior point, sparse."""
    solver = import_module("piqp").SparseSolver()
    G = sp.csc_matrix(np.ones((1, K)))
    side = np.ones(1)
    one, low = np.ones(1), np.full(K, floor)
    eye, ones = sp.eye_array(K, format="csc"), sp.csc_matrix(np.ones((1, K)))
    solver.setup(sp.csc_matrix(eye), np.zeros(K), ones, one, G, None, side, low, None)

    def solve(z: Floats, a: Floats, b: float) -> Floats:
        G.data[:], side[0] = a, b
        solver.update(c=-z, G=G, h_u=side)
        solver.solve()
        q: Floats = solver.result.x
        return q

    return solve


def stacked(K: int, sign: float) -> Any:
    """Two full rows over sign times the identity, in columns of three entries each."""
    full, eye = sp.csc_matrix(np.ones((2, K))), sp.csc_matrix(sign * sp.eye_array(K))
    return sp.vstack([full, eye], format="csc")


def osqp(K: int, floor: float) -> Solve:
    """Operator splitting, sparse, from the last answer."""
    solver = import_module("osqp").OSQP()
    A = stacked(K, 1.0)
    per_expert = A.data.reshape(K, 3)
    lower = np.concatenate([[1.0, -np.inf], np.full(K, floor)])
    upper = np.concatenate([[1.0, 1.0], np.full(K, np.inf)])
    eye = sp.csc_matrix(sp.eye_array(K))
    solver.setup(eye, np.zeros(K), A, lower, upper, verbose=False)

    def solve(z: Floats, a: Floats, b: float) -> Floats:
        per_expert[:, 1], upper[1] = a, b
        solver.update(q=-z, Ax=A.data, u=upper)
        q: Floats = solver.solve(raise_error=False).x
        return q

    return solve


def clarabel(K: int, floor: float) -> Solve:
    """Interior point, sparse, with data updates."""
    module = import_module("clarabel")
    A = stacked(K, -1.0)
    per_expert = A.data.reshape(K, 3)
    sides = np.concatenate([[1.0, 1.0], np.full(K, -floor)])
    settings = module.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.presolve_enable = False  # or else the data cannot be updated
    cones = [module.ZeroConeT(1), module.NonnegativeConeT(K + 1)]
    eye = sp.csc_matrix(sp.eye_array(K))
    solver = module.DefaultSolver(eye, np.zeros(K), A, sides, cones, settings)

    def solve(z: Floats, a: Floats, b: float) -> Floats:
        per_expert[:, 1], sides[1] = a, b
        solver.update(q=-z, A=A.data, b=sides)
        return np.asarray(solver.solve().x)

    return solve


PEERS: dict[str, Callable[[int, float], Solve]] = {
    "daqp": daqp,
    "quadprog": quadprog,
    "piqp": piqp,
    "osqp": osqp,
    "clarabel": clarabel,
}
DENSE = {"daqp": 1_000, "quadprog": 1_000}  # largest K at which a dense K x K matrix makes sense
CLOSE = {"osqp": 0.1}  # of the largest q, 1e-3 for the others: by how much an answer may be off


def version(name: str) -> str | None:
    """The installed version of a peer, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def absent() -> list[str]:
    """The peers that are not installed."""
    return [name for name in PEERS if version(name) is None]


def apart(theirs: list[Floats], ours: list[Floats]) -> float:
    """How far apart answers are at most, in parts of the largest q; NaN counts as infinite."""
    parts = [np.abs(t - q).max() / q.max() for t, q in zip(theirs, ours, strict=True)]
    return float(np.nan_to_num(parts, nan=np.inf).max())
