"""The contract of policies: policy x kind of limit.

`BYLOT_CONTRACT_SEEDS=50 python tests/test_policy_contract.py` prints what was kept, as a table.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bylot.errors import PolicyError, ProblemError
from bylot.policies.base import Feedback, FeedbackKind
from bylot.problem import Problem
from bylot.testing import (
    KINDS,
    REQUESTS,
    ContractPlay,
    LimitKind,
    PolicyContract,
    judge_windows,
)

SEEDS = int(os.environ.get("BYLOT_CONTRACT_SEEDS", "1"))


class Sampler:
    """Thompson sampling on the rewards of panels, which all members of one share."""

    def start(self, problem: Problem, feedback: FeedbackKind) -> None:
        self.draws = problem.draws
        self.hits = np.ones(problem.size)
        self.misses = np.ones(problem.size)

    def decide(
        self, context: int, available: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        samples = rng.beta(self.hits, self.misses)
        return sorted(available, key=lambda i: -samples[i])[: self.draws]

    def learn(self, context: int, members: Sequence[int], feedback: Feedback) -> None:
        for i in members:
            self.hits[i] += feedback.reward
            self.misses[i] += 1.0 - feedback.reward


class Dearest:
    """Propose the panel that costs most under maxima, or least under minima, every time."""

    def __init__(self, sign: int = -1) -> None:
        self.sign = sign  # of the limits that it works against

    def start(self, problem: Problem, feedback: FeedbackKind) -> None:
        costs = problem.rows / problem.rows.max(axis=1, keepdims=True)
        against = (problem.signs == self.sign).astype(np.float64)
        self.draws = problem.draws
        self.harm = -self.sign * (against @ costs)

    def decide(
        self, context: int, available: Sequence[int], rng: np.random.Generator
    ) -> Sequence[int]:
        return sorted(available, key=lambda i: -self.harm[i])[: self.draws]

    def learn(self, context: int, members: Sequence[int], feedback: Feedback) -> None:
        """Learn nothing."""


class TestDistinct(PolicyContract):
    policy = "distinct"
    seeds = SEEDS


class TestTangent(PolicyContract):
    policy = "tangent"
    seeds = SEEDS


class TestNoisyOr(PolicyContract):
    policy = "noisy-or"
    seeds = SEEDS


class TestPlainPython(PolicyContract):
    policy = Sampler()
    seeds = SEEDS


class TestDearest(PolicyContract):
    policy = Dearest()
    seeds = SEEDS


class TestScarcest(PolicyContract):
    policy = Dearest(+1)
    seeds = SEEDS


class Kept(NamedTuple):
    """What plays of one kind came to."""

    windows: int
    outside: int
    decisions: int
    replaced: int
    refused: int

    def __str__(self) -> str:
        share = self.replaced / max(self.decisions, 1)
        return f"{self.windows:7,} {self.outside:7} {share:8.1%} {self.refused:7,}"


def measure_plays(contract: type[PolicyContract], kind: LimitKind) -> Kept:
    """Play a kind of limits with several seeds."""
    windows = outside = decisions = replaced = 0
    for seed in range(SEEDS):
        play = ContractPlay(contract.policy, kind, seed)
        made = [decision for decision in play.run(kind.list_requests(seed)) if decision is not None]
        judged = judge_windows(play.router.problem, play.played)
        windows += len(judged)
        outside += sum(judged.values())
        decisions += len(made)
        replaced += sum(decision.replaced for decision in made)
    return Kept(windows, outside, decisions, replaced, SEEDS * REQUESTS - decisions)


def print_table() -> None:
    """Print what was kept, by kind and policy."""
    print(f"{'kind':22} {'policy':16} windows outside replaced refused")
    for name, kind in KINDS.items():
        for contract in PolicyContract.__subclasses__():
            try:
                found: object = measure_plays(contract, kind)
            except (PolicyError, ProblemError) as error:
                found = f"refused: {error}"
            print(f"{name:22} {contract.__name__:16} {found}", flush=True)


if __name__ == "__main__":
    print_table()
