"""Many routers on four servers under load: no error, no missed period, a ledger that is the log.

BYLOT_CLUSTER_DECISIONS sets how many decisions are made; each gets a reward.
"""

import asyncio
import json
import math
import os
import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bylot.eventlog.audit import audit_router
from bylot.eventlog.events import BODY_DECODERS, DecisionMade, RewardReceived
from bylot.store import Store, open_store
from bylot_bench.http_load import LoadResult, drive_connections, format_post
from cluster_servers import ClusterServer, post, run_servers

DECISIONS = int(os.environ.get("BYLOT_CLUSTER_DECISIONS", "10000"))
SERVERS, ROUTERS, CONNECTIONS, PERIOD = 4, 40, 64, 500
USD = [1.0, 2.0, 3.0, 1.5, 0.5, 4.0]
PROBLEM: dict[str, Any] = {
    "experts": ["ann", "bob", "cyd", "dee", "eve", "fay"],
    "costs": {"usd": USD},
    "max_costs": {"usd": [1.5 * one for one in USD]},
    "limits": [
        {"cost": "usd", "at_most": 6.0},
        {"share": "new", "members": ["dee", "eve"], "at_least": 0.3},
        {"share": "star", "members": ["fay"], "at_most": 0.5},
    ],
    "draws": 2,
    "period": PERIOD,
}


class Traffic:
    """Requests of all connections: decisions of random routers, and their rewards with costs."""

    def __init__(self) -> None:
        self.rng, self.left = random.Random(3), DECISIONS
        self.open: list[dict[str, Any]] = []  # decisions without a reward
        self.statuses: Counter[bytes] = Counter()

    def next_request(self) -> bytes | None:
        """A reward of a decision that waits for one, else a decision."""
        if self.open and (self.rng.random() < 0.5 or not self.left):
            made = self.open.pop(self.rng.randrange(len(self.open)))
            costs = dict(zip(PROBLEM["experts"], USD, strict=True))
            factor = self.rng.uniform(0.5, 1.5)  # a request is cheap or expensive for all
            spend = {"usd": {name: factor * costs[name] for name in made["subset"]}}
            body = json.dumps({"value": self.rng.random(), "spend": spend}).encode()
            return format_post(f"/v1/decisions/{made['id']}/reward", body)
        if not self.left:
            return None
        self.left -= 1
        return format_post(f"/v1/routers/r{self.rng.randrange(ROUTERS)}/decisions", b"{}")

    def read(self, answer: bytes) -> bool:
        """Note an answer; whether it is one that is expected."""
        status, _, body = answer.partition(b"\n")
        code = status.split(b" ")[1]
        self.statuses[code] += 1
        if code == b"201":
            self.open.append(json.loads(body))
        return code in (b"200", b"201")


async def drive(servers: list[ClusterServer], traffic: Traffic) -> list[LoadResult]:
    """All connections at once, in equal parts to the servers, as a balancer spreads them."""
    each = CONNECTIONS // len(servers)
    return await asyncio.gather(
        *(drive_connections(one.port, each, traffic.next_request, traffic.read) for one in servers)
    )


def sum_log(store: Store, number: int) -> tuple[int, int, float]:
    """Decisions, rewards and dollars of a log, in the order of its decisions."""
    spent: dict[int, float] = {}
    rewards = 0
    for event in store.events(number, -1, 10**9):
        body = BODY_DECODERS[event.kind](event.body)
        if isinstance(body, DecisionMade):
            spent[event.seq] = body.spend["usd"]
        elif isinstance(body, RewardReceived) and body.spend is not None:
            spent[event.of or 0] = body.spend["usd"]
            rewards += 1
    return len(spent), rewards, math.fsum(spent.values())


@pytest.mark.slow
def test_four_servers_serve_forty_routers_exactly(postgres_address: str, tmp_path: Path) -> None:
    start, traffic = time.monotonic(), Traffic()
    with run_servers(postgres_address, tmp_path, SERVERS) as servers:
        for n in range(ROUTERS):
            body = {"name": f"r{n}", "problem": PROBLEM, "policy": "distinct", "seed": n}
            assert post(servers[n % SERVERS], "/v1/routers", body).status_code == 201
        loads = asyncio.run(drive(servers, traffic))
        statuses = [servers[0].get(f"/v1/routers/r{n}/status") for n in range(ROUTERS)]
    seconds = time.monotonic() - start
    print(
        f"\n{DECISIONS:,} decisions and rewards in {seconds:.0f} s, {dict(traffic.statuses)}, "
        f"p99 {max(one.p99_ms for one in loads):.0f} ms"
    )
    assert set(traffic.statuses) == {b"200", b"201"}
    assert sum(one["decisions"] for one in statuses) == DECISIONS
    for status in statuses:
        assert [one["current"]["missed"] for one in status["limits"]] == [0, 0, 0]
    with closing(open_store(postgres_address, read_only=True)) as store:
        for n, status in enumerate(statuses):
            assert audit_router(store, f"r{n}").fault is None
            row = store.find(f"r{n}")
            assert row is not None
            decided, rewarded, dollars = sum_log(store, row.number)
            assert (decided, rewarded) == (status["decisions"], status["rewards"])
            assert math.isclose(status["costs"]["usd"]["settled"], dollars, rel_tol=1e-12)
