"""How much a stranger may send: lengths, counts, depths; checked once, where a request enters."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import msgspec

from bylot.durable.ids import is_name, read_id
from bylot.errors import NoSuchDecision, NoSuchRouter
from bylot.service.errors import Refusal

Kind = TypeVar("Kind")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

TEXT = 200  # characters of a context, of a key, of the name of an expert
ITEMS = 1_000  # of a batch
EXPERTS, COSTS, LIMITS, DRAWS = 5_000, 50, 100, 1_000
CONTEXTS, MEMORY = 100_000, 1_000_000

END = r"(?!\n)$"  # Python's $ alone would let a line break pass
NAME = rf"^[a-z0-9][a-z0-9_-]{{0,62}}{END}"
KEY = rf"^[ -~]+{END}"
PRINTABLE = rf"^[^\x00-\x1f\x7f]*{END}"

ONCE = (b"idempotency-key", b"authorization", b"content-type", b"content-length", b"host")
"""Headers that mean something here."""

KEYED = re.compile(KEY)
LINE = re.compile(PRINTABLE)


def router(name: str) -> str:
    """A name that a router could have."""
    if not is_name(name):
        raise NoSuchRouter(f"there is no router {name[:TEXT]!r}; GET /v1/routers lists them")
    return name


def decision(id: str) -> str:  # noqa: A002
    """An id that a decision could have."""
    if read_id(id) is None:
        raise NoSuchDecision(
            f"there is no decision {id[:TEXT]!r}; give the id that the decision came with"
        )
    return id


def key(in_header: bytes | None, in_body: str | None) -> str | None:
    """The caller's name for a decision, which may be told in two places."""
    if in_header is None:
        return in_body
    text = in_header.decode("latin-1")
    if len(text) > TEXT or not KEYED.search(text):
        message = f"Idempotency-Key is not 1 to {TEXT} printable characters of ASCII"
        raise Refusal(422, "invalid", message, field="Idempotency-Key")
    if in_body not in (None, text):
        message = f"key {in_body!r} and Idempotency-Key {text!r} differ; give one of them"
        raise Refusal(422, "invalid", message, field="key")
    return text


def unequivocal(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a request that says one of these twice: of such, each reader takes another."""
    names = [name for name, _ in headers]
    for name in ONCE:
        if names.count(name) > 1:
            message = f"header {name.decode()} is there twice; send it once"
            raise Refusal(400, "malformed", message, field=name.decode())


async def read(receive: Receive, headers: Mapping[bytes, bytes], most: int) -> bytes:
    """The body of a request, if it is small enough; `connection` cares that it comes in time."""
    stated = headers.get(b"content-length", b"0")
    if not stated.isdigit() or len(stated) > 18 or int(stated) > most:
        raise too_large(most)
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "gone", "the connection was closed before the body came")
        body += bytes(message.get("body", b""))
        if len(body) > most:
            raise too_large(most)
        if not message.get("more_body", False):
            return body


def too_large(most: int) -> Refusal:
    """A body beyond the limit; what is left of it is not read."""
    message = f"the body is larger than {most} bytes; send less at a time"
    return Refusal(413, "too_large", message, headers=((b"connection", b"close"),))


def parse(decoder: msgspec.json.Decoder[Kind], body: bytes, content_type: bytes | None) -> Kind:
    """The value of a JSON body, or a refusal that names the field."""
    kind = (content_type or b"application/json").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        message = f"content-type is {kind.decode('latin-1')[:TEXT]!r}; send application/json"
        raise Refusal(415, "unsupported_media_type", message)
    try:
        value = decoder.decode(body)
        once(body)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, "malformed", f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Refusal(400, "malformed", "the body is nested too deeply") from None
    return value


SAID = {
    repr(NAME): "small letters, digits, - and _, a letter or digit first",
    repr(KEY): "printable characters of ASCII",
    repr(PRINTABLE): "printable characters, on one line",
}
"""Patterns as msgspec quotes them, and in words."""


def plainly(said: str) -> str:
    """What msgspec says of a value, for people.

    >>> plainly("Expected `float` > 0.0")
    'wanted a number > 0.0'
    >>> plainly(f"Expected `str` matching regex {KEY!r}")
    'wanted a text of printable characters of ASCII'
    """
    said = said.replace("Expected `float`", "wanted a number")
    head, _, pattern = said.partition("Expected `str` matching regex ")
    return f"{head}wanted a text of {SAID[pattern]}" if pattern in SAID else said


def invalid(error: msgspec.ValidationError) -> Refusal:
    """JSON of the wrong shape: msgspec says where at the end of its message."""
    said, _, place = str(error).partition(" - at `")
    path = place.rstrip("`").removeprefix("$").removeprefix(".")
    return Refusal(422, "invalid", plainly(said), field=path or None)


def once(body: bytes) -> None:
    """Refuse an object with two members of one name: of such, each reader takes another."""
    if body.count(b":") > 1:  # else there is one member at most
        SEEN.decode(body.decode())


def members(pairs: list[tuple[str, Any]]) -> None:
    """Called with every object of a text."""
    if len(dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal(422, "invalid", f"field {twice[:TEXT]!r} is there twice", field=twice[:TEXT])


SEEN = json.JSONDecoder(object_pairs_hook=members, parse_int=str)  # of thousands of digits, too
