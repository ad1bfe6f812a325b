"""What several servers of one store cost: a forwarded request against a direct one, and requests
per CPU-second with one, two and four servers.

All servers are processes on loopback, and share a PostgreSQL. Each cluster has a schema of its own
and runs all the time; loads are measured in turns, so that other load on the machine affects all
alike. CPU is user and system time of all bylot servers of a cluster.

Held constant: the routers, the requests (decisions and rewards in turns) and the connections to
each server. A commit is shared by the requests that wait for it, so it is the load of one server
that decides how much a request costs, and not that of the cluster.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from bylot._text import format_table, print_progress
from bylot.router.config import problem_to_data
from bylot.router.router import Router
from bylot.server.cluster import list_moves
from bylot.store import open_store
from bylot_bench.http_load import (
    AnnouncedServer,
    ServerProcess,
    count_down,
    drive_connections,
    make_traffic,
)
from bylot_bench.postgres_process import PostgresServer, make_schema, run_postgres
from bylot_bench.stored_log import make_service_problem

SERVER_COUNTS = (1, 2, 4)
ROUTERS = [f"bench-{n}" for n in range(16)]
REQUEST_COUNT = 12_000  # of a load on a whole cluster
SINGLE_REQUEST_COUNT = 1_000  # one after the other, to measure latency
TURNS = 5
MAX_FORWARDED_RATIO, MAX_ADDED_P50_MS, MAX_SPREAD = 1.8, 1.5, 0.15
SETTLE_TIMEOUT_S = 60.0
HEARTBEAT_S = 1.2  # after which all servers have read what one has written

Targets = Mapping[int, Sequence[str]]
"""Routers, by the port to which their requests are sent."""


class ClusterLoad(NamedTuple):
    """Of one load: microseconds of CPU per request, and latency; None: not measured."""

    cpu_us: float
    postgres_us: float | None
    p50_ms: float


class BenchCluster:
    """Servers of one store, with routers that have found their owners.

    postgres: to measure its CPU, if it was started here
    """

    def __init__(
        self, servers: Sequence[ServerProcess], store: str, postgres: PostgresServer | None
    ) -> None:
        self.servers, self.store, self.postgres = servers, store, postgres
        problem = problem_to_data(make_service_problem())
        for n, name in enumerate(ROUTERS):
            servers[n % len(servers)].post(
                "/v1/routers",
                {"name": name, "problem": problem, "policy": "distinct", "seed": n},
            )
        self.owners = wait_for_owners(servers[0], store, ROUTERS)

    def list_targets(self, is_forwarded: bool = False) -> Targets:
        """The requests of each router go to its owner, or to the next server, which forwards."""
        return {
            self.servers[(n + is_forwarded) % len(self.servers)].port: [
                name for name in ROUTERS if self.owners[name] == owner.url
            ]
            for n, owner in enumerate(self.servers)
        }

    def measure(self, targets: Targets, count: int, connections: int | None) -> ClusterLoad:
        """So many requests in all, over so many connections to each server; None: one in all."""
        before = self.cpu()
        postgres_before = self.postgres.cpu() if self.postgres else 0.0
        p50_ms = asyncio.run(drive_targets(targets, count, connections))
        after = self.postgres.cpu() if self.postgres else 0.0
        postgres_us = 1e6 * (after - postgres_before) / count if self.postgres else None
        return ClusterLoad(1e6 * (self.cpu() - before) / count, postgres_us, p50_ms)

    def cpu(self) -> float:
        """Seconds of CPU of all servers so far."""
        return sum(server.cpu() for server in self.servers)

    def count_lost(self, sent: int) -> int:
        """Decisions and rewards that are not in the logs."""
        for name in ROUTERS:
            status = self.servers[0].get(f"/v1/routers/{name}/status")
            sent -= status["decisions"] + status["rewards"]
        return sent


def wait_for_owners(server: ServerProcess, store_url: str, names: Sequence[str]) -> dict[str, str]:
    """The addresses of the owners of all routers, once none of them has to move any more."""
    end = time.monotonic() + SETTLE_TIMEOUT_S
    with closing(open_store(store_url, read_only=True)) as store:
        while time.monotonic() < end:
            for name in names:
                server.get(f"/v1/routers/{name}")  # whoever should own it opens it
            servers, owners = store.servers(), store.owners()
            addresses = {one.owner: one.address for one in servers}
            found = {name: addresses.get(owners.get(name, ""), "") for name in names}
            moves = [
                name
                for one in servers
                for name in list_moves(
                    one, [n for n, owner in owners.items() if owner == one.owner], servers, owners
                )
            ]
            time.sleep(HEARTBEAT_S)
            if all(found.values()) and not moves:
                return found
    raise RuntimeError("the routers of the cluster do not stay with their owners")


async def drive_targets(targets: Targets, count: int, connections: int | None) -> float:
    """Send requests to all servers at once; return the median latency in milliseconds."""
    used = [(port, names) for port, names in targets.items() if names]
    if connections is None:
        del used[1:]
    loads = await asyncio.gather(
        *(
            drive_connections(
                port,
                connections or 1,
                *make_traffic(names, count_down(count // len(used))),
            )
            for port, names in used
        )
    )
    if errors := sum(load.errors for load in loads):
        raise RuntimeError(f"{errors} of {count} answers were not 200 or 201")
    return median(load.p50_ms for load in loads)


@contextmanager
def run_cluster(count: int, base: str, postgres: PostgresServer | None) -> Iterator[BenchCluster]:
    """So many servers on a store of their own."""
    with make_schema(base) as store, ExitStack() as stack:
        shared = {"BYLOT_CLUSTER_KEY": secrets.token_hex(16), "BYLOT_LEAVE_S": "0.1"}
        command = "bylot", "serve", "--store", store
        servers = [
            stack.enter_context(AnnouncedServer(*command, environment=os.environ | shared))
            for _ in range(count)
        ]
        yield BenchCluster(servers, store, postgres)


def run(store: str | None = None, connections: int = 16) -> dict[str, Any]:
    """Measure everything in one run.

    store:       of a PostgreSQL that runs, instead of a new one
    connections: to each server
    """
    Router(make_service_problem(), "distinct")  # compile once, here: the servers use the cache
    with ExitStack() as stack:
        postgres = stack.enter_context(run_postgres(PostgresServer)) if store is None else None
        base = store if postgres is None else postgres.address
        print_progress(f"... clusters of {', '.join(map(str, SERVER_COUNTS))} servers start")
        clusters = {
            n: stack.enter_context(run_cluster(n, str(base), postgres)) for n in SERVER_COUNTS
        }
        print_progress("... requests to the owners, with one, two and four servers")
        scaling = measure_in_turns(
            {
                n: partial(cluster.measure, cluster.list_targets(), REQUEST_COUNT, connections)
                for n, cluster in clusters.items()
            }
        )
        print_progress("... direct and forwarded requests")
        pair = clusters[2]
        loads = measure_forwarding(pair, REQUEST_COUNT, connections)
        singles = measure_forwarding(pair, SINGLE_REQUEST_COUNT, connections=None)
        sent = 3 * REQUEST_COUNT * (TURNS + 1) + 2 * SINGLE_REQUEST_COUNT * (TURNS + 1)
        lost = pair.count_lost(sent)
    return {"connections": connections, **summarise(scaling, loads, singles, lost)}


def measure_forwarding(
    cluster: BenchCluster, count: int, connections: int | None
) -> dict[str, ClusterLoad]:
    """The same load sent to the owners, and to the other servers."""
    return measure_in_turns(
        {
            name: partial(cluster.measure, cluster.list_targets(is_forwarded), count, connections)
            for name, is_forwarded in (("direct", False), ("forwarded", True))
        }
    )


def measure_in_turns(measures: Mapping[Any, Callable[[], ClusterLoad]]) -> dict[Any, ClusterLoad]:
    """The least CPU of all turns, which other load on the machine has affected least, and the
    median latency; the first turn is not counted.
    """
    turns = [{name: measure() for name, measure in measures.items()} for _ in range(TURNS + 1)]
    found = {}
    for name in measures:
        loads = [turn[name] for turn in turns[1:]]
        postgres = [load.postgres_us for load in loads if load.postgres_us is not None]
        found[name] = ClusterLoad(
            cpu_us=min(load.cpu_us for load in loads),
            postgres_us=min(postgres, default=None),
            p50_ms=median(load.p50_ms for load in loads),
        )
    return found


def summarise(
    scaling: Mapping[int, ClusterLoad],
    loads: Mapping[str, ClusterLoad],
    singles: Mapping[str, ClusterLoad],
    lost: int,
) -> dict[str, Any]:
    """The figures, their bounds, and the bounds that are missed."""
    costs = [one.cpu_us for one in scaling.values()]
    bounds = {
        "forwarded_cpu_ratio": (
            loads["forwarded"].cpu_us / loads["direct"].cpu_us,
            MAX_FORWARDED_RATIO,
        ),
        "forwarded_added_p50_ms": (
            singles["forwarded"].p50_ms - singles["direct"].p50_ms,
            MAX_ADDED_P50_MS,
        ),
        "spread_of_requests_per_cpu_s": (max(costs) / min(costs) - 1.0, MAX_SPREAD),
        "lost": (lost, 0),
    }
    return {
        "servers": {count: one._asdict() for count, one in scaling.items()},
        "forwarding": {name: one._asdict() for name, one in loads.items()},
        "one_connection": {name: one._asdict() for name, one in singles.items()},
        "bounds": {name: {"measured": x, "at_most": bound} for name, (x, bound) in bounds.items()},
        "missed": [name for name, (x, bound) in bounds.items() if x > bound],
    }


def render(result: dict[str, Any]) -> str:
    """The figures as text."""
    each = f"{result['connections']} connections to each server"
    tables = [
        (f"to the owner, {each}", "servers: {}", result["servers"]),
        (f"two servers, {each}", "{}", result["forwarding"]),
        ("two servers, one connection in all", "{}", result["one_connection"]),
    ]
    lines = []
    for title, label, loads in tables:
        rows = [(title, "requests/CPU-s", "CPU us", "PostgreSQL us", "p50 ms")]
        for name, load in loads.items():
            postgres = load["postgres_us"]
            cells = (
                f"{1e6 / max(load['cpu_us'], 1.0):,.0f}",
                f"{load['cpu_us']:.0f}",
                "not measured" if postgres is None else f"{postgres:.0f}",
                f"{load['p50_ms']:.2f}",
            )
            rows.append((label.format(name), *cells))
        lines += [*format_table(rows), ""]
    checks = [("bound", "measured", "at most", "")]
    checks += [
        (
            name.replace("_", " "),
            f"{one['measured']:.2f}",
            f"{one['at_most']:g}",
            "missed" if name in result["missed"] else "kept",
        )
        for name, one in result["bounds"].items()
    ]
    return "\n".join([*lines, *format_table(checks)])
