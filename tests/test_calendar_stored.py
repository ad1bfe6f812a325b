"""Limits of the calendar in stored routers: the log replays bit for bit, whatever the machine knows
about time zones; nothing is charged twice, and refused requests are counted.
"""

from typing import Any

import numpy as np
import pytest

import bylot
from bylot.environments import Traffic
from bylot.errors import BudgetSpent, InfeasibleLimits
from bylot.limits import windows
from bylot.limits.binding import is_possible
from limit_tables import get_limits
from live_server import ServerClient
from logged_aggregate import LoggedRouter, decode_decision, make_config
from test_calendar_limits import COSTS, EXPERTS, PARTNER, ZONE, make_problem, sum_windows

POLICIES = ["distinct", "noisy-or", "tangent"]


def play(logged: LoggedRouter, times: list[int], seed: int = 0) -> int:
    """Decide at these times, with rewards and costs, some late; returns how many were refused."""
    rng, refused, waiting = np.random.default_rng(seed), 0, list[int]()
    for at in times:
        try:
            waiting.append(logged.decide(at))
        except BudgetSpent:
            refused += 1
        while waiting and rng.random() < 0.6:
            spend = {"usd": float(rng.uniform(0.2, 3.0))} if rng.random() < 0.5 else None
            logged.reward(waiting.pop(0), float(rng.random()), at, spend=spend)
    return refused


@pytest.mark.parametrize("policy", POLICIES)
def test_the_log_replays_without_a_database_of_time_zones(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = Traffic("bursts", per_day=60, start="2026-03-26", zone=ZONE).arrivals(600, 1).tolist()
    logged = LoggedRouter(make_problem(60.0), policy)
    refused = play(logged, times[:300])
    logged.reopen()
    refused += play(logged, times[300:], seed=1)
    assert refused > 0
    filled = [one for one in logged.log if one.kind == "decided" and decode_decision(one).tables]
    assert 1 <= len(filled) < 10, "tables are filled rarely"

    def forget_zones(*given: Any) -> Any:
        raise AssertionError("a replay must not ask for time zones")

    monkeypatch.setattr(windows, "list_edges", forget_zones)
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


def test_refused_requests_are_in_the_next_decision_and_in_the_forecast() -> None:
    times = Traffic("flat", per_day=400, start="2026-05-04", zone=ZONE).arrivals(800, 1).tolist()
    logged = LoggedRouter(make_problem(60.0))
    refused = play(logged, times)
    decided = [decode_decision(one) for one in logged.log if one.kind == "decided"]
    counted = [requests for one in decided for _, requests in one.refused]
    waiting = sum(logged.aggregate.core.book.refused.values())
    assert sum(counted) + waiting == refused > 100
    assert logged.aggregate.tally.counters.refused == sum(counted)
    known = get_limits(logged.aggregate.core).state.hours["before"]
    assert known[-1] / 7 == pytest.approx(400, rel=0.25), "requests per day, refused ones too"


def test_a_refused_request_changes_nothing_but_a_count() -> None:
    logged = LoggedRouter(make_problem(10.0))
    at = 1_777_000_000_000_000
    while play(logged, [at]) == 0:
        at += 1
    before, counted = (
        logged.aggregate.fingerprint(),
        sum(logged.aggregate.core.book.refused.values()),
    )
    with pytest.raises(BudgetSpent) as spent:
        logged.decide(at + 200)
    assert logged.aggregate.fingerprint() == before
    assert sum(logged.aggregate.core.book.refused.values()) == counted + 1 == 2
    event = logged.decide(spent.value.resets_at)
    assert sum(n for _, n in decode_decision(logged.log[event]).refused) == 2


def test_settled_spend_of_every_window_equals_the_log() -> None:
    times = Traffic("weekend", per_day=80, start="2026-03-20", zone=ZONE).arrivals(1_200, 2)
    problem = bylot.Problem(
        EXPERTS,
        COSTS,
        [bylot.at_most("usd", 160.0, per="day", zone=ZONE)],
        draws=2,
        max_costs={"usd": [3 * cost for cost in COSTS["usd"]]},
    )
    logged, rng = LoggedRouter(problem), np.random.default_rng(3)
    spent = np.zeros(len(times))
    for n, at in enumerate(times.tolist()):
        try:
            seq = logged.decide(at)
        except BudgetSpent:
            continue
        declared = decode_decision(logged.log[seq]).spend["usd"]
        spent[n] = declared
        if rng.random() < 0.9:
            spent[n] = declared * rng.uniform(0.1, 3.0)
            logged.reward(seq, 0.5, at, spend={"usd": float(spent[n])})
    days = sum_windows(times, spent, "day")
    assert days.max() <= 160.0 * (1 + 1e-12), "certain, whatever calls cost up to max_costs"
    status = logged.aggregate.status()
    window = status.limits[0].window
    assert window is not None
    assert window.spent == pytest.approx(days[-1], rel=1e-12)
    assert status.limits[0].current is not None
    assert status.limits[0].current.promise == "certain"
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


def test_over_http_a_spent_budget_is_429_until_its_window_ends(server: ServerClient) -> None:
    limit = {"cost": "usd", "at_most": 12.0, "per": "day", "when_spent": "refuse"}
    problem = {"experts": EXPERTS, "costs": COSTS, "limits": [limit], "draws": 2}
    path = server.create_router(problem=problem)
    answers = [server.post(f"{path}/decisions", json={}) for _ in range(40)]
    made = [one.json() for one in answers if one.status_code == 201]
    refused = [one for one in answers if one.status_code != 201]
    assert 1 <= len(made) < 12
    assert sum(one["spend"]["usd"] for one in made) <= 12.0
    assert {one.status_code for one in refused} == {429}
    error = refused[0].json()["error"]
    assert error["code"] == "budget_spent"
    assert "00:00 UTC" in error["message"]
    assert 1 <= int(refused[0].headers["retry-after"]) <= 86_400
    batch = server.post(f"{path}/decisions:batch", json={"decisions": [{}, {}]}).json()
    assert {one["error"]["code"] for one in batch["results"]} == {"budget_spent"}
    status = server.get(f"{path}/status").json()
    assert status["limits"][0]["verdict"] == "spent"
    assert status["counters"]["refused"] == len(refused) + 2


def test_a_cancelled_decision_leaves_its_window() -> None:
    logged, at = LoggedRouter(make_problem(100.0)), 1_777_000_000_000_000
    logged.decide(at)
    second = logged.decide(at + 1, defer=True)
    logged.append(logged.aggregate.cancel(at + 2, second))
    window = logged.aggregate.status().limits[0].window
    assert window is not None
    assert window.requests == 1
    assert window.spent == pytest.approx(decode_decision(logged.log[1]).spend["usd"])
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


def test_an_edit_keeps_windows_and_what_was_learned_about_the_traffic() -> None:
    times = Traffic("flat", per_day=300, start="2026-05-04", zone=ZONE).arrivals(700, 1).tolist()
    logged = LoggedRouter(make_problem(500.0))
    play(logged, times)
    before = logged.aggregate.status().limits
    traffic = logged.aggregate.core.problem.traffic
    logged.edit(make_problem(800.0), times[-1])
    after = logged.aggregate.status().limits
    assert traffic is not None
    assert logged.aggregate.core.problem.traffic == traffic
    for was, now in zip(before, after, strict=True):
        assert was.window is not None
        assert now.window is not None
        assert now.window.spent == pytest.approx(was.window.spent, rel=1e-12)
        assert now.window.requests == was.window.requests
    play(logged, [times[-1] + n for n in range(50)])
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
    assert make_config(make_problem(800.0)).problem == logged.aggregate.config.problem


def test_experts_can_be_paused_under_budgets_of_several_windows() -> None:
    logged, at = LoggedRouter(make_problem(100.0)), 1_777_000_000_000_000
    logged.decide(at)
    logged.edit(at=at, paused=("e0", "e1"))
    for n in range(20):
        panel = decode_decision(logged.log[logged.decide(at + n)]).draws
        assert not {"e0", "e1"} & set(panel)
    with pytest.raises(InfeasibleLimits, match="paused"):
        logged.edit(at=at, paused=("e2", "e4"))  # the partners
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()


HOUR, DAY = 3_600_000_000, 86_400_000_000
EDITS = [
    [bylot.at_most("usd", 150.0, per="day", zone=ZONE)],
    [bylot.at_most("usd", 90.0, per="day", zone=ZONE)],
    [bylot.at_most("usd", 150.0, per="day", zone="America/New_York")],
    [bylot.at_most("usd", 30.0, per="hour"), bylot.at_most("usd", 150.0, per="day", zone=ZONE)],
    [bylot.at_most("usd", 600.0, per="week", zone="Asia/Kolkata")],
    [bylot.at_most("usd", 900.0, per="month"), bylot.at_least(PARTNER, 0.1, per="week")],
]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_windows_agree_with_what_was_paid(seed: int) -> None:
    """Random decisions, cancellations, reports, pauses and edits of bounds, windows and zones."""
    rng, at = np.random.default_rng(seed), 1_774_000_000_000_000
    logged = LoggedRouter(bylot.Problem(EXPERTS, COSTS, EDITS[0], draws=2))
    paid: dict[int, tuple[int, float]] = {}  # decisions: when, and what they cost by now
    for _ in range(250):
        at += int(rng.choice([60, 1_800, 20_000, 100_000], p=[0.6, 0.3, 0.08, 0.02])) * 1_000_000
        what = rng.random()
        if what < 0.75:
            try:
                seq = logged.decide(at, defer=what < 0.1)
            except BudgetSpent:
                continue
            made = decode_decision(logged.log[seq])
            paid[seq] = at, made.spend["usd"]
            if what < 0.1 and rng.random() < 0.7:
                logged.append(logged.aggregate.cancel(at, seq))
                del paid[seq]
            elif what > 0.1:
                cost = float(made.spend["usd"] * rng.uniform(0.2, 1.0))
                logged.reward(seq, 0.5, at, spend={"usd": cost})
                paid[seq] = at, cost
        elif what < 0.8:
            limits = EDITS[rng.integers(len(EDITS))]
            logged.edit(bylot.Problem(EXPERTS, COSTS, limits, draws=2), at)
        core = logged.aggregate.core
        assert core.policy.is_valid_state(core.rule, core.state)
        assert is_possible(core.book.tables)
        for one in logged.aggregate.status(at).limits:
            if one.window is not None and one.cost == "usd":
                assert one.window.starts <= at < one.window.ends
                start = one.window.starts
                least, most = (
                    sum(cost for when, cost in paid.values() if when >= since)
                    for since in (start, start - start % HOUR)
                )
                assert least - 1e-6 <= one.window.spent <= most + 1e-6, (one, least, most)
    logged.reopen()
    assert logged.replay_log().fingerprint() == logged.aggregate.fingerprint()
