"""AsyncClient: a server and its routers, asked from coroutines."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import httpx

from bylot.client import calls, forms, wire
from bylot.client.answers import Listed
from bylot.client.async_router import AsyncRouter
from bylot.client.call import Call
from bylot.client.exchange import RETRIES, Lost, Reply, exchange
from bylot.client.forms import Aggregate
from bylot.policies import Auto, Policy
from bylot.problem import Problem

Answer = TypeVar("Answer")


class AsyncClient:
    """`bylot.Client` with methods to be awaited."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = RETRIES,
    ) -> None:
        self.url, self.timeout, self.retries = url, timeout, retries
        self._http = httpx.AsyncClient(**wire.settings(url, key))

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.url}>"

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections."""
        await self._http.aclose()

    async def create(
        self,
        name: str,
        problem: Problem,
        policy: str | Policy | Auto = "auto",
        *,
        seed: int = 0,
        horizon: int | None = None,
        rewards: tuple[float, float] = (0.0, 1.0),
        wait: float | None = None,
        default: float | None = None,
        aggregate: Aggregate = "earliest",
        max_contexts: int | None = None,
        memory: int = 100_000,
    ) -> AsyncRouter:
        """A new router, as `Client.create` makes one."""
        others = {
            "name": name,
            "seed": seed,
            "horizon": horizon,
            "wait": wait,
            "default": default,
            "aggregate": aggregate,
            "max_contexts": max_contexts,
            "memory": memory,
        }
        await self.send(calls.create(forms.terms(problem, policy, rewards, others)))
        return self.router(name)

    def router(self, name: str) -> AsyncRouter:
        """A router that is there; nothing is asked yet."""
        return AsyncRouter(self.send, name)

    async def routers(self) -> AsyncIterator[Listed]:
        """All routers, by name."""
        after: str | None = ""
        while after is not None:
            page = await self.send(calls.listing(after))
            for one in page.routers:
                yield one
            after = page.next

    async def send(self, call: Call[Answer]) -> Answer:
        """Send a call until it is answered, or there is no hope."""
        steps = exchange(call, self.retries)
        pause = next(steps)
        while True:
            await asyncio.sleep(pause)
            try:
                pause = steps.send(await self.attempt(call))
            except StopIteration as done:
                answer: Answer = done.value
                return answer

    async def attempt(self, call: Call[Answer]) -> Reply | Lost:
        """Send a call once."""
        try:
            response = await self._http.request(**wire.request(call, self.timeout))
        except httpx.TransportError as error:
            return wire.lost(error)
        return wire.reply(response)
