"""A planned stop of a server behind a real balancer: no request fails.

BYLOT_PLANNED_STOPS sets how many there are.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx

from cluster_servers import LEAVE_S, ClusterServer, post, run_servers
from haproxy import CHECK_INTERVAL_MS, Haproxy, needs_haproxy, run_haproxy
from live_server import FIVE_EXPERTS

STOPS = int(os.environ.get("BYLOT_PLANNED_STOPS", "1"))
ROUTERS, CALLERS, SERVERS = 6, 8, 2


async def run_caller(client: httpx.AsyncClient, n: int, answers: Counter[str]) -> None:
    """Make decisions without a key, and report rewards; nothing is sent twice."""
    while True:
        made = await client.post(f"/v1/routers/r{n % ROUTERS}/decisions", json={})
        answers[describe(made)] += 1
        if made.status_code == 201:
            path = f"/v1/decisions/{made.json()['id']}/reward"
            answers[describe(await client.post(path, json={"value": 0.5}))] += 1


def describe(answer: httpx.Response) -> str:
    return str(answer.status_code) + ("" if answer.is_success else f" {answer.text}")


async def stop_one_after_the_other(
    balancer: Haproxy, servers: Sequence[ClusterServer]
) -> Counter[str]:
    """Stop and start each server under load."""
    answers: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=balancer.url, timeout=60) as client:
        load = [asyncio.create_task(run_caller(client, n, answers)) for n in range(CALLERS)]
        for n in range(STOPS):
            server = servers[n % SERVERS]
            await asyncio.sleep(1.0)
            assert await asyncio.to_thread(server.stop) == 0
            await asyncio.to_thread(server.start)
        await asyncio.sleep(1.0)
        for task in load:
            assert not task.done(), task.exception()
            task.cancel()
    return answers


@needs_haproxy
def test_no_request_fails_while_servers_are_stopped_one_after_the_other(
    postgres_address: str, tmp_path: Path
) -> None:
    assert 2 * CHECK_INTERVAL_MS / 1000 < LEAVE_S, "the balancer notices before the port is closed"
    with run_servers(postgres_address, tmp_path, SERVERS) as servers:
        for n in range(ROUTERS):
            body = {"name": f"r{n}", "problem": FIVE_EXPERTS, "policy": "random"}
            assert post(servers[0], "/v1/routers", body).status_code == 201
        targets = [f"127.0.0.1:{one.port}" for one in servers]
        with run_haproxy(tmp_path, targets) as balancer:
            answers = asyncio.run(stop_one_after_the_other(balancer, servers))
    print(f"\n{STOPS} planned stops: {dict(answers)}")
    assert set(answers) == {"200", "201"}
    assert min(answers.values()) > 100
