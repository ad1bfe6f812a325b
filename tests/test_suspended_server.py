"""A server that is suspended while another one takes over its router: no answer is stale."""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from cluster_servers import HEARTBEAT_S, ClusterServer, post, run_servers
from live_server import FIVE_EXPERTS

TAKEOVER_S = 8.0
STABLE_S = 5.0  # after the takeover, during which the router must stay where it is
DECISIONS_SHOWN = re.compile(r"<dt>decisions</dt>\s*<dd[^>]*>(\d+)<")


@contextmanager
def suspend(server: ClusterServer) -> Iterator[None]:
    """Suspend a server with SIGSTOP; the kernel accepts its connections meanwhile."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def run_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def time_retries(server: ClusterServer, seconds: float) -> Iterator[float]:
    """How long the answers to a repeated request take, for so many seconds."""
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        assert post(server, "/v1/routers/r/decisions", {"key": "meanwhile"}).status_code == 201
        yield time.monotonic() - start
        time.sleep(0.1)


def test_a_server_that_wakes_up_answers_from_the_state_of_the_new_owner(
    postgres_address: str, tmp_path: Path
) -> None:
    with run_servers(postgres_address, tmp_path, 2) as servers:
        body = {"name": "r", "problem": FIVE_EXPERTS, "policy": "random"}
        assert post(servers[0], "/v1/routers", body).status_code == 201
        time.sleep(2 * HEARTBEAT_S)  # until the server that it prefers has it
        made = post(servers[0], "/v1/routers/r/decisions", {"key": "before"})
        old, new = sorted(servers, key=lambda one: one.url != made.headers["x-bylot-owner"])
        first = made.json()["id"]
        early: list[httpx.Response] = []

        def ask_early() -> None:
            early.append(httpx.get(f"{old.url}/v1/routers/r/status", timeout=60))

        with suspend(old):
            thread = run_thread(ask_early)
            start = time.monotonic()
            later = post(new, "/v1/routers/r/decisions", {"key": "meanwhile"})
            seconds = time.monotonic() - start
            assert later.status_code == 201, later.text
            slowest = max(time_retries(new, STABLE_S))
            rewarded = post(new, f"/v1/decisions/{first}/reward", {"value": 0.5})
            assert rewarded.status_code == 200, rewarded.text
        status = httpx.get(f"{old.url}/v1/routers/r/status", timeout=60)
        record = httpx.get(f"{old.url}/v1/decisions/{first}", timeout=60)
        unknown = httpx.get(f"{old.url}/v1/decisions/{later.json()['id']}", timeout=60)
        page = httpx.get(f"{old.url}/routers/r", timeout=60)
        again = post(old, "/v1/routers/r/decisions", {"key": "meanwhile"})
        thread.join()
        print(f"\nanswered by the other server after {seconds:.1f} s, then within {slowest:.1f} s")
        assert [status.json()["decisions"], early[0].json()["decisions"]] == [2, 2]
        assert record.json()["learned"] == 0.5
        assert unknown.status_code == 200
        assert page.status_code == 200
        assert DECISIONS_SHOWN.findall(page.text) == ["2"]
        assert again.json() == later.json()
        assert status.headers["x-bylot-owner"] == new.url
        assert seconds < TAKEOVER_S
        assert slowest < 2.5, "it was not handed back to the suspended server"
    with closing(open_store(postgres_address, read_only=True)) as store:
        assert audit_router(store, "r").fault is None
