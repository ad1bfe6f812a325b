"""Fault injection: a server under load is killed at random times, many times.

Callers retry with the same key until they get an answer, as the client does. In the end the log
is compared with the answers: nothing that was acknowledged may be missing, nothing may be
there twice, the replay must be equal and the totals must be the sums of the log.
"""

import asyncio
import contextlib
import io
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from bylot.cli import main
from bylot_bench.http_load import ServerProcess
from live_server import is_compiling
from server_process import serve_store

POOLS: dict[str, tuple[str, list[str | None]]] = {
    "triage": ("distinct", ["chest", "head", None]),
    "crowd": ("tangent", [None]),
    "slate": ("omd", ["phone", "desk"]),
    "budget": ("noisy-or", [None]),
}
MAX_STANDSTILL_S = 180.0
PROBLEM: dict[str, Any] = {
    "experts": ["ann", "bob", "cyd", "dee", "eve"],
    "costs": {"usd": [1.0, 2.0, 3.0, 1.5, 0.5]},
    "limits": [
        {"cost": "usd", "at_most": 3.5},
        {"share": "new", "members": ["dee"], "at_least": 0.2},
    ],
    "draws": 2,
}
BUDGETS: list[dict[str, Any]] = [  # that are never spent: a caller would wait for the next window
    {"cost": "usd", "at_most": 1e6, "per": "hour", "zone": "Asia/Kolkata"},
    {"cost": "usd", "at_most": 1e7, "per": "day", "zone": "Europe/Berlin"},
    {"share": "new", "members": ["dee"], "at_least": 0.2, "per": "week"},
    {"cost": "usd", "at_most": 1e6, "per": "day", "scope": "tenant"},
]
TENANTS = [f"tenant {n}" for n in range(20)]


def make_problem(name: str) -> dict[str, Any]:
    """The problem of a pool."""
    return {**PROBLEM, "limits": BUDGETS} if name == "budget" else PROBLEM


@dataclass
class ObservedAnswers:
    """The answers to callers, with which the log must agree.

    latest: the last decision of each router that was acknowledged
    """

    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    receipts: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, decision: dict[str, Any]) -> None:
        """Add a decision that was acknowledged to a request of its own."""
        if self.decisions.setdefault(decision["id"], decision) is not decision:
            self.faults.append(f"{decision['id']} was given to two requests")
        latest = self.latest.setdefault(decision["router"], decision)
        if decision["t"] > latest["t"]:
            self.latest[decision["router"]] = decision


NO_RESULT = (429, 502, 503, 504)  # of a server, or of a balancer whose server does not answer


async def post_until_answered(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], observed: ObservedAnswers
) -> Any:
    """Post until there is a final answer."""
    while True:
        try:
            answer = await client.post(path, json=body, timeout=5)
        except httpx.HTTPError:
            answer = None
        in_flight = answer is not None and answer.status_code == 409 and "in_flight" in answer.text
        if answer is not None and answer.status_code not in NO_RESULT and not in_flight:
            return answer
        observed.retries += 1
        await asyncio.sleep(0.1)


async def run_caller(
    client: httpx.AsyncClient, n: int, observed: ObservedAnswers, stop: asyncio.Event
) -> None:
    """Make decisions and send rewards, sometimes twice or with another value."""
    rng, count = random.Random(n), 0
    while not stop.is_set():
        name = rng.choice(list(POOLS))
        key = f"caller-{n}-{count}"
        count += 1
        body = {"context": rng.choice(POOLS[name][1]), "key": key}
        body |= {"tenant": rng.choice(TENANTS)} if name == "budget" else {}
        answer = await post_until_answered(client, f"/v1/routers/{name}/decisions", body, observed)
        if answer.status_code != 201:
            observed.faults.append(f"decide under {key}: {answer.status_code} {answer.text}")
            continue
        decision = answer.json()
        observed.add(decision)
        if rng.random() < 0.1:
            again = await post_until_answered(
                client, f"/v1/routers/{name}/decisions", body, observed
            )
            if again.json() != decision:
                observed.faults.append(f"{decision['id']} is not the same when asked again")
        if rng.random() < 0.9:
            await send_rewards(client, decision["id"], round(rng.random(), 3), rng, observed)


async def send_rewards(
    client: httpx.AsyncClient, id_: str, value: float, rng: random.Random, observed: ObservedAnswers
) -> None:
    """Send a reward, the same again, and another value, which must be refused."""
    path = f"/v1/decisions/{id_}/reward"
    answer = await post_until_answered(client, path, {"value": value}, observed)
    if answer.status_code != 200:
        observed.faults.append(f"reward of {id_}: {answer.status_code} {answer.text}")
        return
    observed.receipts[answer.json()["receipt"]] += 1
    observed.rewards[id_] = value
    if rng.random() < 0.1:
        again = await post_until_answered(client, path, {"value": value}, observed)
        if again.json().get("receipt") != "duplicate":
            observed.faults.append(f"{id_} rewarded again: {again.text}")
        other = await post_until_answered(client, path, {"value": 1.0 - value / 2}, observed)
        if other.status_code != 409:
            observed.faults.append(f"{id_} rewarded otherwise: {other.status_code} {other.text}")


async def run_campaign(
    server: ServerProcess, kills: int, seed: int, callers: int
) -> ObservedAnswers:
    """Run callers, and kill the server at random times."""
    rng, observed, stop = random.Random(seed), ObservedAnswers(), asyncio.Event()
    async with httpx.AsyncClient(base_url=server.url) as client:
        load = [
            asyncio.create_task(run_caller(client, 1000 * seed + n, observed, stop))
            for n in range(callers)
        ]
        for n in range(kills):
            if n % 5:  # every fifth kill hits the server while it opens its routers
                await wait_for_progress(observed, load)
            await asyncio.sleep(rng.uniform(0.05, 1.0))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            if (n + 1) % 10 == 0:
                print(f"... {n + 1} kills, {len(observed.decisions):,} decisions", file=sys.stderr)
        await asyncio.sleep(0.5)
        stop.set()
        await asyncio.gather(*load)
    return observed


async def wait_for_progress(observed: ObservedAnswers, load: Sequence[asyncio.Task[None]]) -> None:
    """Wait until callers get answers again, or one of them has failed."""
    before, deadline = len(observed.decisions), time.monotonic() + MAX_STANDSTILL_S
    while len(observed.decisions) == before and not any(one.done() for one in load):
        assert time.monotonic() < deadline, "no decision is made any more"
        await asyncio.sleep(0.01)


def read_log(url: str, name: str) -> list[dict[str, Any]]:
    """The whole log of a router."""
    after = -1
    found: list[dict[str, Any]] = []
    while True:
        answer = httpx.get(f"{url}/v1/routers/{name}/events", params={"after": after}, timeout=30)
        page = answer.json()["events"]
        if not page:
            return found
        found += page
        after = page[-1]["seq"]


def compare_log_with_answers(server: ServerProcess, observed: ObservedAnswers) -> dict[str, int]:
    """Compare the log with the answers to callers."""
    counts: Counter[str] = Counter()
    for name in POOLS:
        log = read_log(server.url, name)
        decided = {one["seq"]: one for one in log if one["kind"] == "decided"}
        rewards = [one for one in log if one["kind"] == "rewarded"]
        counts["decisions"] += len(decided)
        counts["rewards"] += len(rewards)
        for key, times in Counter(one["key"] for one in decided.values()).items():
            if times > 1:
                observed.faults.append(f"{times} decisions under {key}")
        for of, times in Counter(one["of"] for one in rewards).items():
            if times > 1:
                observed.faults.append(
                    f"the reward of event {of} of {name} was applied {times} times"
                )
        values = {one["of"]: one["body"]["value"] for one in rewards}
        for id_, decision in observed.decisions.items():
            if decision["router"] == name:
                compare_decision(id_, decision, decided, values, observed)
        compare_totals(server.url, name, log, observed)
    return dict(counts)


def compare_decision(
    id_: str,
    decision: dict[str, Any],
    decided: dict[int, dict[str, Any]],
    values: dict[int, float],
    observed: ObservedAnswers,
) -> None:
    """Compare one decision as answered with its events in the log."""
    seq = int(id_.split(".")[2])
    if seq not in decided:
        observed.faults.append(f"{id_} was acknowledged and is lost")
    elif decided[seq]["body"]["draws"] != decision["draws"]:
        observed.faults.append(f"{id_} has other draws than were answered")
    if id_ in observed.rewards and values.get(seq) != observed.rewards[id_]:
        observed.faults.append(f"the reward of {id_} is lost or another")


def compare_totals(
    url: str, name: str, log: list[dict[str, Any]], observed: ObservedAnswers
) -> None:
    """Compare the totals of the router with the sums of its log."""
    status = httpx.get(f"{url}/v1/routers/{name}/status", timeout=30).json()
    decided = [one["body"] for one in log if one["kind"] == "decided"]
    rewards = sum(one["kind"] == "rewarded" for one in log)
    spent = math.fsum(one["spend"]["usd"] for one in decided)
    stated = status["costs"]["usd"]["stated"]
    if not math.isclose(stated, spent, rel_tol=1e-9):
        observed.faults.append(f"{name}: the totals have {stated} USD, the log {spent}")
    for limit in status["limits"]:
        if limit["window"] is not None and limit["cost"] == "usd":
            compare_window(name, limit["window"], log, observed)
    for tenant in TENANTS if name == "budget" else ():
        found = httpx.get(f"{url}/v1/routers/{name}/tenants/{tenant}", timeout=30).json()
        of_tenant = [one for one in log if one["body"].get("keys", {}).get("tenant") == tenant]
        compare_window(f"{name} of {tenant}", found["windows"][0], of_tenant, observed)
    if (status["decisions"], status["rewards"]) != (len(decided), rewards):
        observed.faults.append(
            f"{name}: {status['decisions']} decisions, {len(decided)} in the log"
        )


def compare_window(
    name: str, window: dict[str, Any], log: list[dict[str, Any]], observed: ObservedAnswers
) -> None:
    """Compare what a window has spent with the decisions in it: nothing is charged twice."""
    made = [(datetime.fromisoformat(one["at"]), one) for one in log if one["kind"] == "decided"]
    inside = [one for at, one in made if at.timestamp() * 1e6 >= window["starts"]]
    spent = math.fsum(one["body"]["spend"]["usd"] for one in inside)
    if not math.isclose(window["spent"], spent, rel_tol=1e-9):
        text = f"{name}: the {window['per']} has spent {window['spent']}, the log says {spent}"
        observed.faults.append(text)


def run_fault_injection(
    address: str, folder: Path, kills: int, seed: int, callers: int = 16
) -> tuple[ObservedAnswers, dict[str, int]]:
    """Run a campaign on a store; return the observed answers and the counts."""
    server = serve_store(address, log=folder / "server.log")
    try:
        for name, (policy, _) in POOLS.items():
            body = {"name": name, "problem": make_problem(name), "policy": policy, "seed": seed}
            while is_compiling(
                made := httpx.post(f"{server.url}/v1/routers", json=body, timeout=60)
            ):
                time.sleep(0.1)
            made.raise_for_status()
        observed = asyncio.run(run_campaign(server, kills, seed, callers))
        counts = compare_log_with_answers(server, observed)
    finally:
        if server.process.poll() is None:
            server.stop()
    for name in POOLS:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main(["replay", name, "--store", address])
        if code != 0:
            observed.faults.append(f"replay of {name}: {output.getvalue()}")
    return observed, counts
