"""Random commands to a router under limits of every kind, beside a ledger in plain Python."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import bylot
from bylot.errors import BudgetSpent, BylotError
from bylot.limits.status import LimitStatus
from bylot.problem import Limit
from bylot.router.status import RouterStatus
from limit_ledger import TOLERANCE, Account, Call, LimitLedger

ZONE = "Europe/Berlin"
PERIOD = 12
PAUSES_S = [1, 20, 60, 60, 600, 1_800, 7_200, 40_000]
TRAFFIC_CHECKS = (32, 64, 128, 256)  # decisions before which a router may follow its traffic
EXPERTS = ("a", "b", "c", "d", "e", "f")
FIRST_EXPERTS = EXPERTS[:5]
USD = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 1.5, "e": 3.0, "f": 2.5}
LARGEST = {"a": 6.0, "b": 2.5, "c": 5.0, "d": 9.0, "e": 3.0, "f": 4.0}
GPU = {"a": 0.0, "b": 1.0, "c": 0.0, "d": 1.0, "e": 1.0, "f": 0.0}
NEW = bylot.share("new", ["c", "d"])
OLD = bylot.share("old", ["a", "b"])
DAY = bylot.at_most("usd", 60.0, per="day", zone=ZONE)
TENANT_DAY = bylot.at_most("usd", 35.0, per="day", zone=ZONE, scope="tenant")


@dataclass(frozen=True)
class Setup:
    """Limits, and the requests that come under them."""

    limits: tuple[Limit, ...]
    policy: str = "noisy-or"
    contexts: tuple[str | None, ...] = (None,)
    tenants: tuple[str | None, ...] = (None,)
    has_largest: bool = False

    def make_problem(self, limits: Sequence[Limit], pool: "Pool") -> bylot.Problem:
        """The problem of these limits and experts."""
        more: dict[str, Any] = {}
        if any(limit.per for limit in limits):
            more["traffic"] = 40.0
        if self.has_largest:
            more["max_costs"] = {"usd": [pool.largest[name] for name in pool.experts]}
        costs = {
            "usd": [pool.usd[name] for name in pool.experts],
            "gpu": [GPU[name] for name in pool.experts],
        }
        return bylot.Problem(pool.experts, costs, limits, draws=2, period=PERIOD, **more)


PER_REQUEST = (
    bylot.at_most("usd", 3.6),
    bylot.at_least("usd", 2.0),
    bylot.at_most("gpu", 1.1),
    bylot.at_least(NEW, 0.5),
)
WINDOWS = (
    bylot.at_most("usd", 14.0, per="hour", zone=ZONE),
    DAY,
    bylot.at_most("gpu", 120.0, per="month", zone=ZONE),
    bylot.at_least(NEW, 0.4, per="day", zone=ZONE),
    bylot.at_most(OLD, 1.4, per="week", zone=ZONE),
    bylot.at_most("usd", 3.8),
)
OF_CONTEXTS = (
    bylot.at_most("usd", 3.4, where={"context": ["x"]}),
    bylot.at_least(NEW, 0.5, where={"context": ["y", "z"]}),
    bylot.at_most("usd", 40.0, per="day", zone=ZONE, where={"context": ["y"]}),
    bylot.at_most(OLD, 1.5, per="day", zone=ZONE, where={"context": ["x", "z"]}),
    bylot.at_least(NEW, 0.3),
)
OF_TENANTS = (
    DAY.at(90.0),
    TENANT_DAY,
    bylot.at_most(OLD, 1.5, per="week", zone=ZONE, scope="tenant"),
    bylot.at_least(NEW, 0.3, per="day", zone=ZONE, scope="tenant"),
)
CONTEXTS, TENANTS = ("x", "y", "z"), ("t0", "t0", "t1", "t2")
SETUPS = {
    "requests, distinct": Setup(PER_REQUEST, "distinct"),
    "requests, tangent": Setup(PER_REQUEST, "tangent"),
    "windows, distinct": Setup(WINDOWS, "distinct"),
    "windows, tangent": Setup(WINDOWS, "tangent"),
    "windows, noisy-or": Setup(WINDOWS, contexts=CONTEXTS),
    "contexts": Setup(OF_CONTEXTS, contexts=CONTEXTS),
    "tenants": Setup(OF_TENANTS, tenants=TENANTS),
    "certain": Setup((DAY.at(120.0), PER_REQUEST[2]), "distinct", has_largest=True),
    "certain contexts": Setup(
        (DAY.at(150.0), bylot.at_most("usd", 90.0, per="week", where={"context": ["x"]})),
        contexts=CONTEXTS,
        has_largest=True,
    ),
    "certain tenants": Setup(
        (DAY.at(150.0), TENANT_DAY.at(60.0)), tenants=TENANTS, has_largest=True
    ),
}


@dataclass
class Pool:
    """The experts of now, and what they cost."""

    experts: list[str] = field(default_factory=lambda: list(FIRST_EXPERTS))
    usd: dict[str, float] = field(default_factory=lambda: dict(USD))
    largest: dict[str, float] = field(default_factory=lambda: dict(LARGEST))


@dataclass
class Made:
    """A decision, its call in the ledger, what its members may cost, and its last report."""

    decision: bylot.Decision
    call: Call
    largest: dict[str, float]
    report: tuple[Any, ...] | None = None


class LimitFuzzer:
    """Sends random commands to a router, and keeps a ledger of them."""

    def __init__(self, kind: Any, setup: Setup, seed: int, path: Path) -> None:
        self.rng, self.setup, self.path, self.pool = random.Random(seed), setup, path, Pool()
        self.limits = list(setup.limits)
        self.router: Any = kind(setup.make_problem(self.limits, self.pool), setup.policy)
        self.ledger = LimitLedger(self.limits, PERIOD)
        self.waiting: list[Made] = []  # for a reward
        self.rewarded: list[Made] = []
        self.cancelled: list[Made] = []
        self.unsure: dict[int, float] = {}  # limits in periods, until which period
        self.forgotten: dict[int, int] = {}  # periods missed that the ledger does not know of
        self.edits: tuple[str, ...] = ("pool", "costs", "bound")
        self.counts = dict.fromkeys(("decided", "refused", "edited", "settled", "missed"), 0)

    def step(self) -> None:
        """Send a command."""
        self.router.now += self.rng.choice(PAUSES_S)
        commands = {
            self.decide: 10.0,
            self.reward: 4.0,
            self.settle: 3.0,
            self.repeat: 0.5,
            self.mistake: 0.5,
            self.cancel: 0.7,
            self.replace: 0.7,
            self.settle_cancelled: 0.2,
            self.edit: 0.5,
            self.set_tenant: 0.5,
            self.reopen: 0.3,
        }
        self.rng.choices(list(commands), list(commands.values()))[0]()

    def decide(self) -> None:
        labels: dict[str, Any] = {
            "context": self.rng.choice(self.setup.contexts),
            "tenant": self.rng.choice(self.setup.tenants),
        }
        if self.rng.random() < 0.3:
            labels["available"] = self.rng.choice(
                [self.rng.sample(self.pool.experts, 3), ["a", "b"]]
            )
        try:
            decision = self.router.decide(**labels)
        except BudgetSpent:
            self.counts["refused"] += 1
            return
        self.counts["decided"] += 1
        largest = {name: self.pool.largest[name] for name in decision.subset}
        most = self.sum_largest(largest)
        call = Call(self.router.now, labels["tenant"], decision.spend, most, labels["context"])
        self.ledger.book(call)
        self.waiting.append(Made(decision, call, largest))
        if decision.t in TRAFFIC_CHECKS and self.has_periods_and_windows:
            self.restart_periods()

    def sum_largest(self, largest: dict[str, float]) -> dict[str, float]:
        """What a panel may cost at most, if that is declared."""
        return {"usd": sum(largest.values())} if self.setup.has_largest else {}

    def draw_costs(self, made: Made) -> Any:
        """What a panel cost: what each member did, or the sum."""
        if self.setup.has_largest:
            part = self.rng.choice([0.0, 0.3, 1.0, 1.0])
            spend = {name: part * most for name, most in made.largest.items()}
        else:
            share = made.call.booked["usd"] / len(made.decision.subset)
            most = self.rng.choice([2.0, 2.0, 2.0, 9.0])
            spend = {name: share * self.rng.uniform(0.2, most) for name in made.decision.subset}
        return self.rng.choice([spend, sum(spend.values())])

    def report(self, made: Made, value: float | None, spend: Any) -> None:
        """Report a reward, costs or both, and book the costs."""
        self.router.report(made.decision.id, value, spend)
        made.report = value, spend
        if spend is not None:
            total = sum(spend.values()) if isinstance(spend, dict) else spend
            self.ledger.settle(made.call, {"usd": total})
            self.counts["settled"] += 1

    def settle(self) -> None:
        """Report costs before the reward."""
        unbilled = [made for made in self.waiting if made.report is None]
        if unbilled:
            made = self.rng.choice(unbilled)
            self.report(made, None, self.draw_costs(made))

    def reward(self) -> None:
        """Report a reward, some with costs, which may correct earlier ones downwards."""
        if not self.waiting:
            return
        made = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        spend = None
        if made.report is not None and self.rng.random() < 0.3:
            spend = 0.5 * made.call.bill["usd"]
        elif made.report is None and self.rng.random() < 0.5:
            spend = self.draw_costs(made)
        self.report(made, self.rng.random(), spend)
        self.rewarded.append(made)

    def repeat(self) -> None:
        """Send the last report of a decision again: nothing changes."""
        reported = [made for made in (*self.waiting, *self.rewarded) if made.report is not None]
        if reported:
            made = self.rng.choice(reported)
            assert made.report is not None
            self.router.report(made.decision.id, *made.report)

    def mistake(self) -> None:
        """Send something invalid: nothing changes."""
        made = self.rng.choice(self.waiting) if self.waiting else None
        choices = [lambda: self.router.decide(available=["nobody"], tenant="t0")]
        if made is not None:
            id = made.decision.id
            choices += [
                lambda: self.router.report(id, 1.5),
                lambda: self.router.report(id, 0.5, -1.0),
                lambda: self.router.report(id, 0.5, {"nobody": 1.0}),
                lambda: self.router.report(id),
            ]
        try:
            self.rng.choice(choices)()
        except BylotError:
            return
        raise AssertionError("a mistake was accepted")

    def cancel(self) -> None:
        unreported = [made for made in self.waiting if made.report is None]
        if unreported:
            made = self.rng.choice(unreported)
            if self.router.cancel(made.decision.id):
                self.waiting.remove(made)
                self.cancelled.append(made)
                self.ledger.cancel(made.call)

    @property
    def has_periods_and_windows(self) -> bool:
        """Whether the router may set its periods anew when it has learned its traffic."""
        return any(map(is_in_periods, self.limits)) and any(limit.per for limit in self.limits)

    def settle_cancelled(self) -> None:
        """Report what a decision cost although it was cancelled."""
        if self.cancelled:
            made = self.cancelled.pop()
            self.report(made, None, self.draw_costs(made))

    def replace(self) -> None:
        unreported = [made for made in self.waiting if made.report is None]
        if unreported:
            made = self.rng.choice(unreported)
            found = self.router.replace(made.decision.id, self.rng.choice(made.decision.subset))
            if found is not None:
                made.decision = found
                made.largest = {name: self.pool.largest[name] for name in found.subset}
                self.ledger.exchange(made.call, found.spend, self.sum_largest(made.largest))

    def edit(self) -> None:
        """Change the pool, the costs or a bound."""
        pool = Pool(list(self.pool.experts), dict(self.pool.usd), dict(self.pool.largest))
        limits = list(self.limits)
        what = self.rng.choice(self.edits)
        j = self.rng.randrange(len(limits))
        if what == "pool":
            name = self.rng.choice(["e", "f"])
            pool.experts = sorted({*pool.experts} ^ {name})
        elif what == "costs":
            name = self.rng.choice(pool.experts)
            pool.usd[name] = self.rng.uniform(0.5, 3.0)
            pool.largest[name] = pool.usd[name] * self.rng.choice([1.0, 2.0, 4.0])
        else:
            limits[j] = limits[j].at(limits[j].bound * self.rng.choice([0.9, 1.1]))
        try:
            self.router.edit(self.setup.make_problem(limits, pool))
        except BylotError:
            return  # the limits cannot be kept: nothing was changed
        self.counts["edited"] += 1
        if what == "bound":
            self.ledger.change_bound(j, limits[j])
        self.pool, self.limits = pool, limits
        self.restart_periods()

    def restart_periods(self) -> None:
        """After an edit, or when the traffic was learned, only count the requests of a period, and
        compare its costs from the next but one on.
        """
        period = self.router.status().period
        assert period is not None
        for j, limit in enumerate(self.limits):
            if is_in_periods(limit):
                self.ledger.restart_period(j, period.played)
                self.unsure[j] = self.ledger.windows[j, None][-1] + 2

    def set_tenant(self) -> None:
        """Give a tenant a bound of its own, or take it away."""
        j = next((j for j, limit in enumerate(self.limits) if limit.scope), None)
        if j is None:
            return
        tenant = self.rng.choice([name for name in self.setup.tenants if name])
        usual = self.limits[j].bound
        bound = self.rng.choice([usual, usual * self.rng.uniform(0.6, 1.5)])
        limits = () if bound == usual else (self.limits[j].at(bound),)
        self.router.set_tenant(tenant, limits)
        if self.ledger.own.get((j, tenant), usual) != bound:
            self.ledger.forget_before(j, tenant)
        self.ledger.own.pop((j, tenant), None)
        if limits:
            self.ledger.own[j, tenant] = bound

    def reopen(self) -> None:
        self.router.reopen(self.path)

    def check(self) -> None:
        """Compare what the status says of every limit with the ledger."""
        status: RouterStatus = self.router.status()
        self.counts["missed"] = max(self.counts["missed"], sum(self.ledger.missed.values()))
        for j, limit in enumerate(status.limits):
            if is_in_periods(self.limits[j]):
                self.check_period(j, limit, status)
                continue
            if self.limits[j].scope:
                self.check_tenants(j, limit)
            else:
                self.check_account(j, limit)
            assert limit.current is not None
            assert limit.current.missed == self.ledger.count_missed(j), limit

    def check_period(self, j: int, limit: LimitStatus, status: RouterStatus) -> None:
        """Compare a limit per request in the current period."""
        account = self.ledger.get_current(j, None, self.router.now)
        assert status.period is not None
        assert limit.current is not None
        assert status.period.played == len(account.counted)
        known = self.ledger.count_missed(j)
        if self.unsure.get(j, 0.0) > (self.ledger.windows[j, None] or [0.0])[-1]:
            self.forgotten[j] = limit.current.missed - known
            return
        assert limit.current.missed == known + self.forgotten.get(j, 0)
        self.compare_mean(limit, account)

    def check_account(self, j: int, limit: LimitStatus) -> None:
        """Compare a limit in the window of all its requests."""
        account = self.ledger.get_current(j, None, self.router.now)
        window = limit.window
        if window is None:  # of requests of some contexts, or there was no request
            self.compare_mean(limit, account)
            return
        spent = account.sum_spent(limit.cost)
        self.compare(limit.subject, window, account, limit.cost)
        if limit.is_total:
            is_over = spent > limit.bound * (1 + TOLERANCE)
            assert (limit.verdict == "missed") == is_over, limit

    def check_tenants(self, j: int, limit: LimitStatus) -> None:
        """Compare a limit in the windows of all tenants."""
        total, active = 0.0, 0
        place = [n for n, other in enumerate(self.limits) if other.scope].index(j)
        for tenant in dict.fromkeys(self.setup.tenants):
            account = self.ledger.get_current(j, tenant, self.router.now)
            window = self.router.measure_tenant(tenant)[place]
            self.compare(f"{limit.subject} {tenant}", window, account, limit.cost)
            assert window.bound == approx_sum(self.ledger.own.get((j, tenant), limit.bound))
            total += account.sum_spent(limit.cost)
            active += bool(account.counted or account.calls)
        assert limit.tenants is not None
        assert limit.tenants.total == approx_sum(total)

    def compare(self, whose: str, window: Any, account: Account, cost: str) -> None:
        """Compare what is spent, reserved and counted in a window."""
        assert window.spent == approx_sum(account.sum_spent(cost)), whose
        assert window.requests == len(account.counted), whose
        if self.setup.has_largest:
            assert window.reserved == approx_sum(account.sum_reserved(cost)), whose

    def compare_mean(self, limit: LimitStatus, account: Account) -> None:
        """Compare the average of a limit in periods."""
        assert limit.current is not None
        if not account.counted:
            assert limit.current.mean is None
            return
        mean = account.sum_spent(limit.cost) / len(account.counted)
        assert limit.current.mean == approx_sum(mean), limit


def is_in_periods(limit: Limit) -> bool:
    """Whether a limit is for periods of all requests."""
    return limit.per is None and not limit.where


def approx_sum(expected: float) -> Any:
    """Equal up to the rounding of sums."""
    return pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
