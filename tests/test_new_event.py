"""The worked example of CONTRIBUTING.md: an event changes five files."""

from pathlib import Path

import pytest

from worked_examples import apply_diff, copy_source, find_example, run_checks

CHECKS = """
import sqlite3
from pathlib import Path

from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from live_server import live_server

with live_server(Path.cwd()) as server:
    path = server.create_router()
    server.decide(path)
    noted = server.post(f"{path}/notes", json={"text": "the lab is closed"})
    assert (noted.status_code, noted.json()["seq"]) == (201, 2), noted.text
    server.decide(path)
    log = server.get(f"{path}/events").json()["events"]
assert [event["kind"] for event in log] == ["created", "decided", "note", "decided"]
assert log[2]["body"]["text"] == "the lab is closed"

# Another process loads the router and continues.
with live_server(Path.cwd()) as server:
    assert server.decide(path)["t"] == 2

# The whole log is replayed, and a changed note is detected.
store, name = open_store("sqlite:///bylot.db"), path.rpartition("/")[2]
audit = audit_router(store, name)
assert (audit.fault, audit.events, audit.decisions) == (None, 5, 3)
with sqlite3.connect("bylot.db") as db:
    (body,) = db.execute("SELECT body FROM events WHERE kind = 'note'").fetchone()
    changed = body.replace(b"closed", b"opened")
    db.execute("UPDATE events SET body = ? WHERE kind = 'note'", [changed])
assert "event 2 of its log (note) was changed" in audit_router(store, name).fault
"""


CLUSTER_CHECKS = """
import os
from pathlib import Path

import httpx

from bylot.store import open_store
from cluster_servers import post, run_servers
from live_server import FIVE_EXPERTS

with run_servers(os.environ["STORE"], Path.cwd(), 2) as servers:
    created = post(servers[0], "/v1/routers", {"name": "pool", "problem": FIVE_EXPERTS})
    assert created.status_code == 201, created.text
    with_lease = open_store(os.environ["STORE"], read_only=True).owners()["pool"]
    for server in servers:
        noted = post(server, "/v1/routers/pool/notes", {"text": server.url})
        assert noted.status_code == 201, noted.text
        decided = post(server, "/v1/routers/pool/decisions", {})
        assert decided.status_code == 201, decided.text
    assert open_store(os.environ["STORE"], read_only=True).owners()["pool"] == with_lease
    log = httpx.get(f"{servers[1].url}/v1/routers/pool/events").json()["events"]
assert [event["kind"] for event in log] == ["created", "note", "decided", "note", "decided"]
assert [event["body"]["text"] for event in log[1::2]] == [server.url for server in servers]
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with the example."""
    copied = copy_source(tmp_path_factory.mktemp("event"))
    assert len(apply_diff(find_example("--- eventlog/events.py"), copied / "bylot")) <= 5
    return copied


def test_the_example_event_is_stored_served_replayed_and_checked(
    source: Path, tmp_path: Path
) -> None:
    run_checks(CHECKS, tmp_path, source)


def test_the_example_event_is_added_through_any_server_of_a_cluster(
    source: Path, tmp_path: Path, postgres_address: str
) -> None:
    run_checks(CLUSTER_CHECKS, tmp_path, source, STORE=postgres_address)
