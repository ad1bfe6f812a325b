"""StoredRouter: a router in a store; every call is in its log when it returns."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bylot import policies
from bylot.eventlog import commands
from bylot.eventlog.clock import SteadyClock
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.repository import RouterRepository, make_owner_name, release_dead_leases
from bylot.problem import Problem
from bylot.router.config import RouterConfig
from bylot.router.core import RouterCore
from bylot.router.decision import Decision, Receipt
from bylot.router.router import CoreProperties
from bylot.router.status import RouterStatus
from bylot.store import open_store

LEASE_RENEWAL_US = 3_000_000


class StoredRouter(CoreProperties):
    """One router of a store, with `decide`, `reward` and `status` of `bylot.Router`. Thread-safe.

    >>> import tempfile
    >>> from bylot.problem import at_most
    >>> pool = Problem(["ann", "bob", "eve"], {"usd": [1, 2, 4]}, [at_most("usd", 4)], draws=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with StoredRouter.create(f"sqlite:///{folder}/b.db", "triage", pool) as router:
    ...         decision = router.decide()
    ...         print(router.reward(decision.id, 0.5))
    learned
    """

    def __init__(self, address: str, name: str, clock: Callable[[], int] | None = None) -> None:
        self.name, self.clock = name, clock or SteadyClock()
        store = open_store(address)
        release_dead_leases(store)
        self.handler = CommandHandler(RouterRepository(store, make_owner_name()))
        self._renewed = self.clock()
        self._lock = threading.Lock()

    @property
    def core(self) -> RouterCore:
        """Rule, state and totals, of this moment."""
        return self.handler.repository.get(self.name, self.clock()).core

    @classmethod
    def create(
        cls,
        address: str,
        name: str,
        problem: Problem,
        policy: str | policies.Policy | policies.Auto = "auto",
        *,
        clock: Callable[[], int] | None = None,
        **settings: Any,
    ) -> "StoredRouter":
        """Create a router in a store; for `settings` see `RouterConfig.make`."""
        config = RouterConfig.make(problem, policy, **settings)
        router = cls(address, name, clock)
        router.send(commands.CreateRouter(name, config))
        return router

    @classmethod
    def open(
        cls, address: str, name: str, *, clock: Callable[[], int] | None = None
    ) -> "StoredRouter":
        """Open a router of a store."""
        router = cls(address, name, clock)
        router.send(commands.GetRouter(name))
        return router

    def __enter__(self) -> "StoredRouter":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def send(self, command: commands.Command) -> Any:
        """Run one command, in one commit."""
        with self._lock:
            at = self.clock()
            if at - self._renewed > LEASE_RENEWAL_US:
                self.handler.renew()
                self._renewed = at
            self.handler.sweep(at)
            (answer,) = self.handler.perform([command], at)
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
        """Draw a panel for one request; under a key that was used before, return that decision."""
        names = None if available is None else tuple(available)
        command = commands.MakeDecision(self.name, context, names, key, defer)
        decision: Decision = self.send(command)
        return decision

    def reward(
        self,
        id: str,
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Report the reward of a decision, and its actual costs."""
        costs = None if spend is None else dict(spend)
        return Receipt(self.send(commands.RecordReward(id, value, costs, key)).receipt)

    def status(self) -> RouterStatus:
        """Averages of settled cost, the slack and price of every limit, the distribution."""
        with self._lock:
            return self.handler.repository.get(self.name, self.clock()).status()

    def close(self) -> None:
        """Write a snapshot and close the store."""
        with self._lock:
            self.handler.close()
