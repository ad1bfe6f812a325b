"""Mirror ascent on logits: the gradient gathered between two steps, and the length of a step.

The policies say whose gradient it is, and project the step onto their constraints.
"""

import math
from typing import NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.policies.validation import check_positive


class AscentSettings(NamedTuple):
    """Settings of the steps."""

    eta: float
    patience: float  # n0: batches that count as seen before the first
    batch: int  # decisions of a context between two steps
    clip: bool  # may a logit move by at most 1?
    monotone: bool  # may steps only get shorter?
    entropy: float  # of the start: log K, or the logarithm of the number of sets


class GradientState(NamedTuple):
    """The gradient, a line per context."""

    g: Floats  # (X, K) gathered since the last step
    energy: Floats  # (X,) S, its squares summed over the steps so far
    rough: Floats  # (X,) what the last step's length was computed from
    batches: Ints  # (X,) b
    rewards: Ints  # (X,) how many
    total: Floats  # (X,) and their sum
    baseline: Floats  # (X,) their mean when the last step was taken
    based: Bools  # (X,) was there any reward then?


def make_gradient_state(contexts: int, size: int) -> GradientState:
    """No gradient in any context."""
    return GradientState(
        g=np.zeros((contexts, size)),
        energy=np.zeros(contexts),
        rough=np.zeros(contexts),
        batches=np.zeros(contexts, np.int64),
        rewards=np.zeros(contexts, np.int64),
        total=np.zeros(contexts),
        baseline=np.zeros(contexts),
        based=np.zeros(contexts, np.bool_),
    )


def check_ascent_settings(eta: float, patience: float, batch: int, eps: float) -> None:
    """Raise for invalid settings."""
    check_positive("eta", eta, 1.0)
    check_positive("patience", patience, 100.0)
    if type(batch) is not int or not 1 <= batch < 2**31:
        raise PolicyError(f"batch={batch!r} is not a number of rounds; the default is 10")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 <= eps < 1:
        raise PolicyError(f"eps={eps!r} is no share of the draws; use 0.02, or 0 for none")


def is_valid_gradient_state(slope: GradientState) -> bool:
    """Validate numbers loaded from disk."""
    counts = slope.batches, slope.rewards
    return bool(all((count >= 0).all() for count in counts) and (slope.energy >= 0).all())


@jit
def center_reward(slope: GradientState, x: int, reward: float) -> float:
    """The reward less the baseline; 0 before there is one. The baseline is constant between two
    steps, so the order of the rewards of a batch does not matter.
    """
    slope.rewards[x] += 1
    slope.total[x] += reward
    return reward - slope.baseline[x] if slope.based[x] else 0.0


@jit
def begin_ascent_step(slope: GradientState, x: int, weights: Floats) -> None:
    """Begin a step: a new baseline, and g centred on the tangent space of a distribution.

    g -= <w, g> / <w, 1>;  S += <w, g^2>, with w the variance of each logit.
    """
    slope.batches[x] += 1
    if slope.rewards[x] > 0:
        slope.baseline[x] = slope.total[x] / slope.rewards[x]
        slope.based[x] = True
    g, mean, whole = slope.g[x], 0.0, 0.0
    for i in range(g.size):
        mean += weights[i] * g[i]
        whole += weights[i]
    for i in range(g.size):
        g[i] -= mean / whole if whole > 0.0 else 0.0
        slope.energy[x] += weights[i] * g[i] * g[i]


@jit
def compute_step_length(climb: AscentSettings, slope: GradientState, x: int) -> float:
    """The length of a step: eta sqrt(entropy / (S (b + n0) / b)), the squares so far as if n0
    batches like them had come before; at most 1 / max |g| if clipped.
    """
    b, g, top = slope.batches[x], slope.g[x], 0.0
    rough = slope.energy[x] * (b + climb.patience) / b
    slope.rough[x] = max(rough, slope.rough[x]) if climb.monotone else rough
    for i in range(g.size):
        top = max(top, abs(g[i]))
    if slope.rough[x] <= 0.0 or top <= 0.0:
        return 0.0
    s = climb.eta * math.sqrt(climb.entropy / slope.rough[x])
    return min(s, 1.0 / top) if climb.clip else s


@jit
def add_gradient_step(theta: Floats, slope: GradientState, x: int, s: float) -> None:
    """theta += s g, and reset g."""
    g = slope.g[x]
    for i in range(g.size):
        theta[i] += s * g[i]
        g[i] = 0.0


@jit
def clamp_logits(theta: Floats, top: float, low: float, high: float) -> None:
    """Subtract `top` and clip to [low, high]: logits beyond would never come back."""
    for i in range(theta.size):
        theta[i] = min(max(theta[i] - top, low), high)
