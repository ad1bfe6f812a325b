"""The check of a document against `problem.schema.json`, with lines and remedies in its errors.

Only the words of JSON Schema that occur there are known. What values mean together is in `experts`
and `problem_file`.
"""

import json
import math
import sys
from collections.abc import Iterator
from importlib.resources import files
from types import NoneType, UnionType
from typing import Any

from bylot._text import find_similar
from bylot.outcome_tables.sheets import parse_decimal, quote_field, shorten, suggest_decimal
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.document import (
    AmbiguousScalar,
    Document,
    Keys,
    Verbatim,
    describe_value,
    format_keys,
)

LARGEST = sys.float_info.max
MAX_NAME_LENGTH = 200
NAME_RULE = f"1 to {MAX_NAME_LENGTH} printable characters without spaces at the ends"
EXPERT_KEYS = ("name", "group", "max_costs")  # all other keys of an expert are costs
SchemaPart = dict[str, Any]


def packaged_text(name: str) -> str:
    """Return a file of this package: problem.schema.json, starter.yaml or demo.yaml."""
    return files("bylot.problem_files").joinpath(name).read_text(encoding="utf-8")


SCHEMA: SchemaPart = json.loads(packaged_text("problem.schema.json"))


def list_alternatives(part: SchemaPart) -> Iterator[SchemaPart]:
    """The part that a reference stands for; those among which a value may choose."""
    if "$ref" in part:
        yield from list_alternatives(SCHEMA["$defs"][part["$ref"].removeprefix("#/$defs/")])
    elif "anyOf" in part and "properties" not in part:
        for one in part["anyOf"]:
            yield from list_alternatives(one)
    else:
        yield part


def check_value(document: Document, keys: Keys, value: Any, schema: SchemaPart) -> None:
    """Raise ProblemFileError, with the line, for an entry that does not follow its schema."""
    parts = list(list_alternatives(schema))
    part = next((part for part in parts if has_kind(value, part)), None)
    got, remedy = "", None
    if part is None:
        blank = isinstance(value, dict | list) or value is None
        text = document.texts.get(keys, "" if blank else str(value))
        if document.is_private and isinstance(value, str | AmbiguousScalar):
            got = describe_value(value)
        else:
            got, remedy = describe_value(value, text), suggest_kind(value, text, parts)
    elif isinstance(value, dict | list) and len(value) < least_entries(part):
        got = f"({len(value)} entries)"
    elif isinstance(value, dict):
        check_mapping(document, keys, value, part)
    elif isinstance(value, list):
        for n, one in enumerate(value):
            if not is_plainly_valid(one, part["items"]):
                check_value(document, (*keys, n), one, part["items"])
    elif isinstance(value, str) and "pattern" in part and not is_readable_name(value):
        got = describe_value(value) if document.is_private else quote_field(value)
    elif isinstance(value, int | float) and not is_in_range(value, part):
        got = shorten(document.texts.get(keys, repr(value)))
    if got:
        raise document.error(
            keys,
            format_keys(keys),
            got=Verbatim(got),
            expected=" or ".join(map(describe_part, [part] if part else parts)),
            remedy=remedy,
        )


def check_mapping(document: Document, keys: Keys, value: dict[str, Any], part: SchemaPart) -> None:
    where = format_keys(keys) if keys else "the problem"
    known, others = part.get("properties", {}), part["additionalProperties"]
    for key, one in value.items():
        if key in known:
            check_value(document, (*keys, key), one, known[key])
        elif others and is_plainly_valid(one, others) and is_readable_name(key):
            continue
        elif others:
            check_value(document, (*keys, key), key, part["propertyNames"])
            check_value(document, (*keys, key), one, others)
        else:
            raise document.error(
                (*keys, key),
                f"unknown key {quote_field(key)} in {where}",
                remedy=suggest_known_name(key, list(known), "keys", can_add=False),
            )
    for name in part.get("required", ()):
        if name not in value:
            raise document.error(
                keys,
                f"missing key {name!r} in {where}",
                remedy=f"add {name}: {known[name]['description']}",
            )
    for name, (other,) in part.get("dependentRequired", {}).items():
        if name in value and other not in value:
            raise document.error(
                keys,
                f"{where} has {name} without {other}",
                remedy=f"add {other}: {known[other]['description']}",
            )
    for word, most in (("oneOf", 1), ("anyOf", 2)):
        names = [one["required"][0] for one in part.get(word, ())]
        found = [name for name in names if name in value]
        if names and not found:
            raise document.error(
                keys, f"{where} has neither {' nor '.join(names)}", remedy="add one of them"
            )
        if len(found) > most:
            raise document.error(
                keys, f"{where} has both {' and '.join(found)}", remedy="keep one of them"
            )


PYTHON_TYPES: dict[str, type | UnionType] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": NoneType,
}


def has_kind(value: Any, part: SchemaPart) -> bool:
    """Is the value of the type of a part, whatever it says?"""
    if "enum" in part:
        return value in part["enum"]
    kind = part["type"]
    return isinstance(value, PYTHON_TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")


def is_plainly_valid(value: Any, schema: SchemaPart) -> bool:
    """Is it a valid name or cost? A quick answer for what a problem has many of."""
    kind = schema.get("$ref")
    if kind == "#/$defs/name":
        return type(value) is str and is_readable_name(value)
    is_cost = kind in ("#/$defs/amount", "#/$defs/cost")
    return is_cost and type(value) in (int, float) and 0 <= value <= LARGEST


def least_entries(part: SchemaPart) -> int:
    return int(part.get("minItems", 0) or part.get("minProperties", 0))


def is_in_range(value: float, part: SchemaPart) -> bool:
    low, high = part.get("minimum", -LARGEST), part.get("maximum", LARGEST)
    return bool(low <= value <= high) and value > float(part.get("exclusiveMinimum", -math.inf))


def is_readable_name(name: str) -> bool:
    """Can people see all characters of a name?

    >>> is_readable_name("ann b."), is_readable_name("ann "), is_readable_name("")
    (True, False, False)
    """
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and name == name.strip()


def describe_part(part: SchemaPart) -> str:
    """What a part of the schema allows, after "expected".

    >>> describe_part({"type": "integer", "minimum": 1, "maximum": 10000})
    'a whole number from 1 to 10,000'
    """
    if "enum" in part:
        return " or ".join(part["enum"])
    match part["type"]:
        case "object" if "properties" in part:
            return f"a mapping with the keys {', '.join(part['properties'])}"
        case "object":
            return "a mapping of names to values"
        case "array":
            return f"a list of at least {least_entries(part)}" if least_entries(part) else "a list"
        case "string":
            return f"a name of {NAME_RULE}" if "pattern" in part else "text"
        case "boolean":
            return "true or false"
        case "null":
            return "nothing"
    kind = "a whole number" if part["type"] == "integer" else "a finite number"
    if "minimum" in part and "maximum" in part:
        return f"{kind} from {part['minimum']} to {part['maximum']:,}"
    words = {
        "minimum": "of {:g} or more",
        "exclusiveMinimum": "above {:g}",
        "maximum": "at most {:g}",
    }
    ends = [text.format(part[word]) for word, text in words.items() if word in part]
    return f"{kind} {' and '.join(ends)}".strip()


def suggest_kind(value: Any, text: str, parts: list[SchemaPart]) -> str | None:
    """How to write a value so that it is a name or, if it looks like one, a number.

    >>> number = [{"type": "number"}]
    >>> [suggest_kind(text, text, number) for text in ("1e3", "4%", "1,5", "many")]
    ['remove the quotes', 'write 0.04 for 4%', 'write 1.5: decimals have a point', None]
    >>> suggest_kind("mouth", "mouth", [{"enum": ["day", "month"]}])
    "did you mean 'month'?"
    """
    words = [word for part in parts for word in part.get("enum", ())]
    if words and isinstance(value, str):
        close = find_similar(value, words)
        return f"did you mean {close!r}?" if close else None
    if isinstance(value, bool | int | float | AmbiguousScalar):
        named = any(has_kind("", part) for part in parts)
        return f'put it in quotes if it is a name: "{text}"' if named else None
    if not (isinstance(value, str) and any(has_kind(0, part) for part in parts)):
        return None
    if parse_decimal(value) is not None:
        return "remove the quotes"
    return suggest_decimal(value)
