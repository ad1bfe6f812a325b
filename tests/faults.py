"""A campaign of faults: a server under load is killed at random instants, many times.

Callers try again under the same key until they are answered, as the client does. In the end the log
is compared with what they were told: nothing that was acknowledged may be missing, nothing may be
there twice, the replay must be equal and the ledger the sum of the log's lines.
"""

import asyncio
import contextlib
import io
import math
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bylot.cli import main
from bylot_bench.http_load import ServerProcess
from server_process import serve_store

POOLS: dict[str, tuple[str, list[str | None]]] = {
    "triage": ("distinct", ["chest", "head", None]),
    "crowd": ("tangent", [None]),
    "slate": ("omd", ["phone", "desk"]),
}
PROBLEM: dict[str, Any] = {
    "experts": ["ann", "bob", "cyd", "dee", "eve"],
    "costs": {"usd": [1.0, 2.0, 3.0, 1.5, 0.5]},
    "limits": [
        {"cost": "usd", "at_most": 3.5},
        {"share": "new", "members": ["dee"], "at_least": 0.2},
    ],
    "draws": 2,
}


@dataclass
class Witness:
    """What callers were told, which the log has to agree with."""

    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    receipts: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    faults: list[str] = field(default_factory=list)


async def insist(client: httpx.AsyncClient, path: str, body: dict[str, Any], seen: Witness) -> Any:
    """Post until there is an answer that is final."""
    while True:
        try:
            answer = await client.post(path, json=body, timeout=5)
        except httpx.HTTPError:
            answer = None
        in_flight = answer is not None and answer.status_code == 409 and "in_flight" in answer.text
        if answer is not None and answer.status_code not in (429, 503) and not in_flight:
            return answer
        seen.retries += 1
        await asyncio.sleep(0.1)


async def caller(client: httpx.AsyncClient, n: int, seen: Witness, over: asyncio.Event) -> None:
    """Decide, tell the reward, now and then tell it twice or otherwise."""
    chance, count = random.Random(n), 0
    while not over.is_set():
        name = chance.choice(list(POOLS))
        key = f"caller-{n}-{count}"
        count += 1
        body = {"context": chance.choice(POOLS[name][1]), "key": key}
        answer = await insist(client, f"/v1/routers/{name}/decisions", body, seen)
        if answer.status_code != 201:
            seen.faults.append(f"decide under {key}: {answer.status_code} {answer.text}")
            continue
        made = answer.json()
        if seen.decisions.setdefault(made["id"], made) is not made:
            seen.faults.append(f"{made['id']} was given to two requests")
        if chance.random() < 0.1:
            again = await insist(client, f"/v1/routers/{name}/decisions", body, seen)
            if again.json() != made:
                seen.faults.append(f"{made['id']} is not the same when asked again")
        if chance.random() < 0.9:
            await tell(client, made["id"], round(chance.random(), 3), chance, seen)


async def tell(
    client: httpx.AsyncClient, id_: str, value: float, chance: random.Random, seen: Witness
) -> None:
    """A reward, the same again, and another value, which must be refused."""
    path = f"/v1/decisions/{id_}/reward"
    answer = await insist(client, path, {"value": value}, seen)
    if answer.status_code != 200:
        seen.faults.append(f"reward of {id_}: {answer.status_code} {answer.text}")
        return
    seen.receipts[answer.json()["receipt"]] += 1
    seen.rewards[id_] = value
    if chance.random() < 0.1:
        again = await insist(client, path, {"value": value}, seen)
        if again.json().get("receipt") != "duplicate":
            seen.faults.append(f"{id_} rewarded again: {again.text}")
        other = await insist(client, path, {"value": 1.0 - value / 2}, seen)
        if other.status_code != 409:
            seen.faults.append(f"{id_} rewarded otherwise: {other.status_code} {other.text}")


async def campaign(server: ServerProcess, kills: int, seed: int, callers: int) -> Witness:
    """Load, and a kill at a random instant of it, so many times."""
    chance, seen, over = random.Random(seed), Witness(), asyncio.Event()
    async with httpx.AsyncClient(base_url=server.url) as client:
        load = [
            asyncio.create_task(caller(client, 1000 * seed + n, seen, over)) for n in range(callers)
        ]
        for n in range(kills):
            if n % 5:  # else while it still opens its routers
                await answered(seen, load)
            await asyncio.sleep(chance.uniform(0.05, 1.0))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            if (n + 1) % 10 == 0:
                print(f"... {n + 1} kills, {len(seen.decisions):,} decisions", file=sys.stderr)
        await asyncio.sleep(0.5)
        over.set()
        await asyncio.gather(*load)
    return seen


async def answered(seen: Witness, load: Sequence[asyncio.Task[None]]) -> None:
    """Wait until the load goes on, or comes to an end by a fault of its own."""
    before = len(seen.decisions)
    while len(seen.decisions) == before and not any(one.done() for one in load):
        await asyncio.sleep(0.01)


def lines(url: str, name: str) -> list[dict[str, Any]]:
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


def compare(server: ServerProcess, seen: Witness) -> dict[str, int]:
    """The log against what callers were told."""
    counts: Counter[str] = Counter()
    for name in POOLS:
        log = lines(server.url, name)
        decided = {one["seq"]: one for one in log if one["kind"] == "decided"}
        told = [one for one in log if one["kind"] == "rewarded"]
        counts["decisions"] += len(decided)
        counts["rewards"] += len(told)
        for key, times in Counter(one["key"] for one in decided.values()).items():
            if times > 1:
                seen.faults.append(f"{times} decisions under {key}")
        for of, times in Counter(one["of"] for one in told).items():
            if times > 1:
                seen.faults.append(f"the reward of line {of} of {name} was applied {times} times")
        values = {one["of"]: one["body"]["value"] for one in told}
        for id_, made in seen.decisions.items():
            if made["router"] == name:
                agree(id_, made, decided, values, seen)
        ledger(server.url, name, log, seen)
    return dict(counts)


def agree(
    id_: str,
    made: dict[str, Any],
    decided: dict[int, dict[str, Any]],
    values: dict[int, float],
    seen: Witness,
) -> None:
    """One decision as it was told against its lines in the log."""
    seq = int(id_.rpartition(".")[2])
    if seq not in decided:
        seen.faults.append(f"{id_} was acknowledged and is lost")
    elif decided[seq]["body"]["draws"] != made["draws"]:
        seen.faults.append(f"{id_} has other draws than were told")
    if id_ in seen.rewards and values.get(seq) != seen.rewards[id_]:
        seen.faults.append(f"the reward of {id_} is lost or another")


def ledger(url: str, name: str, log: list[dict[str, Any]], seen: Witness) -> None:
    """The router's own books against the sums of its log."""
    status = httpx.get(f"{url}/v1/routers/{name}/status", timeout=30).json()
    decided = [one["body"] for one in log if one["kind"] == "decided"]
    rewards = sum(one["kind"] == "rewarded" for one in log)
    spent = math.fsum(one["spend"]["usd"] for one in decided)
    books = status["costs"]["usd"]["stated"]
    if not math.isclose(books, spent, rel_tol=1e-9):
        seen.faults.append(f"{name}: the ledger has {books} USD, the log {spent}")
    if (status["decisions"], status["rewards"]) != (len(decided), rewards):
        seen.faults.append(f"{name}: {status['decisions']} decisions, {len(decided)} in the log")


def run(
    address: str, folder: Path, kills: int, seed: int, callers: int = 16
) -> tuple[Witness, dict[str, int]]:
    """A whole campaign on a store; what was seen, and what was counted."""
    server = serve_store(address, log=folder / "server.log")
    try:
        for name, (policy, _) in POOLS.items():
            body = {"name": name, "problem": PROBLEM, "policy": policy, "seed": seed}
            httpx.post(f"{server.url}/v1/routers", json=body, timeout=120).raise_for_status()
        seen = asyncio.run(campaign(server, kills, seed, callers))
        counts = compare(server, seen)
    finally:
        if server.process.poll() is None:
            server.stop()
    for name in POOLS:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(["replay", name, "--store", address])
        if code != 0:
            seen.faults.append(f"replay of {name}: {said.getvalue()}")
    return seen, counts
