"""When to send a call again, and what its answer comes to: the same for threads and coroutines.

Nothing is sent and nobody sleeps here: `retry_until_answered` is told how each attempt ended, and says how long
to wait before the next.
"""

import random
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx

from bylot.client.requests import HttpCall
from bylot.client.responses import error_from_reply, parse_error_body
from bylot.errors import BylotError, ServerUnreachable, ServiceError
from bylot.version import __version__

AnswerT = TypeVar("AnswerT")

DEFAULT_RETRIES = 15  # half a minute in all, give or take: a store or a server that is started anew
FIRST_PAUSE_S = 0.1  # seconds before the second attempt; each later pause is twice as long
MAX_BACKOFF_S = 4.0  # seconds between two attempts, if the server does not ask for more
MAX_RETRY_AFTER_S = 30.0  # no pause is longer; a server that wants more is not waited for
RETRY_STATUSES = (429, 502, 503, 504)


class HttpReply(NamedTuple):
    """An answer came."""

    status: int
    body: bytes
    retry_after: str = ""


class LostReply(NamedTuple):
    """No answer came; sent: may the request have arrived?"""

    why: str
    sent: bool


def retry_until_answered(
    call: HttpCall[AnswerT], retries: int
) -> Generator[float, HttpReply | LostReply, AnswerT]:
    """Yields the seconds to wait before each attempt, and returns the answer or raises."""
    pause, attempts, leases = 0.0, 0, 0
    while True:
        outcome = yield pause
        attempts += 1
        if isinstance(outcome, HttpReply):
            if outcome.status < 300:
                return call.read(outcome.body)
            told = parse_error_body(outcome.body)
            if told is not None and told.code in call.plain:
                return call.plain[told.code]
            leases += told is not None and told.code == "leased"
        asked = requested_pause(outcome)
        # A lease that is still another server's when it should have ended is one that is renewed.
        if (
            attempts > retries
            or leases > 1
            or asked > MAX_RETRY_AFTER_S
            or not can_retry(call, outcome)
        ):
            raise final_error(call, outcome, attempts)
        pause = max(asked, backoff_pause(attempts))


def can_retry(call: HttpCall[AnswerT], outcome: HttpReply | LostReply) -> bool:
    """May the same call go well later?"""
    if isinstance(outcome, LostReply):
        return call.again or not outcome.sent
    if outcome.status == 409:
        told = parse_error_body(outcome.body)
        return told is not None and told.code == "in_flight"
    return outcome.status in RETRY_STATUSES and (call.again or outcome.status == 429)


def requested_pause(outcome: HttpReply | LostReply) -> float:
    """The seconds that a server asks for."""
    told = outcome.retry_after if isinstance(outcome, HttpReply) else ""
    return float(told) if told.isascii() and told.isdigit() else 0.0


def backoff_pause(attempts: int) -> float:
    """FIRST * 2^(attempts - 1), at most SLOWEST, less up to half of it by chance: callers that were
    turned away together do not come back together.
    """
    return float(min(MAX_BACKOFF_S, FIRST_PAUSE_S * 2 ** (attempts - 1)) * random.uniform(0.5, 1.0))


def final_error(
    call: HttpCall[AnswerT], outcome: HttpReply | LostReply, attempts: int
) -> BylotError:
    """The error after the last attempt."""
    if isinstance(outcome, HttpReply):
        return error_from_reply(outcome.status, parse_error_body(outcome.body), call.wrong)
    times = f"{attempts} attempt{'s' * (attempts != 1)}"
    if outcome.sent and not call.again:
        return ServerUnreachable(
            f"{call.method} {call.path}: the answer was lost ({outcome.why}), so it may have been "
            "done; look before you send it again"
        )
    return ServerUnreachable(
        f"{call.method} {call.path}: no answer after {times} ({outcome.why}); is the server there?"
    )


KEEPALIVE_S = (
    4.0  # seconds; below the five after which servers hang up, in the face of the next request
)
MAX_CONNECTIONS = 100  # connections
SLOW_CALL_TIMEOUT_S = 300.0  # seconds, for what takes long
UNSENT_ERRORS = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
)  # before the first byte


def httpx_settings(url: str, key: str | None) -> dict[str, Any]:
    """The arguments of an httpx client."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ServiceError(
            f"{url!r} is no address of a server; give one like http://127.0.0.1:8000"
        )
    headers = {"user-agent": f"bylot/{__version__}"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return {
        "base_url": url,
        "headers": headers,
        "limits": httpx.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_S),
    }


def httpx_request(call: HttpCall[Any], timeout: float) -> dict[str, Any]:
    """The arguments of one request."""
    return {
        "method": call.method,
        "url": call.path,
        "content": call.body,
        "headers": {} if call.body is None else {"content-type": "application/json"},
        "timeout": max(timeout, SLOW_CALL_TIMEOUT_S) if call.slow else timeout,
    }


def reply_from_response(response: httpx.Response) -> HttpReply:
    """An answer."""
    return HttpReply(
        response.status_code, response.content, response.headers.get("retry-after", "")
    )


def reply_from_transport_error(error: httpx.TransportError) -> LostReply:
    """No answer."""
    return LostReply(
        f"{type(error).__name__}: {error}".rstrip(": "), not isinstance(error, UNSENT_ERRORS)
    )
