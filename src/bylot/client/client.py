"""Client: a server and its routers, asked from threads."""

import time
from collections.abc import Iterator
from typing import TypeVar

import httpx

from bylot.client import calls, forms, wire
from bylot.client.answers import Listed
from bylot.client.call import Call
from bylot.client.exchange import RETRIES, Lost, Reply, exchange
from bylot.client.forms import Aggregate
from bylot.client.router import RemoteRouter
from bylot.policies import Auto, Policy
from bylot.problem import Problem

Answer = TypeVar("Answer")


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
        retries: int = RETRIES,
    ) -> None:
        self.url, self.timeout, self.retries = url, timeout, retries
        self._http = httpx.Client(**wire.settings(url, key))

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
        aggregate: Aggregate = "earliest",
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
        self.send(calls.create(forms.terms(problem, policy, rewards, others)))
        return self.router(name)

    def router(self, name: str) -> RemoteRouter:
        """A router that is there; nothing is asked yet."""
        return RemoteRouter(self.send, name)

    def routers(self) -> Iterator[Listed]:
        """All routers, by name."""
        after: str | None = ""
        while after is not None:
            page = self.send(calls.listing(after))
            yield from page.routers
            after = page.next

    def send(self, call: Call[Answer]) -> Answer:
        """Send a call until it is answered, or there is no hope."""
        steps = exchange(call, self.retries)
        pause = next(steps)
        while True:
            time.sleep(pause)
            try:
                pause = steps.send(self.attempt(call))
            except StopIteration as done:
                answer: Answer = done.value
                return answer

    def attempt(self, call: Call[Answer]) -> Reply | Lost:
        """Send a call once."""
        try:
            response = self._http.request(**wire.request(call, self.timeout))
        except httpx.TransportError as error:
            return wire.lost(error)
        return wire.reply(response)
