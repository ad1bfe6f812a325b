"""Limits per hour, day, week and month: windows are kept, whatever the traffic; plays continue."""

import math
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import bylot
from bylot.environments import Noisy, Traffic
from bylot.errors import BudgetSpent, DecisionError, PolicyError, ProblemError, ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.problem.calendar import Calendar, list_edges
from bylot.router.status import RouterStatus

EXPERTS = [f"e{i}" for i in range(6)]
COSTS = {"usd": [0.5, 0.7, 1.0, 2.0, 3.0, 5.0]}
MEANS = [[0.2, 0.3, 0.4, 0.5, 0.7, 0.8]]
ZONE = "Europe/Berlin"
PARTNER = bylot.share("partner", ["e2", "e4"])
POLICIES = ("distinct", "noisy-or", "tangent")


def make_problem(
    per_day: float = 300.0, when_spent: str = "cheapest", **more: object
) -> bylot.Problem:
    limits = [
        bylot.at_most("usd", per_day, per="day", zone=ZONE, when_spent=when_spent),  # type: ignore[arg-type]
        bylot.at_most("usd", 25 * per_day, per="month", zone=ZONE),
        bylot.at_least(PARTNER, 0.1, per="week", zone=ZONE),
    ]
    return bylot.Problem(EXPERTS, COSTS, limits, draws=2, **more)  # type: ignore[arg-type]


def sum_windows(times: Ints, amounts: Floats, per: str) -> Floats:
    """The amounts of each window of the calendar."""
    edges = list_edges(Calendar(per, ZONE), int(times[0]), 2_000)  # type: ignore[arg-type]
    return np.asarray(np.bincount(np.searchsorted(edges, times, side="right") - 1, amounts), float)


def make_budget_router(per_day: float, now: list[float]) -> bylot.Router:
    """A router with a budget per day, whose clock is the number in a list."""
    limits = [bylot.at_most("usd", per_day, per="day")]
    problem = bylot.Problem(EXPERTS, COSTS, limits, draws=2)
    return bylot.Router(problem, "distinct", seed=1, clock=lambda: now[0])


def read_forecast(router: bylot.Router) -> float:
    window = router.status().limits[0].window
    assert window is not None
    return window.to_come


def test_a_burst_of_seconds_is_not_extrapolated_to_the_whole_day() -> None:
    """Before, 600 requests in 7 s were forecast to become 1.5 million: the cheapest panels only."""
    now = [datetime(2026, 3, 2, tzinfo=UTC).timestamp()]
    router = make_budget_router(60_000.0, now)
    for _ in range(600):
        router.decide()
        now[0] += 7 / 600
    assert 600 < read_forecast(router) < 30_000
    cost = 0.0
    for _ in range(60):
        now[0] += 60
        cost += router.decide().spend["usd"]
    cheapest = sum(sorted(COSTS["usd"])[:2])
    assert cost / 60 > 1.3 * cheapest
    assert read_forecast(router) < 16_000, "an hour later, about half of it"


def test_a_budget_that_a_burst_would_exceed_will_run_out() -> None:
    now = [datetime(2026, 3, 2, tzinfo=UTC).timestamp()]
    router = make_budget_router(3_000.0, now)
    for _ in range(600):
        router.decide()
        now[0] += 7 / 600
        if router.status().decisions == 10:
            assert router.status().limits[0].verdict == "on track", "a few say nothing yet"
    (limit,) = router.status().limits
    assert (limit.verdict, limit.kept) == ("will run out", True)
    assert "; requests will be refused from 2026-03-02 " in limit.sentence
    assert limit.window is not None
    assert limit.window.refused_from is not None
    assert limit.window.lasts_until is not None
    assert limit.window.lasts_until <= limit.window.refused_from < limit.window.ends
    state = router.status().state
    assert (state.level, state.name) == ("attention", "will run out")
    now[0] += 4 * 3_600
    router.decide()
    assert router.status().limits[0].verdict == "on track", "no more came in four hours"


def test_even_traffic_is_forecast_within_the_first_hour() -> None:
    now = [datetime(2026, 3, 2, tzinfo=UTC).timestamp()]
    router = make_budget_router(60_000.0, now)
    for _ in range(359):
        router.decide()
        now[0] += 10
    assert 0.9 < read_forecast(router) / (23 * 360) < 1.1


def test_a_steady_flow_is_served_in_the_first_hour_of_a_budget_per_hour() -> None:
    """A forecast that is too low spends the budget early, and refuses the rest of the hour."""
    now = [datetime(2026, 3, 2, tzinfo=UTC).timestamp()]
    limit = bylot.at_most("usd", 1.2 * 3_600 * 0.1, per="hour", when_spent="refuse")
    problem = bylot.Problem(["a", "b", "c"], {"usd": [0.1, 0.4, 1.0]}, [limit], draws=1)
    router = bylot.Router(problem, "distinct", clock=lambda: now[0])
    for _ in range(3_600):
        router.decide()  # BudgetSpent is an error
        now[0] += 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", ["weekend", "bursts"])
def test_no_window_exceeds_its_budget_and_weekly_minima_are_met(policy: str, shape: str) -> None:
    times = Traffic(shape, per_day=150, start="2026-03-20", zone=ZONE).arrivals_until(45, 3)  # type: ignore[arg-type]
    problem, env = make_problem(), Noisy(MEANS)
    trace = bylot.simulate(problem, env, policy, rounds=len(times), times=times)
    assert trace.draws[~trace.refused].min() >= 0
    assert sum_windows(times, trace.spend[:, 0], "day").max() <= 300 * (1 + 1e-12)
    assert sum_windows(times, trace.spend[:, 1], "month").max() <= 7_500 * (1 + 1e-12)
    asked = sum_windows(times, (~trace.refused).astype(float), "week")
    assert (sum_windows(times, trace.spend[:, 2], "week") >= 0.1 * asked - 1e-9).all()
    days = sum_windows(times, trace.spend[:, 0], "day")
    assert np.median(days) > 0.6 * 300, "the test above would pass if nothing were spent"


def test_without_the_wall_the_same_traffic_exceeds_the_budget() -> None:
    times = Traffic("bursts", per_day=150, start="2026-03-20", zone=ZONE).arrivals_until(45, 3)
    average = bylot.Problem(EXPERTS, COSTS, [bylot.at_most("usd", 2.0)], draws=2)
    trace = bylot.simulate(average, Noisy(MEANS), "distinct", rounds=len(times))
    assert sum_windows(times, trace.spend[:, 0], "day").max() > 1.2 * 300


@pytest.mark.parametrize("when_spent", ["cheapest", "fewer", "refuse"])
def test_a_spent_budget_refuses_until_its_window_ends(when_spent: str) -> None:
    now = [datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()]  # the day after has 23 hours
    router = bylot.Router(make_problem(10.0, when_spent), clock=lambda: now[0])
    made = []

    def decide_all() -> None:
        for _ in range(100):
            now[0] += 60
            made.append(router.decide())

    with pytest.raises(BudgetSpent, match="2026-03-29 00:00 Europe/Berlin") as refused:
        decide_all()
    sizes, spent = [len(one.subset) for one in made], sum(one.spend["usd"] for one in made)
    least = 0.5 if when_spent == "fewer" else 1.2  # of a panel
    assert 10.0 - least < spent <= 10.0
    assert when_spent == "fewer" or min(sizes) == 2
    assert refused.value.resets_at == datetime(2026, 3, 28, 23, tzinfo=UTC).timestamp() * 1e6
    assert router.status().limits[0].verdict == "spent"
    now[0] = datetime(2026, 3, 28, 23, tzinfo=UTC).timestamp()
    assert router.decide().spend["usd"] > 0
    window = router.status().limits[0].window
    assert window is not None
    assert (window.ends - window.starts) / 3.6e9 == 23


def test_the_seconds_until_a_reset_lead_to_it_also_after_the_clock_was_set_back() -> None:
    router, now = make_clocked_router(bylot.at_most("usd", 5.0, per="day"))
    spend_all(router)
    now[0] -= 40 * 3600
    with pytest.raises(BudgetSpent) as refused:
        router.decide()
    assert refused.value.reset_s is not None
    assert now[0] + refused.value.reset_s == pytest.approx(refused.value.resets_at / 1e6)
    now[0] += refused.value.reset_s
    assert router.decide()


@pytest.mark.parametrize("time", ["12:00", None, "1.8e9", [1.8e9], True, math.nan, -1.0, 1e300])
def test_a_clock_that_returns_no_time_is_refused_and_nothing_is_lost(time: Any) -> None:
    router, now = make_clocked_router(bylot.at_most("usd", 100.0, per="day"))
    first = router.decide()
    right, now[0] = now[0], time
    for ask in (router.decide, router.status, lambda: router.change(make_problem())):
        with pytest.raises(DecisionError, match=r"time of the clock.*seconds since 1970"):
            ask()
    now[0] = right
    assert router.reward(first.id, 0.5) == "learned"
    assert (router.decide().t, router.problem.limits[0].bound) == (1, 100.0)


COUNT_REFUSED = """
import bylot
limits = [bylot.at_most("usd", 1.5)]
router = bylot.Router(bylot.Problem(["a", "b"], {"usd": [1, 2]}, limits, draws=1))
for hour in range(9):
    router.core.book.count_refused(1_790_000_000_000_000 + hour * 3_600_000_000, 1_000_000)
    router.reward(router.decide().id, 0.5)
print(router.status().decisions)
"""


def test_refused_requests_of_a_router_without_windows_are_counted_nowhere() -> None:
    command = [sys.executable, "-c", COUNT_REFUSED]  # it would crash the process
    assert subprocess.check_output(command, text=True) == "9\n"


def test_a_clock_that_is_no_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"invalid clock 1\.8: expected a function"):
        bylot.Router(make_problem(), clock=1.8)  # type: ignore[arg-type]
    bylot.Router(make_problem()).save(tmp_path / "router")
    with pytest.raises(PolicyError, match="invalid clock 'now'"):
        bylot.Router.load(tmp_path / "router", clock="now")  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_router_plays_as_the_simulator_does_also_when_saved_half_way(
    policy: str, tmp_path: Path
) -> None:
    times = Traffic("bursts", per_day=200, start="2026-03-26", zone=ZONE).arrivals(1_500, 0)
    problem, env = make_problem(90.0), Noisy(MEANS)
    trace = bylot.simulate(problem, env, policy, rounds=len(times), seed=5, times=times)
    values, _ = env.rounds(0, len(times), 5)
    now = [0.0]
    router = bylot.Router(problem, policy, seed=5, clock=lambda: now[0])
    for t, at in enumerate(times.tolist()):
        now[0] = at / 1e6
        if t == 700:
            router.save(tmp_path / "router.bylot")
            router = bylot.Router.load(tmp_path / "router.bylot")
            router.clock = lambda: now[0]
        if trace.refused[t]:
            with pytest.raises(BudgetSpent):
                router.decide()
            continue
        decision = router.decide()
        assert [EXPERTS.index(name) for name in decision.draws] == trace.draws[t].tolist(), t
        router.reward(decision.id, float(values[t, 0, trace.draws[t]].max()))
    assert trace.refused.any()
    assert router.problem.traffic is not None, "the policy was bound again, and that is equal too"


def test_an_edit_keeps_what_was_spent() -> None:
    now = [datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()]
    router = bylot.Router(make_problem(100.0), clock=lambda: now[0])
    spent = sum(router.decide().spend["usd"] for _ in range(10))
    router.change(make_problem(200.0))
    limits = router.status().limits
    known = [one.window and round(one.window.spent, 9) for one in limits[:2]]
    assert known == [round(spent, 9)] * 2
    weekly = bylot.at_most("usd", 900, per="week", zone=ZONE)
    router.change(router.problem.replace(limits=[weekly, *router.problem.limits[1:]]))
    window = router.status().limits[0].window
    assert window is not None
    assert math.isclose(window.spent, spent), "a new limit knows what the month has spent"
    assert math.isclose(spent + router.decide().spend["usd"], sum_status(router, 1))


def test_a_status_can_be_sent_as_json() -> None:
    now = [datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()]
    router = bylot.Router(make_problem(), clock=lambda: now[0])
    for _ in range(30):
        router.decide()
        status = router.status()
        assert msgspec.json.decode(msgspec.json.encode(status), type=RouterStatus) == status


def sum_status(router: bylot.Router, j: int) -> float:
    window = router.status().limits[j].window
    assert window is not None
    return window.spent


def test_reported_costs_count_in_the_window_of_their_decision() -> None:
    now = [datetime(2026, 5, 1, 21, 59, tzinfo=UTC).timestamp()]  # a minute before midnight
    router = bylot.Router(make_problem(), clock=lambda: now[0])
    first = router.decide()
    now[0] += 120
    second = router.decide()
    router.reward(first.id, 0.5, spend={"usd": 50.0})
    assert math.isclose(sum_status(router, 0), second.spend["usd"])
    assert math.isclose(sum_status(router, 1), 50.0 + second.spend["usd"]), "of the month"
    router.reward(second.id, 0.5, spend={"usd": 2.0})
    assert math.isclose(sum_status(router, 0), 2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bylot.at_most("usd", 5, per="year"), "per"),  # type: ignore[arg-type]
        (lambda: bylot.at_most("usd", 5, per="day", zone="Europe/Berlni"), "Europe/Berlin"),
        (lambda: bylot.at_most("usd", 5, zone="Europe/Berlin"), "no window"),
        (lambda: bylot.at_most("usd", 5, per="day", when_spent="stop"), "refuse"),  # type: ignore[arg-type]
        (lambda: bylot.at_least("usd", 5, per="day"), "share"),
        (lambda: bylot.at_most(PARTNER, 1, per="day", when_spent="refuse"), "never spent"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(make: object, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        make()  # type: ignore[operator]


def test_policies_without_a_guard_refuse_limits_of_the_calendar() -> None:
    for policy in ("omd", "cucb", "random", "strict"):
        with pytest.raises(PolicyError, match="per hour, day, week or month"):
            bylot.Router(make_problem(), policy)


def test_a_simulation_with_limits_of_the_calendar_needs_times() -> None:
    with pytest.raises(ValuesError, match="when requests arrive"):
        bylot.simulate(make_problem(), Noisy(MEANS), rounds=10)
    with pytest.raises(ValuesError, match="never go back"):
        bylot.simulate(make_problem(), Noisy(MEANS), rounds=2, times=np.array([2, 1]))


def test_limits_survive_data() -> None:
    for limit in make_problem(when_spent="refuse").limits:
        assert bylot.Limit.from_data(limit.to_data()) == limit


def make_clocked_router(*limits: bylot.Limit) -> tuple[bylot.Router, list[float]]:
    """A router under these limits, and its clock."""
    now = [datetime(2026, 5, 10, 12, tzinfo=UTC).timestamp()]
    problem = bylot.Problem(EXPERTS, COSTS, limits, draws=2)
    return bylot.Router(problem, clock=lambda: now[0]), now


def spend_all(router: bylot.Router) -> float:
    """Decide until a request is refused; what that cost."""
    spent = 0.0
    while True:
        try:
            spent += router.decide().spend["usd"]
        except BudgetSpent:
            return spent


def test_a_budget_below_the_cheapest_panel_refuses_every_request() -> None:
    router, now = make_clocked_router(bylot.at_most("usd", 1.1, per="day"))
    for day in (11, 12, 13):
        with pytest.raises(BudgetSpent, match=f"after 2026-05-{day} 00:00 UTC") as refused:
            router.decide()
        assert refused.value.reset_s == 43_200
        now[0] += 86_400


def test_a_new_day_is_not_refused_for_what_the_day_before_has_spent() -> None:
    router, now = make_clocked_router(
        bylot.at_most("usd", 10.0, per="day"), bylot.at_most("usd", 12.0, per="month")
    )
    first = spend_all(router)
    assert 8.8 < first <= 10.0
    now[0] += 86_400
    second = spend_all(router)
    assert second > 0, "the month leaves a cheap panel or two"
    assert first + second <= 12.0


def test_of_two_spent_budgets_the_later_reset_is_named() -> None:
    router, _ = make_clocked_router(
        bylot.at_most("usd", 10.0, per="day"), bylot.at_most("usd", 10.0, per="month")
    )
    spend_all(router)
    with pytest.raises(BudgetSpent, match="2026-06-01 00:00 UTC"):
        router.decide()


def test_a_window_with_few_requests_has_a_bound_of_its_own_at_once() -> None:
    times = Traffic("flat", per_day=240, start="2026-05-04").arrivals(2_400, 0)  # ten an hour
    problem = bylot.Problem(EXPERTS, COSTS, [bylot.at_most("usd", 20.0, per="hour")], draws=2)
    trace = bylot.simulate(problem, Noisy(MEANS), rounds=2_400, times=times)
    hours = (times - times[0] + times[0] % 3_600_000_000) // 3_600_000_000
    spent = np.bincount(hours, trace.spend[:, 0])[24:]
    assert spent.max() <= 20.0 * (1 + 1e-12)
    assert spent.mean() > 0.75 * 20.0


def test_each_row_of_a_printed_status_has_one_unit() -> None:
    """Dollars per day in the row of a budget per day, dollars per request in that of an average."""
    problem = bylot.Problem(
        [f"m{i}" for i in range(8)],
        {"usd": [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0]},
        [bylot.at_most("usd", 500.0, per="day"), bylot.at_most("usd", 4.5)],
        draws=2,
        traffic=100,
    )
    router = bylot.Router(problem, "noisy-or", seed=1, clock=lambda: 1_790_000_000.0)
    for _ in range(20):
        router.reward(router.decide().id, 0.5)
    status = router.status()
    head, day, request, *_, shares = str(status).splitlines()[1:]
    assert head.split()[:5] == ["limit", "unit", "average", "bound", "slack"]
    day_status, request_status = status.limits
    assert day_status.is_total
    assert not request_status.is_total
    assert day_status.window is not None
    spent = f"{day_status.window.spent:.4g}"
    assert day.split()[:10] == [
        *("usd", "per", "day", "<=", "per", "day"),
        *("-", "500", f"{500 - day_status.window.spent:.4g}", spent),
    ]
    mean = f"{request_status.mean:.4g}"
    assert request.split()[:6] == ["usd", "<=", "per", "request", mean, "4.5"]
    assert shares.endswith(" and 2 more")
    assert shares.count("%") == 6
