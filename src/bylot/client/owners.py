"""The servers that own routers, as their answers name them: clients may go there directly.

A hint saves the way through another server and is never needed: whatever a hinted server does, but
answer as a server of the cluster, the request goes to the given URL at once. Only requests that may
be repeated are sent by a hint, decisions under the same key, so nothing is done twice.
"""

import time
from collections.abc import Callable, Generator
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from bylot.client.calls import AnswerT, HttpCall
from bylot.client.retry import Outcome, retry_until_answered

OWNER_HEADER = "x-bylot-owner"
AVOID_S = 5.0  # that a server which did not answer is not asked directly
REFUSED_STATUSES = (401, 403, 502, 503, 504)  # others may do better


class Attempt(NamedTuple):
    """When to send a request: seconds to wait; and where: an address, None for the given URL."""

    pause_s: float
    owner: str | None


class OwnerHints:
    """The addresses of owners, by router.

    url:     the given URL
    enabled: whether hints are followed
    """

    def __init__(
        self, url: str, enabled: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.url, self.enabled, self.clock = httpx.URL(url), enabled, clock
        self.addresses: dict[str, str] = {}  # by router
        self.avoided: dict[str, float] = {}  # until when, by address

    def find(self, call: HttpCall[AnswerT]) -> str | None:
        """The address for a request; None: the given URL."""
        router = find_router(call.path)
        if not self.enabled or not call.idempotent or router is None:
            return None
        return self.addresses.get(router)

    def learn(self, call: HttpCall[AnswerT], outcome: Outcome) -> None:
        """Remember the owner that an answer names."""
        router = find_router(call.path)
        if not self.enabled or router is None or not isinstance(outcome, httpx.Response):
            return
        address = outcome.headers.get(OWNER_HEADER, "").rstrip("/")
        if self.avoided.get(address, 0.0) <= self.clock() and can_follow(self.url, address):
            self.addresses[router] = address
        else:
            self.addresses.pop(router, None)

    def avoid(self, address: str) -> None:
        """Do not send requests to a server for a while."""
        self.avoided[address] = self.clock() + AVOID_S
        for router, owner in list(self.addresses.items()):
            if owner == address:
                self.addresses.pop(router, None)


def find_router(path: str) -> str | None:
    """The router that a request is about.

    >>> (
    ...     find_router("/v1/routers/triage/decisions"),
    ...     find_router("/v1/decisions/triage.1.7.9f/reward"),
    ... )
    ('triage', 'triage')
    >>> find_router("/v1/routers?after=&limit=1000")
    """
    match path.partition("?")[0].split("/"):
        case ["", "v1", "routers" | "decisions", target, *_]:
            return target.partition(".")[0]
    return None


def can_follow(url: httpx.URL, address: str) -> bool:
    """Whether the API key may be sent to an address, as far as an address tells.

    >>> can_follow(httpx.URL("http://balancer"), "http://10.0.0.5:8000")
    True
    >>> can_follow(httpx.URL("https://balancer"), "http://10.0.0.5:8000")  # not in clear text
    False
    """
    try:
        urlsplit(address)  # brackets without an end
        owner = httpx.URL(address)
    except (httpx.InvalidURL, ValueError):
        return False
    schemes = ("https",) if url.scheme == "https" else ("http", "https")
    is_plain = not (owner.userinfo or owner.query or owner.fragment)
    return owner.scheme in schemes and bool(owner.host) and is_plain


def is_from_cluster(outcome: Outcome) -> bool:
    """Whether a hinted server has answered as one that serves the router."""
    return (
        isinstance(outcome, httpx.Response)
        and OWNER_HEADER in outcome.headers
        and outcome.status_code not in REFUSED_STATUSES
    )


def attempt_until_answered(
    call: HttpCall[AnswerT], retries: int, hints: OwnerHints
) -> Generator[Attempt, Outcome, AnswerT]:
    """As `retry_until_answered`, but each attempt goes to the owner first, if it is known."""
    steps = retry_until_answered(call, retries, str(hints.url).rstrip("/"))
    pause = next(steps)
    while True:
        owner = hints.find(call)
        outcome = yield Attempt(pause, owner)
        if owner is not None and not is_from_cluster(outcome):
            hints.avoid(owner)
            outcome = yield Attempt(0.0, None)
        hints.learn(call, outcome)
        try:
            pause = steps.send(outcome)
        except StopIteration as done:
            answer: AnswerT = done.value
            return answer
