"""The worked example of CONTRIBUTING.md: an event changes six files."""

import os
import re
import subprocess
import sys
from pathlib import Path

from worked_examples import apply_diff, copy_source

ROOT = Path(__file__).parents[1]
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


def test_the_example_event_is_stored_served_replayed_and_checked(tmp_path: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"```diff\n(--- eventlog.*?)```", page, re.DOTALL)
    source = copy_source(tmp_path)
    assert len(apply_diff(diff, source / "bylot")) <= 6
    paths = [str(source), str(ROOT / "tests")]
    result = subprocess.run(
        [sys.executable, "-c", CHECKS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
