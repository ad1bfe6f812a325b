"""Who asks, and what they may: API keys, of which the store has digests only."""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from bylot.errors import BylotError
from bylot.service.errors import Refusal
from bylot.store import ApiKey

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

AZURE = b"ocp-apim-subscription-key"  # where clients of Personalizer put theirs
CHALLENGE = ((b"www-authenticate", b'Bearer realm="bylot"'),)
NOBODY = hashlib.sha256(secrets.token_bytes(32)).digest()  # compared with where there is no key


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
            raise Refusal(403, "forbidden", message)
        if router is not None and not self.sees(router):
            message = f"key {self.id} is not for router {router!r}; use another key"
            raise Refusal(403, "forbidden", message)


ANYBODY = Caller(None, frozenset(SCOPES), frozenset())


def issue(
    label: str, scopes: Iterable[Scope], routers: Iterable[str], at: int
) -> tuple[str, ApiKey]:
    """A new key: the text to hand out once, and what the store keeps of it."""
    scopes = tuple(scopes)
    wrong = set(scopes) - set(SCOPES)
    if wrong or not scopes:
        given = ", ".join(sorted(wrong)) or "none"
        raise BylotError(f"scopes: {given} given; give some of {', '.join(SCOPES)}")
    name, secret = secrets.token_hex(6), secrets.token_hex(24)  # 192 bits
    row = ApiKey(name, digest(secret), label, scopes, tuple(routers), at, None)
    return f"bylot_{name}_{secret}", row


def digest(secret: str) -> bytes:
    """What the store has of a secret; it is long and random, so that one pass is enough."""
    return hashlib.sha256(secret.encode()).digest()


class Credentials:
    """The keys there are, as they were told last.

    host: where the server is bound; beyond the machine nobody enters without a key
    """

    def __init__(self, host: str) -> None:
        self.here = loopback(host)
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
            return neighbour(headers)
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            token = headers.get(AZURE, b"")
        found = self.whose(token.strip().decode("latin-1"))
        if found is None:
            message = "no valid key came with this; send Authorization: Bearer bylot_…"
            raise Refusal(401, "unauthorized", message, headers=CHALLENGE)
        return found

    def whose(self, token: str) -> Caller | None:
        """Whose key this is, None if nobody's; where none is needed, anybody's."""
        if not self.needed:
            return ANYBODY
        parts = token.split("_")
        name, secret = (parts[1], parts[2]) if len(parts) == 3 else ("", "")
        key = self.keys.get(name)
        same = hmac.compare_digest(digest(secret), key.digest if key else NOBODY)
        if key is None or not same or parts[0] != "bylot" or key.revoked is not None:
            return None
        implied = ("read",) if "admin" in key.scopes else ()  # who edits sees what there is
        return Caller(key.id, frozenset((*key.scopes, *implied)), frozenset(key.routers))


def neighbour(headers: Mapping[bytes, bytes]) -> Caller:
    """Somebody on this machine; but no page of elsewhere that a browser on it shows.

    The name it was asked by tells a page whose name was made to lead here; the origin, one that
    sends its visitors' requests here.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if not loopback(bare(host)):
        message = f"this server was asked as {host[:200]!r}; without keys it answers to localhost"
        raise Refusal(403, "wrong_host", message)
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise Refusal(403, "wrong_origin", "pages of other places may not ask this server")
    return ANYBODY


def bare(host: str) -> str:
    """A Host header without its port.

    >>> bare("localhost:8000"), bare("[::1]:8000"), bare("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def loopback(host: str) -> bool:
    """Is this a name of the machine itself, which no other machine can reach?

    >>> loopback("localhost"), loopback("127.0.0.1"), loopback("::1"), loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host in ("127.0.0.1", "localhost", "::1"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def admitted(host: str, keys: Iterable[ApiKey]) -> None:
    """Refuse to listen where strangers are, if there is no key to tell them by."""
    if not loopback(host) and not any(key.revoked is None for key in keys):
        raise BylotError(
            f"--host {host} can be reached from other machines, and the store has no keys; "
            "make one with `bylot keys create`, or listen on 127.0.0.1"
        )
