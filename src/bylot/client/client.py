"""Client: a server and its routers, asked from threads."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class SendCall(Protocol):
    """How calls are sent."""

    def __call__(self, call: HttpCall[RouterAnswerT]) -> RouterAnswerT:
        """Send a call until it is answered, or there is no hope."""
        ...


class RemoteRouter:
    """Draws panels and learns from their rewards, elsewhere; `Client.router` makes one."""

    def __init__(self, send: SendCall, name: str) -> None:
        self.send, self.name = send, name

    def __repr__(self) -> str:
        return f"<RemoteRouter {self.name}>"

    def decide(
        self,
        context: str | None = None,
        available: Iterable[str] | None = None,
        *,
        key: str | None = None,
        defer: bool = False,
    ) -> Decision:
        """Draw a panel for one request, from the experts that are up now if that is said.

        key:   your own name for it: asked again under the same key, the answer is the same decision
        defer: it may yet come to nothing: its time begins when it is activated
        """
        return self.send(requests.decide_call(self.name, Ask(context, available, key, defer)))

    def reward(
        self,
        id: str,
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Tell how well a decision went: once, at any time, in any order.

        If an answer was lost on the way, what is sent again finds itself a DUPLICATE.

        spend: what the panel really cost, by name of the cost; those left out: as stated
        key:   which of several rewards this is
        """
        return self.send(requests.reward_call(Scored(id, value, spend, key)))

    def decide_many(self, asks: Iterable[Ask]) -> list[Decision | BylotError]:
        """Several decisions at once: for each of them the decision, or why there is none."""
        return self.send(requests.decide_many_call(self.name, asks))

    def reward_many(self, rewards: Iterable[Scored]) -> list[Receipt | BylotError]:
        """Several rewards at once: for each of them the receipt, or why there is none."""
        return self.send(requests.reward_many_call(rewards))

    def activate(self, id: str) -> Decision:
        """A deferred decision is being used: its time begins."""
        return self.send(requests.activate_call(id))

    def cancel(self, id: str) -> Decision:
        """A decision was never used: it costs nothing and has no reward."""
        return self.send(requests.cancel_call(id))

    def status(self) -> RouterStatus:
        """Averages so far, the slack and price of every limit, and the distribution in use."""
        return self.send(requests.status_call(self.name))

    def terms(self) -> RemoteConfig:
        """What it is declared with at present."""
        return self.send(requests.config_call(self.name))

    def change(
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
        """Other terms from the next decision on; what is left out stays.

        limits:        all of them, in place of those there are
        add:           experts: {"name": ..., "costs": {...}, "shares": [...]}
        pause, resume: experts that are not to be asked for now, or again
        version:       of the terms that you have seen; NotNow if they are others by now
        """
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
        return self.send(requests.change_call(self.name, requests.edit_body(limits, others)))

    def delete(self) -> None:
        """Forget the router and all its decisions."""
        self.send(requests.delete_call(self.name))

    def events(self, after: int = -1) -> Iterator[LogLine]:
        """The lines of its log after one, up to the last there is now."""
        following: int | None = after
        while following is not None:
            page = self.send(requests.events_call(self.name, following))
            yield from page.events
            following = page.next

    @property
    def problem(self) -> Problem:
        """Experts, costs and limits at present."""
        return self.terms().problem

    @property
    def policy(self) -> Policy:
        """The policy and its settings."""
        return self.terms().policy

    @property
    def seed(self) -> int:
        """Of everything random."""
        return self.terms().seed

    @property
    def horizon(self) -> int | None:
        """Decisions to come, as far as it was told."""
        return self.terms().horizon

    @property
    def rewards(self) -> tuple[float, float]:
        """The range that rewards are given in."""
        return self.terms().rewards


AnswerT = TypeVar("AnswerT")


class Client:
    """A bylot server, such as `bylot serve` starts; threads may share a client.

    key:     as `bylot keys create` printed it; a server on this machine may need none
    timeout: seconds to wait for a connection, and for each part of an answer
    retries: how often a request is sent again if no answer came or the server was too busy, which
             is for about half a minute; under the same key, so that it is done once
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        key: str | None = None,
        *,
        timeout: float = 10.0,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self.url, self.timeout, self.retries = url, timeout, retries
        self._http = httpx.Client(**retry.httpx_settings(url, key))

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections."""
        self._http.close()

    def create(
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
    ) -> RemoteRouter:
        """A new router; as `bylot.Router`, and:

        wait:      seconds within which a reward counts; None: as long as its decision is held
        max_contexts: None: 1,000, or as many as the policy has room for
        default:   what counts as the reward if none came in that time; None: nothing is learned
        aggregate: of several rewards with different keys the 'earliest' counts, at once; or the
                   'last', or the 'sum', when the time is up
        """
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
        self.send(requests.create_call(requests.create_body(problem, policy, rewards, others)))
        return self.router(name)

    def router(self, name: str) -> RemoteRouter:
        """A router that is there; nothing is asked yet."""
        return RemoteRouter(self.send, name)

    def routers(self) -> Iterator[RemoteRouterSummary]:
        """All routers, by name."""
        after: str | None = ""
        while after is not None:
            page = self.send(requests.list_call(after))
            yield from page.routers
            after = page.next

    def send(self, call: HttpCall[AnswerT]) -> AnswerT:
        """Send a call until it is answered, or there is no hope."""
        steps = retry_until_answered(call, self.retries)
        pause = next(steps)
        while True:
            time.sleep(pause)
            try:
                pause = steps.send(self.attempt(call))
            except StopIteration as done:
                answer: AnswerT = done.value
                return answer

    def attempt(self, call: HttpCall[AnswerT]) -> HttpReply | LostReply:
        """Send a call once."""
        try:
            response = self._http.request(**retry.httpx_request(call, self.timeout))
        except httpx.TransportError as error:
            return retry.reply_from_transport_error(error)
        return retry.reply_from_response(response)
