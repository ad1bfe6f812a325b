"""Our exact projection against general QP solvers, in one run, and then against hard cases.

Timed is the step of the policy: z = q + g / eta from the middle of a play, with a row that binds.
`ours_us` is a call from compiled code, which is where policy and simulator call it;
`ours_python_us` one from Python, as all peers are called. One thread, one solver at a time, the
quickest of several passes over the same consecutive steps. A peer is left out, with a note, if
it is not installed, is dense where that makes no sense, or solves a different problem. The fuzz
judges every answer of ours by its optimality conditions.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bylot.bench.adversarial import halfspace_case, judge
from bylot.bench.peers import CLOSE, DENSE, PEERS, Solve, absent, apart, version
from bylot.bench.steps import Steps, steps
from bylot.errors import BylotError
from bylot.extras import install
from bylot.kernels.compile import Floats, compiled
from bylot.kernels.project import onto_halfspace
from bylot.text import say, table

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
        raise BylotError(f"no solver to compare with: {install('bench')}")
    rows = [compare(K, seconds) for K in sizes]
    return {
        "qp": rows,
        "fuzz": fuzz(cases, seed),
        "versions": {name: version(name) for name in PEERS},
        "absent": absent(),
    }


def compare(K: int, seconds: float) -> dict[str, Any]:
    """Microseconds per projection at one size, ours and everyone else's."""
    say(f"K = {K:,}: playing")
    work = steps(K, max(3, min(200, 10_000 // K)))
    peers, notes = timed_peers(K, work, seconds)
    say(f"K = {K:,}: ours")
    scale = 1e6 / work.b.size
    inside = scale * quickest(partial(project_all, *work), seconds)
    outside = scale * quickest(partial(one_by_one, from_python(work.floor), work), seconds)
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


def timed_peers(K: int, work: Steps, seconds: float) -> tuple[dict[str, float], dict[str, str]]:
    """Microseconds per projection of the peers, and why some have none."""
    times, notes = {}, {}
    ours = one_by_one(from_python(work.floor), work)
    for name, make in PEERS.items():
        if name in absent():
            notes[name] = "not installed"
            continue
        if DENSE.get(name, K) < K:
            notes[name] = "dense: a K x K matrix makes no sense here"
            continue
        say(f"K = {K:,}: {name}")
        solve = make(K, work.floor)
        off = apart(one_by_one(solve, work), ours)
        if off > CLOSE.get(name, 1e-3):
            notes[name] = f"its answers are off by {off:.1e} of the largest q"
        else:
            seconds_each = quickest(partial(one_by_one, solve, work), seconds) / work.b.size
            times[name] = 1e6 * seconds_each
    return times, notes


def from_python(floor: float) -> Solve:
    """Our projection as the peers are called."""
    return lambda z, a, b: onto_halfspace(z, floor, a, b).q


def one_by_one(solve: Solve, work: Steps) -> list[Floats]:
    """One call for each step; a solver may hand out the same array again, so it is copied."""
    return [np.array(solve(z, a, float(b))) for z, a, b in zip(*work[1:], strict=True)]


def quickest(work: Callable[[], Any], seconds: float) -> float:
    """Seconds of the quickest pass among as many as the time allows, one at least."""
    best, begun = np.inf, time.perf_counter()
    while best == np.inf or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


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


def render(result: dict[str, Any]) -> str:
    """The result as a table, and what there is to say about it."""
    head = ("K", "ours", "from Python", *PEERS, "ratio to best")
    rows = [
        (
            f"{row['K']:,}",
            micro(row["ours_us"]),
            micro(row["ours_python_us"]),
            *(micro(row["peers_us"][name]) if name in row["peers_us"] else "" for name in PEERS),
            f"{row['ratio_to_best']:.0f}",
        )
        for row in result["qp"]
    ]
    notes = [
        f"K = {row['K']:,}: {name}: {note}"
        for row in result["qp"]
        for name, note in row["notes"].items()
    ]
    found = result["fuzz"]
    tail = (
        f"fuzz: {found['cases']:,} hard cases, {found['failures']} failures, "
        f"worst scaled KKT residual {found['worst_kkt']:.1e}"
    )
    return "\n".join(["microseconds per projection", *table([head, *rows]), *notes, tail])


def micro(us: float) -> str:
    """Microseconds with two digits at least."""
    return f"{us:,.0f}" if us >= 10 else f"{us:.2f}"
