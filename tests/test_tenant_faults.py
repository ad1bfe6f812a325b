"""Limits of tenants, contexts and the calendar after edits, late reports and refused requests: what
was spent stays exact, nothing that was refused leaves a trace, and logs replay.
"""

import copy
from typing import Any

import pytest

import bylot
from bylot.errors import BudgetSpent, DecisionError, ProblemError
from bylot.eventlog.commands import ReplaceMember, SetTenant
from limit_tables import get_limits
from logged_aggregate import LoggedRouter, decode_decision
from test_calendar_limits import COSTS, EXPERTS, PARTNER, ZONE
from test_tenants import DAY_US, PER_DAY, START, Clock, make_problem

HOUR_US = 3_600_000_000
ICU = {"context": ["icu"]}


def check_replay(logged: LoggedRouter) -> None:
    """A snapshot and a replay give the same router."""
    logged.reopen()
    logged.append(logged.aggregate.seal_segment()[1])
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


def spend_all(router: bylot.Router, raises: bool = False) -> None:
    """Decide for tenant x until its budget is spent."""
    for _ in range(1_000):
        try:
            router.decide(tenant="x")
        except BudgetSpent:
            if raises:
                raise
            return


@pytest.mark.parametrize("how", ["all", "own"])
def test_windows_before_a_lowered_bound_are_not_judged_again(how: str) -> None:
    logged, tomorrow = LoggedRouter(make_problem(), "auto"), START + DAY_US
    old = [logged.decide(START, tenant="x") for _ in range(10)]
    logged.decide(tomorrow, tenant="x")
    if how == "all":
        logged.edit(make_problem(PER_DAY.at(8.0)), tomorrow)
    else:
        command = SetTenant("triage", "x", (PER_DAY.at(8.0),))
        logged.append(logged.aggregate.set_tenant(tomorrow, command))
    for seq in old:
        logged.reward(seq, 0.5, tomorrow, spend={"usd": 0.1})
    assert get_limits(logged.aggregate.core).state.learned["missed"].tolist() == [0]
    check_replay(logged)


def test_a_period_of_a_group_is_judged_by_its_own_requests() -> None:
    limit = bylot.at_most("usd", 3.0, where=ICU)
    router = bylot.Router(make_problem(limit, period=20))
    made = [router.decide("icu" if n % 10 == 0 else "ward") for n in range(210)]
    for decision in made[:200:10]:  # the period before, at 5 on average
        router.reward(decision.id, 0.5, spend={"usd": 5.0})
    assert get_limits(router.core).state.learned["missed"].tolist() == [1]
    minimum = bylot.at_least("usd", 2.0, where=ICU)
    logged = LoggedRouter(make_problem(minimum, period=20), "auto", max_contexts=5)
    seqs = [logged.decide(n, context="icu" if n % 40 == 0 else "ward") for n in range(820)]
    for seq in seqs[40:800:40]:
        logged.reward(seq, 0.5, 900, spend={"usd": 100.0})
    check_replay(logged)


def test_a_refused_request_of_a_group_leaves_no_trace() -> None:
    limit = bylot.at_most("usd", 1.3, per="day", where=ICU)
    logged = LoggedRouter(make_problem(limit), "auto", max_contexts=9)
    for context in ("ward", "icu", "ward"):
        logged.decide(START, context=context)
    before = logged.aggregate.fingerprint()
    with pytest.raises(BudgetSpent):
        logged.decide(START, context="icu")
    assert logged.aggregate.fingerprint() == before
    check_replay(logged)


def test_a_refused_request_of_a_tenant_after_an_edit_leaves_no_trace() -> None:
    logged = LoggedRouter(make_problem(bylot.at_most("usd", 400, per="day")), "noisy-or")
    logged.decide(START)
    logged.edit(make_problem(PER_DAY.at(1.0)), START)
    before = logged.aggregate.fingerprint()
    with pytest.raises(BudgetSpent):
        logged.decide(START, tenant="x")
    assert logged.aggregate.fingerprint() == before
    check_replay(logged)


def test_slots_are_used_in_the_same_order_after_a_restart() -> None:
    logged = LoggedRouter(make_problem(), "auto")
    for n in range(64):
        logged.decide(START, tenant=f"a{n}")
    for day in (1, 2, 3):
        logged.decide(START + day * DAY_US, tenant="a0")
    logged.decide(START + 3 * DAY_US, tenant="b0")  # archives the others
    logged.reopen()
    logged.decide(START + 3 * DAY_US, tenant="b1")
    check_replay(logged)


def test_panels_of_several_sizes_keep_budgets_of_the_calendar() -> None:
    clock = Clock()
    router = bylot.Router(make_problem(min_draws=1), clock=clock)
    spend_all(router)
    assert 30.0 < router.tenant("x")[0].spent <= 40.0
    with pytest.raises(bylot.errors.PolicyError, match="guard"):
        bylot.Router(make_problem(bylot.at_most("usd", 9, per="day")), "noisy-or:guard=false")


def test_largest_costs_that_are_edited_release_no_reserve_of_open_calls() -> None:
    costs = COSTS["usd"]
    logged = LoggedRouter(make_problem(max_costs={"usd": [3 * x for x in costs]}), "auto")

    def find_spend(seq: int) -> float:
        return decode_decision(logged.log[seq]).spend["usd"]

    old = [logged.decide(START, tenant="x") for _ in range(9)]
    logged.edit(make_problem(max_costs={"usd": [20 * x for x in costs]}), START)
    paid = find_spend(old[0])
    logged.reward(old[0], 0.5, START, spend={"usd": paid})
    factors = dict.fromkeys(old[1:], 3)
    while len(factors) < 50:
        try:
            factors[logged.decide(START, tenant="x")] = 20
        except BudgetSpent:
            break
    for seq, factor in factors.items():
        paid += factor * find_spend(seq)
        logged.reward(seq, 0.5, START, spend={"usd": factor * find_spend(seq)})
    assert paid <= 40.0
    check_replay(logged)


def test_late_reports_count_in_the_hour_of_their_decision() -> None:
    clock = Clock()
    clock.at = START - START % HOUR_US + 1
    router = bylot.Router(make_problem(bylot.at_most("usd", 500.0, per="day")), clock=clock)
    made = [router.decide() for _ in range(20)]
    clock.at += HOUR_US
    spent = router.decide().spend["usd"]
    for decision in made:
        router.reward(decision.id, 0.5, spend={"usd": 0.0})
    router.change(make_problem(bylot.at_most("usd", 10.0, per="hour")))
    window = router.status().limits[0].window
    assert window is not None
    assert window.spent == pytest.approx(spent)


def test_an_edit_long_after_a_window_does_not_move_its_spend() -> None:
    clock = Clock()
    router = bylot.Router(make_problem(PER_DAY.at(20.0)), clock=clock)
    router.decide(tenant="x")
    clock.at += 30 * DAY_US
    router.change(make_problem(bylot.at_most("usd", 20.0, per="week", zone=ZONE, scope="tenant")))
    assert router.tenant("x")[0].spent == 0.0
    router.decide(tenant="x")


def test_a_longer_window_goes_on_from_the_longest_shorter_one() -> None:
    hour, day, month = (
        bylot.at_most("usd", bound, per=per, scope="tenant")  # type: ignore[arg-type]
        for per, bound in (("hour", 30), ("day", 40), ("month", 40))
    )
    clock = Clock()
    router = bylot.Router(make_problem(hour, day), clock=clock)
    for n in range(17):
        clock.at += HOUR_US * (n > 14)
        router.decide(tenant="x")
    router.change(make_problem(hour, day, month))
    spent = {now.per: now.spent for now in router.tenant("x")}
    assert spent["month"] == spent["day"] > spent["hour"]


def test_a_shorter_period_ends_also_for_groups() -> None:
    limit = bylot.at_most("usd", 3.0, where=ICU)
    router = bylot.Router(make_problem(limit, period=500))
    for _ in range(300):
        router.decide("icu")
    router.change(make_problem(limit, period=100))
    for _ in range(250):
        router.decide("icu")
    assert get_limits(router.core).state.ledgers["requests"][0] < 100


def test_an_own_bound_follows_the_zone_of_its_limit() -> None:
    clock = Clock()
    router = bylot.Router(make_problem(), clock=clock)
    router.set_tenant("x", [PER_DAY.at(3.0)])
    router.decide(tenant="x")
    york = bylot.at_most("usd", 40.0, per="day", zone="America/New_York", scope="tenant")
    router.change(make_problem(york))
    with pytest.raises(BudgetSpent) as spent:
        spend_all(router, raises=True)
    assert spent.value.resets_at == router.tenant("x")[0].ends


def test_an_edit_that_fails_changes_nothing() -> None:
    clock = Clock()
    router = bylot.Router(make_problem(), clock=clock)
    router.decide(tenant="x")
    clock.at = START + 365_000 * DAY_US
    with pytest.raises(ProblemError):
        router.change(make_problem(PER_DAY.at(30.0)))
    clock.at = START + 10
    router.decide(tenant="x")


def test_names_of_the_wrong_type_get_a_clear_error() -> None:
    grouped = bylot.Router(make_problem(bylot.at_most("usd", 40, per="day", where=ICU)))
    tenants = bylot.Router(make_problem())
    wrong: tuple[Any, ...] = (7, b"x", ["a"], float("nan"))
    for name in wrong:
        with pytest.raises(DecisionError):
            grouped.decide(name)
        with pytest.raises(DecisionError):
            tenants.decide(tenant=name)
        with pytest.raises(DecisionError):
            tenants.tenant(name)
    for now in (1e15, float("nan"), -1.0):
        with pytest.raises(DecisionError, match="since 1970"):
            bylot.Router(make_problem(), clock=lambda now=now: now).decide(tenant="x")  # type: ignore[misc]


def test_a_copy_keeps_the_clock() -> None:
    clock = Clock()
    router = bylot.Router(make_problem(), clock=clock)
    router.decide(tenant="x")
    other = copy.deepcopy(router)
    assert other.tenant("x") == router.tenant("x")
    assert other.decide(tenant="x") == router.decide(tenant="x")


def test_a_member_of_a_tenants_panel_can_be_replaced() -> None:
    costs = {"usd": [1.0] * 6}
    problem = bylot.Problem(EXPERTS, costs, [PER_DAY, bylot.at_least(PARTNER, 0.1)], draws=2)
    logged = LoggedRouter(problem, "auto")
    seq = logged.decide(START, tenant="x")
    failed = decode_decision(logged.log[seq]).draws[1]
    command = ReplaceMember(f"triage.1.{seq}", failed)
    assert logged.append(logged.aggregate.replace(START, seq, command)) is not None
    window = logged.aggregate.core.book.measure_key("tenant", "x", START)[0]
    assert window.spent == pytest.approx(2.0)
    check_replay(logged)
