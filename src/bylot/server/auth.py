"""Who asks, and what they may: API keys, of which the store has digests only."""

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from bylot.errors import BylotError
from bylot.server.http_errors import ApiError
from bylot.store import ApiKey

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

AZURE_KEY_HEADER = b"ocp-apim-subscription-key"  # where clients of Personalizer put theirs
AUTH_CHALLENGE = ((b"www-authenticate", b'Bearer realm="bylot"'),)
DUMMY_DIGEST = hashlib.sha256(
    secrets.token_bytes(32)
).digest()  # compared with where there is no key


class Caller(NamedTuple):
    """Who asks: the id of a key, None where keys are not needed; and what they may."""

    id: str | None
    scopes: frozenset[str]
    routers: frozenset[str]  # empty: all

    def sees(self, router: str) -> bool:
        """Is this router within what they may?"""
        return not self.routers or router in self.routers

    def check(self, scope: Scope, router: str | None = None) -> None:
        """Refuse what they may not."""
        if scope not in self.scopes:
            has = ", ".join(sorted(self.scopes))
            message = f"key {self.id} may {has}, and this needs {scope!r}; use another key"
            raise ApiError(403, "forbidden", message)
        if router is not None and not self.sees(router):
            message = f"key {self.id} is not for router {router!r}; use another key"
            raise ApiError(403, "forbidden", message)


LOCAL_CALLER = Caller(None, frozenset(SCOPES), frozenset())


def issue_key(
    label: str, scopes: Iterable[Scope], routers: Iterable[str], at: int
) -> tuple[str, ApiKey]:
    """A new key: the text to hand out once, and what the store keeps of it."""
    scopes = tuple(scopes)
    wrong = set(scopes) - set(SCOPES)
    if wrong or not scopes:
        given = ", ".join(sorted(wrong)) or "none"
        raise BylotError(f"scopes: {given} given; give some of {', '.join(SCOPES)}")
    name, secret = secrets.token_hex(6), secrets.token_hex(24)  # 192 bits
    row = ApiKey(name, digest_secret(secret), label, scopes, tuple(routers), at, None)
    return f"bylot_{name}_{secret}", row


def digest_secret(secret: str) -> bytes:
    """What the store has of a secret; it is long and random, so that one pass is enough."""
    return hashlib.sha256(secret.encode()).digest()


class Credentials:
    """The keys there are, as they were told last.

    host: where the server is bound; beyond the machine nobody enters without a key
    """

    def __init__(self, host: str) -> None:
        self.here = is_loopback(host)
        self.keys: Mapping[str, ApiKey] = {}

    @property
    def needed(self) -> bool:
        """Are keys needed? Not while there are none, revoked or not, and only this machine asks."""
        return bool(self.keys) or not self.here

    def learn(self, keys: Iterable[ApiKey]) -> None:
        """Take the keys of the store."""
        self.keys = {key.id: key for key in keys}

    def caller(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Who sent a request of the API."""
        if not self.needed:
            return check_local_request(headers)
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            token = headers.get(AZURE_KEY_HEADER, b"")
        found = self.whose(token.strip().decode("latin-1"))
        if found is None:
            message = "no valid key came with this; send Authorization: Bearer bylot_…"
            raise ApiError(401, "unauthorized", message, headers=AUTH_CHALLENGE)
        return found

    def whose(self, token: str) -> Caller | None:
        """Whose key this is, None if nobody's; where none is needed, anybody's."""
        if not self.needed:
            return LOCAL_CALLER
        parts = token.split("_")
        name, secret = (parts[1], parts[2]) if len(parts) == 3 else ("", "")
        key = self.keys.get(name)
        same = hmac.compare_digest(digest_secret(secret), key.digest if key else DUMMY_DIGEST)
        if key is None or not same or parts[0] != "bylot" or key.revoked is not None:
            return None
        implied = ("read",) if "admin" in key.scopes else ()  # who edits sees what there is
        return Caller(key.id, frozenset((*key.scopes, *implied)), frozenset(key.routers))


def check_local_request(headers: Mapping[bytes, bytes]) -> Caller:
    """Somebody on this machine; but no page of elsewhere that a browser on it shows.

    The name it was asked by tells a page whose name was made to lead here; the origin, one that
    sends its visitors' requests here.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_loopback(strip_port(host)):
        message = f"this server was asked as {host[:200]!r}; without keys it answers to localhost"
        raise ApiError(403, "wrong_host", message)
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise ApiError(403, "wrong_origin", "pages of other places may not ask this server")
    return LOCAL_CALLER


def strip_port(host: str) -> str:
    """A Host header without its port.

    >>> strip_port("localhost:8000"), strip_port("[::1]:8000"), strip_port("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_loopback(host: str) -> bool:
    """Is this a name of the machine itself, which no other machine can reach?

    >>> (
    ...     is_loopback("localhost"),
    ...     is_loopback("127.0.0.1"),
    ...     is_loopback("::1"),
    ...     is_loopback("0.0.0.0"),
    ... )
    (True, True, True, False)
    """
    if host in ("127.0.0.1", "localhost", "::1"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind_address(host: str, keys: Iterable[ApiKey]) -> None:
    """Refuse to listen where strangers are, if there is no key to tell them by."""
    if not is_loopback(host) and not any(key.revoked is None for key in keys):
        raise BylotError(
            f"--host {host} can be reached from other machines, and the store has no keys; "
            "make one with `bylot keys create`, or listen on 127.0.0.1"
        )


class RateLimiter:
    """Buckets of `burst` requests that fill by `rate` per second, one for each credential.

    burst: None: max(10, 2 rate)

    A batch takes as many as it has items, and may leave its bucket in debt: what follows waits.
    """

    def __init__(
        self,
        rate: float | None,
        burst: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate, self.clock = rate, clock
        self.burst = max(10.0, 2 * (rate or 0.0)) if burst is None else float(burst)
        self.buckets: dict[str | None, tuple[float, float]] = {}  # what is left, and since when

    def take(self, who: str | None, count: int = 1) -> None:
        """Let a request pass, or say after how many seconds it will."""
        if self.rate is None:
            return
        now = self.clock()
        left, since = self.buckets.get(who, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.rate)
        if left < 1:
            message = f"more than {self.rate:g} requests per second; wait a little"
            raise ApiError(429, "too_many_requests", message, retry=(1 - left) / self.rate)
        self.buckets[who] = (left - count, now)
