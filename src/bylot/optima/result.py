"""Optimum: what the best fixed policy earns, which one it is, and the proof."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bylot.errors import ValuesError
from bylot.kernels.compile import Floats
from bylot.kernels.inclusion import inclusion

Labels = NDArray[np.int64] | NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best expected reward per round under the limits, and a policy that has it.

    value:    mean over rounds of Phi^{r_t}(policy), evaluated exactly
    policy:   (K,), or (X, K) with a row for each of the `contexts`
    gap:      no allowed policy has more than value + gap. Under the surrogate this is a proof of
              optimality; under the exact costs it also contains what is lost by proving it with
              a convex superset of the allowed policies, and can be large when upper limits bind
    prices:   (d,), what a bound is worth: d value / d bound in the bound's own unit, so >= 0 for
              `at_most` and <= 0 for `at_least`; one of the possible values at a kink
    spread:   best minus worst local optimum over the starts (exact costs only, else 0)
    starts:   how many starts led to an allowed policy; there are no more once one is proved best
    contexts: the labels of the rows of `policy`; None without contexts
    exact:    is it of the limits themselves, or of the paper's surrogate?
    """

    value: float
    policy: Floats
    gap: float
    prices: Floats
    spread: float = 0.0
    starts: int = 1
    contexts: Labels | None = None
    exact: bool = False

    def require(self, exact: bool) -> None:
        """Refuse an optimum of the other kind than the one that is wanted."""
        if self.exact != exact:
            kinds = {True: "the limits themselves", False: "the paper's surrogate of the limits"}
            raise ValuesError(
                f"best is the optimum under {kinds[self.exact]}, but one under {kinds[exact]} is "
                f"wanted; give exact={self.exact} here, or make it by optimum(..., exact={exact})"
            )

    def asked(self, draws: int) -> Floats:
        """(X, K), the chance of each expert to be asked in a request: 1 - (1 - q)^M, a row for each
        context.
        """
        return np.array([inclusion(q, draws) for q in np.atleast_2d(self.policy)])

    @property
    def ceiling(self) -> float:
        """value + gap, which no allowed policy exceeds."""
        return self.value + self.gap
