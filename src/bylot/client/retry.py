"""When to send a request again, and the arguments of httpx; shared by both clients.

Nothing is sent here and nobody sleeps: `retry_until_answered` is a generator that receives the
outcome of each attempt and yields when to send the next one, and where: to the server that owns the
router, as its answers name it, or to the given URL. Such a hint saves the way through another
server and is never needed: whatever a hinted server does, but answer as a server of the cluster,
the request goes to the given URL at once. Only requests that may be repeated are sent by a hint,
decisions under the same key, so nothing is done twice.
"""

import logging
import random
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from bylot import __version__
from bylot.client.calls import AnswerT, HttpCall, decode_error, make_error
from bylot.errors import AccessDenied, BylotError, ServerUnreachable, ServiceError

OWNER_HEADER = "x-bylot-owner"
AVOID_S = 5.0  # that a server which did not answer is not asked directly
REFUSED_STATUSES = (401, 403, 502, 503, 504)  # others may do better


Outcome = httpx.Response | httpx.TransportError
"""Of one attempt: a response, or why there is none."""


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


log = logging.getLogger("bylot.client")

DEFAULT_RETRIES = 15  # about half a minute: enough for a restart of server or store
MAX_COMPILING_S = 600.0  # that a call waits in addition while the server compiles a policy
FIRST_PAUSE_S = 0.1  # before the second attempt; each later pause is twice as long
MAX_BACKOFF_S = 4.0  # between two attempts, unless the server asks for more
MAX_RETRY_AFTER_S = 30.0  # the client gives up if the server asks for more
NOTE_INTERVAL_S = 15.0  # of waiting for a server that compiles
MAX_BUSY_ANSWERS = 9  # of servers that do not own a router: more than ten seconds, a whole lease
RETRY_STATUSES = (429, 502, 503, 504)

SLOW_CALL_TIMEOUT_S = 300.0
OWNER_CONNECT_S = 1.0  # to reach the owner of a router directly; the given URL is the other way
UNSENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def retry_until_answered(
    call: HttpCall[AnswerT], retries: int, hints: OwnerHints
) -> Generator[Attempt, Outcome, AnswerT]:
    """Yield when and where to send each attempt: to the owner of the router, if it is known, and at
    once to the given URL if that fails. Return the answer or raise an error, which names the URL.
    """
    pause, attempts, busy, compiling_s = 0.0, 0, 0, 0.0
    next_note_s = 0.0
    while True:
        owner = hints.find(call)
        outcome = yield Attempt(pause, owner)
        if owner is not None and not is_from_cluster(outcome):
            hints.avoid(owner)
            outcome = yield Attempt(0.0, None)
        hints.learn(call, outcome)
        code, requested = "", 0.0
        if isinstance(outcome, httpx.Response):
            if outcome.status_code < 300:
                return call.read(outcome.content)
            detail = decode_error(outcome.content)
            code = detail.code if detail else ""
            after = outcome.headers.get("retry-after", "")
            requested = float(after) if after.isascii() and after.isdigit() else 0.0
        if code == "compiling" and retries and compiling_s < MAX_COMPILING_S:
            if detail and compiling_s >= next_note_s:
                log.warning("waiting for the server: %s", detail.message)
                next_note_s = compiling_s + NOTE_INTERVAL_S
            pause = min(max(requested, FIRST_PAUSE_S), MAX_BACKOFF_S) * random.uniform(1.0, 1.5)
            compiling_s += pause
            continue
        attempts += 1
        # A lease that is still held after its whole length is being renewed: do not wait for it.
        busy += code == "router_busy"
        give_up = attempts > retries or busy > MAX_BUSY_ANSWERS or requested > MAX_RETRY_AFTER_S
        if give_up or not can_retry(call, outcome, code):
            raise final_error(call, outcome, attempts, str(hints.url).rstrip("/"))
        # Less a random part of up to half: clients rejected together do not return together.
        backoff = min(MAX_BACKOFF_S, FIRST_PAUSE_S * 2 ** (attempts - 1))
        pause = max(requested, backoff * random.uniform(0.5, 1.0))


def can_retry(call: HttpCall[AnswerT], outcome: Outcome, code: str) -> bool:
    """Return whether the same request may succeed later, and is safe to repeat."""
    if isinstance(outcome, httpx.TransportError):
        return call.idempotent or isinstance(outcome, UNSENT_ERRORS)
    if outcome.status_code == 409:
        return code == "in_flight"
    safe = call.idempotent or outcome.status_code == 429
    return safe and outcome.status_code in RETRY_STATUSES


def final_error(call: HttpCall[AnswerT], outcome: Outcome, attempts: int, url: str) -> BylotError:
    """The error after the last attempt."""
    request = f"{call.method} {url}{call.path}"
    if isinstance(outcome, httpx.Response):
        error = make_error(outcome.status_code, decode_error(outcome.content), call.invalid)
        if isinstance(error, AccessDenied):
            error.what = f"{request}: {error.what}"
        return error
    reason = f"{type(outcome).__name__}: {outcome}".rstrip(": ")
    if not isinstance(outcome, UNSENT_ERRORS) and not call.idempotent:
        what = f"{request}: the response was lost ({reason}); the request may have succeeded"
        return ServerUnreachable(what, remedy="check before you send it again")
    times = f"{attempts} attempt{'s' * (attempts != 1)}"
    remedy = "check the address, and that the server is running"
    return ServerUnreachable(f"{request}: no response after {times} ({reason})", remedy=remedy)


def httpx_settings(url: str, key: str | None) -> dict[str, Any]:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ServiceError(
            "server address", got=url, expected="a URL such as http://127.0.0.1:8000"
        )
    headers = {"user-agent": f"bylot/{__version__}"}
    if key is not None:
        headers["authorization"] = f"Bearer {key.strip()}"  # a key file ends with a line break
    limits = httpx.Limits(max_connections=100, keepalive_expiry=4.0)  # many servers close after 5 s
    return {"base_url": url, "headers": headers, "limits": limits}


def httpx_request(call: HttpCall[Any], timeout_s: float, owner: str | None) -> dict[str, Any]:
    """The arguments of a request; owner: the address to send it to instead of the given URL."""
    seconds = max(timeout_s, SLOW_CALL_TIMEOUT_S) if call.slow else timeout_s
    connect_s = seconds if owner is None else min(seconds, OWNER_CONNECT_S)
    return {
        "method": call.method,
        "url": f"{owner or ''}{call.path}",
        "content": call.body,
        "headers": {} if call.body is None else {"content-type": "application/json"},
        "timeout": httpx.Timeout(seconds, connect=connect_s),
    }
