"""Reads and validates requests: sizes, headers, JSON bodies, names. Each input is checked once."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from bylot.api import KEY_PATTERN, MAX_TEXT_CHARS, NAME_PATTERN, PRINTABLE_PATTERN
from bylot.errors import DecisionNotFound, RouterNotFound
from bylot.eventlog.commands import decision_id_from_text, is_router_name
from bylot.gateway.contexts import LABEL_HEADERS
from bylot.problem.validation import suggest_known_name
from bylot.server.field_errors import explain_fault, find_struct, find_type
from bylot.server.http_errors import ApiError, invalid

ParsedT = TypeVar("ParsedT")
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]

UNIQUE_HEADERS = (
    *(b"idempotency-key", b"authorization", b"content-type", b"content-length", b"host"),
    *(header.encode() for header in LABEL_HEADERS.values()),
)
ROUTERS_REMEDY = "GET /v1/routers lists the routers"
KEY_REGEX = re.compile(KEY_PATTERN)
MAX_OBJECT_FIELDS = 1_000  # no request needs more in one object
MAX_LENGTH_DIGITS = 18  # of a Content-Length


def check_router_name(name: str) -> str:
    """Return a name that a router can have."""
    if not is_router_name(name):
        raise RouterNotFound(f"no router named {name[:MAX_TEXT_CHARS]!r}", remedy=ROUTERS_REMEDY)
    return name


def check_decision_id(id: str) -> str:
    """Return an id that a decision can have."""
    if decision_id_from_text(id) is None:
        raise DecisionNotFound(
            f"no decision {id[:MAX_TEXT_CHARS]!r}", remedy="use the id returned with the decision"
        )
    return id


def normalize_label(text: str | None, kind: str, place: str = "") -> str | None:
    """Return a context or a key in NFC, so that texts that look alike are one, however their
    accents are coded; kind, place: what it is and what it is part of, for errors.
    """
    if text is None or text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    if len(text) > MAX_TEXT_CHARS or not text.isprintable():
        raise invalid(
            f"{place}{kind}",
            f"invalid {kind}: expected at most {MAX_TEXT_CHARS} printable characters in NFC",
        )
    return text


def parse_idempotency_key(in_header: bytes | None, in_body: str | None) -> str | None:
    """The idempotency key of a decision, from the header or from the body."""
    if in_header is None:
        return in_body
    text = in_header.decode("latin-1")
    if len(text) > MAX_TEXT_CHARS or not KEY_REGEX.search(text):
        raise invalid(
            "Idempotency-Key",
            f"invalid Idempotency-Key: expected 1 to {MAX_TEXT_CHARS} printable ASCII characters",
        )
    if in_body not in (None, text):
        raise invalid(
            "key", f"key {in_body!r} and Idempotency-Key {text!r} differ; send one of them"
        )
    return text


def check_duplicate_headers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Reject duplicates of headers that matter: recipients disagree about which one counts."""
    names = [name for name, _ in headers]
    for name in UNIQUE_HEADERS:
        if names.count(name) > 1:
            raise ApiError(
                400, "malformed", f"duplicate header: {name.decode()}", field=name.decode()
            )


async def read_body(receive: AsgiReceive, headers: Mapping[bytes, bytes], max_bytes: int) -> bytes:
    """Read the body of a request; `HttpServer` enforces the timeout."""
    stated, size, has_more = headers.get(b"content-length", b"0"), 0, True
    parts: list[bytes] = []  # joined once: a body may arrive byte by byte
    too_large = not stated.isdigit() or len(stated) > MAX_LENGTH_DIGITS or int(stated) > max_bytes
    while has_more and not too_large:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "gone", "the client closed the connection before the body arrived")
        parts.append(bytes(message.get("body", b"")))
        size += len(parts[-1])
        too_large, has_more = size > max_bytes, message.get("more_body", False)
    if too_large:  # the rest is not read
        raise ApiError(
            413,
            "too_large",
            f"body too large: expected at most {max_bytes} bytes; send less per request",
            headers=((b"connection", b"close"),),
        )
    return b"".join(parts)


def get_media_type(content_type: bytes | None) -> bytes:
    """The type of a body without its parameters."""
    return (content_type or b"application/json").partition(b";")[0].strip().lower()


def parse_json_body(
    decoder: msgspec.json.Decoder[ParsedT], body: bytes, content_type: bytes | None
) -> ParsedT:
    """Decode a JSON body, or raise an error that names the invalid field."""
    kind = get_media_type(content_type)
    if kind != b"application/json":
        got = kind.decode("latin-1")[:MAX_TEXT_CHARS]
        message = f"unsupported content-type {got!r}: expected application/json"
        raise ApiError(415, "unsupported_media_type", f"{message} (or application/yaml, for files)")
    try:
        value = decoder.decode(body)
        check_duplicate_fields(body)
    except msgspec.ValidationError as error:
        raise invalid_field_error(error, decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "" if body.lstrip()[:1] in b"{[" else "; send a YAML file as application/yaml"
        raise ApiError(400, "malformed", f"the body is not valid JSON: {error}{hint}") from None
    except RecursionError:
        raise nested_too_deeply() from None
    return value


def parse_query(kind: type[ParsedT], text: bytes) -> ParsedT:
    """Decode the query parameters, each of which may occur once."""
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True)
    given = dict(pairs)
    if len(given) < len(pairs):
        raise invalid(None, "duplicate query parameter")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_field_error(error, kind) from None


PATTERN_WORDS = {
    repr(NAME_PATTERN): "lower-case letters, digits, - and _, starting with a letter or digit",
    repr(KEY_PATTERN): "printable ASCII characters",
    repr(PRINTABLE_PATTERN): "printable characters on one line",
}
"""Patterns as msgspec quotes them, and what they mean."""


def invalid_field_error(error: msgspec.ValidationError, kind: Any) -> ApiError:
    """JSON of the wrong shape; msgspec names the field at the end of its message."""
    text, path, unknown = explain_fault(error, kind)
    for pattern, words in PATTERN_WORDS.items():
        text = text.replace(f"expected a text matching regex {pattern}", f"expected {words}")
    if path.startswith("members[") and text.endswith("got null"):
        text += "; leave out a member whose score is unknown"
    if unknown:
        known = find_struct(find_type(kind, path)).__struct_encode_fields__
        remedy = suggest_known_name(unknown, known, "fields", can_add=False)
        text = f"unknown field {unknown[:MAX_TEXT_CHARS]!r}; {remedy}"
    return invalid(path or None, text)


def reject_duplicate_fields(pairs: list[tuple[str, Any]]) -> None:
    """Reject an object with two fields of one name: recipients disagree about which one counts."""
    if len(pairs) > MAX_OBJECT_FIELDS:
        raise invalid(
            None, f"an object has {len(pairs)} fields: expected at most {MAX_OBJECT_FIELDS}"
        )
    if len(dict(pairs)) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)[:MAX_TEXT_CHARS]
        raise invalid(twice, f"duplicate field {twice!r}")


def check_duplicate_fields(body: bytes) -> None:
    """Reject valid JSON of which an object has two fields of one name."""
    if body.count(b":") < 2:  # there is at most one field
        return
    try:
        DUPLICATE_FIELD_DECODER.decode(body.decode())
    except RecursionError:  # msgspec, which has decoded it, allows some levels more
        raise nested_too_deeply() from None


def nested_too_deeply() -> ApiError:
    return ApiError(400, "malformed", "the body is nested too deeply")


DUPLICATE_FIELD_DECODER = json.JSONDecoder(
    object_pairs_hook=reject_duplicate_fields,
    parse_int=str,  # int() refuses thousands of digits
)
