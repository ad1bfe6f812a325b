"""A PostgreSQL that hangs: it accepts connections and answers nothing."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from bylot.errors import StoreUnavailable
from bylot.store import open_store
from live_server import ServerClient, assert_error, live_server, wait_until
from postgres import PostgresServer

pytestmark = pytest.mark.skipif(
    "BYLOT_TEST_POSTGRES" in os.environ or not sys.platform.startswith("linux"),
    reason="the processes of the server are stopped, so it must be ours",
)

SHORT_TIMEOUTS = "&tcp_user_timeout=1000&connect_timeout=2"
LONG_ENOUGH_S = 20.0  # far more than the timeouts add up to, far less than forever


def decide_until_answered(server: ServerClient, router: str, key: str) -> httpx.Response:
    """Repeat a request with its key as a client does."""
    deadline = time.monotonic() + LONG_ENOUGH_S
    while True:
        answer = server.post(f"{router}/decisions", json={"key": key})
        if answer.status_code not in (409, 503) or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


def test_a_statement_without_an_answer_fails_and_so_do_the_next_ones_at_once(
    postgres_server: PostgresServer, postgres_address: str
) -> None:
    store = open_store(postgres_address + SHORT_TIMEOUTS)
    with postgres_server.paused():
        with pytest.raises(StoreUnavailable, match="no answer within 1 s"):
            store.routers()
        start = time.monotonic()
        for _ in range(100):
            with pytest.raises(StoreUnavailable, match="no answer within 1 s"):
                store.routers()
        assert time.monotonic() - start < 10  # one attempt to connect takes 2 s
    wait_until(lambda: is_available(store.routers))
    store.close()


def is_available(call: Callable[[], object]) -> bool:
    """Whether a call of the store succeeds."""
    try:
        call()
        return True
    except StoreUnavailable:
        return False


def test_a_server_answers_503_while_postgres_hangs_and_makes_a_decision_once(
    postgres_server: PostgresServer, postgres_address: str, tmp_path: Path
) -> None:
    with live_server(tmp_path, store=postgres_address + SHORT_TIMEOUTS) as server:
        server.timeout = httpx.Timeout(LONG_ENOUGH_S)
        router = server.create_router()
        server.decide(router, key="before")
        with postgres_server.paused():
            refused = server.post(f"{router}/decisions", json={"key": "during"})
            assert assert_error(refused, 503)["code"] == "store_down"
            assert int(refused.headers["retry-after"]) >= 1
            assert assert_error(server.get("/v1/routers"), 503)["code"] == "store_down"
            assert_error(server.get("/readyz"), 503)
            assert server.get("/healthz").status_code == 200
        made = decide_until_answered(server, router, "during")
        assert made.status_code == 201, made.text
        assert made.json()["t"] == 1
        assert server.post(f"{router}/decisions", json={"key": "during"}).content == made.content
        wait_until(lambda: server.get("/readyz").status_code == 200)
        events = server.get(f"{router}/events").json()["events"]
        assert [one["key"] for one in events] == [None, "before", "during"]


def test_a_server_stops_while_postgres_hangs_and_answers_what_it_has_in_hand(
    postgres_server: PostgresServer, postgres_address: str, tmp_path: Path
) -> None:
    answers: list[httpx.Response] = []

    def decide(server: ServerClient, router: str) -> None:
        answers.append(server.post(f"{router}/decisions", json={"key": "in hand"}))

    with ExitStack() as hang:
        with live_server(tmp_path, store=postgres_address + SHORT_TIMEOUTS) as server:
            router = server.create_router()
            server.decide(router)
            hang.enter_context(postgres_server.paused())
            thread = threading.Thread(target=decide, args=(server, router))
            thread.start()
            wait_until(lambda: server.app.state.writer.pending)
            start = time.monotonic()
            server.server.handle_exit(15, None)
            thread.join()
        assert time.monotonic() - start < LONG_ENOUGH_S
    assert assert_error(answers[0], 503)["code"] == "store_down"
