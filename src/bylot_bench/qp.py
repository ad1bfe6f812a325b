"""Our exact projection against general QP solvers, in one run, and then against hard cases.

The problem is min 1/2 |q - z|^2 over sum q = 1, q >= floor, a.q <= b, where z, a and b are new in
every call. The steps come from the middle of a run of the paper's policy and have a binding row.
Each solver is called the fastest way that its own interface offers: what does not change is set up
before timing, it may warm-start, and it is sparse if the solver is. Tolerances are the solvers'
defaults: 1e-6 to 1e-8, but only 1e-3 for osqp.

`ours_us` is a call from compiled code, as policies and the simulator call it; `ours_python_us` is a
call from Python, as all other solvers are called. One thread, one solver at a time, the fastest of
several passes over the same steps. A solver is left out, with a note, if it is not installed, is
dense where that makes no sense, or returns another solution. The fuzz test checks every solution of
ours by its optimality conditions.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bylot._text import format_table, print_progress
from bylot.errors import BylotError, install_command
from bylot.numerics.jit import Floats, jit
from bylot.numerics.simplex_projection import project_onto_halfspace
from bylot_bench import time_quickest
from bylot_bench.projection_cases import judge_halfspace, make_halfspace_case

QP_SIZES = (50, 200, 1_000, 10_000, 100_000)
MAX_KKT_RESIDUAL = 1e-12  # scaled
SolveProjection = Callable[[Floats, Floats, float], Any]  # z, a, b -> q


def make_daqp(K: int, floor: float) -> SolveProjection:
    """Dual active set, dense, warm-started from the last active set."""
    model = import_module("daqp").Model()
    A, upper, lower = np.ones((2, K)), np.full(K + 2, 1e30), np.full(K + 2, floor)
    upper[K], lower[K], lower[K + 1] = 1.0, 1.0, -1e30
    sense = np.zeros(K + 2, np.int32)
    sense[K] = 5  # an equality
    model.setup(np.eye(K), np.zeros(K), A, upper, lower, sense)

    def solve(z: Floats, a: Floats, b: float) -> Any:
        A[1], upper[K + 1] = a, b
        model.update(f=-z, A=A, bupper=upper)
        return model.solve()[0]

    return solve


def make_quadprog(K: int, floor: float) -> SolveProjection:
    """Goldfarb and Idnani's dual method, dense, with a factorised Hessian."""
    solver = import_module("quadprog")
    H, rows, sides = np.eye(K), np.zeros((K, K + 2)), np.full(K + 2, floor)
    rows[:, 0], rows[:, 2:], sides[0] = 1.0, np.eye(K), 1.0

    def solve(z: Floats, a: Floats, b: float) -> Any:
        rows[:, 1], sides[1] = -a, -b
        return solver.solve_qp(H, z, rows, sides, 1, True)[0]

    return solve


def make_piqp(K: int, floor: float) -> SolveProjection:
    """Proximal interior point, sparse."""
    solver = import_module("piqp").SparseSolver()
    G = sp.csc_matrix(np.ones((1, K)))
    side = np.ones(1)
    solver.setup(
        sp.csc_matrix(sp.eye_array(K)),
        np.zeros(K),
        sp.csc_matrix(np.ones((1, K))),
        np.ones(1),
        G,
        None,
        side,
        np.full(K, floor),
        None,
    )

    def solve(z: Floats, a: Floats, b: float) -> Any:
        G.data[:], side[0] = a, b
        solver.update(c=-z, G=G, h_u=side)
        solver.solve()
        return solver.result.x

    return solve


def stack_rows(K: int, sign: float) -> Any:
    """Two full rows over sign times the identity, in columns of three entries each."""
    rows = [sp.csc_matrix(np.ones((2, K))), sp.csc_matrix(sign * sp.eye_array(K))]
    return sp.vstack(rows, format="csc")


def make_osqp(K: int, floor: float) -> SolveProjection:
    """Operator splitting, sparse, warm-started from the last solution."""
    solver = import_module("osqp").OSQP()
    A = stack_rows(K, 1.0)
    per_expert = A.data.reshape(K, 3)
    lower = np.concatenate([[1.0, -np.inf], np.full(K, floor)])
    upper = np.concatenate([[1.0, 1.0], np.full(K, np.inf)])
    solver.setup(sp.csc_matrix(sp.eye_array(K)), np.zeros(K), A, lower, upper, verbose=False)

    def solve(z: Floats, a: Floats, b: float) -> Any:
        per_expert[:, 1], upper[1] = a, b
        solver.update(q=-z, Ax=A.data, u=upper)
        return solver.solve(raise_error=False).x

    return solve


def make_clarabel(K: int, floor: float) -> SolveProjection:
    """Interior point, sparse, with data updates."""
    module = import_module("clarabel")
    A = stack_rows(K, -1.0)
    per_expert = A.data.reshape(K, 3)
    sides = np.concatenate([[1.0, 1.0], np.full(K, -floor)])
    settings = module.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.presolve_enable = False  # or else the data cannot be updated
    solver = module.DefaultSolver(
        sp.csc_matrix(sp.eye_array(K)),
        np.zeros(K),
        A,
        sides,
        [module.ZeroConeT(1), module.NonnegativeConeT(K + 1)],
        settings,
    )

    def solve(z: Floats, a: Floats, b: float) -> Any:
        per_expert[:, 1], sides[1] = a, b
        solver.update(q=-z, A=A.data, b=sides)
        return np.asarray(solver.solve().x)

    return solve


QP_SOLVERS = {
    "daqp": make_daqp,
    "quadprog": make_quadprog,
    "piqp": make_piqp,
    "osqp": make_osqp,
    "clarabel": make_clarabel,
}
MAX_DENSE_SIZE = {"daqp": 1_000, "quadprog": 1_000}  # largest K for a dense K x K matrix
SOLVER_TOLERANCES = {"osqp": 0.1}  # relative to the largest q; 1e-3 for the others


def list_missing_solvers() -> list[str]:
    return [name for name in QP_SOLVERS if find_spec(name) is None]


class ProjectionSteps(NamedTuple):
    """Steps whose row binds: project z[n] onto {q >= floor, a[n].q <= b[n]}."""

    floor: float
    z: Floats
    a: Floats
    b: Floats


def record_steps(K: int, count: int, skip: int = 500, seed: int = 0) -> ProjectionSteps:
    """Record `count` steps of a run after its first `skip`, with the settings of the paper.

    The pool is made up: heavy-tailed workloads under a budget, a cap on the busiest fifth, a share
    for the least busy one, and skill that comes with practice. Only what a step needs is computed,
    so that a pool of 100,000 takes seconds.
    """
    M, N, batch, kappa, rounds = 5, 3, 10, 20.0, 10_000
    rng = np.random.default_rng(seed)
    workload = rng.lognormal(-1.5, 1.0, K).clip(0.01)
    workload /= workload.max()
    practice = workload.argsort().argsort() / K
    costs = np.array([workload, practice >= 0.8, practice < 0.2])
    low, high = np.array([0.0, 0.0, 0.5]), np.array([workload.mean(), 0.8 / M, 1.0])
    skills = (0.2 + 0.6 * practice + 0.15 * rng.standard_normal((N, K))).clip(0.01, 0.99)
    floor = 1 / (10 * K)
    eta = 0.03 * np.sqrt(2 * rounds * K * M * (1 / floor + M - 1))
    q, w, total, played = np.full(K, 1 / K), np.zeros(3), 0.0, 0
    found: list[tuple[Floats, Floats, float]] = []
    while len(found) < count:
        g, mass, spend = np.zeros(K), np.cumsum(q), costs @ q
        for _ in range(batch):
            draws = np.searchsorted(mass, mass[-1] * rng.random(M))
            v = skills[:, draws]
            reward = rng.beta(kappa * v, kappa * (1 - v)).max(axis=1).sum()
            centred = reward - total / played if played else 0.0
            np.add.at(g, draws, centred / q[draws] / batch)
            total, played = total + reward, played + 1
            peak = np.where(w > 0, high, np.where(w < 0, low, spend.clip(low, high)))
            w = w + 0.05 * (spend - peak)
            w /= max(1.0, float(np.linalg.norm(w)))
        z, a, b = q + g / eta, w @ costs, float(np.where(w > 0, w * high, w * low).sum())
        answer = project_onto_halfspace(z, floor, a, b)
        q = answer.q
        if answer.multiplier > 0 and played > skip * batch:
            found.append((z, a, b))
    return ProjectionSteps(floor, *map(np.array, zip(*found, strict=True)))


@jit
def project_steps(floor: float, z: Floats, a: Floats, b: Floats) -> float:
    """Project all steps from compiled code; the sum keeps them from being optimised away."""
    total = 0.0
    for n in range(b.size):
        total += project_onto_halfspace(z[n], floor, a[n], b[n]).q[0]
    return total


def run(
    cases: int = 60_000, sizes: Sequence[int] = QP_SIZES, seconds: float = 1.5, seed: int = 0
) -> dict[str, Any]:
    """Time all solvers at each size, then run the fuzz test."""
    absent = list_missing_solvers()
    if len(absent) == len(QP_SOLVERS):
        raise BylotError(f"no solver to compare with; {install_command('bench')}")
    return {
        "qp": [compare_solvers(K, seconds) for K in sizes],
        "fuzz": fuzz_projection(cases, seed),
        "versions": {
            name: None if name in absent else metadata.version(name) for name in QP_SOLVERS
        },
        "absent": absent,
    }


def compare_solvers(K: int, seconds: float) -> dict[str, Any]:
    """Microseconds per projection at one size, ours and the others'."""
    print_progress(f"K = {K:,}: playing")
    work = record_steps(K, max(3, min(200, 10_000 // K)))
    peers, notes = time_solvers(K, work, seconds)
    print_progress(f"K = {K:,}: ours")
    scale = 1e6 / work.b.size
    inside = scale * time_quickest(partial(project_steps, *work), seconds)
    outside = scale * time_quickest(partial(solve_each, make_own_solver(work.floor), work), seconds)
    best = min(peers.values(), default=0.0)
    return {
        "K": K,
        "ours_us": inside,
        "ours_python_us": outside,
        "peers_us": peers,
        "ratio_to_best": best / inside,
        "python_ratio_to_best": best / outside,
        "notes": notes,
    }


def time_solvers(
    K: int, work: ProjectionSteps, seconds: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Microseconds per projection of the other solvers, and why some are left out."""
    times, notes = {}, {}
    ours = solve_each(make_own_solver(work.floor), work)
    for name, make in QP_SOLVERS.items():
        if name in list_missing_solvers():
            notes[name] = "not installed"
            continue
        if MAX_DENSE_SIZE.get(name, K) < K:
            notes[name] = "dense: a K x K matrix makes no sense here"
            continue
        print_progress(f"K = {K:,}: {name}")
        solve = make(K, work.floor)
        parts = [
            np.abs(theirs - q).max() / q.max()
            for theirs, q in zip(solve_each(solve, work), ours, strict=True)
        ]
        off = float(np.nan_to_num(parts, nan=np.inf).max())
        if off > SOLVER_TOLERANCES.get(name, 1e-3):
            notes[name] = f"its solutions are off by {off:.1e} of the largest q"
        else:
            taken = time_quickest(partial(solve_each, solve, work), seconds)
            times[name] = 1e6 * taken / work.b.size
    return times, notes


def make_own_solver(floor: float) -> SolveProjection:
    """Our projection, called like the other solvers."""
    return lambda z, a, b: project_onto_halfspace(z, floor, a, b).q


def solve_each(solve: SolveProjection, work: ProjectionSteps) -> list[Floats]:
    """Solve every step; copy, because a solver may return the same array again."""
    return [np.array(solve(z, a, float(b))) for z, a, b in zip(*work[1:], strict=True)]


def fuzz_projection(cases: int, seed: int) -> dict[str, Any]:
    """Check our solutions of numbered hard cases; a failure can be re-run by its number."""
    worst, failures = 0.0, []
    for number in range(cases):
        case = make_halfspace_case(number, seed)
        answer = project_onto_halfspace(case.z, case.floor, case.A[0], float(case.b[0]))
        residual = judge_halfspace(case, answer.q, answer.multiplier, answer.feasible)
        worst = max(worst, residual)
        if not residual <= MAX_KKT_RESIDUAL:
            failures.append(case.title)
        if number % 10_000 == 0:
            print_progress(f"fuzz: {number:,} of {cases:,} cases, worst residual {worst:.1e}")
    return {
        "cases": cases,
        "failures": len(failures),
        "worst_kkt": worst,
        "first_failures": failures[:5],
    }


def render(result: dict[str, Any]) -> str:
    rows = [("K", "ours", "from Python", *QP_SOLVERS, "ratio to best")]
    notes = []
    for row in result["qp"]:
        peers = (row["peers_us"].get(name) for name in QP_SOLVERS)
        times = map(format_us, (row["ours_us"], row["ours_python_us"], *peers))
        rows.append((f"{row['K']:,}", *times, f"{row['ratio_to_best']:.0f}"))
        notes += [f"K = {row['K']:,}: {name}: {note}" for name, note in row["notes"].items()]
    found = result["fuzz"]
    tail = (
        f"fuzz: {found['cases']:,} hard cases, {found['failures']} failures, "
        f"worst scaled KKT residual {found['worst_kkt']:.1e}"
    )
    return "\n".join(["microseconds per projection", *format_table(rows), *notes, tail])


def format_us(us: float | None) -> str:
    if us is None:
        return ""
    return f"{us:,.0f}" if us >= 10 else f"{us:.2f}"
