"""Reads the settings of a scorer or of text clusters from a configuration: each is checked once.

A setting is a field of a Struct; the description in its type is what an error says was expected.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from bylot.errors import BylotError
from bylot.problem.validation import suggest_known_name

MAX_SOURCE_CHARS = 64
HIDDEN = ("url", "headers")  # may hold a password: errors do not repeat them

SettingsT = TypeVar("SettingsT", bound=Struct)


def read_entry_settings(what: str, given: Mapping[str, Any], kind: type[SettingsT]) -> SettingsT:
    """Settings of a kind, or an error that names the field.

    >>> from typing import Annotated
    >>> class Bounds(Struct):
    ...     low: Annotated[float, Meta(ge=0, description="a number of at least 0")] = 0.0
    >>> read_entry_settings("bounds", {"low": 1}, Bounds)
    Bounds(low=1.0)
    >>> read_entry_settings("bounds", {"low": "much"}, Bounds)
    Traceback (most recent call last):
    bylot.errors.BylotError: invalid bounds.low 'much': expected a number of at least 0
    """
    fields = msgspec.structs.fields(kind)
    known = [field.name for field in fields]
    for name in given:
        if name not in known:
            raise BylotError(
                f"{what}: unknown setting {name!r}",
                remedy=suggest_known_name(str(name), known, "settings", can_add=False),
            )
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for field in fields:
        expected = describe_type(hints[field.name])
        place = f"{what}.{field.name}"
        if field.name in given:
            value = given[field.name]
            try:
                values[field.name] = msgspec.convert(value, hints[field.name])
            except msgspec.ValidationError:
                got = {} if field.name in HIDDEN else {"got": value}
                raise BylotError(place, expected=expected, **got) from None
        elif field.required:
            raise BylotError(
                f"{place} is missing", expected=expected, remedy=f"give {field.name}: ..."
            )
    return kind(**values)


def describe_type(hint: Any) -> str:
    """What a setting is expected to be: the description of its type."""
    found = [one.description for one in get_args(hint) if isinstance(one, Meta)]
    found += [describe_type(one) for one in get_args(hint) if get_args(one)]
    return next(filter(None, found), "another type")


def name_source(kind: str, name: str = "") -> str:
    """The key of a scorer in reports: printable ASCII, at most 64 characters, unlike others.

    >>> name_source("exact"), name_source("judge", "gpt"), name_source("judge", "Jürgen")
    ('exact', 'judge:gpt', 'judge:J?rgen~1a2df97b')
    """
    full = f"{kind}:{name}" if name else kind
    text = "".join(char if " " <= char <= "~" else "?" for char in full)
    if text == full and len(text) <= MAX_SOURCE_CHARS:
        return text
    return f"{text[: MAX_SOURCE_CHARS - 9]}~{hashlib.sha256(full.encode()).hexdigest()[:8]}"
