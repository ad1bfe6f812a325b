"""Two servers and one router: what the earlier owner answers after the other one has taken over."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from bylot.errors import (
    DecisionNotFound,
    DecisionStateError,
    LeaseLost,
    RouterBusy,
    StoreError,
    StoreUnavailable,
)
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import (
    ActivateDecision,
    Command,
    CreateRouter,
    GetRouter,
    MakeDecision,
    RecordReward,
)
from bylot.eventlog.repository import RouterRepository
from bylot.store import Store, open_store
from live_server import ServerClient, assert_error
from sample_problem import make_five_expert_problem
from stored_router import make_stored_config
from stores import Opener

AT = 1_000_000


def make_handler(store: Store, owner: str, lease: float = 3600.0) -> CommandHandler:
    """A command handler of a server of this name."""
    return CommandHandler(RouterRepository(store, owner, lease))


def send(handler: CommandHandler, command: Command) -> Any:
    """The answer to a command, or the error."""
    (answer,) = handler.perform([command], AT)
    return answer


@pytest.fixture
def overtaken(open_store_again: Opener) -> tuple[CommandHandler, CommandHandler, str]:
    """The earlier owner, the new one, and a deferred decision that the earlier one made."""
    old, new = make_handler(open_store_again(), "old"), make_handler(open_store_again(), "new")
    send(old, CreateRouter("r", make_stored_config(make_five_expert_problem(), "distinct")))
    deferred = send(old, MakeDecision("r", defer=True))
    # The old owner's lease is gone, and it has not noticed
    old.store.release("old")
    return old, new, deferred.id


def test_a_decision_of_the_new_owner_is_not_reported_as_unknown(
    overtaken: tuple[CommandHandler, CommandHandler, str],
) -> None:
    old, new, _ = overtaken
    decision = send(new, MakeDecision("r"))
    reward = RecordReward(decision.id, 0.5)
    assert isinstance(send(old, reward), LeaseLost)
    assert isinstance(send(old, reward), RouterBusy)
    assert send(new, reward).receipt == "learned"


def test_a_state_that_the_new_owner_changed_is_not_a_reason_to_refuse(
    overtaken: tuple[CommandHandler, CommandHandler, str],
) -> None:
    old, new, deferred = overtaken
    send(new, ActivateDecision(deferred))
    assert isinstance(send(old, RecordReward(deferred, 0.5)), LeaseLost)


def test_errors_of_the_owner_stay_what_they_are(
    overtaken: tuple[CommandHandler, CommandHandler, str],
) -> None:
    old, _, deferred = overtaken
    batch: list[Command] = [
        MakeDecision("r"),
        RecordReward("r.1.999", 0.5),
        RecordReward(deferred, 0.5),
    ]
    made, unknown, early = old.perform(batch, AT)
    assert made.t == 1
    assert isinstance(unknown, DecisionNotFound)
    assert isinstance(early, DecisionStateError)
    assert isinstance(send(old, RecordReward("r.1.999", 0.5)), DecisionNotFound)


def test_an_error_is_not_final_if_the_store_cannot_confirm_it(
    overtaken: tuple[CommandHandler, CommandHandler, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _, deferred = overtaken

    def fail(router: int) -> int:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(old.store, "last_seq", fail)
    assert isinstance(send(old, RecordReward(deferred, 0.5)), StoreUnavailable)


def test_a_server_that_stood_still_for_a_lease_renews_before_it_answers(
    overtaken: tuple[CommandHandler, CommandHandler, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, _ = overtaken
    send(new, MakeDecision("r"))
    assert send(old, GetRouter("r")).status.decisions == 1
    skip_time(monkeypatch, 3601.0)  # the machine was suspended
    assert isinstance(send(old, GetRouter("r")), RouterBusy)


def skip_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock of leases jump forward."""
    now: Callable[[int], float] = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: now(which) + seconds)


def test_a_router_of_another_server_is_worth_a_try_after_a_second(server: ServerClient) -> None:
    store = open_store(server.app.state.settings.store)
    owner = make_handler(store, "another server")
    config = make_stored_config(make_five_expert_problem(), "distinct")
    send(owner, CreateRouter("of-another-server", config))
    busy = server.get("/v1/routers/of-another-server")
    assert assert_error(busy, 503)["code"] == "router_busy"
    assert busy.headers["retry-after"] == "1"  # the lease lasts an hour
    owner.close()
    assert server.get("/v1/routers/of-another-server").status_code == 200


def test_renewing_keeps_the_uncommitted_events_for_the_commit_to_refuse(
    overtaken: tuple[CommandHandler, CommandHandler, str],
) -> None:
    old, new, _ = overtaken
    send(new, MakeDecision("r"))
    router = old.repository.get("r", AT)
    old.repository.add(router.decide(AT, MakeDecision("r")))
    old.repository.renew()
    failed = old.repository.commit()
    assert isinstance(failed["r"], StoreError)
