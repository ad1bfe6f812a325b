"""JSON schemas of one caller take scores neither from configured checks nor from other callers."""

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bylot.gateway.config import GatewayEntry, ScorerEntry
from bylot.server.auth import issue_key
from bylot.server.settings import RouterEntry
from bylot.store import open_store
from chat_replies import Body
from gateway_target import create_routers, make_model_entry
from live_server import live_server, wait_until
from upstreams import ReplayUpstream

BOMBED_CHATS = int(os.environ.get("BYLOT_BOMBED_CHATS", "2"))  # with each scorer


class EchoUpstream(ReplayUpstream):
    """Models that answer what they are asked."""

    def complete(self, body: Mapping[str, Any]) -> Body:
        """The completion of a request, whatever its format is."""
        return super().complete({**body, "response_format": None})

    def recall(self, model: str, message: str) -> str | None:
        """The message itself."""
        return message


LONG = "a" * 60 + "!"
DOUBLING: dict[str, Any] = {
    f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)
}
BOMBS: list[tuple[dict[str, Any], Any]] = [
    ({"pattern": "(a+)+$"}, LONG),
    ({"$ref": "#/$defs/d0", "$defs": {**DOUBLING, "d60": {}}}, 1),
    ({"uniqueItems": True}, [{"a": n} for n in range(10_000)]),
    ({"patternProperties": {"(a+)+$": {}}}, {LONG: 1}),
]
"""Schemas that came with a request, and the answers on which they take long."""


def make_chat(router: str, schema: dict[str, Any], value: Any) -> dict[str, Any]:
    """A request whose answer is this value."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    messages = [{"role": "user", "content": json.dumps(value)}]
    return {"model": f"bylot/{router}", "messages": messages, "response_format": form}


@pytest.mark.parametrize("bombs", [BOMBS[:1] * 4, BOMBS], ids=["patterns", "all kinds"])
def test_schemas_of_one_caller_take_scores_from_nobody_else(
    bombs: list[tuple[dict[str, Any], Any]], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/bylot.db"
    path = tmp_path / "problem.json"
    path.write_text(
        json.dumps({"experts": ["a", "b", "c"], "costs": {"usd": [1, 1, 1]}, "draws": 2})
    )
    scorers = {
        "asked": ScorerEntry(json_schema={}),
        "pattern": ScorerEntry(regex={"pattern": "^{"}),
        "schema": ScorerEntry(json_schema={"schema": {"type": "object"}}),
    }
    routers = {
        name: RouterEntry(
            problem=path, policy="random", gateway=GatewayEntry(answer="pick", scorer=scorer)
        )
        for name, scorer in scorers.items()
    }
    keys = [issue_key(name, ("decide",), [], at=0) for name in ("hostile", "other")]
    with contextlib.closing(open_store(store)) as opened:
        for _, row in keys:
            opened.add_key(row)

    async def chat(session: aiohttp.ClientSession, body: dict[str, Any]) -> dict[str, Any]:
        async with session.post("/v1/chat/completions", json=body) as response:
            assert response.status == 200, await response.text()
            details: dict[str, Any] = (await response.json())["bylot"]
            return details

    async def run(base: str) -> tuple[int, list[dict[str, Any]]]:
        """How many bombs have scores, and what the other caller gets meanwhile."""
        async with contextlib.AsyncExitStack() as stack:
            hostile, other = [
                await stack.enter_async_context(
                    aiohttp.ClientSession(base, headers={"authorization": f"Bearer {text}"})
                )
                for text, _ in keys
            ]
            scored = 0

            async def bomb(schema: dict[str, Any], value: Any) -> None:
                nonlocal scored
                while True:
                    details = await chat(hostile, make_chat("asked", schema, value))
                    scored += bool(details["scores"])

            tasks = [asyncio.create_task(bomb(*one)) for one in bombs]
            await asyncio.sleep(0.3)
            found = []
            for router, _ in zip(cycle(scorers), range(3 * BOMBED_CHATS), strict=False):
                found.append(await chat(other, make_chat(router, {"type": "object"}, {})))
            assert not any(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            return scored, found

    with EchoUpstream(("a", "b", "c")) as upstream:
        models = tuple(make_model_entry(name, upstream) for name in upstream.models)
        create_routers(store, models, routers)
        with live_server(tmp_path, model_list=models, routers=routers) as client:
            wait_until(lambda: client.get("/readyz").status_code == 200, 300)
            scored, found = asyncio.run(run(f"http://127.0.0.1:{client.port}"))
    assert scored == 0
    assert [set(one["scores"].values()) for one in found] == [{1.0}] * (3 * BOMBED_CHATS)
