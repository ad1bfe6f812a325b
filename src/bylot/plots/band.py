"""What a mean over seeds is worth: a band of one standard deviation either side."""

from typing import Any

import numpy as np

from bylot.kernels.compile import Floats, Ints
from bylot.plots.groups import Curve
from bylot.plots.style import Look


def band(
    axes: Any, x: Floats | Ints, curve: Curve, look: Look, alpha: float, least: float = -np.inf
) -> None:
    """Shade it, but not under `least`: a distance, for one, is never negative."""
    low = np.maximum(curve.mean - curve.std, least)
    shade(axes, x, low, curve.mean + curve.std, look, alpha)


def reach(axes: Any, x: Floats | Ints, curve: Curve, look: Look, alpha: float) -> None:
    """Shade from the lowest seed to the highest: what a limit is about."""
    shade(axes, x, curve.seeds.min(axis=0), curve.seeds.max(axis=0), look, alpha)


def shade(axes: Any, x: Floats | Ints, low: Floats, high: Floats, look: Look, alpha: float) -> None:
    """Fill between two lines, without an edge."""
    axes.fill_between(x, low, high, color=look.colour, alpha=alpha, linewidth=0)
