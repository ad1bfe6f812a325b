"""OpenAI-compatible models on a loopback port, which replay recorded answers or make some up.

    with ReplayUpstream(("a", "b"), latency=0.1) as upstream:
        openai.OpenAI(base_url=upstream.url, api_key="any")

The server runs in a thread with its own loop. As a process it prints its port as JSON:
`python tests/upstreams.py --port 0 --recorded PATH --models a,b`; `GET /counts` shows its counts.
"""

import argparse
import asyncio
import contextlib
import json
import math
import random
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from aiohttp import web

from chat_replies import (
    Body,
    RequestError,
    Speaker,
    check_chat_request,
    check_model,
    encode_event,
    make_chunks,
    make_completion,
    parse_body,
)
from recorded_answers import RecordedQuestions, read_recorded_questions
from response_replies import make_response, make_response_events, translate_to_chat

HOST = "127.0.0.1"
MAX_BODY_BYTES = 64 * 1024 * 1024
WORK_TIMEOUT_S = 30.0
NUMBER = web.RequestKey("number", int)  # of a request, from 1
BROKEN = web.RequestKey("broken", bool)  # whether the upstream itself ends the connection


class LogNormal(NamedTuple):
    """Latencies in seconds whose logarithm is normal; the n-th request has the n-th of a seed."""

    median: float
    sigma: float
    seed: int = 0

    def draw(self, number: int) -> float:
        """The latency of a request by its number."""
        noise = random.Random(f"{self.seed}/{number}").gauss(0.0, self.sigma)
        return self.median * math.exp(noise)


Latency = float | LogNormal | Mapping[str, float | LogNormal]
"""Seconds before the first byte: of every model, or by model."""


class ReceivedRequest(NamedTuple):
    """A request as it came; headers have names in lower case; at: time.monotonic()."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes
    at: float

    @property
    def body(self) -> Any:
        """The JSON of the request."""
        return json.loads(self.content)


class ReplayUpstream:
    """A server of models that all know the recorded answers of their name.

    Parameters
    ----------
    models
        Names of the models; by default those of `recorded`, or a, b and c.
    recorded
        Questions with recorded answers; a model that is not in them makes its answers up.
    key
        Every request must have `Authorization: Bearer KEY`; None: any or no key will do.
    latency, chunk_s
        Seconds before the first byte, and between two chunks of a stream. Both may be changed
        while the server runs.
    voice
        All models answer as this one, so that their answers are equal; None: as themselves.
    fields
        More fields of every message, such as `reasoning_content`.
    keep_requests
        Whether requests are kept in `requests`, or only counted.

    Attributes
    ----------
    requests
        What was received, in order.
    received, answered, cancelled, active
        Requests: all, those answered in full, those whose client left before, those at work.
    peak_active, peak_connections, connections_made
        The most requests at work and connections open at one time, and all connections seen.
    """

    def __init__(
        self,
        models: Sequence[str] | None = None,
        recorded: RecordedQuestions | None = None,
        *,
        key: str | None = None,
        latency: Latency = 0.0,
        chunk_s: float = 0.0,
        chunk_chars: int = 24,
        voice: str | None = None,
        fields: Mapping[str, Any] | None = None,
        keep_requests: bool = True,
        port: int = 0,
    ) -> None:
        known = ("a", "b", "c") if recorded is None else recorded.models
        self.models = tuple(known if models is None else models)
        self.recorded, self.key, self.voice, self.fields = recorded, key, voice, fields or {}
        self.latency, self.chunk_s, self.chunk_chars = latency, chunk_s, chunk_chars
        self.keep_requests, self.requests = keep_requests, list[ReceivedRequest]()
        self.received = self.answered = self.cancelled = self.active = 0
        self.peak_active = self.peak_connections = self.connections_made = 0
        self.seen: weakref.WeakSet[Any] = weakref.WeakSet()
        # It is never listened on, and keeps the port while the server does not listen either.
        self.reservation = socket.socket()
        self.reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.reservation.bind((HOST, port))
        self.port = int(self.reservation.getsockname()[1])
        self.url = f"http://{HOST}:{self.port}/v1"
        self.started = threading.Event()

    # Start and stop

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve()))
        self.thread.start()
        while not self.started.wait(0.05):
            if not self.thread.is_alive():
                raise RuntimeError("the upstream did not start")
        return self

    def __exit__(self, *raised: object) -> None:
        self.loop.call_soon_threadsafe(self.stopped.set)
        self.thread.join()
        self.reservation.close()

    async def serve(self) -> None:
        """Serve until `stopped` is set."""
        self.loop, self.stopped = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(middlewares=[self.observe], client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self.answer_chat)
        app.router.add_post("/v1/responses", self.answer_response)
        app.router.add_get("/v1/models", self.list_models)
        app.router.add_get("/v1/models/{model:.+}", self.show_model)
        app.router.add_get("/counts", self.show_counts)
        app.router.add_route("*", "/{path:.*}", self.refuse_path)
        self.runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.05
        )
        await self.runner.setup()
        await self.listen()
        self.started.set()
        await self.stopped.wait()
        await self.runner.cleanup()

    async def listen(self) -> None:
        """Open the port."""
        self.site = web.TCPSite(self.runner, HOST, self.port, reuse_port=True, backlog=1024)
        await self.site.start()

    async def hang_up(self) -> None:
        """Close the port and all connections."""
        await self.site.stop()
        for connection in list(self.runner.server.connections if self.runner.server else []):
            if connection.transport is not None:
                connection.transport.abort()
        while self.connections:  # each is told in a later turn of the loop
            await asyncio.sleep(0.001)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the loop of the server and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self.loop).result(WORK_TIMEOUT_S)

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """All connections are closed and new ones are refused; then the same port answers again."""
        self.run(self.hang_up())
        try:
            yield
        finally:
            self.run(self.listen())

    @contextlib.contextmanager
    def slowed(self, latency: Latency, chunk_s: float = 0.0) -> Iterator[None]:
        """Other latencies for a while."""
        before = self.latency, self.chunk_s
        self.latency, self.chunk_s = latency, chunk_s
        try:
            yield
        finally:
            self.latency, self.chunk_s = before

    # Counts

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self.runner.server.connections) if self.runner.server else 0

    @property
    def bodies(self) -> list[Any]:
        """The bodies of the chat completions that were asked for."""
        return [one.body for one in self.requests if one.path == "/v1/chat/completions"]

    def count(self) -> dict[str, int]:
        """All counts by name."""
        names = ("received", "answered", "cancelled", "active", "connections")
        peaks = ("peak_active", "peak_connections", "connections_made")
        return {name: int(getattr(self, name)) for name in names + peaks}

    @web.middleware
    async def observe(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Count a request, check its key, and turn refusals into error responses."""
        if request.path == "/counts":
            return await handler(request)
        self.received += 1
        self.active += 1
        self.peak_active = max(self.peak_active, self.active)
        self.peak_connections = max(self.peak_connections, self.connections)
        if request.transport not in self.seen:
            self.seen.add(request.transport)
            self.connections_made += 1
        request[NUMBER] = self.received
        try:
            content = await request.read()
            if self.keep_requests:
                headers = {name.lower(): value for name, value in request.headers.items()}
                self.requests.append(
                    ReceivedRequest(
                        request.method, request.path, headers, content, time.monotonic()
                    )
                )
            self.check_key(request)
            response = await handler(request)
        except RequestError as error:
            response = web.json_response(error.body, status=error.status)
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled += not request.get(BROKEN, False)
            raise
        finally:
            self.active -= 1
        self.answered += 1
        if not response.prepared:
            response.headers["x-request-id"] = f"req_{request[NUMBER]}"
        return response

    def check_key(self, request: web.Request) -> None:
        """Refuse a request with another key."""
        given = request.headers.get("authorization", "")
        if self.key is not None and given != f"Bearer {self.key}":
            raise RequestError(401, "Incorrect API key provided.", "invalid_api_key")

    # Endpoints

    async def answer_chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions"""
        body = parse_body(await request.read())
        check_model(body, self.models)
        check_chat_request(body)
        return await self.reply_to_chat(request, body)

    async def reply_to_chat(self, request: web.Request, body: Body) -> web.StreamResponse:
        """The answer to a valid request."""
        completion = self.complete(body)
        await self.wait(request, body["model"])
        if not body.get("stream"):
            return make_json_response(completion)
        return await self.stream(request, self.encode_chunks(body, completion))

    async def answer_response(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/responses"""
        body = parse_body(await request.read())
        check_model(body, self.models)
        chat = translate_to_chat(body)
        check_chat_request(chat)
        response = make_response(body, self.complete(chat))
        await self.wait(request, body["model"])
        if not body.get("stream"):
            return make_json_response(response)
        events = make_response_events(response, self.chunk_chars)
        return await self.stream(request, (encode_event(one, one["type"]) for one in events))

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models"""
        data = [make_model(name) for name in self.models]
        return make_json_response({"object": "list", "data": data})

    async def show_model(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models/MODEL"""
        return make_json_response(make_model(check_model(request.match_info, self.models)))

    async def show_counts(self, request: web.Request) -> web.StreamResponse:
        """GET /counts"""
        return make_json_response(self.count())

    async def refuse_path(self, request: web.Request) -> web.StreamResponse:
        """Any other path"""
        raise RequestError(404, f"Unknown request URL: {request.method} {request.path}.")

    # Answers

    def complete(self, body: Mapping[str, Any]) -> Body:
        """The completion of a request."""
        name = self.voice or body["model"]
        return make_completion(
            body, Speaker(name, lambda asked: self.recall(name, asked), self.fields)
        )

    def recall(self, model: str, message: str) -> str | None:
        """What a model answered to the question of a message."""
        question = self.recorded.find(message) if self.recorded else None
        answer = question.answers.get(model) if question else None
        return answer.text if answer else None

    async def wait(self, request: web.Request, model: str) -> None:
        """Wait for as long as the model takes."""
        latency = self.latency
        one = latency.get(model, 0.0) if isinstance(latency, Mapping) else latency
        seconds = one.draw(request[NUMBER]) if isinstance(one, LogNormal) else one
        if seconds > 0:
            await asyncio.sleep(seconds)

    def encode_chunks(self, body: Mapping[str, Any], completion: Body) -> Iterator[bytes]:
        """The events of a stream, with the last."""
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        for chunk in make_chunks(completion, self.chunk_chars, usage):
            yield encode_event(chunk)
        yield encode_event("[DONE]")

    async def stream(self, request: web.Request, events: Iterable[bytes]) -> web.StreamResponse:
        """Send events, with a pause between two."""
        response = await self.open_stream(request)
        for event in events:
            await response.write(event)
            if self.chunk_s > 0:
                await asyncio.sleep(self.chunk_s)
        await response.write_eof()
        return response

    async def open_stream(self, request: web.Request) -> web.StreamResponse:
        """The head of a stream."""
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-request-id": f"req_{request[NUMBER]}",
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        return response


def make_model(name: str) -> Body:
    """A model in a list of models."""
    return {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "replay"}


def make_json_response(body: Body, status: int = 200) -> web.Response:
    """JSON with its characters as they are."""
    text = json.dumps(body, ensure_ascii=False)
    return web.Response(text=text, status=status, content_type="application/json")


@contextlib.contextmanager
def refused_address() -> Iterator[str]:
    """An address whose port is taken and refuses connections."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield f"http://{HOST}:{taken.getsockname()[1]}/v1"


# As a process


@contextlib.contextmanager
def upstream_process(*options: str) -> Iterator[str]:
    """The address of an upstream in a process of its own, with options as on its command line."""
    command = [sys.executable, str(Path(__file__).resolve()), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://{HOST}:{json.loads(process.stdout.readline())['port']}/v1"
        finally:
            process.terminate()


def main(words: Sequence[str] | None = None) -> None:
    """Serve until standard input ends or a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--recorded", type=Path, help="file of recorded answers")
    parser.add_argument("--models", help="names, with commas between")
    parser.add_argument("--key", help="the key that requests must have")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds, or their median")
    parser.add_argument("--sigma", type=float, default=0.0, help="of the logarithm of latencies")
    parser.add_argument("--seed", type=int, default=0, help="of latencies")
    parser.add_argument("--chunk-s", type=float, default=0.0, help="seconds between two chunks")
    given = parser.parse_args(words)
    upstream = ReplayUpstream(
        given.models.split(",") if given.models else None,
        read_recorded_questions(given.recorded) if given.recorded else None,
        key=given.key,
        latency=LogNormal(given.latency, given.sigma, given.seed),
        chunk_s=given.chunk_s,
        keep_requests=False,
        port=given.port,
    )
    with upstream:
        print(json.dumps({"port": upstream.port}), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()


if __name__ == "__main__":
    main()
