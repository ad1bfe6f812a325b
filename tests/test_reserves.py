"""What is reserved for open decisions: random edits while calls are out, beside another ledger."""

import os
import random
from collections.abc import Mapping
from typing import Any

import pytest

import bylot
from bylot.errors import BudgetSpent, BylotError, RewardConflict
from bylot.problem import Limit
from limit_ledger import Budget, Call, CallList, WindowName
from scripted_routers import ROUTER_KINDS, MemoryRouter, StoredRouter

SEEDS = int(os.environ.get("BYLOT_EDIT_SEEDS", "8"))
STEPS = 200
TOLERANCE = 1e-9
COSTS = {"a": (1.0, 6.0), "b": (2.0, 2.5), "c": (0.5, 5.0), "d": (1.5, 9.0), "e": (3.0, 3.0)}
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kolkata"]
PAUSES_S = [1, 1, 60, 60, 60, 600, 1_800, 20_000, 90_000]
BOUNDS: dict[WindowName, tuple[float, float]] = {
    "hour": (12.0, 30.0),
    "day": (20.0, 70.0),
    "week": (40.0, 160.0),
    "month": (60.0, 300.0),
}
PANEL = 2
TENANTS = ("t0", "t1", "t2")


def make_pool(
    experts: list[str], budgets: list[Budget], costs: Mapping[str, tuple[float, float]] = COSTS
) -> bylot.Problem:
    """Some of the experts under budgets that hold whatever calls cost."""
    limits = [
        bylot.at_most(
            "usd",
            budget.bound,
            per=budget.per,
            zone=budget.zone,
            scope="tenant" if budget.for_tenants else None,
        )
        for budget in budgets
    ]
    stated, most = ([costs[name][n] for name in experts] for n in (0, 1))
    return bylot.Problem(
        experts, {"usd": stated}, limits, draws=PANEL, max_costs={"usd": most}, traffic=500.0
    )


class Fuzzer:
    """Random requests, bills, cancellations and edits, each checked against the ledger."""

    def __init__(self, kind: type[MemoryRouter | StoredRouter], seed: int, path: Any) -> None:
        self.rng, self.path, self.ledger = random.Random(seed), path, CallList()
        self.has_tenants = seed % 2 == 1
        self.experts = ["a", "b", "c"]
        self.budgets = [Budget(50.0, "day", "UTC")]
        if self.has_tenants:
            self.budgets.append(Budget(30.0, "day", "UTC", for_tenants=True))
        self.own: dict[str, float] = {}  # bounds of single tenants
        self.router: Any = kind(make_pool(self.experts, self.budgets))
        self.costs = dict(COSTS)
        self.waiting: dict[Any, tuple[Call, dict[str, float]]] = {}  # the largest cost by member
        self.refused = self.admitted = self.edits = 0

    def run(self) -> None:
        for _ in range(STEPS):
            self.router.now += self.rng.choice(PAUSES_S)
            draw = self.rng.random()
            if draw < 0.5:
                self.decide()
            elif draw < 0.72:
                self.settle_one()
            elif draw < 0.76:
                self.cancel_one()
            elif draw < 0.79:
                self.replace_one()
            elif draw < 0.97:
                self.edit()
            else:
                self.router.reopen(self.path)
            self.check_status()
        while self.waiting:
            self.settle_one()
        self.check_status()
        self.check_nothing_reserved()
        self.router.check()

    def decide(self) -> None:
        tenant = self.rng.choice(TENANTS) if self.has_tenants else None
        try:
            made = self.router.decide(tenant)
        except BudgetSpent:
            self.refused += 1
            self.check_refusal(tenant)
            return
        self.admitted += 1
        largest = {name: self.costs[name][1] for name in made.subset}
        call = Call(self.router.now, tenant, made.spend, {"usd": sum(largest.values())})
        self.ledger.calls.append(call)
        self.waiting[made.id] = call, largest
        for budget in self.budgets:
            account = self.ledger.list_account(budget, tenant, self.router.now)
            worst = sum(call.get_spent("usd") + call.get_reserved("usd") for call in account)
            bound = self.find_bound(budget, tenant)
            assert worst <= bound + TOLERANCE, f"{budget}: {worst} may be spent of {bound}"

    def find_bound(self, budget: Budget, tenant: str | None) -> float:
        return self.own.get(tenant or "", budget.bound) if budget.for_tenants else budget.bound

    def check_refusal(self, tenant: str | None) -> None:
        """A request is refused only if the cheapest panel does not fit into what is left."""
        cheapest = sum(sorted(self.costs[name][1] for name in self.experts)[:PANEL])
        windows = [limit.window for limit in self.router.status().limits]
        left = [window.left for window in windows if window is not None]
        if self.has_tenants:
            left.append(self.router.measure_tenant(tenant)[0].left)
        assert min(left) < cheapest + TOLERANCE, f"refused with {left} left of {self.budgets}"

    def settle_one(self) -> None:
        if not self.waiting:
            return
        id = self.rng.choice(list(self.waiting))
        call, largest = self.waiting.pop(id)
        part = self.rng.choice([0.0, 0.3, 1.0, 1.0, 1.0])
        spend = {name: part * most for name, most in largest.items()}
        total = sum(spend.values())
        call.bill["usd"] = total
        bill = self.rng.choice([spend, total])
        self.router.report(id, self.rng.choice([None, 0.5]), bill)

    def cancel_one(self) -> None:
        if self.waiting:
            id = self.rng.choice(list(self.waiting))
            if self.router.cancel(id):
                call, _ = self.waiting.pop(id)
                call.is_open = False

    def replace_one(self) -> None:
        if self.waiting:
            id = self.rng.choice(list(self.waiting))
            call, largest = self.waiting[id]
            found = self.router.replace(id, self.rng.choice(list(largest)))
            if found is not None:
                self.waiting[id] = call, {name: self.costs[name][1] for name in found.subset}
                call.booked = found.spend
                call.most = {"usd": sum(self.waiting[id][1].values())}

    def edit(self) -> None:
        """Change experts, costs, bound, zone or window of a budget, or the bound of a tenant."""
        experts, budgets = list(self.experts), list(self.budgets)
        costs = dict(self.costs)
        what = self.rng.choice(["add", "remove", "costs", "bound", "zone", "window", "tenant"])
        n = self.rng.randrange(len(budgets))
        old = budgets[n]
        if what == "add":
            experts += self.rng.sample([name for name in COSTS if name not in experts] or ["a"], 1)
            experts = list(dict.fromkeys(experts))
        elif what == "remove" and len(experts) > PANEL:
            experts.remove(self.rng.choice(experts))
        elif what == "costs":
            stated = self.rng.uniform(0.5, 3.0)
            costs[self.rng.choice(experts)] = stated, stated * self.rng.choice([1.0, 2.0, 5.0])
        elif what == "bound":
            bound = self.rng.uniform(*BOUNDS[old.per])
            budgets[n] = Budget(bound, old.per, old.zone, old.for_tenants)
        elif what == "zone":
            budgets[n] = Budget(old.bound, old.per, self.rng.choice(ZONES), old.for_tenants)
        elif what == "window":
            per = self.rng.choice(list(BOUNDS))
            budgets[n] = Budget(sum(BOUNDS[per]) / 2, per, old.zone, old.for_tenants)
        elif what == "tenant" and self.has_tenants:
            self.set_tenant()
            return
        try:
            self.router.edit(make_pool(experts, budgets, costs))
        except BylotError:
            return  # no panel fits, or the like: nothing was changed
        self.edits += 1
        if old.for_tenants and old != budgets[n]:
            self.change_tenant_budget(old, budgets[n])
        self.experts, self.budgets, self.costs = experts, budgets, costs

    def change_tenant_budget(self, old: Budget, new: Budget) -> None:
        """Forget what the ledgers of tenants do not know under another budget.

        They know the last two windows as far as these are in the new one, and after another bound
        the last one. Shorter windows begin with the edit.
        """
        shorter = list(BOUNDS).index(new.per) < list(BOUNDS).index(old.per)
        same_windows = (new.per, new.zone) == (old.per, old.zone)
        since = 0.0 if same_windows else new.find_start(self.router.now)
        since = self.router.now if shorter else since
        for tenant in TENANTS:
            self.ledger.forget(tenant, old, 1 if same_windows else 2, since)
        if old.per != new.per:
            self.own.clear()  # they were of other windows

    def set_tenant(self) -> None:
        tenant = self.rng.choice(TENANTS)
        budget = self.budgets[-1]
        self.ledger.forget(tenant, budget, 1)
        self.own.pop(tenant, None)
        limits: tuple[Limit, ...] = ()
        if self.rng.random() < 0.7:
            self.own[tenant] = self.rng.uniform(*BOUNDS[budget.per])
            more: Mapping[str, Any] = {"per": budget.per, "zone": budget.zone, "scope": "tenant"}
            limits = (bylot.at_most("usd", self.own[tenant], **more),)
        self.router.set_tenant(tenant, limits)

    def check_status(self) -> None:
        """Compare what the router says that it has spent and reserved with the ledger.

        It is never less, and the same if windows begin with an hour and no tenant's were changed.
        """
        now = self.router.now
        for budget, limit in zip(self.budgets, self.router.status().limits, strict=True):
            if budget.for_tenants:
                for tenant in TENANTS:
                    window = self.router.measure_tenant(tenant)[0]
                    exact = tenant not in self.ledger.known_since
                    self.compare(budget, tenant, window.spent, window.reserved, exact)
            elif limit.window is not None:  # there was a request
                exact = budget.find_start(now) % 3_600 == 0
                self.compare(budget, None, limit.window.spent, limit.window.reserved, exact)

    def compare(
        self, budget: Budget, tenant: str | None, spent: float, reserved: float, exact: bool
    ) -> None:
        account = list(self.ledger.list_account(budget, tenant, self.router.now))
        true_spent = sum(call.get_spent("usd") for call in account)
        true_reserved = sum(call.get_reserved("usd") for call in account)
        found = f"{budget} of {tenant}: {spent}, {reserved} for {true_spent}, {true_reserved}"
        assert spent >= true_spent - TOLERANCE, found
        assert reserved >= true_reserved - TOLERANCE, found
        if exact:
            assert spent == pytest.approx(true_spent, abs=TOLERANCE), found
            assert reserved == pytest.approx(true_reserved, abs=TOLERANCE), found

    def check_nothing_reserved(self) -> None:
        for limit in self.router.status().limits:
            if limit.window is not None:
                assert limit.window.reserved == pytest.approx(0.0, abs=TOLERANCE)
        for tenant in TENANTS if self.has_tenants else ():
            assert self.router.measure_tenant(tenant)[0].reserved == pytest.approx(
                0.0, abs=TOLERANCE
            )


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_edits_while_calls_are_out_break_no_budget(kind: Any, seed: int, tmp_path: Any) -> None:
    fuzzer = Fuzzer(kind, seed, tmp_path / "router.bylot")
    fuzzer.run()
    assert fuzzer.admitted > 20, "the test would pass if nothing were asked"
    if seed < 8:  # of more seeds, one in hundreds refuses nothing
        assert fuzzer.refused > 0, "the test would pass if no budget were ever spent"
    assert fuzzer.edits > 5, "the test would pass without an edit"


def ask_until_refused(router: Any, calls: dict[Any, tuple[str, ...]]) -> int:
    """Ask until the budget leaves no panel, and return how often that was."""
    for n in range(1_000):
        try:
            made = router.decide()
        except BudgetSpent:
            return n
        calls[made.id] = made.subset
    raise AssertionError("the budget refuses nothing")


def bill_all(router: Any, calls: dict[Any, tuple[str, ...]]) -> None:
    """Report the largest cost of all calls."""
    for id, panel in calls.items():
        router.report(id, None, {name: COSTS[name][1] for name in panel})
    calls.clear()


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_calls_of_a_removed_expert_stay_reserved(kind: Any) -> None:
    day = Budget(100.0, "day", "UTC")
    router, calls = kind(make_pool(["a", "d"], [day])), dict[Any, tuple[str, ...]]()
    ask_until_refused(router, calls)
    assert len(calls) == 6, "each may cost 15"
    router.edit(make_pool(["a", "b"], [day]))
    assert router.status().limits[0].window.reserved == pytest.approx(6 * (15.0 - 2.5))
    assert ask_until_refused(router, calls) == 1, "the cheapest panel may cost 8.5, and 10 are left"
    bill_all(router, calls)
    window = router.status().limits[0].window
    assert (window.spent, window.reserved) == (98.5, 0.0)


@pytest.mark.parametrize("edited", ["expert", "bound", "zone", "window"])
@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_calls_that_are_out_at_an_edit_are_released_by_their_bills(kind: Any, edited: str) -> None:
    day = Budget(100.0, "day", "UTC")
    new = {
        "bound": Budget(110.0, "day", "UTC"),
        "zone": Budget(100.0, "day", "Europe/Berlin"),
        "window": Budget(100.0, "month", "UTC"),
    }.get(edited, day)
    router, calls = kind(make_pool(["a", "d"], [day])), dict[Any, tuple[str, ...]]()
    ask_until_refused(router, calls)
    router.edit(make_pool(["a", "d", "c"] if edited == "expert" else ["a", "d"], [new]))
    for id, panel in calls.items():
        router.report(id, None, dict.fromkeys(panel, 0.5))
    window = router.status().limits[0].window
    assert window.spent == pytest.approx(6.0)
    assert window.reserved == 0.0
    assert window.left == pytest.approx(new.bound - 6.0)


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_a_cost_that_was_reported_cannot_be_raised_under_a_certain_budget(kind: Any) -> None:
    router, calls = kind(make_pool(["a", "d"], [Budget(100.0, "day", "UTC")])), dict[Any, Any]()
    id = router.decide().id
    router.report(id, None, 1.0)
    ask_until_refused(router, calls)
    with pytest.raises(
        RewardConflict, match="cannot be raised from 1 to 15 under a limit that is certain"
    ):
        router.report(id, 0.5, 15.0)
    bill_all(router, calls)
    assert router.status().limits[0].window.spent <= 100.0
    router.report(id, 0.5, 0.5)  # it can be lowered
    assert router.status().limits[0].window.spent == pytest.approx(1.0 + 6 * 15.0 - 0.5)


def test_the_reserve_of_an_exchanged_member_is_released() -> None:
    router = StoredRouter(make_pool(["d", "a", "c"], [Budget(1_000.0, "day", "UTC")]))
    made = [router.decide() for _ in range(20)]
    exchanged = [router.replace(decision.id, decision.subset[0]) for decision in made]
    assert sum(panel is not None for panel in exchanged) > 5
    for decision in made:
        router.report(decision.id, None, 3.0)
    window = router.status().limits[0].window
    assert window is not None
    assert window.reserved == 0.0
    router.check()


def test_calls_that_were_out_when_largest_costs_were_declared_are_reserved() -> None:
    day = Budget(40.0, "day", "UTC")
    capped = make_pool(["a", "d"], [day])
    router = MemoryRouter(capped.replace(max_costs={}))
    calls = [router.decide() for _ in range(3)]
    router.edit(capped)
    window = router.status().limits[0].window
    assert window is not None
    assert window.reserved == pytest.approx(3 * 12.5)
    with pytest.raises(BudgetSpent):
        router.decide(None)
    assert len(calls) == 3


def test_a_new_limit_in_periods_counts_the_calls_that_are_out() -> None:
    costs, names = {"usd": [1.0, 1.0, 1.0]}, ["a", "b", "c"]
    plain = bylot.Problem(names, costs, draws=2, period=20, max_costs={"usd": [6.0, 6.0, 2.0]})
    for calls, bound in ((2, 8.5), (5, 9.5), (10, 10.5)):
        router = bylot.Router(plain, "distinct", seed=1)
        made = [router.decide() for _ in range(calls)]
        router.change(plain.replace(limits=[bylot.at_most("usd", bound)]))
        made += [router.decide() for _ in range(40)]
        for decision in made:
            most = {"a": 6.0, "b": 6.0, "c": 2.0}
            router.reward(decision.id, spend={"usd": sum(most[name] for name in decision.subset)})
        current = router.status().limits[0].current
        assert current is not None
        assert current.missed == 0


def test_bills_are_booked_against_the_costs_that_their_decision_was_booked_at() -> None:
    day = Budget(100.0, "day", "UTC")
    router = MemoryRouter(make_pool(["a", "d"], [day]))
    calls = [router.decide().id for _ in range(3)]
    router.edit(make_pool(["a", "d"], [day], {"a": (3.0, 6.0), "d": (4.0, 9.0)}))
    for id in calls:
        router.report(id, None, {"a": 2.0, "d": 2.0})
    window = router.status().limits[0].window
    assert window is not None
    assert window.spent == pytest.approx(12.0)


def test_costs_of_an_earlier_pool_are_booked_once_in_any_order() -> None:
    costs = {"usd": [1.0, 2.0], "lat": [1.0, 1.0]}
    problem = bylot.Problem(["a", "b"], costs, [bylot.at_most("usd", 3.5)], draws=1)
    router = bylot.Router(problem, "distinct", seed=1)
    made = router.decide()
    more = {name: [*row, 1.0] for name, row in costs.items()}
    router.change(problem.replace(experts=["a", "b", "c"], costs=more))
    for receipts in (("noted", "settled"), ("duplicate", "duplicate")):
        assert router.reward(made.id, 0.5, spend={"usd": 3.0}) == receipts[0]
        assert router.reward(made.id, spend={"lat": 2.0}) == receipts[1]
    settled = router.status().costs
    assert (settled["usd"].settled, settled["lat"].settled) == (3.0, 2.0)


@pytest.mark.parametrize("kind", ROUTER_KINDS)
def test_bills_of_calls_that_a_later_budget_never_counted_free_nothing(kind: Any) -> None:
    def make_problem(*limits: Limit) -> bylot.Problem:
        return bylot.Problem(
            ["a", "b"],
            {"usd": [1.0, 1.0], "tok": [1.0, 1.0]},
            [bylot.at_most("tok", 1e6, per="day"), *limits],
            draws=1,
            max_costs={"usd": [6.0, 6.0]},
        )

    router, calls = kind(make_problem()), dict[Any, tuple[str, ...]]()
    early = [router.decide().id for _ in range(40)]
    router.now += 60
    router.edit(make_problem(bylot.at_most("usd", 100.0, per="day")))
    router.now += 60
    router.edit(make_problem(bylot.at_most("usd", 100.0, per="week")))
    asked = ask_until_refused(router, calls)
    assert asked == 16
    for id in early:
        router.report(id, None, 0.0)
    assert ask_until_refused(router, calls) == 0
    window = router.status().limits[1].window
    assert window is not None
    assert (window.spent, window.reserved) == (16.0, 80.0)
