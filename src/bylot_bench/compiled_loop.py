"""The compiled loop of a policy on given values, without the rest of a simulation."""

import numpy as np

from bylot.environments import NO_DELAY
from bylot.environments.call_costs import make_declared_costs
from bylot.limits.request import point_to
from bylot.numerics.jit import Floats
from bylot.policies import Policy
from bylot.policies.binding import bind_policy, start_policy
from bylot.problem import Problem
from bylot.simulation import Arrivals, make_late_rewards, play_rounds
from bylot.trace import make_play_record


class CompiledLoop:
    """Plays a policy on the same values again and again.

    high: the reward that is mapped to 1; 1.0 leaves rewards as they are
    """

    def __init__(
        self,
        policy: Policy,
        problem: Problem,
        values: Floats,
        horizon: int | None = None,
        high: float = 1.0,
    ) -> None:
        self.policy = policy
        self.problem = problem
        self.values = values
        self.high = high
        self.rules = bind_policy(policy, problem, horizon, "panel")
        self.rows = np.array(problem.rows)
        self.contexts = np.zeros(len(values), np.int64)
        self.record = make_play_record(problem, len(values), keep_distributions=False)
        self.start()

    def start(self) -> None:
        """Forget what was learned."""
        self.bound = start_policy(self.policy, self.problem, *self.rules, 1)
        self.limits = point_to(self.bound.limits, self.problem)

    def play(self, seed: int = 0) -> None:
        """Play all values once more."""
        self.record.spend[:] = 0.0
        play_rounds(
            self.bound.rule,
            self.bound.state,
            self.limits,
            self.rows,
            self.values,
            self.contexts,
            seed,
            0,
            0.0,
            self.high,
            make_late_rewards(self.problem, NO_DELAY, len(self.values), seed),
            make_declared_costs(self.problem),
            Arrivals(np.empty(0, np.int64), 0, np.zeros(2, np.int64)),
            self.record,
        )
