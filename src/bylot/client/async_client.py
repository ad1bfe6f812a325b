"""AsyncClient: a server and its routers, asked from coroutines."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import httpx
from msgspec import UNSET, UnsetType

from bylot.client import requests, retry
from bylot.client.requests import AggregationChoice, Ask, HttpCall, Scored
from bylot.client.responses import LogLine, RemoteConfig, RemoteRouterSummary
from bylot.client.retry import DEFAULT_RETRIES, HttpReply, LostReply, retry_until_answered
from bylot.errors import BylotError
from bylot.policies import Auto, Policy
from bylot.problem import Limit, Problem
from bylot.router.decision import Decision, Receipt
from bylot.router.status import RouterStatus

RouterAnswerT = TypeVar("RouterAnswerT")


class SendCallAsync(Protocol):
    """How calls are sent."""

    async def __call__(self, call: HttpCall[RouterAnswerT]) -> RouterAnswerT:
        """Send a call until it is answered, or there is no hope."""
        ...


class AsyncRouter:
    """`RemoteRouter` with methods to be awaited; `AsyncClient.router` makes one."""

    def __init__(self, send: SendCallAsync, name: str) -> None:
        self.send, self.name = send, name

    def __repr__(self) -> str:
        return f"<AsyncRouter {self.name}>"

    async def decide(
        self,
        context: str | None = None,
        available: Iterable[str] | None = None,
        *,
        key: str | None = None,
        defer: bool = False,
    ) -> Decision:
        """Draw a panel for one request."""
        return await self.send(requests.decide_call(self.name, Ask(context, available, key, defer)))

    async def reward(
        self,
        id: str,
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Tell how well a decision went."""
        return await self.send(requests.reward_call(Scored(id, value, spend, key)))

    async def decide_many(self, asks: Iterable[Ask]) -> list[Decision | BylotError]:
        """Several decisions at once: for each of them the decision, or why there is none."""
        return await self.send(requests.decide_many_call(self.name, asks))

    async def reward_many(self, rewards: Iterable[Scored]) -> list[Receipt | BylotError]:
        """Several rewards at once: for each of them the receipt, or why there is none."""
        return await self.send(requests.reward_many_call(rewards))

    async def activate(self, id: str) -> Decision:
        """A deferred decision is being used: its time begins."""
        return await self.send(requests.activate_call(id))

    async def cancel(self, id: str) -> Decision:
        """A decision was never used: it costs nothing and has no reward."""
        return await self.send(requests.cancel_call(id))

    async def status(self) -> RouterStatus:
        """Averages so far, the slack and price of every limit, and the distribution in use."""
        return await self.send(requests.status_call(self.name))

    async def terms(self) -> RemoteConfig:
        """What it is declared with at present."""
        return await self.send(requests.config_call(self.name))

    async def change(
        self,
        *,
        limits: Sequence[Limit] | UnsetType = UNSET,
        add: Sequence[Mapping[str, Any]] = (),
        remove: Sequence[str] = (),
        pause: Sequence[str] = (),
        resume: Sequence[str] = (),
        wait: float | UnsetType | None = UNSET,
        default: float | UnsetType | None = UNSET,
        aggregate: AggregationChoice | UnsetType = UNSET,
        version: int | UnsetType = UNSET,
    ) -> RemoteConfig:
        """Other terms from the next decision on, as `RemoteRouter.change` makes them."""
        others = {
            "add": list(add),
            "remove": list(remove),
            "pause": list(pause),
            "resume": list(resume),
            "wait": wait,
            "default": default,
            "aggregate": aggregate,
            "version": version,
        }
        return await self.send(requests.change_call(self.name, requests.edit_body(limits, others)))

    async def delete(self) -> None:
        """Forget the router and all its decisions."""
        await self.send(requests.delete_call(self.name))

    async def events(self, after: int = -1) -> AsyncIterator[LogLine]:
        """The lines of its log after one, up to the last there is now."""
        following: int | None = after
        while following is not None:
            page = await self.send(requests.events_call(self.name, following))
            for line in page.events:
                yield line
            following = page.next


AnswerT = TypeVar("AnswerT")


class AsyncClient:
    """`bylot.Client` with methods to be awaited."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self.url, self.timeout, self.retries = url, timeout, retries
        self._http = httpx.AsyncClient(**retry.httpx_settings(url, key))

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
        aggregate: AggregationChoice = "earliest",
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
        await self.send(
            requests.create_call(requests.create_body(problem, policy, rewards, others))
        )
        return self.router(name)

    def router(self, name: str) -> AsyncRouter:
        """A router that is there; nothing is asked yet."""
        return AsyncRouter(self.send, name)

    async def routers(self) -> AsyncIterator[RemoteRouterSummary]:
        """All routers, by name."""
        after: str | None = ""
        while after is not None:
            page = await self.send(requests.list_call(after))
            for one in page.routers:
                yield one
            after = page.next

    async def send(self, call: HttpCall[AnswerT]) -> AnswerT:
        """Send a call until it is answered, or there is no hope."""
        steps = retry_until_answered(call, self.retries)
        pause = next(steps)
        while True:
            await asyncio.sleep(pause)
            try:
                pause = steps.send(await self.attempt(call))
            except StopIteration as done:
                answer: AnswerT = done.value
                return answer

    async def attempt(self, call: HttpCall[AnswerT]) -> HttpReply | LostReply:
        """Send a call once."""
        try:
            response = await self._http.request(**retry.httpx_request(call, self.timeout))
        except httpx.TransportError as error:
            return retry.reply_from_transport_error(error)
        return retry.reply_from_response(response)
