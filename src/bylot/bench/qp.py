"""Our exact projection against general QP solvers, in one run, and then against hard cases.

Timed is the step of the policy: z = q + g / eta from the middle of a play, with a row that binds.
`ours_us` is a call from compiled code, which is where policy and simulator call it;
`ours_python_us` one from Python, as all peers are called. One thread, one solver at a time, the
quickest of several passes over the same consecutive steps. A peer is left out, with a note, if
it is not installed, is dense where that makes no sense, or solves a different problem. The fuzz
judges every answer of ours by its optimality conditions.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bylot.bench.adversarial import halfspace_case, judge
from bylot.bench.peers import CLOSE, DENSE, PEERS, Solve, absent, distance, version
from bylot.bench.steps import Steps, steps
from bylot.errors import BylotError
from bylot.kernels.compile import Floats, compiled
from bylot.kernels.project import onto_halfspace
from bylot.text import table

SIZES = (50, 200, 1_000, 10_000, 100_000)
LIMIT = 1e-12  # of the scaled KKT residual


@compiled
def project_all(floor: float, z: Floats, a: Floats, b: Floats) -> float:
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
    """Microseconds per projection at one size."""
    say(f"K = {K:,}: playing")
    work = steps(K, max(3, min(200, 10_000 // K)))
    mine = from_python(work.floor)
    ours = one_by_one(mine, work)
    peers, notes = {}, {}
    for name in PEERS:
        if name in absent():
            notes[name] = "not installed"
        elif DENSE.get(name, K) < K:
            notes[name] = "dense: a K x K matrix makes no sense here"
        else:
            say(f"K = {K:,}: {name}")
            solve = PEERS[name](K, work.floor)
            apart = max(map(distance, one_by_one(solve, work), ours))
            if apart > CLOSE:
                notes[name] = f"its answers are off by {apart:.1e} of the largest q"
            else:
                peers[name] = 1e6 * quickest(partial(one_by_one, solve, work), seconds) / len(ours)
    say(f"K = {K:,}: ours")
    inside = 1e6 * quickest(partial(project_all, *work), seconds) / len(ours)
    outside = 1e6 * quickest(partial(one_by_one, mine, work), seconds) / len(ours)
    best = min(peers.values(), default=np.nan)
    return {
        "K": K,
        "ours_us": inside,
        "ours_python_us": outside,
        "peers_us": peers,
        "ratio_to_best": best / inside,
        "python_ratio_to_best": best / outside,
        "notes": notes,
    }


def from_python(floor: float) -> Solve:
    """Our projection as the peers are called."""
    return lambda z, a, b: onto_halfspace(z, floor, a, b).q


def one_by_one(solve: Solve, work: Steps) -> list[Floats]:
    """One call for each step; a solver may hand out the same array again, so it is copied."""
    return [np.array(solve(z, a, float(b))) for z, a, b in zip(*work[1:], strict=True)]


def quickest(work: Callable[[], Any], seconds: float) -> float:
    """Seconds of the quickest pass among as many as the time allows, one at least."""
    passes: list[float] = []
    while sum(passes) < seconds:
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
