"""CPU seconds of a process that routes its first request, against a process that only loads numba.

The cache of compiled code is warm. Every case is a new process, in turns; the best turn counts,
because other load on the machine can only slow a turn down.
"""

import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bylot._text import format_table

TEN_LINES = """\
import bylot

problem = bylot.Problem(
    experts=["cardio", "renal", "neuro", "general"],
    costs={"usd": [3.0, 2.0, 2.5, 0.5], "server_a": [1, 1, 0, 0]},
    limits=[
        bylot.at_most("usd", 3.0),  # on average, per request
        bylot.at_most("server_a", 1.2),
        bylot.at_least(bylot.share("generalists", ["general"]), 0.3),
    ],
    draws=2,
)
router = bylot.Router(problem, seed=7)
decision = router.decide(context="chest pain")
router.reward(decision.id, 0.83)
print(decision.subset, decision.spend, decision.propensity)
"""
"""The first example of the README."""

CACHED_FUNCTION = """\
import numba

@numba.njit(cache=True)
def add_one(x):
    return x + 1

add_one(1)
"""

OWN_SETTINGS = {"OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE"}
"""Not inherited: `bylot` sets the first, and installed copies have bytecode."""


def run(turns: int = 7) -> dict[str, Any]:
    """Measure all in turns, after one that fills the caches."""
    seconds: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cached_function.py"
        path.write_text(CACHED_FUNCTION)
        for turn in range(turns + 1):
            bound = 3 + random.random() / 1_000  # of a problem that was never solved here
            cases = {
                "the ten lines": ["-c", TEN_LINES],
                "with a new problem": ["-c", TEN_LINES.replace("3.0),", f"{bound!r}),")],
                "import numba": ["-c", "import numba"],
                "numba, one cached function": [str(path)],
            }
            for name, words in cases.items():
                used = measure_process([sys.executable, *words])
                if turn > 0:
                    seconds.setdefault(name, []).append(used)
    return {
        "best_cpu_s": {name: min(used) for name, used in seconds.items()},
        "median_cpu_s": {name: float(np.median(used)) for name, used in seconds.items()},
    }


def measure_process(command: list[str]) -> float:
    """CPU seconds of a process and its threads, from its start to its end."""
    clean = {name: text for name, text in os.environ.items() if name not in OWN_SETTINGS}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=clean, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def render(result: dict[str, Any]) -> str:
    best, median = result["best_cpu_s"], result["median_cpu_s"]
    rows = [("start of a process, warm cache", "CPU, best", "median", "/ import numba")]
    rows += [
        (name, f"{used:.2f} s", f"{median[name]:.2f} s", f"{used / best['import numba']:.2f}")
        for name, used in best.items()
    ]
    return "\n".join(format_table(rows))
