"""A problem of five experts and its environments, which several tests use."""

import numpy as np
from numpy.typing import ArrayLike

from bylot.environments import Given, Noisy
from bylot.numerics.jit import Floats
from bylot.numerics.sum_max import expected_rewards, reward_and_slope, sort_experts
from bylot.policies.base import NO_SCORES, NO_WINNER, Feedback
from bylot.problem import Box, Problem, at_least, at_most


def make_five_expert_problem(floor: float | None = None, draws: int = 2) -> Problem:
    """Five experts; the best are expensive, one group must be asked, one cost has two limits."""
    return Problem(
        experts=["ann", "bob", "cat", "dan", "eve"],
        costs={"usd": [4.0, 3.0, 1.0, 1.0, 0.5], "junior": [0, 0, 1, 0, 1]},
        limits=[at_most("usd", 3.0), at_least("junior", 0.3), at_least("usd", 0.8)],
        draws=draws,
        floor=floor,
    )


SKILLS = np.array(
    [
        [0.95, 0.60, 0.30, 0.20, 0.10],
        [0.40, 0.90, 0.20, 0.50, 0.10],
        [0.70, 0.20, 0.60, 0.10, 0.30],
    ]
)


def make_stationary_environment() -> Noisy:
    """Noise around fixed skills, rewards in [0, 1]: three dimensions of at most a third each."""
    return Noisy(SKILLS, worth=1 / 3)


def make_recorded_environment(rounds: int = 400, contexts: int = 1, seed: int = 3) -> Given:
    """Uniform values and a fixed sequence of contexts."""
    rng = np.random.default_rng(seed)
    values: Floats = rng.random((rounds, 3, 5)) / 3
    return Given(values, rng.integers(0, contexts, rounds))


def make_reward_feedback(reward: float) -> Feedback:
    """Feedback of which only the reward is known."""
    return Feedback(reward, NO_SCORES, NO_WINNER)


def distance_to_box(box: Box, x: ArrayLike) -> float:
    """Euclidean distance of x to the box: max over |w| <= 1 of w.x - h(w)."""
    point = np.asarray(x, dtype=np.float64)
    return float(np.linalg.norm(point - point.clip(box.low, box.high)))


def expected_reward(q: Floats, values: Floats, M: int) -> float:
    """Mean over t of Phi^{r_t}(q), for a stack (T, N, K) or one matrix (N, K)."""
    stack = values.reshape(-1, *values.shape[-2:])
    return float(expected_rewards(q[None], stack, sort_experts(stack), M).mean())


def lemma_1_gradient(q: Floats, values: Floats, M: int, weights: Floats) -> Floats:
    """sum_t weights_t E[r_t(B) / q_i * (draws equal to i)]: the slope + M Phi_{M-1}(q)."""
    order = sort_experts(values)
    lift = M * float(weights @ expected_rewards(q[None], values, order, M - 1))
    return reward_and_slope(q, values, order, M, weights)[1] + lift
