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
    shade = {"color": look.colour, "alpha": alpha, "linewidth": 0}
    axes.fill_between(x, low, curve.mean + curve.std, **shade)
