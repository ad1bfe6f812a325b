"""Our exact projection against general QP solvers, in one run, and then against hard cases.

Timed is the step of the policy: z = q + g / eta from a play, with a row that binds. `ours_us` is a
call from compiled code, which is where policy and simulator call it; `ours_python_us` one from
Python, as all peers are called. The fuzz judges every answer by its optimality conditions.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bylot.bench.adversarial import halfspace_case, judge
from bylot.bench.peers import DENSE, PEERS, Solve, absent, agreement, version
from bylot.errors import BylotError
from bylot.kernels.compile import Floats, compiled
from bylot.kernels.project import onto_halfspace
from bylot.text import table

SIZES = (50, 200, 1_000, 10_000, 100_000)
LIMIT = 1e-12  # of the scaled KKT residual


class Steps(NamedTuple):
    """Steps of a play in which the row binds: points, rows and bounds."""

    floor: float
    z: Floats
    a: Floats
    b: Floats


def steps(K: int, count: int, M: int = 5, batch: int = 10, seed: int = 0) -> Steps:
    """Proximal steps of a policy that learns values under three limits, one after the other."""
    rng = np.random.default_rng(seed)
    floor = 1 / (10 * K)
    eta = 0.03 * np.sqrt(2 * 10_000 * K * M * (1 / floor + M - 1))
    rows = rng.random((3, K))
    value, bounds = 0.5 * rows.mean(axis=0) + 0.5 * rng.random(K), 0.8 * rows.mean(axis=1)
    found: list[tuple[Floats, Floats, float]] = []
    q = np.full(K, 1 / K)
    while len(found) < count:
        draws = rng.choice(K, (batch, M), p=q / q.sum())
        reward = value[draws].max(axis=1) + 0.05 * rng.standard_normal(batch)
        g = np.zeros(K)
        np.add.at(g, draws, (reward - reward.mean())[:, None] / q[draws] / batch)
        w = np.abs(rng.standard_normal(3))
        w /= np.linalg.norm(w)
        z, a, b = q + g / eta, w @ rows, float(w @ bounds)
        answer = onto_halfspace(z, floor, a, b)
        q = answer.q
        if answer.multiplier > 0:
            found.append((z, a, b))
    z_all, a_all, b_all = zip(*found, strict=True)
    return Steps(floor, np.array(z_all), np.array(a_all), np.array(b_all))


@compiled
def project_all(z: Floats, floor: float, a: Floats, b: Floats) -> float:
    """All steps from compiled code; the sum keeps the work from being optimised away."""
    total = 0.0
    for n in range(b.size):
        total += onto_halfspace(z[n], floor, a[n], b[n]).q[0]
    return total


def run(
    cases: int = 60_000, sizes: Sequence[int] = SIZES, seconds: float = 1.5, seed: int = 0
) -> dict[str, Any]:
    """Time all solvers at each size, then fuzz."""
    if len(absent()) == len(PEERS):
        raise BylotError("no solver to compare with: pip install 'bylot[bench]'")
    rows = [compare(K, seconds) for K in sizes]
    return {
        "qp": rows,
        "fuzz": fuzz(cases, seed),
        "versions": {name: version(name) for name in PEERS},
        "absent": absent(),
    }


def compare(K: int, seconds: float) -> dict[str, Any]:
    """Microseconds per projection at one size, the best of repeated passes over the same steps."""
    work = steps(K, max(3, min(50, 200_000 // K)))
    ours = [onto_halfspace(z, work.floor, a, b).q for z, a, b in zip(*work[1:], strict=True)]
    peers, notes = {}, {}
    for name, make in PEERS.items():
        if name in absent():
            notes[name] = "not installed"
        elif DENSE.get(name, K) < K:
            notes[name] = "dense: K x K does not make sense here"
        else:
            say(f"K = {K:,}: {name}")
            peers[name] = timed_peer(name, make(K, work.floor), work, ours, seconds)
    say(f"K = {K:,}: ours")
    inside = best_pass(lambda: project_all(work.z, work.floor, work.a, work.b), seconds)
    outside = best_pass(lambda: one_by_one(ours_from_python(work.floor), work), seconds)
    us = {name: 1e6 * t / work.b.size for name, t in (("in", inside), ("out", outside))}
    return {
        "K": K,
        "ours_us": us["in"],
        "ours_python_us": us["out"],
        "peers_us": peers,
        "ratio_to_best": min(peers.values()) / us["in"],
        "notes": notes,
    }


def ours_from_python(floor: float) -> Solve:
    """Our projection as the peers are called."""
    return lambda z, a, b: onto_halfspace(z, floor, a, b).q


def timed_peer(name: str, solve: Solve, work: Steps, ours: list[Floats], seconds: float) -> float:
    """Microseconds per call, after a check that the peer solves the same problem."""
    answers = one_by_one(solve, work)
    if not all(agreement(name, theirs, mine) for theirs, mine in zip(answers, ours, strict=True)):
        raise BylotError(f"{name} disagrees with ours beyond its accuracy; one of us is wrong")
    return 1e6 * best_pass(lambda: one_by_one(solve, work), seconds) / work.b.size


def one_by_one(solve: Solve, work: Steps) -> list[Floats]:
    """One call for each step."""
    return [np.array(solve(z, a, float(b))) for z, a, b in zip(*work[1:], strict=True)]


def best_pass(work: Callable[[], Any], seconds: float) -> float:
    """Seconds of the quickest pass among as many as the time allows, three at least."""
    work()
    passes: list[float] = []
    while len(passes) < 3 or sum(passes) < seconds:
        start = time.perf_counter()
        work()
        passes.append(time.perf_counter() - start)
    return min(passes)


def fuzz(cases: int, seed: int) -> dict[str, Any]:
    """Judge our answers to numbered hard cases; a failure can be re-run by its number."""
    worst, failures = 0.0, []
    for number in range(cases):
        case = halfspace_case(number, seed)
        answer = onto_halfspace(case.z, case.floor, case.A[0], float(case.b[0]))
        residual = judge(case, answer.q, answer.multiplier, answer.feasible)
        worst = max(worst, residual)
        if not residual <= LIMIT:
            failures.append(case.title)
        if number % 10_000 == 0:
            say(f"fuzz: {number:,} of {cases:,} cases, worst residual {worst:.1e}")
    return {
        "cases": cases,
        "failures": len(failures),
        "worst_kkt": worst,
        "first_failures": failures[:5],
    }


def say(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def render(result: dict[str, Any]) -> str:
    """The result as a table: microseconds per projection."""
    head = ("K", "ours", "from Python", *PEERS, "ratio to best")
    rows = [
        (
            f"{row['K']:,}",
            f"{row['ours_us']:.2f}",
            f"{row['ours_python_us']:.1f}",
            *(f"{row['peers_us'][name]:,.0f}" if name in row["peers_us"] else "" for name in PEERS),
            f"{row['ratio_to_best']:.0f}",
        )
        for row in result["qp"]
    ]
    found = result["fuzz"]
    tail = (
        f"fuzz: {found['cases']:,} hard cases, {found['failures']} failures, "
        f"worst scaled KKT residual {found['worst_kkt']:.1e}"
    )
    return "\n".join(["microseconds per projection", *table([head, *rows]), tail])
