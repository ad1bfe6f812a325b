"""How much a stranger may send: lengths, counts, depths; checked once, where a request enters."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import msgspec

from bylot.api import KEY_PATTERN, MAX_TEXT_CHARS, NAME_PATTERN, PRINTABLE_PATTERN
from bylot.errors import DecisionNotFound, RouterNotFound
from bylot.eventlog.commands import decision_id_from_text, is_router_name
from bylot.server.http_errors import ApiError

ParsedT = TypeVar("ParsedT")
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]

UNIQUE_HEADERS = (b"idempotency-key", b"authorization", b"content-type", b"content-length", b"host")
"""Headers that mean something here."""

KEY_REGEX = re.compile(KEY_PATTERN)
PRINTABLE_REGEX = re.compile(PRINTABLE_PATTERN)


def check_router_name(name: str) -> str:
    """A name that a router could have."""
    if not is_router_name(name):
        raise RouterNotFound(
            f"there is no router {name[:MAX_TEXT_CHARS]!r}; GET /v1/routers lists them"
        )
    return name


def check_decision_id(id: str) -> str:
    """An id that a decision could have."""
    if decision_id_from_text(id) is None:
        raise DecisionNotFound(
            f"there is no decision {id[:MAX_TEXT_CHARS]!r}; give the id that the decision came with"
        )
    return id


def parse_idempotency_key(in_header: bytes | None, in_body: str | None) -> str | None:
    """The caller's name for a decision, which may be told in two places."""
    if in_header is None:
        return in_body
    text = in_header.decode("latin-1")
    if len(text) > MAX_TEXT_CHARS or not KEY_REGEX.search(text):
        message = f"Idempotency-Key is not 1 to {MAX_TEXT_CHARS} printable characters of ASCII"
        raise ApiError(422, "invalid", message, field="Idempotency-Key")
    if in_body not in (None, text):
        message = f"key {in_body!r} and Idempotency-Key {text!r} differ; give one of them"
        raise ApiError(422, "invalid", message, field="key")
    return text


def check_duplicate_headers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a request that says one of these twice: of such, each reader takes another."""
    names = [name for name, _ in headers]
    for name in UNIQUE_HEADERS:
        if names.count(name) > 1:
            message = f"header {name.decode()} is there twice; send it once"
            raise ApiError(400, "malformed", message, field=name.decode())


async def read_body(receive: AsgiReceive, headers: Mapping[bytes, bytes], most: int) -> bytes:
    """The body of a request, if it is small enough; `connection` cares that it comes in time."""
    stated = headers.get(b"content-length", b"0")
    if not stated.isdigit() or len(stated) > 18 or int(stated) > most:
        raise body_too_large(most)
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "gone", "the connection was closed before the body came")
        body += bytes(message.get("body", b""))
        if len(body) > most:
            raise body_too_large(most)
        if not message.get("more_body", False):
            return body


def body_too_large(most: int) -> ApiError:
    """A body beyond the limit; what is left of it is not read."""
    message = f"the body is larger than {most} bytes; send less at a time"
    return ApiError(413, "too_large", message, headers=((b"connection", b"close"),))


def parse_json_body(
    decoder: msgspec.json.Decoder[ParsedT], body: bytes, content_type: bytes | None
) -> ParsedT:
    """The value of a JSON body, or a refusal that names the field."""
    kind = (content_type or b"application/json").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        message = (
            f"content-type is {kind.decode('latin-1')[:MAX_TEXT_CHARS]!r}; send application/json"
        )
        raise ApiError(415, "unsupported_media_type", message)
    try:
        value = decoder.decode(body)
        check_duplicate_fields(body)
    except msgspec.ValidationError as error:
        raise invalid_field_error(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, "malformed", f"the body is not JSON: {error}") from None
    except RecursionError:
        raise ApiError(400, "malformed", "the body is nested too deeply") from None
    return value


PATTERN_WORDS = {
    repr(NAME_PATTERN): "small letters, digits, - and _, a letter or digit first",
    repr(KEY_PATTERN): "printable characters of ASCII",
    repr(PRINTABLE_PATTERN): "printable characters, on one line",
}
"""Patterns as msgspec quotes them, and in words."""


def explain_msgspec_error(said: str) -> str:
    """What msgspec says of a value, for people.

    >>> explain_msgspec_error("Expected `float` > 0.0")
    'wanted a number > 0.0'
    >>> explain_msgspec_error(f"Expected `str` matching regex {KEY_PATTERN!r}")
    'wanted a text of printable characters of ASCII'
    """
    said = said.replace("Expected `float`", "wanted a number")
    head, _, pattern = said.partition("Expected `str` matching regex ")
    return f"{head}wanted a text of {PATTERN_WORDS[pattern]}" if pattern in PATTERN_WORDS else said


def invalid_field_error(error: msgspec.ValidationError) -> ApiError:
    """JSON of the wrong shape: msgspec says where at the end of its message."""
    said, _, place = str(error).partition(" - at `")
    path = place.rstrip("`").removeprefix("$").removeprefix(".")
    return ApiError(422, "invalid", explain_msgspec_error(said), field=path or None)


def check_duplicate_fields(body: bytes) -> None:
    """Refuse an object with two members of one name: of such, each reader takes another."""
    if body.count(b":") > 1:  # else there is one member at most
        DUPLICATE_FIELD_DECODER.decode(body.decode())


def reject_duplicate_fields(pairs: list[tuple[str, Any]]) -> None:
    """Called with every object of a text."""
    if len(dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ApiError(
            422,
            "invalid",
            f"field {twice[:MAX_TEXT_CHARS]!r} is there twice",
            field=twice[:MAX_TEXT_CHARS],
        )


DUPLICATE_FIELD_DECODER = json.JSONDecoder(
    object_pairs_hook=reject_duplicate_fields, parse_int=str
)  # of thousands of digits, too
