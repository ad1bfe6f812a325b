"""Ledgers of limits in plain Python: which decisions count in which window, and what they cost.

They share no code with the limits that they check.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from bylot.problem import Limit

WindowName = Literal["hour", "day", "week", "month"]
Key = str | None
"""Whose account it is: a tenant's, or that of all."""
TOLERANCE = 1e-9  # relative, of sums


def find_start(per: WindowName, zone: str, at: float) -> float:
    """Return the instant at which the window of another instant began."""
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    hour = local.replace(minute=0, second=0, microsecond=0)
    if per == "hour":
        return hour.timestamp()
    day = hour.replace(hour=0, fold=0)
    back = {"day": 0, "week": day.weekday(), "month": day.day - 1}[per]
    return (day - timedelta(days=back)).timestamp()


@dataclass(eq=False)
class Call:
    """A decision: when and for whom it was made, and by cost what it books, what it may cost at
    most, and what it cost once billed.
    """

    at: float
    tenant: str | None
    booked: Mapping[str, float]
    most: Mapping[str, float] = field(default_factory=dict)
    context: str | None = None
    bill: dict[str, float] = field(default_factory=dict)
    is_open: bool = True  # it was not cancelled

    def get_spent(self, cost: str) -> float:
        return self.bill.get(cost, self.booked.get(cost, 0.0) if self.is_open else 0.0)

    def get_reserved(self, cost: str) -> float:
        if cost in self.bill or not self.is_open:
            return 0.0
        return self.most.get(cost, self.booked.get(cost, 0.0)) - self.booked.get(cost, 0.0)


class Account:
    """The calls of one window, of one key, under one limit; those in `counted` are requests."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.counted: list[Call] = []

    def sum_spent(self, cost: str) -> float:
        return sum(call.get_spent(cost) for call in self.calls)

    def sum_reserved(self, cost: str) -> float:
        return sum(call.get_reserved(cost) for call in self.calls)


class LimitLedger:
    """The accounts of all limits: (limit, key, window) -> calls.

    A window of the calendar is known by its beginning, one of P requests by its number. It begins
    with the first request after it; of a limit for each tenant, with the first one of the tenant.
    The one before it is judged then, and again when the costs of its calls change. Older ones stay
    as they were judged.
    """

    def __init__(self, limits: Sequence[Limit], period: int) -> None:
        self.limits = list(limits)
        self.period = period
        self.accounts = defaultdict[tuple[int, Key, float], Account](Account)
        self.windows = defaultdict[tuple[int, Key], list[float]](list)  # in their order
        self.missed: dict[tuple[int, Key, float], bool] = {}  # windows that are over
        self.own: dict[tuple[int, Key], float] = {}  # bounds of single tenants

    def book(self, call: Call) -> None:
        """Count a new call under every limit."""
        for j, limit in enumerate(self.limits):
            key = call.tenant if limit.scope else None
            windows = self.windows[j, key]
            if limit.per is not None:
                self.begin(j, key, find_start(limit.per, limit.zone, call.at))
            elif not windows:
                self.begin(j, key, 0)
            if limit.where and call.context not in limit.where:
                continue
            account = self.accounts[j, key, windows[-1]]
            account.calls.append(call)
            account.counted.append(call)
            if limit.per is None and len(account.counted) == self.period:
                self.begin(j, key, windows[-1] + 1)

    def begin(self, j: int, key: Key, window: float) -> None:
        """Begin a window, unless it has begun, and judge the one before."""
        windows = self.windows[j, key]
        if not windows or windows[-1] != window:
            windows.append(window)
            self.judge(j, key)

    def judge(self, j: int, key: Key) -> None:
        """Judge the window before the current one."""
        limit, windows = self.limits[j], self.windows[j, key]
        if len(windows) < 2:
            return
        account = self.accounts[j, key, windows[-2]]
        bound = self.own.get((j, key), limit.bound)
        if not limit.is_total:
            bound *= len(account.counted)
        over = limit.sign * (bound - account.sum_spent(limit.name))
        self.missed[j, key, windows[-2]] = over > TOLERANCE * bound

    def settle(self, call: Call, bill: Mapping[str, float]) -> None:
        """Book what a call cost; what was reported before is corrected."""
        call.bill.update(bill)
        self.judge_again(call)

    def exchange(self, call: Call, booked: Mapping[str, float], most: Mapping[str, float]) -> None:
        """Book other costs for a call, of which a member was replaced."""
        call.booked = booked
        call.most = most
        self.judge_again(call)

    def judge_again(self, call: Call) -> None:
        """Judge the windows before the current ones again that have a call."""
        for j, key, place in self.find_places(call):
            if place == -2:
                self.judge(j, key)

    def cancel(self, call: Call) -> None:
        """Take back a call: it costs nothing, and in the current windows it is no request."""
        call.is_open = False
        for j, key, place in self.find_places(call):
            account = self.accounts[j, key, self.windows[j, key][place]]
            if place == -1:
                account.counted.remove(call)
            elif self.limits[j].per is not None or self.limits[j].where:
                self.judge(j, key)
            else:  # a period of all requests that is over keeps what was booked
                account.calls.append(replace(call, is_open=True))

    def find_places(self, call: Call) -> Iterator[tuple[int, Key, int]]:
        """Yield limit, key and place, -1 or -2, of the last two windows that have a call."""
        for (j, key), windows in list(self.windows.items()):
            for place in (-1, -2)[: len(windows)]:
                if call in self.accounts[j, key, windows[place]].calls:
                    yield j, key, place

    def change_bound(self, j: int, limit: Limit) -> None:
        """Put another bound into force: windows that are over are forgotten."""
        self.limits[j] = limit
        for place, key in list(self.windows):
            if place == j:
                self.forget_before(j, key)
        self.missed = {place: miss for place, miss in self.missed.items() if place[0] != j}

    def restart_period(self, j: int, played: int) -> None:
        """Continue a period in which so many requests count, of whose costs nothing is known."""
        windows = self.windows[j, None]
        before = self.accounts[j, None, windows[-1]] if windows else Account()
        kept = before.counted[-played:] if played else []
        before.calls = [call for call in before.calls if call not in kept]
        windows.append(windows[-1] + 1 if windows else 0)
        account = self.accounts[j, None, windows[-1]]
        account.counted = [Call(0.0, None, {}) for _ in range(played - len(kept))] + kept
        account.calls = list(kept)

    def forget_before(self, j: int, key: Key) -> None:
        """Judge no window before the current one any more."""
        del self.windows[j, key][:-1]

    def get_current(self, j: int, key: Key, at: float) -> Account:
        """Return the account of the window of an instant, empty if it has not begun."""
        limit, windows = self.limits[j], self.windows[j, key]
        if limit.per is None:
            window = windows[-1] if windows else 0.0
        else:
            window = find_start(limit.per, limit.zone, at)
        return self.accounts.get((j, key, window), Account())

    def count_missed(self, j: int) -> int:
        """Count the windows of a limit that ended outside it."""
        return sum(miss for (place, _, _), miss in self.missed.items() if place == j)


@dataclass(frozen=True)
class Budget:
    """At most so much per window, for all or for each tenant."""

    bound: float
    per: WindowName
    zone: str
    for_tenants: bool = False

    def find_start(self, at: float) -> float:
        """Return the instant at which the window of another instant began."""
        return find_start(self.per, self.zone, at)


@dataclass
class CallList:
    """All calls, and from when on the budget of each tenant knows them: for windows that change."""

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
