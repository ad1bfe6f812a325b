"""What can be read off a curve over the updates n: slopes, order, where it comes to rest."""

import numpy as np
from scipy import stats

from bylot.kernels.compile import Floats
from bylot.plots.groups import Curve
from bylot.report.evidence import Untestable

PER_DECADE = 10
"""Points of the logarithmic grid that curves are compared on: early n count as much as late."""


def reach(curve: Curve, n: float) -> None:
    """Refuse a run that is over before n."""
    if curve.n[-1] < n:
        raise Untestable(f"the run ends at n = {curve.n[-1]:g}, the claim speaks of n = {n:g}")


def on_grid(curve: Curve, low: float, high: float | None = None) -> tuple[Floats, Floats]:
    """The mean curve at logarithmically even n from low to high (the end if not given)."""
    end = float(curve.n[-1]) if high is None else high
    reach(curve, max(end, 2 * low))
    count = max(5, round(PER_DECADE * np.log10(end / low)) + 1)
    n = np.geomspace(low, end, count)
    return n, np.interp(n, curve.n, curve.mean)


def slope(n: Floats, y: Floats) -> float:
    """Least-squares slope of log y over log n; points at or below 0 have no logarithm.

    >>> round(slope(np.array([1.0, 4.0, 16.0]), np.array([1.0, 0.5, 0.25])), 6)
    -0.5
    """
    above = y > 0
    if above.sum() < 3:
        return float("nan")
    return float(np.polyfit(np.log(n[above]), np.log(y[above]), 1)[0])


def order(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation; 0 for a constant, which neither rises nor falls."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(stats.spearmanr(x, y).statistic)


def rest(n: Floats, y: Floats, below: float) -> float:
    """First n from which y stays under a threshold; infinite if it does not at the end.

    >>> rest(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 0.0]), below=0.5)
    3.0
    """
    over = np.flatnonzero(y >= below)
    if over.size == 0:
        return float(n[0])
    return float("inf") if over[-1] == len(n) - 1 else float(n[over[-1] + 1])
