"""Clocks that jump: waits take as long as they should, and answers stay possible."""

import logging
from pathlib import Path
from typing import Any

import pytest

from bylot.eventlog.clock import MAX_IDLE_US, SteadyClock
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, GetDecision, GetRouter, MakeDecision, RecordReward
from bylot.eventlog.events import now_us
from bylot.eventlog.repository import RouterRepository
from bylot.store import open_store
from live_server import FIVE_EXPERTS, live_server, wait_until
from logged_aggregate import make_config
from sample_problem import make_five_expert_problem
from stored_router import StoredRouter

SECOND = 1_000_000
HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR
NOW = 56 * YEAR


class FakeMachine:
    """The two clocks of a machine."""

    def __init__(self) -> None:
        self.wall, self.elapsed = NOW, 5 * HOUR

    def advance(self, us: int) -> None:
        self.wall += us
        self.elapsed += us


@pytest.mark.parametrize("jump", [10 * YEAR, -10 * YEAR, HOUR, -HOUR])
def test_a_clock_that_is_set_to_another_time_changes_no_duration(
    jump: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine = FakeMachine()
    clock = SteadyClock(lambda: machine.wall, lambda: machine.elapsed)
    machine.advance(SECOND)
    assert clock() == NOW + SECOND
    machine.wall += jump
    times = [clock()]
    for _ in range(100):
        machine.advance(SECOND // 10)
        times.append(clock())
    assert abs(times[-1] - times[0] - 10 * SECOND) <= SECOND  # within a tenth
    assert times == sorted(times)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    machine.wall -= jump
    machine.advance(100 * SECOND)
    assert clock() == machine.wall  # back to where it should be
    assert len(caplog.records) == 2


def test_a_small_correction_of_the_clock_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    machine = FakeMachine()
    clock = SteadyClock(lambda: machine.wall, lambda: machine.elapsed)
    machine.wall += SECOND
    machine.advance(10 * SECOND)
    assert clock() == machine.wall
    assert not caplog.records


def open_handler(folder: Path) -> CommandHandler:
    """A command handler, as a server has it after a start."""
    return CommandHandler(RouterRepository(open_store(f"sqlite:///{folder}/b.db"), "me"))


def ask(handler: CommandHandler, *commands: Any, at: int) -> list[Any]:
    """Answers, none of them an error, after the sweep that a server makes."""
    while handler.sweep(at):
        pass
    answers = handler.perform(commands, at)
    assert not [one for one in answers if isinstance(one, Exception)], answers
    return answers


@pytest.mark.parametrize("jump", [HOUR, 10 * YEAR])
def test_a_log_with_an_event_in_the_future_gets_right_waits_again(
    jump: int, tmp_path: Path
) -> None:
    handler = open_handler(tmp_path)
    config = make_config(make_five_expert_problem(), wait=1.0, default=0.0)
    ask(handler, CreateRouter("triage", config), at=NOW)
    handler.close()
    handler = open_handler(tmp_path)
    ask(handler, MakeDecision("triage"), at=NOW + jump)  # the clock was ahead
    handler.close()
    handler = open_handler(tmp_path)
    made = ask(handler, *[MakeDecision("triage")] * 5, at=NOW + SECOND)
    ask(handler, RecordReward(made[0].id, 0.5), at=NOW + 2 * SECOND)  # in time
    late, *others = ask(
        handler,
        RecordReward(made[1].id, 0.5),
        *[GetDecision(one.id) for one in made],
        at=NOW + 5 * SECOND,
    )
    assert late.receipt == "late"
    assert [one.state for one in others] == ["rewarded"] + ["closed"] * 4
    (view,) = ask(handler, GetRouter("triage"), at=NOW + 5 * SECOND)
    assert view.status.counters.defaulted == 5
    handler.close()


def test_time_goes_on_from_an_event_in_the_future_after_every_restart(tmp_path: Path) -> None:
    handler = open_handler(tmp_path)
    config = make_config(make_five_expert_problem(), wait=10.0, aggregate="sum")
    ask(handler, CreateRouter("triage", config), at=NOW + HOUR)
    (made,) = ask(handler, MakeDecision("triage"), at=NOW + HOUR)
    ask(handler, RecordReward(made.id, 0.5, key="a"), at=NOW + HOUR)
    handler.store.close()  # killed
    for second in (1, 9, 12):
        handler = open_handler(tmp_path)
        ask(handler, GetRouter("triage"), at=NOW + second * SECOND)
        handler.store.close()
    handler = open_handler(tmp_path)
    ask(handler, GetRouter("triage"), at=NOW + 20 * SECOND)
    ask(handler, GetRouter("triage"), at=NOW + 29 * SECOND)
    assert ask(handler, GetDecision(made.id), at=NOW + 29 * SECOND)[0].learned is None
    assert ask(handler, GetDecision(made.id), at=NOW + 31 * SECOND)[0].learned == 0.5
    handler.close()


def test_a_gap_of_years_counts_as_one_year_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler = open_handler(tmp_path)
    ask(handler, CreateRouter("triage", make_config(make_five_expert_problem())), at=NOW)
    handler.close()
    handler = open_handler(tmp_path)
    ask(handler, MakeDecision("triage"), at=NOW + 10 * YEAR)
    assert handler.repository.get("triage", NOW).at == NOW + MAX_IDLE_US
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "'triage'" in record.getMessage()
    handler.close()


def test_a_log_from_beyond_the_year_9999_is_answered(tmp_path: Path) -> None:
    handler = open_handler(tmp_path)
    far = 9_000 * YEAR
    ask(handler, CreateRouter("triage", make_config(make_five_expert_problem(), wait=1.0)), at=far)
    (made,) = ask(handler, MakeDecision("triage"), at=far)
    assert made.at == "9999-12-31T23:59:59.000000Z"
    handler.close()
    handler = open_handler(tmp_path)
    (made,) = ask(handler, MakeDecision("triage"), at=NOW)
    ask(handler, GetRouter("triage"), at=NOW + 2 * SECOND)
    assert ask(handler, GetDecision(made.id), at=NOW + 2 * SECOND)[0].state == "closed"
    handler.close()


def test_a_server_whose_clock_jumps_ahead_and_back_closes_decisions_in_time(
    tmp_path: Path,
) -> None:
    with live_server(tmp_path) as server:
        router = server.create_router(wait=0.2, default=0.0)
        clock = server.app.state.writer.clock
        ids = [server.decide(router)["id"]]
        clock.wall = lambda: now_us() + 10 * YEAR
        ids.append(server.decide(router)["id"])
        clock.wall = now_us
        ids.append(server.decide(router)["id"])
        wait_until(lambda: server.get(f"{router}/status").json()["waiting"] == 0)
        records = [server.get(f"/v1/decisions/{id}").json() for id in ids]
        assert [one["state"] for one in records] == ["closed"] * 3
        assert max(one["decision"]["at"] for one in records) < "2200"


def test_a_stored_router_has_a_steady_clock_of_its_own(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/b.db"
    with StoredRouter.create(address, "triage", make_five_expert_problem(), wait=9.0) as router:
        assert isinstance(router.clock, SteadyClock)
        router.clock.wall = lambda: now_us() - HOUR
        first, second = router.decide(), router.decide()
        assert first.at is not None
        assert second.at is not None
        assert first.at < second.at


@pytest.mark.parametrize("jump", [-2 * YEAR, -36 * HOUR, 36 * HOUR, 2 * YEAR])
def test_the_reset_of_a_spent_budget_is_by_the_clock_although_the_router_has_another_time(
    tmp_path: Path, jump: int
) -> None:
    limit = {"cost": "usd", "at_most": 9.0, "per": "day"}
    with live_server(tmp_path) as server:
        server.app.state.writer.clock.at += jump  # the clock was set to another time since
        router = server.create_router(problem={**FIVE_EXPERTS, "limits": [limit]})
        while (refused := server.post(f"{router}/decisions", json={})).status_code == 201:
            pass
        left_s = int(refused.headers["retry-after"])
        reset_s = refused.json()["error"]["resets_at"] / 1e6 - now_us() / 1e6
        assert 0 < left_s <= 25 * 3600
        assert abs(reset_s - left_s) < 60
