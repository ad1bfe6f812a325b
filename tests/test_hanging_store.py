"""A PostgreSQL that hangs: it accepts connections and answers nothing.

BYLOT_FREEZE_S sets for how long, in the test of a cluster; `make faults` has a minute.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from bylot.errors import StoreUnavailable
from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from cluster_servers import ClusterServer, post, run_servers
from live_server import FIVE_EXPERTS, ServerClient, assert_error, live_server, wait_until
from postgres import PostgresServer

pytestmark = pytest.mark.skipif(
    "BYLOT_TEST_POSTGRES" in os.environ or not sys.platform.startswith("linux"),
    reason="the processes of the server are stopped, so it must be ours",
)

SHORT_TIMEOUTS = "&tcp_user_timeout=1000&connect_timeout=2"
FREEZE_S = float(os.environ.get("BYLOT_FREEZE_S", "10"))
LONGEST_STOP_S = 11.5  # 10 s, and the time between two looks
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


def test_calls_fail_at_once_after_the_first_of_two_hosts_did_not_answer(
    postgres_server: PostgresServer, postgres_address: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1,{postgres_server.folder}&port={silent.getsockname()[1]},5432"
        options = postgres_address.partition("&")[2]
        url = f"postgresql://postgres@/postgres?host={hosts}&connect_timeout=2&{options}"
        with closing(open_store(url)) as store:
            assert store.routers() == []
            postgres_server.stop()
            try:
                start = time.monotonic()
                for _ in range(10):
                    with pytest.raises(StoreUnavailable):
                        store.routers()
                assert time.monotonic() - start < 10  # one attempt to connect takes 2 s
            finally:
                postgres_server.start()
            wait_until(lambda: is_available(store.routers))


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


class TimedAnswers:
    """The answers to requests to servers while PostgreSQL hangs, and how long they took."""

    def __init__(self) -> None:
        self.decisions: list[tuple[int, float]] = []
        self.readiness: list[tuple[int, float]] = []
        self.hangs = True

    def decide(self, server: ClusterServer, key: str) -> None:
        """Send the same request again and again, until its server has stopped."""
        url = f"{server.url}/v1/routers/r/decisions"
        self.repeat(server, self.decisions, httpx.Request("POST", url, json={"key": key}))

    def check_readiness(self, server: ClusterServer) -> None:
        """Ask a server whether it is ready, likewise."""
        self.repeat(server, self.readiness, httpx.Request("GET", f"{server.url}/readyz"))

    def repeat(
        self, server: ClusterServer, answers: list[tuple[int, float]], request: httpx.Request
    ) -> None:
        with httpx.Client(timeout=60) as client:
            while self.hangs and server.process.poll() is None:
                start = time.monotonic()
                with suppress(httpx.TransportError):
                    status = client.send(request).status_code
                    answers.append((status, time.monotonic() - start))
                time.sleep(0.1)


def test_servers_of_a_cluster_keep_their_deadlines_while_postgres_hangs(
    postgres_server: PostgresServer, postgres_address: str, tmp_path: Path
) -> None:
    """With the default time-outs: 10 s for a request and for a stop, 3 s for `/readyz`."""
    answers = TimedAnswers()
    with run_servers(postgres_address, tmp_path, 2) as servers:
        body = {"name": "r", "problem": FIVE_EXPERTS, "policy": "random"}
        assert post(servers[0], "/v1/routers", body).status_code == 201
        first = servers[0]
        calls = [partial(answers.decide, one, f"key-{n}") for n, one in enumerate(servers * 4)]
        calls += [partial(answers.check_readiness, one) for one in servers]
        with postgres_server.paused():
            frozen_at = time.monotonic()
            threads = [threading.Thread(target=call) for call in calls]
            for thread in threads:
                thread.start()
            time.sleep(max(3.5, FREEZE_S - LONGEST_STOP_S))
            first.process.terminate()
            stopped_at = time.monotonic()
            first.process.wait(60)
            stop_s = time.monotonic() - stopped_at
            time.sleep(max(0.0, frozen_at + FREEZE_S - time.monotonic()))
            answers.hangs = False
            for thread in threads:
                thread.join()
        decide_s, ready_s = (
            max(seconds for _, seconds in some) for some in (answers.decisions, answers.readiness)
        )
        print(
            f"\nPostgreSQL frozen for {FREEZE_S:g} s: {len(answers.decisions)} answers within "
            f"{decide_s:.1f} s, /readyz within {ready_s:.1f} s, stopped in {stop_s:.1f} s"
        )
        assert {status for status, _ in answers.decisions} <= {409, 503}
        assert {status for status, _ in answers.readiness} == {503}
        assert decide_s < 11.5, "10 s, and the time between two looks"
        assert ready_s < 3.5
        assert stop_s < LONGEST_STOP_S
        first.start()
        deadline = time.monotonic() + LONG_ENOUGH_S
        for server in servers:
            while post(server, "/v1/routers/r/decisions", {"key": "key-0"}).status_code != 201:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    with closing(open_store(postgres_address, read_only=True)) as store:
        assert audit_router(store, "r").fault is None
