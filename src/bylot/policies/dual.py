"""The dual player: online gradient ascent on the unit ball, which weighs the limits.

It maximises f_t(w) = w.u_t - h_S(w), whose best value in hindsight is the distance of the mean
surrogate cost from S (paper, Lemma 4). The paper takes *an* OCO algorithm as input; here it is the
rule for the length of a step, everything else is shared.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from bylot.kernels.ball import into_ball
from bylot.kernels.box import slope_at
from bylot.kernels.compile import Floats, Ints, inlined


class Fixed(NamedTuple):
    """Online gradient descent with one step size, as in the paper's experiments."""

    step: float = 0.05


class Anytime(NamedTuple):
    """Step size step / sqrt(n) at the n-th step: no horizon to know."""

    step: float = 1.0


class Adaptive(NamedTuple):
    """Step size step / sqrt(sum of squared slopes so far): no scale to know either (AdaGrad)."""

    step: float = 2.0**0.5


Oco = Fixed | Anytime | Adaptive
OCO: dict[str, type[Oco]] = {"fixed": Fixed, "anytime": Anytime, "adaptive": Adaptive}


class Dual(NamedTuple):
    """What the dual player remembers."""

    w: Floats  # its point in the unit ball, one coordinate a limit
    u: Floats  # surrogate cost of the policies played since its last step, summed
    rounds: Ints  # how many of them
    steps: Ints  # steps taken so far
    energy: Floats  # sum of squared slopes so far


def resting(size: int) -> Dual:
    """A dual player that has seen nothing: w = 0 asks for nothing."""
    return Dual(
        w=np.zeros(size),
        u=np.zeros(size),
        rounds=np.zeros(1, np.int64),
        steps=np.zeros(1, np.int64),
        energy=np.zeros(1),
    )


def stride(oco: Any, dual: Any) -> float:
    """The length of the step about to be taken; compiled code picks it by the type of `oco`."""
    raise NotImplementedError("compiled code only")


@overload(stride, strict=False)  # type: ignore[untyped-decorator]
def _(oco: Any, dual: Any) -> Any:
    return STRIDES[oco.instance_class]


def _fixed(oco: Fixed, dual: Dual) -> float:
    return oco.step


def _anytime(oco: Anytime, dual: Dual) -> float:
    return float(oco.step / np.sqrt(dual.steps[0]))


def _adaptive(oco: Adaptive, dual: Dual) -> float:
    energy = dual.energy[0]
    return float(oco.step / np.sqrt(energy)) if energy > 0.0 else 0.0


STRIDES: dict[type, Any] = {Fixed: _fixed, Anytime: _anytime, Adaptive: _adaptive}


@inlined
def charge(dual: Dual, u: Floats) -> None:
    """Owe the surrogate cost of the policy that was actually played."""
    for j in range(u.size):
        dual.u[j] += u[j]
    dual.rounds[0] += 1


@inlined
def advance(oco: Any, dual: Dual, low: Floats, high: Floats) -> None:
    """One step up f at the mean of what was charged: w <- project(w + stride * slope)."""
    energy = 0.0
    for j in range(dual.w.size):  # in place: a temporary array costs more than all of this
        dual.u[j] = slope_at(low[j], high[j], dual.u[j] / dual.rounds[0], dual.w[j])
        energy += dual.u[j] * dual.u[j]
    dual.steps[0] += 1
    dual.energy[0] += energy
    length = stride(oco, dual)
    for j in range(dual.w.size):
        dual.w[j] += length * dual.u[j]
        dual.u[j] = 0.0
    into_ball(dual.w)
    dual.rounds[0] = 0
