"""Many routers on four servers behind a balancer: no error, no missed period, an exact ledger.

BYLOT_CLUSTER_DECISIONS sets how many decisions are made; each gets a reward. The same requests are
then given to a simulation of servers that keep counters of their own and merge them now and then,
which overspends.
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
from typing import Any, NamedTuple

import numpy as np
import pytest

from bylot.eventlog.audit import audit_router
from bylot.eventlog.events import BODY_DECODERS
from bylot.router.changes import PackedDecision, RewardReceived
from bylot.store import Store, open_store
from bylot_bench.http_load import drive_connections, format_post
from cluster_servers import post, run_servers
from haproxy import needs_haproxy, run_haproxy

DECISIONS = int(os.environ.get("BYLOT_CLUSTER_DECISIONS", "10000"))
SERVERS, ROUTERS, CONNECTIONS = 4, 40, 64
PERIOD = max(25, DECISIONS // (10 * ROUTERS))  # about ten for each router
MERGE_S = 10.0  # between two merges of the counters of other products
BUDGET_USD = 3.2  # per request, less than the 4.0 of panels that are drawn uniformly
EXPERTS = ["ann", "bob", "cyd", "dee", "eve", "fay"]
USD = [1.0, 2.0, 3.0, 1.5, 0.5, 4.0]
PROBLEM: dict[str, Any] = {
    "experts": EXPERTS,
    "costs": {"usd": USD},
    "max_costs": {"usd": [1.5 * one for one in USD]},
    "limits": [
        {"cost": "usd", "at_most": BUDGET_USD},
        {"share": "new", "members": ["dee", "eve"], "at_least": 0.3},
        {"share": "star", "members": ["fay"], "at_most": 0.5},
    ],
    "draws": 2,
    "period": PERIOD,
}
PRICES = dict(zip(EXPERTS, USD, strict=True))


class Arrival(NamedTuple):
    """A request for a decision: when it was sent, and for which router."""

    at_s: float
    router: int


def draw_factor(router: int, t: int) -> float:
    """How dear request t of a router is, whoever answers it: by 0.5 to 1.5."""
    return random.Random(f"{router} {t}").uniform(0.5, 1.5)


class Traffic:
    """Requests of all connections: decisions of random routers, and their rewards with costs.

    Dear experts are better, so that there is a reason to spend all of the budget.
    """

    def __init__(self) -> None:
        self.rng, self.left = random.Random(3), DECISIONS
        self.open: list[dict[str, Any]] = []  # decisions without a reward
        self.arrivals: list[Arrival] = []
        self.statuses: Counter[bytes] = Counter()

    def next_request(self) -> bytes | None:
        """A reward of a decision that waits for one, else a decision."""
        if self.open and (self.rng.random() < 0.5 or not self.left):
            made = self.open.pop(self.rng.randrange(len(self.open)))
            factor = draw_factor(int(made["router"][1:]), made["t"])
            spend = {"usd": {name: factor * PRICES[name] for name in made["subset"]}}
            best = max(PRICES[name] for name in made["subset"]) / max(USD)
            body = json.dumps({"value": best * self.rng.random(), "spend": spend}).encode()
            return format_post(f"/v1/decisions/{made['id']}/reward", body)
        if not self.left:
            return None
        self.left -= 1
        router = self.rng.randrange(ROUTERS)
        self.arrivals.append(Arrival(time.monotonic(), router))
        return format_post(f"/v1/routers/r{router}/decisions", b"{}")

    def read(self, answer: bytes) -> bool:
        """Note an answer; whether it is one that is expected."""
        status, _, body = answer.partition(b"\n")
        code = status.split(b" ")[1]
        self.statuses[code] += 1
        if code == b"201":
            self.open.append(json.loads(body))
        return code in (b"200", b"201")


class MergedCounters:
    """The budget of one router by counters that servers merge now and then.

    Every server counts what it spends itself, and knows what the others had spent at the last
    merge. It serves a request if the sum of both, with the cost of this request, is within the
    budget of the period, and refuses it otherwise. Panels are drawn uniformly.

    All the rest is better than in reality: costs are known before the call, merges take no time
    and happen at all servers at once, none fails, and all servers see at once that a period ends.
    """

    def __init__(self, router: int) -> None:
        self.router, self.count, self.merges = router, 0, 0
        self.rng = random.Random(f"control {router}")
        self.merged, self.own = 0.0, [0.0] * SERVERS
        self.spent: list[float] = []  # in each complete period

    def serve(self, server: int, merges: int) -> None:
        """Serve or refuse a request; so many merges have happened before it."""
        if merges > self.merges:
            self.merged, self.own, self.merges = self.total, [0.0] * SERVERS, merges
        factor = draw_factor(self.router, self.count)
        cost = factor * sum(self.rng.sample(USD, PROBLEM["draws"]))
        if self.merged + self.own[server] + cost <= PERIOD * BUDGET_USD:
            self.own[server] += cost
        self.count += 1
        if self.count % PERIOD == 0:
            self.spent.append(self.total)
            self.merged, self.own = 0.0, [0.0] * SERVERS

    @property
    def total(self) -> float:
        """Dollars spent in this period by all servers."""
        return self.merged + sum(self.own)


def compute_overspends(arrivals: list[Arrival], merge_s: float) -> np.ndarray[Any, Any]:
    """Spend beyond the budget in each period, as a part of the budget, with merged counters.

    Requests go to the servers in turn, as the balancer sends them.
    """
    counters = [MergedCounters(router) for router in range(ROUTERS)]
    for n, (at_s, router) in enumerate(arrivals):
        merges = int((at_s - arrivals[0].at_s) / merge_s)
        counters[router].serve(n % SERVERS, merges)
    spent = np.array([usd for one in counters for usd in one.spent])
    return np.maximum(0.0, spent / (PERIOD * BUDGET_USD) - 1.0)


def sum_log(store: Store, number: int) -> tuple[list[float], int]:
    """The dollars of each decision of a log, in order, and the number of rewards."""
    spent: dict[int, float] = {}
    rewards = 0
    for event in store.events(number, -1, 10**9):
        body = BODY_DECODERS[event.kind](event.body)
        if isinstance(body, PackedDecision):
            spent[event.seq] = body.spend["usd"]
        elif isinstance(body, RewardReceived) and body.spend is not None:
            spent[event.of or 0] = body.spend["usd"]
            rewards += 1
    return list(spent.values()), rewards


def compute_largest_spend(dollars: list[float]) -> float:
    """The spend of the dearest complete period, as a part of the budget."""
    periods = [dollars[n : n + PERIOD] for n in range(0, len(dollars) - PERIOD + 1, PERIOD)]
    return max(map(math.fsum, periods)) / (PERIOD * BUDGET_USD)


@pytest.mark.slow
@needs_haproxy
def test_four_servers_serve_forty_routers_exactly(postgres_address: str, tmp_path: Path) -> None:
    start, traffic = time.monotonic(), Traffic()
    with run_servers(postgres_address, tmp_path, SERVERS) as servers:
        for n in range(ROUTERS):
            body = {"name": f"r{n}", "problem": PROBLEM, "policy": "distinct", "seed": n}
            assert post(servers[n % SERVERS], "/v1/routers", body).status_code == 201
        targets = [f"127.0.0.1:{one.port}" for one in servers]
        with run_haproxy(tmp_path, targets) as balancer:
            load = asyncio.run(
                drive_connections(balancer.port, CONNECTIONS, traffic.next_request, traffic.read)
            )
        statuses = [servers[0].get(f"/v1/routers/r{n}/status") for n in range(ROUTERS)]
    missed = sum(one["current"]["missed"] for status in statuses for one in status["limits"])
    periods = sum(status["decisions"] // PERIOD for status in statuses)
    merged = compute_overspends(traffic.arrivals, MERGE_S)
    print(
        f"\n{DECISIONS:,} decisions and rewards in {time.monotonic() - start:.0f} s, "
        f"{load.requests_per_s:.0f} requests/s, p99 {load.p99_ms:.0f} ms, {dict(traffic.statuses)}"
        f"\nbylot: {missed} of {3 * periods} periods of limits missed"
        f"\ncounters merged every {MERGE_S:g} s: {np.count_nonzero(merged)} of {len(merged)} "
        f"budgets overspent, by {merged.mean():.1%} on average and {merged.max():.1%} at most"
    )
    assert set(traffic.statuses) == {b"200", b"201"}
    assert sum(one["decisions"] for one in statuses) == DECISIONS
    assert missed == 0
    assert merged.max() > 0.02, "the same requests overspend with merged counters"
    assert compute_overspends(traffic.arrivals, 1e-9).max() == 0, "and not with exact ones"
    largest: list[float] = []
    with closing(open_store(postgres_address, read_only=True)) as store:
        for n, status in enumerate(statuses):
            assert audit_router(store, f"r{n}").fault is None
            row = store.find(f"r{n}")
            assert row is not None
            dollars, rewarded = sum_log(store, row.number)
            assert (len(dollars), rewarded) == (status["decisions"], status["rewards"])
            settled = status["costs"]["usd"]["settled"]
            assert math.isclose(settled, math.fsum(dollars), rel_tol=1e-12)
            largest.append(compute_largest_spend(dollars))
    print(f"bylot's dearest period: {max(largest):.1%} of the budget")
    assert max(largest) <= 1 + 1e-9
