"""What both clients have of HTTP: where the server is, what is sent along, how an attempt ends."""

from typing import Any
from urllib.parse import urlsplit

import httpx

from bylot.client.call import Call
from bylot.client.exchange import Lost, Reply
from bylot.errors import ServiceError
from bylot.version import __version__

IDLE = 4.0  # seconds; below the five after which servers hang up, in the face of the next request
POOL = 100  # connections
LONG = 300.0  # seconds, for what takes long
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)  # before the first byte


def settings(url: str, key: str | None) -> dict[str, Any]:
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
        "limits": httpx.Limits(max_connections=POOL, keepalive_expiry=IDLE),
    }


def request(call: Call[Any], timeout: float) -> dict[str, Any]:
    """The arguments of one request."""
    return {
        "method": call.method,
        "url": call.path,
        "content": call.body,
        "headers": {} if call.body is None else {"content-type": "application/json"},
        "timeout": max(timeout, LONG) if call.slow else timeout,
    }


def reply(response: httpx.Response) -> Reply:
    """An answer."""
    return Reply(response.status_code, response.content, response.headers.get("retry-after", ""))


def lost(error: httpx.TransportError) -> Lost:
    """No answer."""
    return Lost(f"{type(error).__name__}: {error}".rstrip(": "), not isinstance(error, UNSENT))
