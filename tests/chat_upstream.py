"""An OpenAI-compatible server on loopback, whose models answer, break off or call functions."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from bylot.gateway.config import GatewayEntry, ModelEntry
from bylot.problem import Problem
from bylot.router.config import problem_to_data
from bylot.server.settings import RouterEntry
from live_server import ServerClient, live_server

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
PIECES = ("Grüße ", "aus ", "Bern")
TOOL_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'},
}
KINDS = ("plain", "long", "caller", "silent", "broken", "odd", "down", "wrong")
"""What the models ending in 1 or 2 do: answer, stop at the limit of tokens, call a function, say
nothing, break off a stream by an error or by a chunk of a wrong shape, answer 500, answer 400."""


class ChatUpstream:
    """Models of all kinds; bodies: what was sent to them."""

    port: int

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One chat completion."""
        body = await request.json()
        self.bodies.append(body)
        kind = body["model"].rstrip("12")
        if kind == "down":
            return web.json_response({"error": {"message": "secret"}}, status=500)
        if kind == "wrong":
            error = {"message": "bad schema", "param": "response_format", "code": "invalid"}
            return web.json_response({"error": error}, status=400)
        if body.get("stream"):
            return await self.stream(request, kind)
        message: dict[str, Any] = {"role": "assistant", "content": "".join(PIECES)}
        if kind == "caller":
            message = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
        if kind == "silent":
            message["content"] = ""
        choice = {"index": 0, "message": message, "finish_reason": find_reason(kind)}
        return web.json_response({"model": body["model"], "choices": [choice], "usage": USAGE})

    async def stream(self, request: web.Request, kind: str) -> web.StreamResponse:
        """The same as a stream."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if kind == "caller":
            head = {**TOOL_CALL, "index": 0, "function": {"name": "get_weather", "arguments": ""}}
            rest = [
                {"index": 0, "function": {"arguments": one}} for one in ('{"city"', ': "Bern"}')
            ]
            deltas += [{"tool_calls": [one]} for one in (head, *rest)]
        elif kind != "silent":
            deltas += [{"content": one} for one in PIECES]
        for delta in deltas:
            await send_chunk(response, [{"index": 0, "delta": delta, "finish_reason": None}])
            if kind == "broken" and delta.get("content"):
                await send_chunk(response, [], error={"message": "overloaded"})
                return response
            if kind == "odd" and delta.get("content"):
                await send_chunk(response, 5)
        last = {"index": 0, "delta": {}, "finish_reason": find_reason(kind)}
        await send_chunk(response, [last])
        await send_chunk(response, [], usage=USAGE)
        await response.write(b"data: [DONE]\n\n")
        return response


def find_reason(kind: str) -> str:
    return {"long": "length", "caller": "tool_calls"}.get(kind, "stop")


async def send_chunk(response: web.StreamResponse, choices: Any, **more: Any) -> None:
    data = json.dumps({"object": "chat.completion.chunk", "choices": choices, **more})
    await response.write(f"data: {data}\n\n".encode())


@contextmanager
def chat_upstream() -> Iterator[ChatUpstream]:
    """The server, in a thread of its own."""
    upstream, loop = ChatUpstream(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", upstream.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        upstream.port = runner.addresses[0][1]
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
    try:
        yield upstream
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def gateway_server(folder: Path, upstream: ChatUpstream, **options: Any) -> Iterator[ServerClient]:
    """A server with a router of both models of each kind, by its name; their answers are `first`.

    `all` is a router whose answers are all collected.
    """
    names = [f"{kind}{number}" for kind in KINDS for number in (1, 2)]
    models = tuple(
        ModelEntry(model_name=one, litellm_params={"model": one, "api_base": upstream.base})
        for one in names
    )
    entries = {kind: GatewayEntry(retries=0) for kind in KINDS}
    entries["all"] = GatewayEntry(answer="all", retries=0)
    routers = {
        name: RouterEntry(problem=Path("created-below.yaml"), gateway=one)
        for name, one in entries.items()
    }
    with live_server(folder, model_list=models, routers=routers, **options) as client:
        for name in entries:
            kind = "plain" if name == "all" else name
            problem = Problem(experts=[f"{kind}1", f"{kind}2"], costs={}, limits=[], draws=2)
            body = {"name": name, "problem": problem_to_data(problem), "policy": "random"}
            assert client.post("/v1/routers", json=body).status_code == 201
        yield client
