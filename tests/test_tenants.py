"""Limits for each tenant: every tenant's windows are kept, all share what is learned."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bylot
from bylot.environments import Traffic
from bylot.errors import BudgetSpent, DecisionError, PolicyError, ProblemError
from bylot.eventlog.commands import SetTenant
from bylot.limits.binding import is_possible
from bylot.limits.keys import FIRST_SLOTS
from bylot.problem.calendar import Calendar, find_window
from logged_aggregate import LoggedRouter, decode_decision
from test_calendar_limits import COSTS, EXPERTS, MEANS, PARTNER, ZONE

DAY_US, START = 86_400_000_000, 1_774_000_000_000_000
PER_DAY = bylot.at_most("usd", 40.0, per="day", zone=ZONE, scope="tenant")


def make_problem(*limits: bylot.Limit, **more: Any) -> bylot.Problem:
    return bylot.Problem(EXPERTS, COSTS, limits or (PER_DAY,), draws=2, **more)


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> float:
        return self.at / 1e6


def play(
    router: bylot.Router, clock: Clock, times: Any, tenants: Any, seed: int = 0
) -> dict[tuple[str, int], float]:
    """Decide and reward; returns what each tenant spent in each day."""
    rng, spent = np.random.default_rng(seed), defaultdict[tuple[str, int], float](float)
    for at, tenant in zip(times, tenants, strict=True):
        clock.at = int(at)
        try:
            decision = router.decide(tenant=str(tenant))
        except BudgetSpent:
            continue
        best = max(MEANS[0][EXPERTS.index(name)] for name in decision.subset)
        router.reward(decision.id, float(rng.random() < best))
        day = find_window(Calendar("day", ZONE), int(at)).start
        spent[str(tenant), day] += decision.spend["usd"]
    return spent


def test_no_tenant_exceeds_its_budget_and_busy_ones_use_theirs() -> None:
    days, clock, rng = 24, Clock(), np.random.default_rng(1)
    times = Traffic("daily", per_day=400, start="2026-03-20", zone=ZONE).arrivals_until(days, 2)
    weights = np.array([0.4, 0.2, 0.1, *[0.3 / 27] * 27])
    tenants = rng.choice([f"t{i}" for i in range(30)], len(times), p=weights / weights.sum())
    router = bylot.Router(make_problem(), clock=clock, seed=3)
    spent = play(router, clock, times.tolist(), tenants.tolist())
    assert max(spent.values()) <= 40.0 * (1 + 1e-12)
    for busy in ("t0", "t1"):  # whose requests would cost more than the budget
        used = np.array([amount for (name, _), amount in sorted(spent.items()) if name == busy])
        assert used[7:].mean() / 40.0 > 0.95
    quiet = [amount for (name, _), amount in spent.items() if name not in ("t0", "t1", "t2")]
    assert np.mean(quiet) > 0.5 * np.mean([amount for amount in quiet if amount > 0])


def test_what_a_tenant_may_spend_does_not_depend_on_others() -> None:
    clock = Clock()
    router = bylot.Router(make_problem(), clock=clock)
    poor = [f"poor{n}" for n in range(3)]
    for name in poor:
        router.set_tenant(name, [PER_DAY.at(3.0)])
    for n in range(600):
        clock.at = START + n * 120_000_000
        for name in (*poor, "rich"):
            try:
                decision = router.decide(tenant=name)
                router.reward(decision.id, 0.2 + 0.5 * ("e5" in decision.subset))
            except BudgetSpent:
                assert name != "rich" or router.tenant(name)[0].left < 1.2  # type: ignore[operator]
    for name in poor:
        now = router.tenant(name)[0]
        assert now.own
        assert now.bound == 3.0
        assert now.spent <= 3.0
    assert router.tenant("rich")[0].spent > 20.0
    router.set_tenant("poor0")
    assert router.tenant("poor0")[0].bound == 40.0


def test_budgets_of_all_and_of_each_tenant_are_kept_together() -> None:
    limits = [
        bylot.at_most("usd", 450.0, per="day", zone=ZONE),
        PER_DAY.at(170.0),
        bylot.at_most("usd", 1_000.0, per="week", zone=ZONE, scope="tenant"),
        bylot.at_least(PARTNER, 0.2, per="week", zone=ZONE, scope="tenant"),
    ]
    clock = Clock()
    router = bylot.Router(make_problem(*limits), clock=clock)
    by_day, by_week = defaultdict[int, float](float), defaultdict[tuple[str, int], float](float)
    asked, met = defaultdict[tuple[str, int], int](int), defaultdict[tuple[str, int], int](int)
    for n in range(2_500):
        clock.at = START + n * 400_000_000
        tenant = f"t{n % 3}"
        try:
            decision = router.decide(tenant=tenant)
        except BudgetSpent:
            continue
        router.reward(decision.id, 0.4 + 0.4 * ("e5" in decision.subset))
        by_day[find_window(Calendar("day", ZONE), clock.at).start] += decision.spend["usd"]
        week = tenant, find_window(Calendar("week", ZONE), clock.at).start
        by_week[week] += decision.spend["usd"]
        asked[week] += 1
        met[week] += len({"e2", "e4"} & set(decision.subset))
    assert 420.0 < max(by_day.values()) <= 450.0 * (1 + 1e-12)
    assert 950.0 < max(by_week.values()) <= 1_000.0 * (1 + 1e-12)
    assert all(met[week] >= 0.2 * asked[week] - 1 for week in asked), "budgets come first"
    status = router.status()
    assert "for each tenant" in str(status.limits[1])
    assert status.limits[1].tenants is not None
    assert status.limits[1].tenants.active == 3


def test_tenants_are_archived_and_their_slots_used_again() -> None:
    clock = Clock()
    router = bylot.Router(make_problem(), clock=clock)
    router.set_tenant("t5", [PER_DAY.at(7.0)])
    for n in range(30 * FIRST_SLOTS):
        clock.at = START + n * DAY_US // 40
        router.decide(tenant=f"t{n}")
    known = router.core.book.get_keyed()
    assert len(known.keys) <= 4 * FIRST_SLOTS, "about 80 are of the last two days"
    assert len(known.slots) + len(known.free) == len(known.keys)
    assert ("tenant", "t5") not in known.slots
    assert router.tenant("t5")[0].bound == 7.0, "an own bound outlasts the ledger"
    clock.at += 1
    router.decide(tenant="t5")
    assert router.tenant("t5")[0].bound == 7.0


def test_a_loaded_router_has_the_clock_that_it_is_given(tmp_path: Path) -> None:
    router, clock = bylot.Router(make_problem(), clock=Clock()), Clock()
    router.set_tenant("acme", [PER_DAY.at(0.0)])
    with pytest.raises(BudgetSpent, match=r"or raise the bound$") as refused:
        router.decide(tenant="acme")
    router.save(tmp_path / "router.bylot")
    loaded = bylot.Router.load(tmp_path / "router.bylot", clock=clock)
    assert loaded.tenant("acme")[0].ends == refused.value.resets_at
    clock.at += 5 * DAY_US
    assert loaded.tenant("acme")[0].ends == refused.value.resets_at + 5 * DAY_US


def test_a_tenant_is_required_and_only_where_it_means_something() -> None:
    router = bylot.Router(make_problem())
    with pytest.raises(DecisionError, match="names none"):
        router.decide()
    with pytest.raises(DecisionError, match="1 to 200 characters"):
        router.decide(tenant="x" * 201)
    with pytest.raises(DecisionError, match="1 to 200 characters"):
        router.decide(tenant=7)  # type: ignore[arg-type]
    plain = bylot.Router(bylot.Problem(EXPERTS, COSTS, draws=2))
    with pytest.raises(DecisionError, match=r"^this router has .*; leave out tenant 'acme'$"):
        plain.decide(tenant="acme")
    with pytest.raises(ProblemError, match=r"put it in a list: \[at_most"):
        router.set_tenant("acme", PER_DAY)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="expected a list of limits"):
        router.set_tenant("acme", 5)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="no limits for each tenant"):
        plain.tenant("acme")
    with pytest.raises(PolicyError, match="usd per day for each tenant"):
        router.set_tenant("acme", [bylot.at_most("usd", 5, per="month", scope="tenant")])
    with pytest.raises(PolicyError, match="two bounds"):
        router.set_tenant("acme", [PER_DAY, PER_DAY])
    with pytest.raises(ProblemError, match="no window"):
        bylot.at_most("usd", 5, scope="tenant")
    with pytest.raises(ProblemError, match="tenant"):
        bylot.at_most("usd", 5, per="day", scope="user")  # type: ignore[arg-type]
    for policy in ("distinct:guard=false", "noisy-or:guard=false", "omd", "random"):
        with pytest.raises(PolicyError, match="of each tenant"):
            bylot.Router(make_problem(), policy=policy)
    assert router.t == 0


@pytest.mark.parametrize(
    "policy", ["distinct", "tangent", "noisy-or:explore=0.1", "omd:guard=true", "random:guard=true"]
)
def test_every_policy_with_a_guard_keeps_the_budget_of_each_tenant(policy: str) -> None:
    clock, rng = Clock(), np.random.default_rng(5)
    times = Traffic("flat", per_day=300, start="2026-03-20", zone=ZONE).arrivals_until(6, 1)
    tenants = rng.choice(["busy", "b", "c"], len(times), p=[0.6, 0.3, 0.1])
    router = bylot.Router(make_problem(), policy=policy, clock=clock, seed=2)
    spent = play(router, clock, times, tenants)
    assert max(spent.values()) <= 40.0 + 1e-9
    days = [cost for (tenant, _), cost in spent.items() if tenant == "busy"]
    assert len(days) >= 6
    assert min(days) > 30.0, "whose requests would cost more than the budget"


def test_a_saved_router_goes_on_with_the_same_ledgers(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "router.bylot"
    router = bylot.Router(
        make_problem(PER_DAY.at(900.0), max_costs={"usd": [9.0] * 6}), clock=clock
    )
    router.set_tenant("t1", [PER_DAY.at(800.0)])
    for n in range(150):
        clock.at += 30_000_000
        decision = router.decide(tenant=f"t{n % 3}")
        if n % 2:
            router.reward(decision.id, 0.5, spend={"usd": 0.7})
    router.save(path)
    again = bylot.Router.load(path)
    again.clock = clock
    assert again.tenant("t1") == router.tenant("t1")
    assert router.tenant("t1")[0].reserved > 0, "calls without a report may cost their maximum"
    for n in range(60):
        clock.at += 30_000_000
        one, other = (each.decide(tenant=f"t{n % 3}") for each in (router, again))
        assert one == other
        for each in (router, again):
            each.reward(one.id, 0.3, spend={"usd": 0.9})
    assert again.tenant("t2") == router.tenant("t2")


def test_with_largest_costs_no_tenant_exceeds_its_budget_whatever_calls_cost() -> None:
    most = [3 * cost for cost in COSTS["usd"]]
    logged, rng = (
        LoggedRouter(make_problem(max_costs={"usd": most}), "auto"),
        np.random.default_rng(1),
    )
    spent, open_calls = defaultdict[tuple[str, int], float](float), list[tuple[int, str, int]]()
    for n in range(1_200):
        at, tenant = START + n * 240_000_000, f"t{int(rng.integers(4))}"
        try:
            seq = logged.decide(at, tenant=tenant)
        except BudgetSpent:
            continue
        open_calls.append((seq, tenant, at))
        while open_calls and rng.random() < 0.55:
            seq, whose, when = open_calls.pop(int(rng.integers(len(open_calls))))
            cost = decode_decision(logged.log[seq]).spend["usd"] * float(rng.choice([0.1, 3.0]))
            spent[whose, find_window(Calendar("day", ZONE), when).start] += cost
            logged.reward(seq, 0.5, at, spend={"usd": cost})
    assert max(spent.values()) <= 40.0 * (1 + 1e-9)
    assert max(spent.values()) > 30.0, "the test above would pass if nothing were spent"
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


def test_a_refused_request_leaves_no_trace_not_even_of_a_new_tenant() -> None:
    logged = LoggedRouter(make_problem(PER_DAY.at(1.0)), "auto")
    at = START
    before = logged.aggregate.fingerprint()
    with pytest.raises(BudgetSpent, match="for tenant 'new'"):
        logged.decide(at, tenant="new")
    assert logged.aggregate.fingerprint() == before
    logged.aggregate.core.book.get_keyed().set_bounds(("tenant", "new"), (PER_DAY.at(50.0),))
    logged.decide(at, tenant="new")


EDITS = [
    [PER_DAY],
    [PER_DAY.at(20.0)],
    [bylot.at_most("usd", 40.0, per="day", zone="America/New_York", scope="tenant")],
    [PER_DAY, bylot.at_most("usd", 90.0, per="week", zone=ZONE, scope="tenant")],
    [bylot.at_most("usd", 90.0, per="week", zone=ZONE, scope="tenant")],
    [PER_DAY, bylot.at_most("usd", 90.0, per="day", zone=ZONE)],
    [bylot.at_most("usd", 90.0, per="day", zone=ZONE)],
]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_ledgers_agree_with_what_was_paid(seed: int) -> None:
    """Random decisions, cancellations, reports, own bounds and edits; the log replays."""
    rng, at = np.random.default_rng(seed), START
    logged = LoggedRouter(make_problem(), "auto")
    paid: dict[int, tuple[str, int, float]] = {}  # decisions: whose, when, what they cost
    edited = 0  # when the current limits for each tenant began to count
    for _ in range(220):
        at += int(rng.choice([60, 1_800, 20_000, 100_000], p=[0.6, 0.3, 0.08, 0.02])) * 1_000_000
        what, core = rng.random(), logged.aggregate.core
        if what < 0.8:
            tenant = f"t{int(rng.integers(6))}" if core.book.keyed else None
            try:
                seq = logged.decide(at, defer=what < 0.1, tenant=tenant)
            except BudgetSpent:
                continue
            made = decode_decision(logged.log[seq])
            assert made.keys.get("tenant") == tenant
            paid[seq] = tenant or "", at, made.spend["usd"]
            if what < 0.1 and rng.random() < 0.7:
                logged.append(logged.aggregate.cancel(at, seq))
                del paid[seq]
            elif what > 0.1:
                cost = float(made.spend["usd"] * rng.uniform(0.2, 1.0))
                logged.reward(seq, 0.5, at, spend={"usd": cost})
                paid[seq] = tenant or "", at, cost
        elif what < 0.84 and core.book.keyed:
            limits = tuple(core.book.keyed.limits.values())[:1]
            own = () if what < 0.81 else tuple(one.at(30.0) for one in limits)
            command = SetTenant("triage", "t1", own)
            logged.append(logged.aggregate.set_tenant(at, command))
        elif what < 0.87:
            chosen = EDITS[rng.integers(len(EDITS))]
            known = [one.key for one in core.problem.limits if one.scope]
            logged.edit(make_problem(*chosen), at)
            if not all(one.key in known for one in chosen if one.scope):
                edited = at
        core = logged.aggregate.core
        assert core.policy.is_valid_state(core.rule, core.state)
        assert is_possible(core.book.tables)
        for tenant in (f"t{n}" for n in range(6)):
            for now in core.book.measure_key("tenant", tenant, at) if core.book.keyed else ():
                since = max(now.starts, edited)
                least, most = (
                    sum(cost for whose, when, cost in paid.values() if whose == tenant and when > x)
                    for x in (since, now.starts - 7 * DAY_US)
                )
                assert least - 1e-6 <= now.spent <= most + 1e-6, (tenant, now, least, most)
                if edited == 0:
                    exact = sum(
                        cost
                        for whose, when, cost in paid.values()
                        if whose == tenant and when >= now.starts
                    )
                    assert now.spent == pytest.approx(exact, abs=1e-6)
    logged.reopen()
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
