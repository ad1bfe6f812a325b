"""A router in a store, to hold in the hand: every call is in the log when it returns."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bylot import policies
from bylot.api import StoredDecision
from bylot.eventlog import commands
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.events import now_us
from bylot.eventlog.repository import make_owner_name, release_dead_leases
from bylot.policies.capacity import choose_stored_contexts
from bylot.problem import Problem
from bylot.router import persistence
from bylot.router.config import RouterConfig
from bylot.router.decision import Decision, Receipt
from bylot.router.router import Router
from bylot.router.status import RouterStatus
from bylot.store import open_store

LEASE_RENEWAL_US = (
    3_000_000  # microseconds between two renewals of the lease, while there is something to do
)


class StoredRouter:
    """One router of a store, with the methods of `bylot.Router`; threads may share it.

    >>> import tempfile
    >>> from bylot.problem import at_most
    >>> pool = Problem(["ann", "bob", "eve"], {"usd": [1, 2, 4]}, [at_most("usd", 4)], draws=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with StoredRouter.create(f"sqlite:///{folder}/b.db", "triage", pool) as router:
    ...         decision = router.decide()
    ...         print(router.reward(decision.id, 0.5))
    learned
    """

    def __init__(self, address: str, name: str, clock: Callable[[], int] = now_us) -> None:
        self.name, self.clock = name, clock
        store = open_store(address)
        release_dead_leases(store)
        self.keeper = CommandHandler(store, make_owner_name())
        self._renewed = clock()
        self._lock = threading.Lock()

    @property
    def problem(self) -> Problem:
        """The pool, as it is now."""
        return self._router.problem

    @property
    def policy(self) -> policies.Policy:
        """What decides."""
        return self._router.policy

    @property
    def seed(self) -> int:
        """What everything random follows from."""
        return self._router.seed

    @property
    def horizon(self) -> int | None:
        """Decisions to come, if that was declared."""
        return self._router.horizon

    @property
    def rewards(self) -> tuple[float, float]:
        """The range rewards are given in."""
        return self._router.rewards

    @property
    def _router(self) -> Router:
        """What the log adds up to."""
        return self.keeper.shelf.fold(self.name, self.clock()).router

    @classmethod
    def create(
        cls,
        address: str,
        name: str,
        problem: Problem,
        policy: str | policies.Policy | policies.Auto = "auto",
        *,
        clock: Callable[[], int] = now_us,
        **terms: Any,
    ) -> "StoredRouter":
        """A new router in a store; `terms` are those of `durable.Terms`. If `max_contexts` is not
        among them, there are 1,000, or as many as the policy has room for.
        """
        if "max_contexts" not in terms:
            terms["max_contexts"] = choose_stored_contexts(
                policies.resolve_policy(policy, problem), problem.size
            )
        router = cls(address, name, clock)
        agreed = RouterConfig(
            problem=persistence.problem_to_data(problem),
            policy=policies.policy_to_data(policies.find_policy(policy)),
            **terms,
        )
        router.ask(commands.CreateRouter(name, agreed))
        return router

    @classmethod
    def open(cls, address: str, name: str, *, clock: Callable[[], int] = now_us) -> "StoredRouter":
        """A router that is in a store already."""
        router = cls(address, name, clock)
        router.ask(commands.ShowRouter(name))
        return router

    def __enter__(self) -> "StoredRouter":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def ask(self, command: commands.Command) -> Any:
        """One command, one commit."""
        with self._lock:
            at = self.clock()
            if at - self._renewed > LEASE_RENEWAL_US:
                self.keeper.renew()
                self._renewed = at
            self.keeper.sweep(at)
            (answer,) = self.keeper.perform([command], at)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def decide(
        self,
        context: str | None = None,
        available: Iterable[str] | None = None,
        *,
        key: str | None = None,
        defer: bool = False,
    ) -> Decision:
        """Draw a panel for one request; under a key that was used before, the one drawn then."""
        up = None if available is None else tuple(available)
        made: StoredDecision = self.ask(commands.MakeDecision(self.name, context, up, key, defer))
        return made.to_decision()

    def reward(
        self,
        id: str,
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Tell how well a decision went, and what it really cost."""
        told = None if spend is None else dict(spend)
        return Receipt(self.ask(commands.GiveReward(id, value, told, key)).receipt)

    def status(self) -> RouterStatus:
        """Averages so far, of settled cost; the slack and price of every limit; the law in use."""
        with self._lock:
            fold = self.keeper.shelf.fold(self.name, self.clock())
            return fold.status()

    def close(self) -> None:
        """Leave a snapshot and let the store go."""
        with self._lock:
            self.keeper.close()
