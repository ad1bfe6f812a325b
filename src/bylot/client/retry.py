"""When to send a request again, and the arguments of httpx; shared by both clients.

Nothing is sent here and nobody sleeps: `retry_until_answered` is a generator that receives the
outcome of each attempt and yields the seconds to wait before the next.
"""

import logging
import random
from collections.abc import Generator
from typing import Any
from urllib.parse import urlsplit

import httpx

from bylot import __version__
from bylot.client.calls import AnswerT, HttpCall, decode_error, make_error
from bylot.errors import AccessDenied, BylotError, ServerUnreachable, ServiceError

log = logging.getLogger("bylot.client")

DEFAULT_RETRIES = 15  # about half a minute: enough for a restart of server or store
MAX_COMPILING_S = 600.0  # that a call waits in addition while the server compiles a policy
FIRST_PAUSE_S = 0.1  # before the second attempt; each later pause is twice as long
MAX_BACKOFF_S = 4.0  # between two attempts, unless the server asks for more
MAX_RETRY_AFTER_S = 30.0  # the client gives up if the server asks for more
NOTE_INTERVAL_S = 15.0  # of waiting for a server that compiles
MAX_BUSY_ANSWERS = 9  # of servers that do not own a router: more than ten seconds, a whole lease
RETRY_STATUSES = (429, 502, 503, 504)

KEEPALIVE_S = 4.0  # less than the five seconds after which many servers close a connection
MAX_CONNECTIONS = 100
SLOW_CALL_TIMEOUT_S = 300.0
OWNER_CONNECT_S = 1.0  # to reach the owner of a router directly; the given URL is the other way
UNSENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

Outcome = httpx.Response | httpx.TransportError
"""Of one attempt: a response, or why there is none."""


def retry_until_answered(
    call: HttpCall[AnswerT], retries: int, url: str = ""
) -> Generator[float, Outcome, AnswerT]:
    """Yield the seconds to wait before each attempt; return the answer or raise an error, which
    names the URL.
    """
    pause, attempts, busy, compiling_s = 0.0, 0, 0, 0.0
    next_note_s = 0.0
    while True:
        outcome = yield pause
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
            raise final_error(call, outcome, attempts, url)
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
    limits = httpx.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_S)
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
