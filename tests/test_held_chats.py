"""Chats whose decisions others try to take back, on three servers of one PostgreSQL.

Callers know the id of a decision as soon as its stream begins. What they send about it, through
another server than the one that asks the models, must not change what is booked: the bill of the
models is what the ledger and the log say. A server that is killed leaves its decisions booked at
their declared costs, with the rest of their largest costs reserved.

A few chats here; `make faults` sends 200 (BYLOT_HELD_CHATS) and kills 30 servers that are asking
(BYLOT_HELD_KILLS).
"""

import asyncio
import contextlib
import json
import math
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bylot.eventlog.audit import audit_router
from bylot.store import open_store
from cluster_servers import ClusterServer, run_servers, wait_for_members
from gateway_target import write_gateway_config
from panel_log import PanelLog, read_panel_log
from upstreams import ReplayUpstream

CHATS = int(os.environ.get("BYLOT_HELD_CHATS", "12"))
KILLS = int(os.environ.get("BYLOT_HELD_KILLS", "1"))
SERVERS = 3
CONCURRENT_CHATS = 8
OUT_AT_A_KILL = 4
MODELS = ("a", "b", "c")
DECLARED_USD = 2e-3
LARGEST_USD = 5e-3
BUDGET_USD = 100.0
INPUT_TOKENS = 1_000
INPUT_USD = 1e-7  # per token, as `make_model_entry` has it
OUTPUT_USD = 4e-7
TIMEOUT = aiohttp.ClientTimeout(total=120)
HELD = (409, "in_use")
RESERVED = (422, "bad_reward")


class BilledUpstream(ReplayUpstream):
    """Models that bill a stream when it begins, and send the rest of it once it is released.

    bills: dollars of each call
    """

    def __init__(self, models: Sequence[str]) -> None:
        super().__init__(models)
        self.bills: list[float] = []
        self.released: set[str] = set()

    async def reply_to_chat(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Send a part of an answer, and the rest when the test says so."""
        text = body["messages"][0]["content"]
        completion = self.complete(body)
        tokens = random.Random(text).randint(2_000, 12_000)
        completion["usage"] = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": tokens}
        self.bills.append(INPUT_USD * INPUT_TOKENS + OUTPUT_USD * tokens)
        begin, *rest = make_parts(list(self.encode_chunks(body, completion)))
        response = await self.open_stream(request)
        await response.write(begin)
        while text not in self.released:
            await asyncio.sleep(0.01)
        for part in rest:
            await response.write(part)
        await response.write_eof()
        return response


def make_parts(chunks: Sequence[bytes]) -> tuple[bytes, bytes]:
    """A stream in two parts, of which the first has the beginning of the answer."""
    return b"".join(chunks[:2]), b"".join(chunks[2:])


def write_config(folder: Path, upstream: BilledUpstream) -> str:
    """A router with a budget per day, in a zone in which it is about noon."""
    offset = datetime.now(UTC).hour - 12
    limit = {"cost": "usd", "at_most": BUDGET_USD, "per": "day", "zone": f"Etc/GMT{offset:+}"}
    problem = {
        "experts": MODELS,
        "costs": {"usd": [DECLARED_USD] * len(MODELS)},
        "max_costs": {"usd": [LARGEST_USD] * len(MODELS)},
        "limits": [limit],
        "draws": 1,
    }
    gateway = {"answer": "first", "member_timeout_s": 120, "timeout_s": 120}
    routers = {"panel": {"problem": problem, "gateway": gateway}}
    return str(write_gateway_config(folder, [upstream], routers))


@dataclass
class Attempts:
    """What became of requests about decisions, by their kind: counts of statuses and codes."""

    held: dict[str, Counter[tuple[int, str]]] = field(default_factory=dict)
    settled: dict[str, Counter[tuple[int, str]]] = field(default_factory=dict)


class Callers:
    """Chats through one server, and requests about their decisions through others."""

    def __init__(self, session: aiohttp.ClientSession, upstream: BilledUpstream) -> None:
        self.session = session
        self.upstream = upstream
        self.attempts = Attempts()

    @contextlib.asynccontextmanager
    async def begin_chat(
        self, server: ClusterServer, text: str
    ) -> AsyncIterator[tuple[str, aiohttp.ClientResponse]]:
        """A stream that has begun: the id of its decision, and the response."""
        body = {"model": "bylot/panel", "stream": True, "messages": [make_message(text)]}
        url = f"{server.url}/v1/chat/completions"
        async with self.session.post(url, json=body) as response:
            assert response.status == 200, await response.text()
            yield response.headers["x-bylot-decision-id"], response

    async def post(self, server: ClusterServer, path: str, body: Any) -> tuple[int, str]:
        """The status of a request, and the code of its error."""
        async with self.session.post(server.url + path, json=body) as response:
            answer = await response.json()
            if "results" in answer:
                (answer,) = answer["results"]
            error = answer.get("error")
            return answer.get("status", response.status), error["code"] if error else ""

    async def interfere(
        self, server: ClusterServer, id_: str, seen: dict[str, Counter[tuple[int, str]]]
    ) -> None:
        """Try all that could make a decision cheaper."""
        path = f"/v1/decisions/{id_}"
        spend = {"usd": 0.0}
        item = {"decision": id_, "value": 1, "spend": spend, "key": "batch"}
        requests: dict[str, tuple[str, Any]] = {
            "cancel": (f"{path}/cancel", {}),
            "replace": (f"{path}/replace", {"failed": "a"}),
            "costs": (f"{path}/reward", {"spend": spend, "key": "costs"}),
            "reward and costs": ("/v1/rewards:batch", {"rewards": [item]}),
            "key": (f"{path}/reward", {"spend": spend, "key": "gateway"}),
            "key of a scorer": (f"{path}/reward", {"value": 1, "key": "gateway/judge"}),
        }
        for kind, request in requests.items():
            seen.setdefault(kind, Counter())[await self.post(server, *request)] += 1

    async def run_chat(self, servers: Sequence[ClusterServer], n: int) -> None:
        """One chat that others interfere with until it is settled, and that its caller rates."""
        asking, *others = servers
        other = others[n % len(others)]
        text = f"Chat {n}"
        async with self.begin_chat(asking, text) as (id_, response):
            await response.content.readany()
            await self.interfere(other, id_, self.attempts.held)
            self.upstream.released.add(text)
            assert b"[DONE]" in await response.read()
        seen = self.attempts.settled
        requests = {"cancel": {}, "replace": {"failed": "a"}, "reward": {"value": 1, "key": "user"}}
        for kind, body in requests.items():
            answer = await self.post(other, f"/v1/decisions/{id_}/{kind}", body)
            seen.setdefault(kind, Counter())[answer] += 1


def make_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def interfere_with_chats(
    servers: Sequence[ClusterServer], upstream: BilledUpstream
) -> Attempts:
    """Send all chats through the first server."""
    limit = asyncio.Semaphore(CONCURRENT_CHATS)
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        callers = Callers(session, upstream)

        async def run(n: int) -> None:
            async with limit:
                await callers.run_chat(servers, n)

        await asyncio.gather(*map(run, range(CHATS)))
    return callers.attempts


def read_ledger(server: ClusterServer) -> tuple[float, float, float]:
    """Dollars of all decisions, and those that the window has spent and reserved."""
    status = server.get("/v1/routers/panel/status")
    window = status["limits"][0]["window"]
    return status["costs"]["usd"]["settled"], window["spent"], window["reserved"]


def check_audit(address: str) -> None:
    with contextlib.closing(open_store(address, read_only=True)) as store:
        assert audit_router(store, "panel").fault is None


def test_nobody_makes_a_chat_cheaper_through_another_server(
    postgres_address: str, tmp_path: Path
) -> None:
    with BilledUpstream(MODELS) as upstream:
        config = write_config(tmp_path, upstream)
        with run_servers(postgres_address, tmp_path, SERVERS, config) as servers:
            attempts = asyncio.run(interfere_with_chats(servers, upstream))
            ledgers = [read_ledger(server) for server in servers]
    log = read_panel_log(postgres_address)
    bill = math.fsum(upstream.bills)
    counts = json.dumps({kind: str(dict(seen)) for kind, seen in attempts.held.items()}, indent=1)
    print(
        f"\n{CHATS} chats: the models bill {bill:.6f} dollars, the ledger has {ledgers[0][0]:.6f}, "
        f"the log {log.compute_dollars():.6f}; while a chat goes on: {counts}"
    )
    assert attempts.held == {
        "cancel": {HELD: CHATS},
        "replace": {HELD: CHATS},
        "costs": {HELD: CHATS},
        "reward and costs": {HELD: CHATS},
        "key": {RESERVED: CHATS},
        "key of a scorer": {RESERVED: CHATS},
    }
    assert attempts.settled == {
        "cancel": {(409, "invalid_state"): CHATS},
        "replace": {(409, "invalid_state"): CHATS},
        "reward": {(200, ""): CHATS},
    }
    assert len(upstream.bills) == len(log.decisions) == CHATS
    for settled, spent, reserved in ledgers:
        assert math.isclose(settled, bill, rel_tol=1e-12)
        assert math.isclose(spent, bill, rel_tol=1e-12)
        assert reserved == 0.0
    assert math.isclose(log.compute_dollars(), bill, rel_tol=1e-12)
    check_audit(postgres_address)


async def kill_asking_server(
    callers: Callers, servers: Sequence[ClusterServer], number: int
) -> set[str]:
    """Kill a server while it asks for some chats, and after it has settled others; the ids of
    decisions that were out.
    """
    asking = servers[number % len(servers)]
    others = [server for server in servers if server is not asking]
    for n in range(2):
        await callers.run_chat([asking, *others], 100 * number + n)
    out = set[str]()
    async with contextlib.AsyncExitStack() as stack:
        for n in range(OUT_AT_A_KILL):
            begun = callers.begin_chat(asking, f"Chat {number} that is out, {n}")
            id_, response = await stack.enter_async_context(begun)
            await response.content.readany()
            await callers.interfere(others[0], id_, callers.attempts.held)
            out.add(id_)
        asking.kill()
    for id_ in out:
        for other in others:
            await callers.interfere(other, id_, callers.attempts.held)
    return out


async def kill_servers(
    servers: Sequence[ClusterServer], upstream: BilledUpstream
) -> tuple[Attempts, set[str], list[float]]:
    """Kill servers one after the other. What became of requests, the decisions that were out, and
    how far the ledger was above the bill after each kill.
    """
    out = set[str]()
    margins: list[float] = []
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        callers = Callers(session, upstream)
        for number in range(KILLS):
            out |= await kill_asking_server(callers, servers, number)
            _, spent, reserved = read_ledger(servers[(number + 1) % len(servers)])
            margins.append(spent + reserved - math.fsum(upstream.bills))
            await asyncio.to_thread(servers[number % len(servers)].start)
            await asyncio.to_thread(wait_for_members, servers)
    return callers.attempts, out, margins


def check_settlements(log: PanelLog, out: set[str]) -> None:
    """All decisions but those that were out at a kill are settled once, these never."""
    unsettled = {int(id_.split(".")[2]) for id_ in out}
    for seq, made in log.decisions.items():
        assert made.holder == "gateway"
        keys = [report.key for report in log.reports.get(seq, []) if report.key == "gateway"]
        assert len(keys) == (seq not in unsettled), f"decision {seq} was settled {len(keys)} times"


def test_a_killed_server_leaves_its_chats_booked_and_reserved(
    postgres_address: str, tmp_path: Path
) -> None:
    with BilledUpstream(MODELS) as upstream:
        config = write_config(tmp_path, upstream)
        with run_servers(postgres_address, tmp_path, SERVERS, config) as servers:
            attempts, out, margins = asyncio.run(kill_servers(servers, upstream))
            settled, spent, reserved = read_ledger(servers[0])
    log = read_panel_log(postgres_address)
    bill = math.fsum(upstream.bills)
    print(
        f"\n{KILLS} kills, {len(log.decisions)} chats, {len(out)} out at a kill: the models bill "
        f"{bill:.6f} dollars, {spent:.6f} are spent and {reserved:.6f} reserved; least margin "
        f"{min(margins):.6f}; {sum(map(Counter.total, attempts.held.values()))} attempts refused"
    )
    for kind, seen in attempts.held.items():
        assert set(seen) == {RESERVED if kind.startswith("key") else HELD}, kind
    assert len(out) == KILLS * OUT_AT_A_KILL
    assert min(margins) >= -1e-12
    check_settlements(log, out)
    assert math.isclose(settled, log.compute_dollars(), rel_tol=1e-12)
    assert math.isclose(reserved, len(out) * (LARGEST_USD - DECLARED_USD), rel_tol=1e-9)
    check_audit(postgres_address)
