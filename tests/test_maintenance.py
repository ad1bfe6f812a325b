"""What a server does without being asked, and what it keeps out of its only writer."""

import threading
from typing import Any

import pytest

from bylot import policies
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, DeleteRouter, GetDecision, MakeDecision
from bylot.eventlog.repository import RouterRepository
from bylot.store import Store, protocol
from handlers import SECOND, perform_all
from live_server import ServerClient, assert_error
from logged_aggregate import make_config
from sample_problem import make_five_expert_problem
from stores import Opener


def maintain(handler: CommandHandler, at: int) -> None:
    """Two rounds of the work that a server does by itself."""
    for _ in range(2):
        while handler.maintain(at):
            pass


def test_decisions_are_closed_after_a_restart_in_a_router_that_no_command_opens(
    open_store_again: Opener,
) -> None:
    handler = CommandHandler(RouterRepository(open_store_again(), "me"))
    problem = make_five_expert_problem()
    perform_all(handler, CreateRouter("plain", make_config(problem)))
    perform_all(handler, CreateRouter("waits", make_config(problem, wait=5.0, default=0.0)))
    first, second = (
        perform_all(handler, MakeDecision("waits"), at=at * SECOND)[0] for at in (10, 100)
    )
    handler.close()
    handler = CommandHandler(RouterRepository(open_store_again(), "me"))
    maintain(handler, 60 * SECOND)
    assert handler.repository.opened == {}
    # another server may have the router at once
    rival = CommandHandler(RouterRepository(open_store_again(), "you"))
    states = [
        one.state for one in perform_all(rival, GetDecision(first.id), GetDecision(second.id))
    ]
    assert states == ["closed", "waiting"]
    maintain(handler, 200 * SECOND)  # it is busy, and looked at later
    rival.close()
    maintain(handler, 300 * SECOND)
    assert perform_all(handler, GetDecision(second.id))[0].learned == 0.0
    assert set(handler.idle) == set()


def test_a_long_log_is_deleted_in_parts_also_after_a_restart(
    store: Store, open_store_again: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_EVENTS_PER_LOG_DELETE", 4)
    config = make_config(make_five_expert_problem())
    handler = CommandHandler(RouterRepository(store, "me"))
    for name in ("long", "kept", "longer"):
        perform_all(handler, CreateRouter(name, config), *[MakeDecision(name)] * 10)
    numbers = {row.name: row.number for row in store.routers()}
    perform_all(handler, DeleteRouter("long"))
    assert store.find("long") is None
    assert len(store.events(numbers["long"])) == 7
    perform_all(handler, CreateRouter("long", config))
    steps = 0
    while handler.maintain(SECOND):
        steps += 1
    assert steps >= 2
    assert store.events(numbers["long"]) == []
    perform_all(handler, DeleteRouter("longer"))
    handler.close()
    store = open_store_again()
    assert store.deleted_logs() == [numbers["longer"]]
    maintain(CommandHandler(RouterRepository(store, "me")), SECOND)
    assert store.deleted_logs() == []
    assert store.events(numbers["longer"]) == []
    assert len(store.events(numbers["kept"])) == 11


def test_a_configuration_is_validated_outside_the_writer(
    server: ServerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    kind: Any = type(policies.find_policy("distinct"))
    bind = kind.bind

    def recording(*given: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return bind(*given, **options)

    monkeypatch.setattr(kind, "bind", recording)
    router = server.create_router(policy="distinct")
    change = {"limits": [{"cost": "usd", "at_most": 2.5}], "pause": ["ann"]}
    assert server.patch(router, json=change).status_code == 200
    assert server.decide(router)["version"] == 2
    assert threads
    threads = [name for name in threads if not name.startswith("bylot-compile")]  # of a first use
    assert {name.partition("_")[0] for name in threads} == {"bylot-prepare"}
    assert_error(server.patch(router, json={"limits": [{"cost": "usd", "at_most": 0.1}]}), 422)


def test_an_edit_raises_the_number_of_contexts_and_does_not_lower_it(server: ServerClient) -> None:
    router = server.create_router(max_contexts=2)
    for context in ("a", "b"):
        server.decide(router, context=context)
    refused = server.post(f"{router}/decisions", json={"context": "c"})
    assert "raise max_contexts by an edit" in assert_error(refused, 422)["message"]
    edited = server.patch(router, json={"max_contexts": 3})
    assert edited.json()["config"]["max_contexts"] == 3
    server.decide(router, context="c")
    assert server.get(f"{router}/status").json()["contexts"] == 3
    assert_error(server.post(f"{router}/decisions", json={"context": "d"}), 422)
    error = assert_error(server.patch(router, json={"max_contexts": 2}), 422)
    assert "at least 3, as many as now" in error["message"]
    assert_error(server.patch(router, json={"max_contexts": 10**6}), 422)
