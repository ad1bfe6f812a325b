"""A router in a store without a server: every call is in its log when it returns."""

from collections.abc import Mapping
from typing import Any

from bylot import policies
from bylot.eventlog import commands
from bylot.eventlog.clock import SteadyClock
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.repository import RouterRepository, make_owner_name, release_dead_leases
from bylot.policies.validation import FeedbackKind
from bylot.problem import Problem
from bylot.router.config import RouterConfig, choose_max_contexts, problem_to_data
from bylot.router.decision import Decision
from bylot.router.status import RouterStatus
from bylot.store import open_store


def make_stored_config(problem: Problem, policy: str = "auto", **settings: Any) -> RouterConfig:
    """The config of a router, with the default number of contexts that a server chooses."""
    if "max_contexts" not in settings:
        resolved = policies.resolve_policy(policy, problem)
        settings["max_contexts"] = choose_max_contexts(resolved, problem.size)
    data = policies.policy_to_data(policies.find_policy(policy))
    return RouterConfig(problem=problem_to_data(problem), policy=data, **settings)


class StoredRouter:
    """One router of a store, with the methods of `bylot.Router` that `bylot.play` needs."""

    def __init__(self, address: str, name: str) -> None:
        store = open_store(address)
        release_dead_leases(store)
        self.name, self.clock = name, SteadyClock()
        self.handler = CommandHandler(RouterRepository(store, make_owner_name()))

    @classmethod
    def create(
        cls, address: str, name: str, problem: Problem, policy: str = "auto", **settings: Any
    ) -> "StoredRouter":
        """Create a router in a store."""
        config = make_stored_config(problem, policy, **settings)
        router = cls(address, name)
        router.send(commands.CreateRouter(name, config))
        return router

    def __enter__(self) -> "StoredRouter":
        return self

    def __exit__(self, *raised: object) -> None:
        self.handler.close()

    @property
    def config(self) -> RouterConfig:
        """The configuration, of this moment."""
        return self.handler.repository.get(self.name, self.clock()).config

    @property
    def problem(self) -> Problem:
        """Experts, costs and limits."""
        return self.config.build_problem()

    @property
    def policy(self) -> policies.Policy:
        """The policy that was chosen."""
        return self.handler.repository.get(self.name, self.clock()).core.policy

    @property
    def seed(self) -> int:
        """Seed of all random draws."""
        return self.config.seed

    @property
    def horizon(self) -> int | None:
        """Number of decisions to come, if it was declared."""
        return self.config.horizon

    @property
    def rewards(self) -> tuple[float, float]:
        """Range of the rewards."""
        return self.config.rewards

    @property
    def feedback(self) -> FeedbackKind:
        """What is reported."""
        return self.config.feedback

    def send(self, command: commands.Command) -> Any:
        """Run one command, in one commit; an error is raised."""
        (answer,) = self.handler.perform([command], self.clock())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def decide(self, context: str | None = None) -> Decision:
        """Draw a panel for one request."""
        decision: Decision = self.send(commands.MakeDecision(self.name, context))
        return decision

    def reward(
        self,
        id: str,
        value: float | None = None,
        *,
        members: Mapping[str, float] | None = None,
        winner: str | None = None,
        spend: Mapping[str, Any] | None = None,
    ) -> str:
        """Report the reward of a decision."""
        scores, paid = (None if one is None else dict(one) for one in (members, spend))
        command = commands.RecordReward(id, value, paid, members=scores, winner=winner)
        receipt: str = self.send(command).receipt
        return receipt

    def status(self) -> RouterStatus:
        """The status of this moment."""
        return self.handler.repository.get(self.name, self.clock()).status()
