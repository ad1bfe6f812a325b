"""A cluster under load whose servers, network and database fail: nothing is lost, repeated, stale.

Servers are in network namespaces behind HAProxy, on a PostgreSQL with a synchronous standby. They
are killed, suspended and cut off from the database and from each other, and the standby is
promoted. Callers repeat requests with the same key, through the balancer, which is never cut off.

Meanwhile watchers read from every server directly. An answer is stale if it lacks a decision or a
reward that was acknowledged before the question was sent.

A few faults here; `make faults` has 60 kills (BYLOT_CLUSTER_KILLS), 20 partitions
(BYLOT_PARTITIONS), 10 promotions (BYLOT_PROMOTIONS) and 20 suspensions (BYLOT_SUSPENSIONS), and
prints counts and times.
"""

import asyncio
import contextlib
import io
import os
import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from bylot.cli import main
from bylot_bench.http_load import ServerProcess
from cluster_servers import CLUSTER_KEY, post, stop_if_running, wait_for_members
from faults import (
    POOLS,
    TENANTS,
    ObservedAnswers,
    compare_log_with_answers,
    make_problem,
    post_until_answered,
    run_caller,
    wait_for_progress,
)
from haproxy import Haproxy, needs_haproxy, run_haproxy
from network import Link, Network, run_network
from postgres_pair import PostgresPair, run_postgres_pair
from server_process import SOURCES

COUNTS = {
    "kill": int(os.environ.get("BYLOT_CLUSTER_KILLS", "2")),
    "partition": int(os.environ.get("BYLOT_PARTITIONS", "3")),
    "promotion": int(os.environ.get("BYLOT_PROMOTIONS", "2")),
    "suspension": int(os.environ.get("BYLOT_SUSPENSIONS", "1")),
}
SERVERS, CALLERS, PORT = 3, 12, 8000
PARTITIONS: tuple[tuple[Link, ...], ...] = (
    ("database",),
    ("servers",),
    ("database", "servers"),
)
MEDIAN_TAKEOVER_S, MAX_TAKEOVER_S = 3.0, 8.0
WATCH_TIMEOUT_S = 60.0  # longer than a suspension: its server answers afterwards
CONFIG = """
[keys.campaign]
scopes = ["decide", "reward", "read", "admin"]
env = "CAMPAIGN_KEY"
"""


class NamespaceServer(ServerProcess):
    """A server in a network namespace; `url` leads to it through the balancer's machine."""

    def __init__(self, store: str, network: Network, n: int, folder: Path, key: str) -> None:
        self.n, self.store, self.port = n, store, PORT
        self.target = f"{network.find_address('callers', n)}:{PORT}"
        self.advertised = f"http://{network.find_address('servers', n)}:{PORT}"
        config = folder / "bylot.toml"
        config.write_text(CONFIG)
        self.command = ["ip", "netns", "exec", network.name_namespace(n), sys.executable, "-m"]
        self.command += ["bylot", "serve", "--store", store, "--config", str(config)]
        self.command += ["--host", "0.0.0.0", "--port", str(PORT), "--advertise", self.advertised]
        more = {"BYLOT_CLUSTER_KEY": CLUSTER_KEY, "CAMPAIGN_KEY": key, "PYTHONPATH": SOURCES}
        self.environment = {**os.environ, **more}
        self.url, self.ready = "", f"http://{self.target}/readyz"
        self.log = folder / f"log-{n}"
        self.start()


class FaultCampaign:
    """Callers and watchers of a cluster, and the faults that it meets."""

    def __init__(
        self,
        servers: Sequence[NamespaceServer],
        network: Network,
        pair: PostgresPair,
        balancer: Haproxy,
    ) -> None:
        self.servers, self.network, self.pair, self.balancer = servers, network, pair, balancer
        self.rng, self.observed = random.Random(sum(COUNTS.values())), ObservedAnswers()
        self.done: Counter[str] = Counter()
        self.takeovers_s: list[float] = []
        self.promotions_s: list[float] = []
        self.watched: Counter[str] = Counter()

    async def run(self) -> None:
        """Meet all faults in a random order, one after the other."""
        stop = asyncio.Event()
        kinds = [kind for kind, count in COUNTS.items() for _ in range(count)]
        self.rng.shuffle(kinds)
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=self.balancer.url, limits=limits) as self.client:
            load = [
                asyncio.create_task(run_caller(self.client, n, self.observed, stop))
                for n in range(CALLERS)
            ]
            load += [asyncio.create_task(self.watch(one, stop)) for one in self.servers]
            for n, kind in enumerate(kinds):
                await wait_for_progress(self.observed, load)
                await asyncio.sleep(self.rng.uniform(0.1, 1.0))
                await getattr(self, kind)()
                self.done[kind] += 1
                if (n + 1) % 10 == 0:
                    made = f"{len(self.observed.decisions):,} decisions"
                    print(f"... {n + 1} faults, {made}", file=sys.stderr)
            await asyncio.sleep(1.0)
            stop.set()
            await asyncio.gather(*load)

    async def decide(self, router: str) -> httpx.Response:
        """A decision, however many requests it takes."""
        path, body = f"/v1/routers/{router}/decisions", {"key": secrets.token_hex(8)}
        body |= {"tenant": TENANTS[0]} if router == "budget" else {}
        answer: httpx.Response = await post_until_answered(self.client, path, body, self.observed)
        assert answer.status_code == 201, answer.text
        self.observed.add(answer.json())
        return answer

    async def kill(self) -> None:
        """Kill the owner of a router, and wait until another server answers for it."""
        router = self.rng.choice(list(POOLS))
        owner = (await self.decide(router)).headers["x-bylot-owner"]
        server = next(one for one in self.servers if one.advertised == owner)
        server.kill()
        start = time.monotonic()
        await self.decide(router)
        self.takeovers_s.append(time.monotonic() - start)
        await asyncio.to_thread(server.start)

    async def partition(self) -> None:
        """Cut a server off from the database, from the other servers, or from both."""
        links = PARTITIONS[self.done["partition"] % len(PARTITIONS)]
        with self.network.cut(self.rng.randrange(SERVERS), links):
            await asyncio.sleep(self.rng.uniform(3.0, 20.0))

    async def promotion(self) -> None:
        """Take the primary away, promote its standby, and build a new standby."""
        start, freeze = time.monotonic(), self.done["promotion"] % 2
        if freeze:
            self.pair.primary.freeze()
            await asyncio.sleep(self.rng.uniform(0.0, 5.0))
        else:
            await asyncio.to_thread(self.pair.primary.stop, signal.SIGQUIT)
        await asyncio.to_thread(self.pair.promote)
        await self.decide(self.rng.choice(list(POOLS)))
        self.promotions_s.append(time.monotonic() - start)
        if freeze:
            self.pair.standby.kill()  # it must never answer again
        await asyncio.to_thread(self.pair.rebuild_standby)

    async def suspension(self) -> None:
        """Suspend a server for longer than its leases."""
        server = self.rng.choice(self.servers)
        server.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self.rng.uniform(5.0, 40.0))
        server.process.send_signal(signal.SIGCONT)

    async def watch(self, server: NamespaceServer, stop: asyncio.Event) -> None:
        """Read from one server, and compare with what was acknowledged before."""
        rng, observed = random.Random(server.n), self.observed
        async with httpx.AsyncClient(base_url=server.url, timeout=WATCH_TIMEOUT_S) as client:
            while not stop.is_set():
                await asyncio.sleep(0.02)
                if observed.latest and observed.rewards:
                    latest = observed.latest[rng.choice(list(observed.latest))]
                    rewarded = next(reversed(observed.rewards))
                    with contextlib.suppress(httpx.HTTPError):
                        reads = await read_acknowledged(client, latest, rewarded)
                        self.watched.update(str(one.status_code) for one in reads)
                        stale = find_stale_answers(reads, latest, rewarded)
                        observed.faults += [f"server {server.n}: {one}" for one in stale]

    def summarise(self, counts: dict[str, int], seconds: float) -> str:
        """Counts and times, for people."""
        takeovers, promotions = np.array(self.takeovers_s), np.array(self.promotions_s)
        return (
            f"{dict(self.done)} in {seconds:.0f} s; {counts['decisions']:,} decisions, "
            f"{counts['rewards']:,} rewards, {self.observed.retries:,} retries, "
            f"reads of watchers by status {dict(self.watched)}; {len(self.observed.faults)} faults"
            f"\ntaken over after a kill: median {np.median(takeovers):.1f} s, "
            f"at most {takeovers.max():.1f} s"
            f"\nfirst decision after the loss of the primary: median {np.median(promotions):.1f} s,"
            f" at most {promotions.max():.1f} s"
        )


async def read_acknowledged(
    client: httpx.AsyncClient, latest: dict[str, Any], rewarded: str
) -> list[httpx.Response]:
    """Status, log and record where a decision and a reward must be that were acknowledged."""
    router = f"/v1/routers/{latest['router']}"
    params = {"after": read_seq(latest["id"]) - 1, "limit": 1}
    return [
        await client.get(f"{router}/status"),
        await client.get(f"{router}/events", params=params),
        await client.get(f"/v1/decisions/{rewarded}"),
    ]


def read_seq(id_: str) -> int:
    """The number of the event of a decision."""
    return int(id_.split(".")[2])


def find_stale_answers(
    reads: Sequence[httpx.Response], latest: dict[str, Any], rewarded: str
) -> list[str]:
    """What answers lack; one that says that it cannot answer now is not stale."""
    status, events, record = reads
    found = []
    if status.status_code == 200 and status.json()["decisions"] <= latest["t"]:
        found.append(f"status without decision {latest['id']}: {status.text}")
    if events.status_code == 200:
        seqs = [one["seq"] for one in events.json()["events"]]
        if seqs != [read_seq(latest["id"])]:
            found.append(f"log without decision {latest['id']}")
    if record.status_code == 404 or (record.status_code == 200 and not record.json()["rewards"]):
        found.append(f"{rewarded} without its reward: {record.text}")
    return found


def test_a_stale_answer_would_be_noticed() -> None:
    latest = {"id": "r.1.9.abcd", "router": "r", "t": 4}
    fresh: list[Any] = [{"decisions": 5}, {"events": [{"seq": 9}]}, {"rewards": [{"value": 0.5}]}]
    stale: list[Any] = [{"decisions": 4}, {"events": []}, {"rewards": []}]
    answers = [[httpx.Response(200, json=one) for one in some] for some in (fresh, stale)]
    assert find_stale_answers(answers[0], latest, "r.1.7.ef01") == []
    assert len(find_stale_answers(answers[1], latest, "r.1.7.ef01")) == 3
    assert find_stale_answers([httpx.Response(503)] * 3, latest, "r.1.7.ef01") == []
    assert find_stale_answers([httpx.Response(404)] * 3, latest, "r.1.7.ef01") != []


@contextmanager
def run_namespace_cluster(folder: Path) -> Iterator[FaultCampaign]:
    """Servers in namespaces, with a database, a standby and a balancer."""
    key = f"bylot_{secrets.token_hex(6)}_{secrets.token_hex(24)}"
    with ExitStack() as stack:
        network = stack.enter_context(run_network(SERVERS))
        address, subnet = network.find_address("database"), network.find_subnet("database")
        pair = stack.enter_context(run_postgres_pair(address, subnet))
        servers = []
        for n in range(SERVERS):
            servers.append(NamespaceServer(pair.url, network, n, folder, key))
            stack.callback(end, servers[-1])
        balancer = stack.enter_context(run_haproxy(folder, [one.target for one in servers], key))
        for server, url in zip(servers, balancer.server_urls, strict=True):
            server.url = url
        wait_for_members(servers)
        yield FaultCampaign(servers, network, pair, balancer)


def end(server: NamespaceServer) -> None:
    """End a server, also if it is suspended or cannot hand over its routers."""
    with contextlib.suppress(ProcessLookupError):
        server.process.send_signal(signal.SIGCONT)
    try:
        stop_if_running(server)
    except Exception:
        server.kill()


@pytest.mark.slow
@needs_haproxy
@pytest.mark.skipif("BYLOT_TEST_POSTGRES" in os.environ, reason="the database must be ours")
def test_faults_of_servers_network_and_database_lose_and_repeat_nothing(tmp_path: Path) -> None:
    start = time.monotonic()
    with run_namespace_cluster(tmp_path) as campaign:
        for name, (policy, _) in POOLS.items():
            body = {"name": name, "problem": make_problem(name), "policy": policy}
            assert post(campaign.servers[0], "/v1/routers", body).status_code == 201
        asyncio.run(campaign.run())
        counts = compare_log_with_answers(campaign.servers[-1], campaign.observed)
        for name in POOLS:
            output = io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                code = main(["replay", name, "--store", campaign.pair.url])
            assert code == 0, output.getvalue()
    print(f"\n{campaign.summarise(counts, time.monotonic() - start)}")
    assert campaign.observed.faults == []
    assert campaign.watched["200"] > 10 * sum(COUNTS.values())
    assert np.median(campaign.takeovers_s) <= MEDIAN_TAKEOVER_S
    assert max(campaign.takeovers_s) <= MAX_TAKEOVER_S
