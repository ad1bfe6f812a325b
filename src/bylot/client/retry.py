"""When to send a request again, and the arguments of httpx; shared by both clients.

Nothing is sent here and nobody sleeps: `retry_until_answered` is a generator that receives the
outcome of each attempt and yields the seconds to wait before the next.
"""

import random
from collections.abc import Generator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from bylot import __version__
from bylot.client.requests import AnswerT, HttpCall, decode_error, make_error
from bylot.errors import BylotError, ServerUnreachable, ServiceError

DEFAULT_RETRIES = 15  # about half a minute: enough for a restart of server or store
FIRST_PAUSE_S = 0.1  # before the second attempt; each later pause is twice as long
MAX_BACKOFF_S = 4.0  # between two attempts, unless the server asks for more
MAX_RETRY_AFTER_S = 30.0  # the client gives up if the server asks for more
RETRY_STATUSES = (429, 502, 503, 504)

KEEPALIVE_S = 4.0  # less than the five seconds after which many servers close a connection
MAX_CONNECTIONS = 100
SLOW_CALL_TIMEOUT_S = 300.0
UNSENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class HttpReply(NamedTuple):
    """A response."""

    status: int
    body: bytes
    retry_after: str = ""


class LostReply(NamedTuple):
    """No response; sent: the request may have arrived."""

    reason: str
    sent: bool


def retry_until_answered(
    call: HttpCall[AnswerT], retries: int
) -> Generator[float, HttpReply | LostReply, AnswerT]:
    """Yield the seconds to wait before each attempt; return the answer or raise an error."""
    pause, attempts, leased = 0.0, 0, 0
    while True:
        outcome = yield pause
        attempts += 1
        if isinstance(outcome, HttpReply):
            if outcome.status < 300:
                return call.read(outcome.body)
            detail = decode_error(outcome.body)
            if detail is not None and detail.code in call.answers:
                return call.answers[detail.code]
            leased += detail is not None and detail.code == "leased"
        requested = requested_pause(outcome)
        # A lease that should have expired and is still held is being renewed: do not wait for it.
        give_up = attempts > retries or leased > 1 or requested > MAX_RETRY_AFTER_S
        if give_up or not can_retry(call, outcome):
            raise final_error(call, outcome, attempts)
        pause = max(requested, backoff_pause(attempts))


def can_retry(call: HttpCall[AnswerT], outcome: HttpReply | LostReply) -> bool:
    """Return whether the same request may succeed later, and is safe to repeat."""
    if isinstance(outcome, LostReply):
        return call.idempotent or not outcome.sent
    if outcome.status == 409:
        detail = decode_error(outcome.body)
        return detail is not None and detail.code == "in_flight"
    return outcome.status in RETRY_STATUSES and (call.idempotent or outcome.status == 429)


def requested_pause(outcome: HttpReply | LostReply) -> float:
    """The seconds of Retry-After."""
    text = outcome.retry_after if isinstance(outcome, HttpReply) else ""
    return float(text) if text.isascii() and text.isdigit() else 0.0


def backoff_pause(attempts: int) -> float:
    """FIRST_PAUSE_S * 2^(attempts - 1), at most MAX_BACKOFF_S, less a random part of up to half, so
    that clients rejected together do not return together.
    """
    longest = min(MAX_BACKOFF_S, FIRST_PAUSE_S * 2 ** (attempts - 1))
    return float(longest * random.uniform(0.5, 1.0))


def final_error(
    call: HttpCall[AnswerT], outcome: HttpReply | LostReply, attempts: int
) -> BylotError:
    """The error after the last attempt."""
    if isinstance(outcome, HttpReply):
        return make_error(outcome.status, decode_error(outcome.body), call.invalid)
    request = f"{call.method} {call.path}"
    if outcome.sent and not call.idempotent:
        return ServerUnreachable(
            f"{request}: the response was lost ({outcome.reason}); the request may have succeeded",
            remedy="check before you send it again",
        )
    times = f"{attempts} attempt{'s' * (attempts != 1)}"
    return ServerUnreachable(
        f"{request}: no response after {times} ({outcome.reason})",
        remedy="check that the server is running",
    )


def httpx_settings(url: str, key: str | None) -> dict[str, Any]:
    """The arguments of an httpx client."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ServiceError(
            "server address", got=url, expected="a URL such as http://127.0.0.1:8000"
        )
    headers = {"user-agent": f"bylot/{__version__}"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    limits = httpx.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_S)
    return {"base_url": url, "headers": headers, "limits": limits}


def httpx_request(call: HttpCall[Any], timeout_s: float) -> dict[str, Any]:
    """The arguments of one request."""
    return {
        "method": call.method,
        "url": call.path,
        "content": call.body,
        "headers": {} if call.body is None else {"content-type": "application/json"},
        "timeout": max(timeout_s, SLOW_CALL_TIMEOUT_S) if call.slow else timeout_s,
    }


def reply_from_response(response: httpx.Response) -> HttpReply:
    """The outcome of an attempt with a response."""
    retry_after = response.headers.get("retry-after", "")
    return HttpReply(response.status_code, response.content, retry_after)


def reply_from_error(error: httpx.TransportError) -> LostReply:
    """The outcome of an attempt without a response."""
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    return LostReply(reason, not isinstance(error, UNSENT_ERRORS))
