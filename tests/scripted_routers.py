"""A router in memory and one with a log, behind one interface and a clock that the test sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bylot
from bylot.errors import BylotError
from bylot.eventlog.commands import ReplaceMember, SetTenant
from bylot.problem import Limit
from bylot.router.status import RouterStatus
from logged_aggregate import LoggedRouter

START = 1_774_000_000.0  # in the week before clocks change in Berlin


class MemoryRouter:
    """A `Router`."""

    def __init__(self, problem: bylot.Problem, policy: str = "noisy-or", seed: int = 3) -> None:
        self.now = START
        self.router = bylot.Router(problem, policy, seed=seed, clock=lambda: self.now)

    def decide(
        self,
        tenant: str | None = None,
        context: str | None = None,
        available: Sequence[str] | None = None,
    ) -> bylot.Decision:
        return self.router.decide(context, available, tenant=tenant)

    def report(
        self, id: str, value: float | None = None, spend: Any = None, key: str | None = None
    ) -> str:
        """Report a reward, what a decision cost in US dollars, or both, and return the receipt."""
        costs = None if spend is None else {"usd": spend}
        return str(self.router.reward(id, value, spend=costs, key=key))

    def cancel(self, id: str) -> bool:
        try:
            self.router.cancel(id)
        except BylotError:
            return False
        return True

    def replace(self, id: str, failed: str) -> bylot.Decision | None:
        try:
            return self.router.replace(id, failed)
        except BylotError:
            return None

    def edit(self, problem: bylot.Problem) -> None:
        self.router.change(problem)

    def set_tenant(self, tenant: str, limits: tuple[Limit, ...]) -> None:
        self.router.set_tenant(tenant, limits)

    def status(self) -> RouterStatus:
        return self.router.status()

    def measure_tenant(self, tenant: str) -> Any:
        return self.router.tenant(tenant)

    def reopen(self, path: Path) -> None:
        self.router.save(path)
        self.router = bylot.Router.load(path, clock=lambda: self.now)

    def check(self) -> None:
        """Nothing to replay."""


class StoredRouter:
    """The same of a router with a log."""

    def __init__(self, problem: bylot.Problem, policy: str = "noisy-or", seed: int = 3) -> None:
        self.now = START
        self.logged = LoggedRouter(problem, policy, seed=seed)

    @property
    def at(self) -> int:
        return round(self.now * 1e6)

    def decide(
        self,
        tenant: str | None = None,
        context: str | None = None,
        available: Sequence[str] | None = None,
    ) -> bylot.Decision:
        experts = None if available is None else tuple(available)
        seq = self.logged.decide(self.at, tenant=tenant, context=context, available=experts)
        return self.logged.record(seq).decision

    def report(
        self, id: str, value: float | None = None, spend: Any = None, key: str | None = None
    ) -> str:
        """As of a router in memory."""
        costs = None if spend is None else {"usd": spend}
        return self.logged.reward(parse_seq(id), value, self.at, spend=costs, key=key)

    def cancel(self, id: str) -> bool:
        try:
            self.logged.append(self.logged.aggregate.cancel(self.at, parse_seq(id)))
        except BylotError:
            return False
        return True

    def replace(self, id: str, failed: str) -> bylot.Decision | None:
        seq = parse_seq(id)
        try:
            event = self.logged.aggregate.replace(self.at, seq, ReplaceMember(id, failed))
        except BylotError:
            return None
        self.logged.append(event)
        return self.logged.record(seq).decision

    def edit(self, problem: bylot.Problem) -> None:
        self.logged.edit(problem, self.at)

    def set_tenant(self, tenant: str, limits: tuple[Limit, ...]) -> None:
        command = SetTenant("triage", tenant, limits)
        self.logged.append(self.logged.aggregate.set_tenant(self.at, command))

    def status(self) -> RouterStatus:
        return self.logged.aggregate.status(self.at)

    def measure_tenant(self, tenant: str) -> Any:
        return self.logged.aggregate.core.book.measure_key("tenant", tenant, self.at)

    def reopen(self, path: Path) -> None:
        self.logged.reopen()

    def check(self) -> None:
        """Replay the log and compare."""
        replayed = self.logged.replay_log().fingerprint()
        assert replayed == self.logged.aggregate.fingerprint()


ROUTER_KINDS = [MemoryRouter, StoredRouter]


def parse_seq(id: str) -> int:
    """The number of the event of a stored decision."""
    return int(id.split(".")[2])
