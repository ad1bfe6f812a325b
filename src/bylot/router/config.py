"""RouterConfig: what a router is created with, as plain data for logs, files and the wire."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from bylot import policies
from bylot.errors import PolicyError, ProblemError
from bylot.policies.registry import MAX_STORED_CONTEXTS, choose_stored_contexts
from bylot.policies.validation import FeedbackKind, RunConfig, check_run_config
from bylot.problem import Limit, Problem
from bylot.router.reward_rules import RewardAggregation, RewardTerms


class RouterConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The configuration of a router; a change makes a new version.

    problem:   as `problem_to_data` writes it
    policy:    as `policies.policy_to_data` writes it
    feedback:  what is reported: the reward, also scores of members, or also the winner
    wait:      seconds within which a reward counts; None: as long as its decision is open
    default:   the reward that is learned if none came in that time; None: nothing is learned
    aggregate: which of several rewards with different keys counts: the earliest, at once; or the
               last, or the sum, when the wait is over
    paused:    experts that are not asked for now
    """

    version: int = 1
    problem: dict[str, Any]
    policy: dict[str, Any]
    seed: int = 0
    horizon: int | None = None
    rewards: tuple[float, float] = (0.0, 1.0)
    feedback: FeedbackKind = "panel"
    max_contexts: int = MAX_STORED_CONTEXTS
    memory: int = 100_000
    wait: float | None = None
    default: float | None = None
    aggregate: RewardAggregation = "earliest"
    paused: tuple[str, ...] = ()

    @property
    def terms(self) -> RewardTerms:
        """Which rewards count, and when."""
        return RewardTerms(self.memory, self.wait, self.default, self.aggregate)

    def build_problem(self, make: Callable[..., Problem] = Problem) -> Problem:
        """The problem; ProblemError if the data is invalid."""
        data = {"limits": (), "floor": None, "period": None, **self.problem}
        try:
            return problem_from_data(data, make)
        except KeyError as error:
            raise ProblemError(f"the problem, or a limit of it, lacks {error}") from error
        except (TypeError, AttributeError) as error:
            raise ProblemError(f"the problem cannot be read: {error}") from error

    def build_policy(self) -> policies.Policy | policies.Auto:
        """The policy; PolicyError if the data is invalid."""
        try:
            return policies.policy_from_data(self.policy)
        except (LookupError, TypeError, AttributeError) as error:
            raise PolicyError(
                "policy", got=self.policy, expected=f"{{'name': ..., settings}} ({error!r})"
            ) from error

    def build_run(self, problem: Problem) -> RunConfig:
        """Seed, horizon, range of rewards and feedback, checked."""
        return check_run_config(problem, self.seed, self.horizon, self.rewards, self.feedback)


def choose_max_contexts(policy: policies.Policy, size: int) -> int:
    """Contexts of a router in a store for which nothing is declared."""
    most = policy.max_contexts(size) * 4 // 5  # a store has a little less room than memory
    return max(1, min(choose_stored_contexts(policy, size), most))


def problem_to_data(problem: Problem) -> dict[str, Any]:
    """Return a problem as plain data; a derived cost is part of its limit."""
    derived = {limit.name for limit in problem.limits if limit.is_derived}
    costs = {n: row.tolist() for n, row in problem.costs.items() if n not in derived}
    fewest = {} if problem.min_draws is None else {"min_draws": problem.min_draws}
    most = {name: row.tolist() for name, row in problem.max_costs.items()}
    return {
        "experts": list(problem.experts),
        "costs": costs,
        "limits": [limit.to_data() for limit in problem.limits],
        "draws": problem.draws,
        **fewest,
        "floor": problem.floor,
        "period": problem.period,
        **({"max_costs": most} if most else {}),
        **({} if problem.traffic is None else {"traffic": problem.traffic}),
    }


def problem_from_data(data: Mapping[str, Any], make: Callable[..., Problem] = Problem) -> Problem:
    """Return the problem of such data; by default all checks of a new problem apply."""
    return make(**{**data, "limits": [Limit.from_data(limit) for limit in data["limits"]]})
