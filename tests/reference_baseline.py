"""The baselines as the paper describes them, in plain Python, to compare compiled ones with."""

import itertools
import math
from typing import Any

import numpy as np

from bylot.numerics.philox import BELIEF_STREAM, GUMBEL_STREAM, WARMUP_STREAM, RngKey, draw_uniforms
from bylot.numerics.variates import add_gumbels, fill_betas
from bylot.policies import Policy
from bylot.problem import Problem
from bylot_paper.policies.bandits import Moe, Ts, TsBwk
from bylot_paper.policies.random_panels import Random

SEED = 5


class ReferenceBaseline:
    """One of the baselines as the paper describes it."""

    def __init__(self, problem: Problem, policy: Policy, horizon: int | None) -> None:
        self.policy, self.horizon = policy, horizon
        self.K, self.M = problem.size, problem.draws
        self.limits = [
            (limit.sign, limit.bound / row.max(), row / row.max())
            for limit, row in zip(problem.limits, problem.rows, strict=True)
            if policy.uses_limits
        ]
        self.lam = [0.0] * len(self.limits)
        self.paid: list[list[float]] = []  # cost of each round so far
        self.orders: dict[int, list[int]] = {}
        self.panels: dict[int, list[set[int]]] = {}  # of each context
        self.credits: dict[int, list[dict[int, float]]] = {}  # what was seen of each member
        self.theta: dict[int, Any] = {}

    def decide(self, x: int, t: int, available: set[int]) -> list[int]:
        """Draws of round t in context x among the available."""
        if self.paid:
            self.ascend()
        panels = self.panels.setdefault(x, [])
        scores = self.scores(x, t, len(panels))
        best = sorted(available, key=lambda i: (-scores[i], i))[: self.M]
        if isinstance(self.policy, Random):
            best = self.shuffled(sorted(available), self.M, t, 0)
        panels.append(set(best))
        self.paid.append([sum((row[i] for i in best), start=0.0) for _, _, row in self.limits])
        return list(itertools.islice(itertools.cycle(best), self.M))

    def ascend(self) -> None:
        """lambda <- max(0, lambda + step violation)."""
        n = len(self.paid)
        step: float = getattr(self.policy, "step", 0.0)
        if not isinstance(self.policy, Moe):
            step /= math.sqrt(self.horizon or n)
        for j, (sign, bound, _) in enumerate(self.limits):
            costs = [cost[j] for cost in self.paid]
            average = getattr(self.policy, "dual_on", "") == "average"
            cost = sum(costs) / n if average else costs[-1]
            violation = cost - bound if sign < 0 else bound - cost
            self.lam[j] = max(0.0, self.lam[j] + step * violation)

    def scores(self, x: int, t: int, n: int) -> list[float]:
        """Scores by which experts are chosen in the n-th visit of x (from 0)."""
        K, M = self.K, self.M
        if isinstance(self.policy, Moe):
            noisy = np.array(self.theta.setdefault(x, np.zeros(K)))
            add_gumbels(noisy, RngKey(SEED, t), GUMBEL_STREAM)
            return list(noisy)
        if isinstance(self.policy, Random):
            return [0.0] * K
        if n == 0:
            self.orders[x] = self.shuffled(list(range(K)), K, t, WARMUP_STREAM)
        if n < math.ceil(K / M):  # the order from position n M on, cyclically
            rotation = [self.orders[x][(n * M + k) % K] for k in range(K)]
            return [-float(rotation.index(i)) for i in range(K)]
        beliefs = self.beliefs(x, t, n)
        for j, (sign, _, row) in enumerate(self.limits):
            beliefs = [s + self.lam[j] * sign * row[i] for i, s in enumerate(beliefs)]
        return beliefs

    def beliefs(self, x: int, t: int, n: int) -> list[float]:
        """Indices, or draws from the posteriors."""
        rewards_of = [
            [seen[i] for seen in self.credits.get(x, []) if i in seen] for i in range(self.K)
        ]
        if isinstance(self.policy, (Ts, TsBwk)):
            alpha = [math.fsum([1.0, *rs]) for rs in rewards_of]
            beta = [math.fsum([1.0, *(1 - r for r in rs)]) for rs in rewards_of]
            draws = np.empty(self.K)
            fill_betas(draws, np.array(alpha), np.array(beta), RngKey(SEED, t), BELIEF_STREAM)
            return list(draws)
        c: float = getattr(self.policy, "c", 0.0)
        indices = []
        for i in range(self.K):
            drawn = sum(i in panel for panel in self.panels[x])
            mean = sum(rewards_of[i]) / len(rewards_of[i]) if rewards_of[i] else 1.0
            bonus = c * math.sqrt(2 * math.log(n + 1) / drawn) if drawn else math.inf
            indices.append(mean + bonus)
        return indices

    def learn(
        self, x: int, panel: set[int], r: float, seen: dict[int, float] | None = None
    ) -> None:
        """Credit what was seen of each member, or the reward to all; or make a step of the gate."""
        self.credits.setdefault(x, []).append(dict.fromkeys(panel, r) if seen is None else seen)
        if isinstance(self.policy, Moe):
            theta, member = self.theta[x], np.array([i in panel for i in range(self.K)], float)
            p = np.exp(theta - theta.max()) / np.exp(theta - theta.max()).sum()
            for (sign, _, row), lam in zip(self.limits, self.lam, strict=True):
                r += lam * sign * sum(row[i] for i in panel)
            self.theta[x] = theta + self.policy.rate * r * (member - p)

    def shuffled(self, items: list[int], count: int, t: int, stream: int) -> list[int]:
        """The first `count` of a random order: each position gets one of the remaining items."""
        count = min(count, len(items))
        for j, u in enumerate(draw_uniforms(RngKey(SEED, t), stream, count)):
            k = j + math.floor(u * (len(items) - j))
            items[j], items[k] = items[k], items[j]
        return items[:count]
