"""A server as a process: its banner, its shutdown, and that a shutdown loses nothing."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from msgspec import structs

from bylot.errors import BylotError, StoreUnavailable
from bylot.eventlog.repository import identify_machine
from bylot.server.app import open_listening_socket, run_server
from bylot.server.settings import ServerSettings
from bylot.store import open_store
from bylot.store.sqlite import SqliteStore
from live_server import FIVE_EXPERTS, assert_error, is_compiling, live_server, wait_until
from stores import create_router

RUN = """
import sys
from bylot.server.app import run_server
from bylot.server.settings import ServerSettings

sys.exit(run_server(ServerSettings(store=sys.argv[1], port=0)))
"""


@contextlib.contextmanager
def run_server_process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run a server in a process; yields the process, its address and its banner."""
    command = [sys.executable, "-c", RUN, f"sqlite:///{folder}/bylot.db"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            banner = child.stderr.readline()
            found = re.search(r"http://\S+?:\d+", banner)
            assert found, banner
            yield child, found[0], banner
        finally:
            child.kill()


def test_the_banner_names_address_store_and_keys(tmp_path: Path) -> None:
    with run_server_process(tmp_path) as (child, address, banner):
        assert f"sqlite:///{tmp_path}/bylot.db" in banner
        assert "no API keys" in banner
        assert httpx.get(f"{address}/healthz").json() == {"status": "up"}
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
        assert child.stderr is not None
        log_records = [json.loads(line) for line in child.stderr]
        assert {one["level"] for one in log_records} <= {"info"}


def test_the_default_policy_is_compiled_at_start(tmp_path: Path) -> None:
    with run_server_process(tmp_path) as (child, _, _):
        assert child.stderr is not None
        events = (json.loads(line) for line in child.stderr if line.startswith("{"))
        assert any("policy distinct is ready" in one["message"] for one in events)


def test_a_shutdown_does_not_wait_for_a_compilation(tmp_path: Path) -> None:
    slow = (
        "import time; from bylot.server import policy_compiler\n"
        "policy_compiler.load_from_cache = lambda policy: time.sleep(60)\n"
    )
    command = [sys.executable, "-c", slow + RUN, f"sqlite:///{tmp_path}/bylot.db"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert "listens" in child.stderr.readline()
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0


def test_a_shutdown_under_load_loses_no_answered_decision(tmp_path: Path) -> None:
    answered: list[str] = []
    failures: list[httpx.HTTPError] = []

    def send_requests(address: str) -> None:
        with httpx.Client(base_url=address, timeout=30) as client:
            try:
                while True:
                    answer = client.post("/v1/routers/r/decisions", json={})
                    assert answer.status_code in (201, 503)
                    if answer.status_code == 201:
                        answered.append(answer.json()["id"])
            except httpx.HTTPError as error:  # the server has stopped
                failures.append(error)

    with run_server_process(tmp_path) as (child, address, _):
        body = {"name": "r", "problem": FIVE_EXPERTS}
        while is_compiling(made := httpx.post(f"{address}/v1/routers", json=body, timeout=60)):
            time.sleep(0.02)
        assert made.status_code == 201
        threads = [threading.Thread(target=send_requests, args=(address,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answered) > 50)
        child.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert child.wait(30) == 0
    assert len(failures) == 4
    assert not (tmp_path / "bylot.db-wal").exists()  # all of it is in the main file
    with live_server(tmp_path) as server:
        events, after = [], -1
        while after is not None:
            page = server.get("/v1/routers/r/events", params={"after": after, "limit": 1000}).json()
            events += page["events"]
            after = page["next"]
        decisions = {
            f"r.1.{one['seq']}.{one['seal'][:8]}" for one in events if one["kind"] == "decided"
        }
        assert set(answered) <= decisions
        assert server.get("/v1/routers/r").json()["status"]["decisions"] == len(decisions)


def test_a_stopping_server_is_not_ready(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        assert server.get("/readyz").status_code == 200
        server.app.state.stopping = True
        assert assert_error(server.get("/readyz"), 503)["code"] == "draining"
        assert server.get("/healthz").status_code == 200


def test_a_server_without_keys_listens_on_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(BylotError, match="bylot keys create"):
        run_server(ServerSettings(store=f"sqlite:///{tmp_path}/bylot.db", host="0.0.0.0"))


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with open_listening_socket("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(BylotError, match=f"port {port}"):
            run_server(ServerSettings(store=f"sqlite:///{tmp_path}/bylot.db", port=port))


def test_a_store_whose_leases_cannot_be_released_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"sqlite:///{tmp_path}/bylot.db"
    store = open_store(address)
    store.lease(create_router(store, "left"), f"{identify_machine()}/{2**22 + 1}@1/ff", 60)
    store.close()

    def raise_read_only(*_: object) -> None:
        raise StoreUnavailable("the store is read-only")

    monkeypatch.setattr(SqliteStore, "release", raise_read_only)
    with pytest.raises(StoreUnavailable, match="read-only"):
        run_server(ServerSettings(store=address, port=0))


def test_a_password_in_an_address_is_not_printed(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        http, usual = server.server, server.server.settings
        http.settings = structs.replace(usual, store="postgresql://me:secret@host/db")
        assert "secret" not in http.describe("127.0.0.1", 1)
        assert "store postgresql://me@host/db;" in http.describe("127.0.0.1", 1)
        address_with_query = "postgresql://me@/db?host=/run/pg&password=secret"
        http.settings = structs.replace(usual, store=address_with_query)
        assert "store postgresql://me@/run/pg/db;" in http.describe("127.0.0.1", 1)
