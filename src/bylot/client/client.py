"""Clients of a server and its routers: `Client` for threads, `AsyncClient` to be awaited."""

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

import httpx
from msgspec import json

from bylot import api
from bylot.client import calls, retry
from bylot.client.calls import AnswerT, CreateOptions, HttpCall, RouterCalls
from bylot.policies import Auto, Policy
from bylot.policies.validation import FeedbackKind
from bylot.problem import Problem
from bylot.router.past_rounds import PastRound

ROUNDS_PER_CALL = 500  # of a log: a batch is learned in a fraction of a second
BYTES_PER_CALL = 200_000  # servers take larger bodies
P = ParamSpec("P")
ClientT = TypeVar("ClientT")


class RouterMethod(Generic[P, AnswerT]):
    """A method that sends what a method of `RouterCalls` makes, with its arguments.

    It returns the answer or, of an `AsyncRouter`, what to await for it.
    """

    def __init__(self, make: Callable[Concatenate[RouterCalls, P], HttpCall[AnswerT]]) -> None:
        @functools.wraps(make)
        def method(router: "HttpRouter[Any]", *args: Any, **options: Any) -> Any:
            return router.client.send(make(router.calls, *args, **options))

        signature = inspect.signature(make)
        (answer,) = get_args(signature.return_annotation)
        method.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]
        self.__doc__ = make.__doc__
        self.__func__: Any = method  # as of other methods, for programs that look at its signature

    @overload
    def __get__(self, router: "RemoteRouter", kind: type) -> Callable[P, AnswerT]: ...
    @overload
    def __get__(
        self, router: "AsyncRouter", kind: type
    ) -> Callable[P, Coroutine[Any, Any, AnswerT]]: ...
    def __get__(self, router: Any, kind: type) -> Any:
        return self.__func__.__get__(router, kind)


def split_rounds(
    rounds: Iterable[PastRound], view: api.RouterView
) -> Iterator[tuple[Sequence[PastRound], int]]:
    """Yield rounds of a log in batches, and how many the router has learned before each."""
    after = 0 if view.status.counters is None else view.status.counters.past
    batch: list[PastRound] = []
    size = 0
    for round in rounds:
        round_bytes = len(json.encode(round))
        if len(batch) == ROUNDS_PER_CALL or (batch and size + round_bytes > BYTES_PER_CALL):
            yield batch, after
            after += len(batch)
            batch = []
            size = 0
        batch.append(round)
        size += round_bytes
    if batch:
        yield batch, after


class HttpRouter(Generic[ClientT]):
    """A router on a server: what `RemoteRouter` and `AsyncRouter` have in common."""

    def __init__(self, client: ClientT, name: str) -> None:
        self.client = client
        self.name = name
        self.calls = RouterCalls(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    decide = RouterMethod(RouterCalls.decide)
    reward = RouterMethod(RouterCalls.reward)
    decide_many = RouterMethod(RouterCalls.decide_many)
    reward_many = RouterMethod(RouterCalls.reward_many)
    replace = RouterMethod(RouterCalls.replace)
    activate = RouterMethod(RouterCalls.activate)
    cancel = RouterMethod(RouterCalls.cancel)
    view = RouterMethod(RouterCalls.view)
    tenant = RouterMethod(RouterCalls.tenant)
    set_tenant = RouterMethod(RouterCalls.set_tenant)
    status = RouterMethod(RouterCalls.status)
    config = RouterMethod(RouterCalls.config)
    edit = RouterMethod(RouterCalls.edit)
    delete = RouterMethod(RouterCalls.delete)


class RemoteRouter(HttpRouter["Client"]):
    """A router on a server, with the methods of `bylot.Router`; `Client.router` returns one."""

    def learn_from(
        self, rounds: Iterable[PastRound], report: Callable[[int], object] = lambda learned: None
    ) -> None:
        """Learn from a log as `Router.learn_from`, in batches, and report how many are learned.

        A batch that is sent again after a lost answer is learned once. After an error, the router
        has learned what `status().counters.past` says.
        """
        for batch, after in split_rounds(rounds, self.view()):
            self.client.send(self.calls.learn_rounds(batch, after))
            report(after + len(batch))

    def events(self, after: int = -1) -> Iterator[api.EventRecord]:
        """The events of its log after a sequence number."""
        following: int | None = after
        while following is not None:
            page = self.client.send(self.calls.list_events(following))
            yield from page.events
            following = page.next

    def tenants(self) -> Iterator[api.TenantView]:
        """All tenants by name that have bounds of their own, or a request in recent windows."""
        after: str | None = ""
        while after is not None:
            page = self.client.send(self.calls.list_tenants(after))
            yield from page.tenants
            after = page.next

    @property
    def problem(self) -> Problem:
        """Experts, costs and limits."""
        return self.config().build_problem()

    @property
    def policy(self) -> Policy:
        """The policy and its settings."""
        policy = self.config().build_policy()
        assert not isinstance(policy, Auto), "a router has the policy that was chosen"
        return policy

    @property
    def seed(self) -> int:
        """Seed of all random numbers."""
        return self.config().seed

    @property
    def horizon(self) -> int | None:
        """Expected number of decisions, if declared."""
        return self.config().horizon

    @property
    def rewards(self) -> tuple[float, float]:
        """The range of rewards."""
        return self.config().rewards

    @property
    def feedback(self) -> FeedbackKind:
        """What is reported: 'panel', 'members' or 'winner'."""
        return self.config().feedback


class HttpClient:
    """The settings of `Client` and `AsyncClient`."""

    make_http: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = retry.DEFAULT_RETRIES,
        follow_owner: bool = False,
    ) -> None:
        self.url = url
        self.timeout = timeout
        self.retries = retries
        self._http = self.make_http(**retry.httpx_settings(url, key))
        self._hints = retry.OwnerHints(url, follow_owner)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"


class Client(HttpClient):
    """A bylot server, such as `bylot serve` starts; threads may share a client.

    Parameters
    ----------
    url : str
        Address of the server.
    key : str, optional
        API key, as `bylot keys create` prints it; a local server may need none.
    timeout : float
        Seconds to wait for a connection, and for each part of a response.
    retries : int
        How often a request is repeated if no response arrives or the server is busy; the default
        takes about half a minute. Decisions are repeated under the same key, so they are made once.
        A call waits up to ten minutes more while the server compiles the policy of the router, and
        logs a warning that says so; with `retries=0` it does not.
    follow_owner : bool
        Send requests about a router to the server that owns it, as its last answer named it, and to
        `url` if that one does not answer. The API key is sent there too: use it in a private
        network of servers that you trust. From an https `url`, only https addresses are followed.

    Raises
    ------
    ServerUnreachable
        From every method, if the server does not answer.
    AccessDenied
        From every method, if the key does not permit the request.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     decision = client.router("triage").decide(context="chest pain")
    """

    make_http = httpx.Client

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def create(
        self,
        name: str,
        problem: Problem,
        policy: str | Policy | Auto = "auto",
        **options: Unpack[CreateOptions],
    ) -> RemoteRouter:
        """Create a router.

        Parameters
        ----------
        name, problem, policy
            Name of the router; problem and policy as in `bylot.Router`.
        seed, horizon, rewards, feedback, memory
            As in `bylot.Router`.
        wait : float, optional
            Seconds within which a reward counts; by default as long as its decision is kept.
        default : float, optional
            The reward that is learned if none arrives in time; by default nothing is learned.
        aggregate : {"earliest", "last", "sum"}
            Which of several rewards with different keys counts: the earliest, at once; or the last
            or the sum, when the wait is over.
        max_contexts : int, optional
            By default 1,000, or as many as the policy supports.

        Returns
        -------
        RemoteRouter
            The new router.

        Raises
        ------
        RouterExists
            If a router of this name exists already.
        InfeasibleLimits
            If no policy can keep the limits.
        """
        self.send(calls.create_router(name, problem, policy, options))
        return self.router(name)

    def router(self, name: str) -> RemoteRouter:
        """Refer to an existing router; sends no request.

        Parameters
        ----------
        name : str
            Name of the router.

        Returns
        -------
        RemoteRouter
            The router; its methods raise RouterNotFound if it does not exist.
        """
        return RemoteRouter(self, name)

    def routers(self) -> Iterator[api.RouterSummary]:
        """List all routers.

        Returns
        -------
        iterator of RouterSummary
            The routers, ordered by name.
        """
        after: str | None = ""
        while after is not None:
            page = self.send(calls.list_routers(after))
            yield from page.routers
            after = page.next

    def send(self, call: HttpCall[AnswerT]) -> AnswerT:
        """Send a request, with retries."""
        steps = retry.retry_until_answered(call, self.retries, self._hints)
        attempt = next(steps)
        while True:
            time.sleep(attempt.pause_s)
            request = retry.httpx_request(call, self.timeout, attempt.owner)
            try:
                outcome: retry.Outcome = self._http.request(**request)
            except httpx.TransportError as error:
                outcome = error
            try:
                attempt = steps.send(outcome)
            except StopIteration as done:
                answer: AnswerT = done.value
                return answer


class AsyncRouter(HttpRouter["AsyncClient"]):
    """`RemoteRouter` with methods to be awaited; `AsyncClient.router` returns one."""

    async def learn_from(
        self, rounds: Iterable[PastRound], report: Callable[[int], object] = lambda learned: None
    ) -> None:
        """As `RemoteRouter.learn_from`."""
        for batch, after in split_rounds(rounds, await self.view()):
            await self.client.send(self.calls.learn_rounds(batch, after))
            report(after + len(batch))

    async def events(self, after: int = -1) -> AsyncIterator[api.EventRecord]:
        """As `RemoteRouter.events`."""
        following: int | None = after
        while following is not None:
            page = await self.client.send(self.calls.list_events(following))
            for event in page.events:
                yield event
            following = page.next

    async def tenants(self) -> AsyncIterator[api.TenantView]:
        """As `RemoteRouter.tenants`."""
        after: str | None = ""
        while after is not None:
            page = await self.client.send(self.calls.list_tenants(after))
            for view in page.tenants:
                yield view
            after = page.next


class AsyncClient(HttpClient):
    """`bylot.Client` with methods to be awaited.

    Parameters
    ----------
    url, key, timeout, retries, follow_owner
        As in `bylot.Client`.

    Examples
    --------
    >>> async with AsyncClient() as client:  # doctest: +SKIP
    ...     decision = await client.router("triage").decide()
    """

    make_http = httpx.AsyncClient

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
        await self.send(calls.create_router(name, problem, policy, options))
        return self.router(name)

    def router(self, name: str) -> AsyncRouter:
        """An existing router; sends no request."""
        return AsyncRouter(self, name)

    async def routers(self) -> AsyncIterator[api.RouterSummary]:
        """All routers, by name."""
        after: str | None = ""
        while after is not None:
            page = await self.send(calls.list_routers(after))
            for router in page.routers:
                yield router
            after = page.next

    async def send(self, call: HttpCall[AnswerT]) -> AnswerT:
        """Send a request, with retries."""
        steps = retry.retry_until_answered(call, self.retries, self._hints)
        attempt = next(steps)
        while True:
            await asyncio.sleep(attempt.pause_s)
            request = retry.httpx_request(call, self.timeout, attempt.owner)
            try:
                outcome: retry.Outcome = await self._http.request(**request)
            except httpx.TransportError as error:
                outcome = error
            try:
                attempt = steps.send(outcome)
            except StopIteration as done:
                answer: AnswerT = done.value
                return answer
