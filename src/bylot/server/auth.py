"""Who may do what: API keys, of which the store has only digests, scopes and rate limits."""

import functools
import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from bylot.errors import BylotError
from bylot.server.http_errors import ApiError
from bylot.server.settings import SCOPES, Scope
from bylot.store import ApiKey

AZURE_KEY_HEADER = b"ocp-apim-subscription-key"  # where clients of Personalizer send their key
PROXY_HEADERS = frozenset(
    (
        *(b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"),
        *(b"forwarded", b"via"),
    )
)
HOST_REGEX = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([a-zA-Z0-9.-]+))(?::[0-9]{1,5})?")
AUTH_CHALLENGE = ((b"www-authenticate", b'Bearer realm="bylot"'),)
DUMMY_DIGEST = hashlib.sha256(secrets.token_bytes(32)).digest()  # keeps the time of a miss equal


class Caller(NamedTuple):
    """The sender of a request: id of the key (None if no key is needed), scopes, routers."""

    id: str | None
    scopes: frozenset[str]
    routers: frozenset[str]  # empty: all

    def can_access(self, router: str) -> bool:
        """Return whether the key is valid for a router."""
        return not self.routers or router in self.routers

    def check(self, scope: Scope, router: str | None = None) -> None:
        """Raise an error if the key does not have a scope or is not valid for a router."""
        if scope not in self.scopes:
            has = ", ".join(sorted(self.scopes))
            message = f"key {self.id} has scope {has}; this request needs scope {scope!r}: use a "
            message += f"key made with `bylot keys create LABEL --scope {scope}`"
            raise ApiError(403, "forbidden", message)
        if router is not None and not self.can_access(router):
            message = f"key {self.id} is not valid for router {router!r}; use one that is"
            raise ApiError(403, "forbidden", message)


LOCAL_CALLER = Caller(None, frozenset(SCOPES), frozenset())


def issue_key(
    label: str, scopes: Iterable[Scope], routers: Iterable[str], at: int
) -> tuple[str, ApiKey]:
    """Create a key: the text to show once, and the row for the store."""
    scopes = tuple(scopes)
    wrong = set(scopes) - set(SCOPES)
    if wrong or not scopes:
        got = ", ".join(sorted(wrong)) or "none"
        raise BylotError("scopes", got=got, expected=f"some of {', '.join(SCOPES)}")
    name, secret = secrets.token_hex(6), secrets.token_hex(24)  # 192 bits
    row = ApiKey(name, digest_secret(secret), label, scopes, tuple(routers), at, None)
    return f"bylot_{name}_{secret}", row


def digest_secret(secret: str) -> bytes:
    """The digest that the store keeps; the secret is long and random, so one pass suffices."""
    return hashlib.sha256(secret.encode()).digest()


class Credentials:
    """The API keys of the configuration and, as of the last refresh, of the store.

    host:     address that the server listens on; keys are required unless it is a loopback address
    declared: the keys of the configuration, by id; one of the store with the same id replaces it
    """

    def __init__(self, host: str, declared: Mapping[str, ApiKey] = MappingProxyType({})) -> None:
        self.is_local = is_loopback(host)
        self.declared = declared
        self.keys: Mapping[str, ApiKey] = {}
        self.failed_refreshes = 0  # since the last one that succeeded

    @property
    def required(self) -> bool:
        """Keys are required once one was created (even if revoked), or beyond loopback."""
        return bool(self.keys) or not self.is_local

    def authenticate(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller of an API request, or error 401."""
        if not self.required:
            return check_local_request(headers)
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            token = headers.get(AZURE_KEY_HEADER, b"")
        found = self.find_caller(token.strip().decode("latin-1"))
        if found is None:
            raise ApiError(
                401,
                "unauthorized",
                "no valid API key; send it as Authorization: Bearer bylot_…",
                headers=AUTH_CHALLENGE,
            )
        return found

    def find_caller(self, token: str) -> Caller | None:
        """The owner of a token, None if it is not valid; anybody if no keys are required."""
        if not self.required:
            return LOCAL_CALLER
        parts = token.split("_")
        name, secret = (parts[1], parts[2]) if len(parts) == 3 else ("", "")
        key = self.keys.get(name)
        same = hmac.compare_digest(digest_secret(secret), key.digest if key else DUMMY_DIGEST)
        if key is None or not same or parts[0] != "bylot" or key.revoked is not None:
            return None
        implied = ("read",) if "admin" in key.scopes else ()
        return Caller(key.id, frozenset((*key.scopes, *implied)), frozenset(key.routers))


def check_local_request(headers: Mapping[bytes, bytes]) -> Caller:
    """Accept loopback clients; reject proxied, cross-origin and DNS-rebinding requests."""
    if not PROXY_HEADERS.isdisjoint(headers):
        forwarded = min(PROXY_HEADERS.intersection(headers))
        raise ApiError(
            403,
            "proxied",
            f"unexpected header {forwarded.decode()}: without API keys the server accepts no "
            "requests through a proxy; create a key with `bylot keys create`",
        )
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_local_host(host):
        raise ApiError(
            403,
            "wrong_host",
            f"invalid host {host[:200]!r}: without API keys the server accepts localhost only",
        )
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise ApiError(403, "wrong_origin", "cross-origin requests are not allowed")
    return LOCAL_CALLER


@functools.lru_cache(64)
def is_local_host(host: str) -> bool:
    """Whether a Host header names this machine."""
    return is_loopback(strip_port(host))


def strip_port(host: str) -> str:
    """A Host header without its port; empty if it is anything else than a host and a port.

    >>> strip_port("localhost:8000"), strip_port("[::1]:8000"), strip_port("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    >>> strip_port("[::1].evil.example"), strip_port("localhost:80@evil.example")
    ('', '')
    """
    match = HOST_REGEX.fullmatch(host)
    return (match[1] or match[2]) if match else ""


def is_loopback(host: str) -> bool:
    """Return whether a host names this machine, unreachable from others.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0")]
    [True, True, True, False]
    """
    if host in ("127.0.0.1", "localhost", "::1"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind_address(host: str, keys: Iterable[ApiKey]) -> None:
    """Refuse to listen beyond loopback without an API key."""
    if not is_loopback(host) and not any(key.revoked is None for key in keys):
        raise BylotError(
            f"--host {host} can be reached from other machines, and the store has no API keys",
            remedy="create one with `bylot keys create`, or listen on 127.0.0.1",
        )


class RateLimiter:
    """Token buckets, one per key: `burst` requests that refill at `rate` per second.

    A request needs one token. A batch is charged one per item and may leave its bucket in debt;
    later requests wait.
    """

    def __init__(
        self,
        rate: float | None,
        burst: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate, self.clock = rate, clock
        self.burst = max(10.0, 2 * (rate or 0.0)) if burst is None else float(burst)
        self.buckets: dict[str | None, tuple[float, float]] = {}  # tokens left, and when

    def take(self, key: str | None) -> None:
        """Take a token, or raise error 429 with the seconds to wait."""
        if self.rate is None:
            return
        now = self.clock()
        left, since = self.buckets.get(key, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.rate)
        if left < 1:
            raise ApiError(
                429,
                "too_many_requests",
                f"rate limit of {self.rate:g} requests per second exceeded",
                retry_after=(1 - left) / self.rate,
            )
        self.buckets[key] = (left - 1, now)

    def charge(self, key: str | None, count: int) -> None:
        """Charge a request that has taken its token for further items."""
        if self.rate is not None:
            left, since = self.buckets[key]
            self.buckets[key] = (left - count, since)
