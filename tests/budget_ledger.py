"""A ledger of budgets in plain Python: what was asked, when, for whom, and what it may still cost.

It shares no code with the limits that it checks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

WindowName = Literal["hour", "day", "week", "month"]


@dataclass
class Call:
    """A decision: when and for whom it was made, what it books, and what it cost once billed."""

    at: float
    tenant: str | None
    booked: float
    most: float
    bill: float | None = None
    is_open: bool = True

    @property
    def spent(self) -> float:
        return self.booked if self.bill is None else self.bill

    @property
    def reserved(self) -> float:
        return self.most - self.booked if self.bill is None else 0.0


@dataclass(frozen=True)
class Budget:
    """At most so much per window, for all or for each tenant."""

    bound: float
    per: WindowName
    zone: str
    for_tenants: bool = False

    def find_start(self, at: float) -> float:
        """Return the instant at which the window of another instant began."""
        local = datetime.fromtimestamp(at, ZoneInfo(self.zone))
        hour = local.replace(minute=0, second=0, microsecond=0)
        if self.per == "hour":
            return hour.timestamp()
        day = hour.replace(hour=0, fold=0)
        back = {"day": 0, "week": day.weekday(), "month": day.day - 1}[self.per]
        return (day - timedelta(days=back)).timestamp()


@dataclass
class Ledger:
    """All calls, and from when on the budget of each tenant knows them."""

    calls: list[Call] = field(default_factory=list)
    known_since: dict[str, float] = field(default_factory=dict)

    def list_account(self, budget: Budget, tenant: str | None, at: float) -> Iterator[Call]:
        """Yield the calls that a budget counts in its window of this instant."""
        since = budget.find_start(at)
        if budget.for_tenants:
            since = max(since, self.known_since.get(tenant or "", 0.0))
        for call in self.calls:
            if (
                call.is_open
                and call.at >= since
                and (not budget.for_tenants or call.tenant == tenant)
            ):
                yield call

    def forget(self, tenant: str, old: Budget, windows: int, since: float = 0.0) -> None:
        """Forget what the ledger of a tenant no longer knows after an edit at `since`: all but the
        last windows of the old budget in which the tenant had requests.
        """
        known = self.known_since.get(tenant, 0.0)
        own = [call.at for call in self.calls if call.tenant == tenant and call.at >= known]
        starts = sorted({old.find_start(at) for at in own})[-windows:]
        self.known_since[tenant] = max(known, since, *starts[:1])
