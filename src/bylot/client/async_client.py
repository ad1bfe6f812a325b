"""AsyncClient and AsyncRouter: the methods of Client and RemoteRouter, to be awaited."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Unpack

import httpx

from bylot import api
from bylot.client import requests, retry
from bylot.client.client import decision_request
from bylot.client.requests import AnswerT, CreateOptions, EditOptions, HttpCall
from bylot.errors import BylotError
from bylot.policies import Auto, Policy
from bylot.problem import Problem
from bylot.router.config import RouterConfig
from bylot.router.decision import Decision, Receipt
from bylot.router.status import RouterStatus


class AsyncRouter:
    """`RemoteRouter` with methods to be awaited; `AsyncClient.router` returns one."""

    def __init__(self, client: "AsyncClient", name: str) -> None:
        self.send, self.name = client.send, name

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
        """As `RemoteRouter.decide`."""
        request = decision_request(context, available, key, defer)
        return await self.send(requests.decide(self.name, request))

    async def reward(
        self,
        id: str,
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """As `RemoteRouter.reward`."""
        request = api.RewardRequest(value, None if spend is None else dict(spend), key)
        return await self.send(requests.reward(id, request))

    async def decide_many(
        self, items: Iterable[api.DecisionRequest]
    ) -> list[Decision | BylotError]:
        """As `RemoteRouter.decide_many`."""
        return await self.send(requests.decide_many(self.name, items))

    async def reward_many(self, items: Iterable[api.RewardItem]) -> list[Receipt | BylotError]:
        """As `RemoteRouter.reward_many`."""
        return await self.send(requests.reward_many(items))

    async def activate(self, id: str) -> Decision:
        """As `RemoteRouter.activate`."""
        return await self.send(requests.activate(id))

    async def cancel(self, id: str) -> Decision:
        """As `RemoteRouter.cancel`."""
        return await self.send(requests.cancel(id))

    async def status(self) -> RouterStatus:
        """As `RemoteRouter.status`."""
        return await self.send(requests.get_status(self.name))

    async def config(self) -> RouterConfig:
        """As `RemoteRouter.config`."""
        return await self.send(requests.get_config(self.name))

    async def edit(self, **options: Unpack[EditOptions]) -> RouterConfig:
        """As `RemoteRouter.edit`."""
        return await self.send(requests.edit_router(self.name, options))

    async def delete(self) -> None:
        """As `RemoteRouter.delete`."""
        await self.send(requests.delete_router(self.name))

    async def events(self, after: int = -1) -> AsyncIterator[api.EventRecord]:
        """As `RemoteRouter.events`."""
        following: int | None = after
        while following is not None:
            page = await self.send(requests.list_events(self.name, following))
            for event in page.events:
                yield event
            following = page.next


class AsyncClient:
    """`bylot.Client` with methods to be awaited.

    Parameters
    ----------
    url, key, timeout, retries
        As in `bylot.Client`.

    Examples
    --------
    >>> async with AsyncClient() as client:  # doctest: +SKIP
    ...     decision = await client.router("triage").decide()
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = retry.DEFAULT_RETRIES,
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
        """Close all connections."""
        await self._http.aclose()

    async def create(
        self,
        name: str,
        problem: Problem,
        policy: str | Policy | Auto = "auto",
        **options: Unpack[CreateOptions],
    ) -> AsyncRouter:
        """As `Client.create`."""
        await self.send(requests.create_router(name, problem, policy, options))
        return self.router(name)

    def router(self, name: str) -> AsyncRouter:
        """An existing router; sends no request."""
        return AsyncRouter(self, name)

    async def routers(self) -> AsyncIterator[api.RouterSummary]:
        """All routers, by name."""
        after: str | None = ""
        while after is not None:
            page = await self.send(requests.list_routers(after))
            for router in page.routers:
                yield router
            after = page.next

    async def send(self, call: HttpCall[AnswerT]) -> AnswerT:
        """Send a request, with retries."""
        steps = retry.retry_until_answered(call, self.retries)
        pause = next(steps)
        while True:
            await asyncio.sleep(pause)
            try:
                pause = steps.send(await self._attempt(call))
            except StopIteration as done:
                answer: AnswerT = done.value
                return answer

    async def _attempt(self, call: HttpCall[AnswerT]) -> retry.HttpReply | retry.LostReply:
        try:
            response = await self._http.request(**retry.httpx_request(call, self.timeout))
        except httpx.TransportError as error:
            return retry.reply_from_error(error)
        return retry.reply_from_response(response)
