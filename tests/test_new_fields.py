"""The worked examples of CONTRIBUTING.md: a field of a decision changes two or three files."""

from pathlib import Path

from worked_examples import apply_diff, copy_source, find_example, run_checks

CHECKS = """
from pathlib import Path

from bylot import Client, Problem, Router
from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from live_server import live_server

problem = Problem(["ann", "bob", "eve"], {"usd": [1, 2, 4]}, draws=2)

# A router in memory has what the policy believes.
router = Router(problem, "noisy-or")
made = [router.decide() for _ in range(120)]
for decision in made:
    router.reward(decision.id, float("ann" in decision.subset))
assert made[0].random_panels is None and made[0].seq is None
assert 0.3 < router.decide().random_panels < 1.0

# A server stores both fields, and sends them.
with live_server(Path.cwd()) as server, Client(f"http://127.0.0.1:{server.port}") as client:
    remote = client.create("pool", problem, policy="noisy-or")
    for _ in range(120):
        decision = remote.decide()
        remote.reward(decision.id, float("ann" in decision.subset))
    last = remote.decide()
    assert 0.3 < last.random_panels < 1.0
    assert last.seq == int(last.id.split(".")[2]) == 241
    (event,) = server.get("/v1/routers/pool/events?after=240").json()["events"]
    assert event["body"]["random_panels"] == last.random_panels
    fields = server.get("/openapi.json").json()["components"]["schemas"]["Decision"]["properties"]
    assert {"random_panels", "seq"} <= fields.keys()

# Another process reads the decision, and a replay of the log gives the same belief.
with live_server(Path.cwd()) as server:
    shown = server.get(f"/v1/decisions/{last.id}").json()["decision"]
    assert (shown["seq"], shown["random_panels"]) == (last.seq, last.random_panels)
audit = audit_router(open_store("sqlite:///bylot.db"), "pool")
assert (audit.fault, audit.events) == (None, 242), audit
"""


def test_a_field_of_a_decision_touches_two_files_or_three(tmp_path: Path) -> None:
    """Both examples are applied to one copy of the source."""
    source = copy_source(tmp_path)
    known_by_the_log = find_example("--- router/decision.py")
    known_by_the_policy = find_example("--- router/engine.py")
    assert len(apply_diff(known_by_the_log, source / "bylot")) == 2
    assert len(apply_diff(known_by_the_policy, source / "bylot")) <= 4
    run_checks(CHECKS, tmp_path, source)
