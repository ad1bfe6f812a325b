"""Mirror ascent on logits under the limits: gradient, length of a step, multipliers.

The policies say whose gradient it is, and project the step onto their constraints.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bylot.limits.rows import compute_row_units
from bylot.numerics.jit import Bools, Floats, Ints, jit
from bylot.policies.base import BoundPolicy, Policy, round_up_visits
from bylot.policies.member_belief import MIN_MISS
from bylot.policies.validation import PACE_SETTING, SettingKind, is_number_in
from bylot.problem import Problem
from bylot.problem.change import ProblemChange

MAX_LOGIT_STEP = 1.0  # of one step, unless it is not clipped
BASELINE_REWARDS = 2_000.0  # rewards that a baseline is the mean of
KEPT_AFTER_FALL = 0.25  # of what logits had learned when rewards fell
KEPT_AFTER_CHANGE = 0.5  # when skills changed, but rewards did not fall
MULTIPLIER_DECAY = 0.99  # of a step's weight, at every later step


class AscentSettings(NamedTuple):
    """Settings of the steps."""

    eta: float
    patience: float  # n0: batches that count as seen before the first
    batch: int  # decisions of a context between two steps
    clip: float  # by how much a step may move a logit
    monotone: bool  # may steps only get shorter?
    entropy: float  # of the start: log K, or the logarithm of the number of sets
    memory: float  # rewards that a baseline is the mean of


class GradientState(NamedTuple):
    """The gradient, a row per context."""

    g: Floats  # (X, K) gathered since the last step
    energy: Floats  # (X,) S, its squares summed over the steps so far
    rough: Floats  # (X,) what the last step's length was computed from
    batches: Ints  # (X,) b
    rewards: Floats  # (X,) how many, the oldest of them discounted
    total: Floats  # (X,) and their sum
    baseline: Floats  # (X,) their mean when the last step was taken
    based: Bools  # (X,) was there any reward then?

    def is_valid(self, rule: Any) -> bool:
        return all((part >= 0).all() for part in (self.batches, self.rewards, self.energy))


def make_gradient_state(contexts: int, size: int) -> GradientState:
    """No gradient in any context."""
    return GradientState(
        g=np.zeros((contexts, size)),
        energy=np.zeros(contexts),
        rough=np.zeros(contexts),
        batches=np.zeros(contexts, np.int64),
        rewards=np.zeros(contexts),
        total=np.zeros(contexts),
        baseline=np.zeros(contexts),
        based=np.zeros(contexts, np.bool_),
    )


@jit
def center_reward(slope: GradientState, x: int, reward: float) -> float:
    """The reward less the baseline; 0 before there is one. The baseline is constant between two
    steps, so the order of the rewards of a batch does not matter.
    """
    slope.rewards[x] += 1.0
    slope.total[x] += reward
    return reward - slope.baseline[x] if slope.based[x] else 0.0


@jit
def update_baseline(slope: GradientState, x: int, memory: float) -> None:
    """The mean of the last rewards."""
    if slope.rewards[x] > 0.0:
        slope.baseline[x] = slope.total[x] / slope.rewards[x]
        slope.based[x] = True
    limit_memory(slope, x, memory)


@jit
def limit_memory(slope: GradientState, x: int, memory: float) -> None:
    """Discount the oldest rewards."""
    if slope.rewards[x] > memory:
        slope.total[x] *= memory / slope.rewards[x]
        slope.rewards[x] = memory


@jit
def take_ascent_step(
    theta: Floats,
    settings: AscentSettings,
    slope: GradientState,
    x: int,
    weights: Floats,
    scale: float = 1.0,
) -> float:
    """theta += scale s g with g centred on the tangent space; resets g and returns s.

    g -= <w, g> / <w, 1>, with w the variance of each logit.
    """
    slope.batches[x] += 1
    g, mean, whole = slope.g[x], 0.0, 0.0
    for i in range(g.size):
        mean += weights[i] * g[i]
        whole += weights[i]
    for i in range(g.size):
        g[i] -= mean / whole if whole > 0.0 else 0.0
        slope.energy[x] += weights[i] * g[i] * g[i]
    s, most = scale * compute_step_length(settings, slope, x), settings.clip
    for i in range(g.size):
        theta[i] += min(max(s * g[i], -most), most)
        g[i] = 0.0
    return s


@jit
def compute_step_length(settings: AscentSettings, slope: GradientState, x: int) -> float:
    """The length of a step: eta sqrt(entropy / (S (b + n0) / b)) with S the sum of <w, g^2>, the
    squares so far as if n0 batches like them had come before.
    """
    b = slope.batches[x]
    rough = slope.energy[x] * (b + settings.patience) / b
    slope.rough[x] = max(rough, slope.rough[x]) if settings.monotone else rough
    if slope.rough[x] <= 0.0:
        return 0.0
    return settings.eta * math.sqrt(settings.entropy / slope.rough[x])


@jit
def reset_gradient(slope: GradientState, x: int) -> None:
    """As in the beginning."""
    for i in range(slope.g.shape[1]):
        slope.g[x, i] = 0.0
    slope.energy[x] = slope.rough[x] = slope.total[x] = slope.rewards[x] = 0.0
    slope.batches[x], slope.based[x] = 0, False


@jit
def compute_miss(slope: GradientState, x: int) -> float:
    """How much of the largest reward recent panels missed, on average."""
    mean = slope.total[x] / slope.rewards[x] if slope.rewards[x] > 0.0 else 0.0
    return max(1.0 - mean, MIN_MISS)


@jit
def clamp_logits(theta: Floats, top: float, low: float, high: float) -> None:
    """Subtract `top` and clip to [low, high]: logits beyond would never come back."""
    for i in range(theta.size):
        theta[i] = min(max(theta[i] - top, low), high)


@jit
def fill_mixture(q: Floats, pi: Floats, eps: float, explore: Floats) -> None:
    """Write q = (1 - eps) pi + eps f0."""
    for i in range(q.size):
        q[i] = (1.0 - eps) * pi[i] + eps * explore[i]


class MultiplierAverage(NamedTuple):
    """Multipliers of recent projections, to be divided by the lengths of their steps.

    A step of length s maximises s <g, p> less a divergence, subject to the rows; the multiplier of
    a row, over s, is thus in rewards per unit of the row. Both are summed before they are divided,
    so that short steps do not dominate.
    """

    total: Floats  # (d,)
    length: Floats  # one number

    def migrate(self, new: "MultiplierAverage", change: ProblemChange) -> None:
        """Multipliers are per unit of the constraint rows."""
        growth = change.growth(compute_row_units(change.old), compute_row_units(change.new))
        change.copy_by_limit(self.total, new.total, growth)
        new.length[:] = self.length

    def compute_prices(self, problem: Problem, share: float = 1.0) -> Floats:
        """Rewards of [0, 1] per unit of each bound, of rows that were divided by `share`."""
        if self.length[0] <= 0:
            return np.full(len(problem.limits), np.nan)
        per_row = self.total / self.length[0]
        return np.asarray(per_row / (compute_row_units(problem) * share))


@jit
def fill_priced_costs(prices: Floats, average: MultiplierAverage, A: Floats) -> None:
    """Write the price of every expert under all rows."""
    if average.length[0] > 0.0:
        for j in range(A.shape[0]):
            price = average.total[j] / average.length[0]
            for i in range(prices.size):
                prices[i] += price * A[j, i]


@jit
def add_multipliers(average: MultiplierAverage, multipliers: Floats, s: float) -> None:
    """Add a step. One of length 0 has multipliers too, if the bounds in force moved."""
    average.length[0] = MULTIPLIER_DECAY * average.length[0] + s
    for j in range(multipliers.size):
        average.total[j] = MULTIPLIER_DECAY * average.total[j] + multipliers[j]


@dataclass(frozen=True)
class AscentPolicy(Policy):
    """What the policies of mirror ascent with a guard share; `Distinct` explains the settings."""

    eta: float = 1.0
    patience: float = 100.0
    batch: int = 10
    eps: float = 0.02

    checks: ClassVar[Mapping[str, SettingKind]] = {
        "eps": SettingKind("a number in [0, 1)", lambda value: is_number_in(value, 0, 1 - 2**-53)),
        "pace": PACE_SETTING,
    }

    def bind_ascent(self, entropy: float, clip: bool, monotone: bool = False) -> AscentSettings:
        """The settings of the steps."""
        return AscentSettings(
            eta=float(self.eta),
            patience=float(self.patience),
            batch=self.batch,
            clip=MAX_LOGIT_STEP if clip else math.inf,
            monotone=monotone,
            entropy=entropy,
            memory=math.inf if monotone else BASELINE_REWARDS,
        )

    def start_ascent(self, size: int, limits: int, contexts: int) -> dict[str, Any]:
        """Return the fields of the state that all have, before the first gradient."""
        return {
            "visits": np.zeros(contexts, np.int64),
            "gradient": make_gradient_state(contexts, size),
            "multipliers": MultiplierAverage(np.zeros(limits), np.zeros(1)),
        }

    def prices(self, problem: Problem, rule: Any, state: Any) -> Floats:
        """Averaged multipliers."""
        return state.multipliers.compute_prices(problem)  # type: ignore[no-any-return]

    def finish_migration(self, change: ProblemChange, old: BoundPolicy, new: BoundPolicy) -> None:
        """Let a step be due at once."""
        round_up_visits(new.state.visits, new.rule.ascent.batch)
