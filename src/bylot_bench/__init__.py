"""Benchmarks: each module has `run`, which measures, and `render`, which prints the result."""

import math
import time
from collections.abc import Callable
from typing import Any


def time_quickest(work: Callable[[], Any], seconds: float = 0.0, passes: int = 1) -> float:
    """Seconds of the fastest pass, among this many and as many as the time allows."""
    best, done, begun = math.inf, 0, time.perf_counter()
    while done < passes or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        work()
        best, done = min(best, time.perf_counter() - start), done + 1
    return best
