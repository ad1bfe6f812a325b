"""A router in a store, to hold in the hand: every call is in the log when it returns."""

import dataclasses
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bylot import codec, policies
from bylot.decision import Decision, Receipt
from bylot.durable import commands
from bylot.durable.keeper import Keeper
from bylot.durable.terms import Terms
from bylot.problem import Problem
from bylot.status import Status
from bylot.store import open_store


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


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

    def __init__(self, address: str, name: str, clock: Callable[[], int] = now) -> None:
        self.name, self.clock = name, clock
        self.keeper = Keeper(open_store(address), f"process {uuid.uuid4()}")
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        address: str,
        name: str,
        problem: Problem,
        policy: str | policies.Policy = "distinct",
        *,
        clock: Callable[[], int] = now,
        **terms: Any,
    ) -> "StoredRouter":
        """A new router in a store; `terms` are those of `durable.Terms`."""
        router = cls(address, name, clock)
        agreed = Terms(
            problem=codec.write_problem(problem),
            policy=policies.write(policies.named(policy)),
            **terms,
        )
        router.ask(commands.Create(name, agreed))
        return router

    @classmethod
    def open(cls, address: str, name: str, *, clock: Callable[[], int] = now) -> "StoredRouter":
        """A router that is in a store already."""
        router = cls(address, name, clock)
        router.ask(commands.Show(name))
        return router

    def __enter__(self) -> "StoredRouter":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def ask(self, command: commands.Command) -> Any:
        """One command, one commit."""
        with self._lock:
            self.keeper.sweep(self.clock())
            (answer,) = self.keeper.perform([command], self.clock())
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
        made = self.ask(commands.Decide(self.name, context, up, key, defer))
        return plain(made)

    def reward(
        self,
        id: str,  # noqa: A002 - the public word
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Tell how well a decision went, and what it really cost."""
        told = None if spend is None else dict(spend)
        return Receipt(self.ask(commands.Reward(id, value, told, key)).receipt)

    def status(self) -> Status:
        """Averages so far, of settled cost; the slack and price of every limit; the law in use."""
        with self._lock:
            fold = self.keeper.shelf.fold(self.name, self.clock())
            return dataclasses.replace(fold.router.status(), waiting=len(fold.open))

    def close(self) -> None:
        """Leave a snapshot and let the store go."""
        with self._lock:
            self.keeper.close()
            self.keeper.store.close()


def plain(made: commands.Decision) -> Decision:
    """A decision as `bylot.Router` has it."""
    return Decision(
        id=made.id,
        t=made.t,
        context=made.context,
        draws=made.draws,
        odds=made.odds,
        subset=made.subset,
        spend=made.spend,
        expected=made.expected,
        feasible=made.feasible,
        chance=made.chance,
        replaced=made.replaced,
    )
