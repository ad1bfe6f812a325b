"""The keys of a problem file as msgspec structs, their JSON Schema, and the check of a document.

What values mean together is in `experts` and `limits`.
"""

import atexit
import gc
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, inspect

from bylot.errors import ProblemFileError
from bylot.outcome_tables.sheets import parse_decimal
from bylot.outcome_tables.text_lines import quote_field, shorten
from bylot.problem.validation import MAX_DRAWS_PER_REQUEST, suggest_known_name
from bylot.problem_files.document import (
    AmbiguousScalar,
    Document,
    Keys,
    Verbatim,
    describe_value,
)

MAX_NAME_LENGTH = 200
NAME_RULE = f"1 to {MAX_NAME_LENGTH} printable characters without spaces at the ends"

Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH, pattern=r"^\S(.*\S)?$")]
Names = Name | list[Name]
SomeNames = Annotated[list[Name], Meta(min_length=1)]
Amount = Annotated[float, Meta(ge=0)]
Weight = Annotated[float, Meta(gt=0)]


class ExpertEntry(Struct, forbid_unknown_fields=True):
    """An expert; in a file its costs are keys beside `name` and `group`."""

    name: Name
    group: Names | UnsetType = UNSET
    costs: dict[Name, Amount] = {}


class ExpertsFile(Struct, forbid_unknown_fields=True):
    """The CSV file that lists the experts."""

    csv: Name
    group: Names | UnsetType = UNSET


class ColumnRule(Struct, forbid_unknown_fields=True):
    """A group: the experts whose number in a column of the CSV file is in a range."""

    column: Name
    at_least: float | UnsetType = UNSET
    at_most: float | UnsetType = UNSET
    blank: Literal["in", "out"] | UnsetType = UNSET


class LimitEntry(Struct, forbid_unknown_fields=True):
    """A limit on a cost or on a group."""

    per: Literal["request", "draw"]
    cost: Name | UnsetType = UNSET
    group: Name | UnsetType = UNSET
    at_most: Amount | UnsetType = UNSET
    at_least: Amount | UnsetType = UNSET


class RewardRange(Struct, forbid_unknown_fields=True, rename={"low": "from", "high": "to"}):
    """The range of rewards."""

    low: float
    high: float


class ProblemEntry(Struct, forbid_unknown_fields=True, rename={"schema": "$schema"}):
    """A problem: experts, what they cost, and the limits."""

    draws: Annotated[int, Meta(ge=1, le=MAX_DRAWS_PER_REQUEST)]
    experts: Annotated[list[ExpertEntry], Meta(min_length=2)] | ExpertsFile
    schema: str | UnsetType = UNSET
    floor: Annotated[float, Meta(gt=0, le=0.5)] | UnsetType = UNSET
    period: Annotated[int, Meta(ge=1, le=2**62 - 1)] | UnsetType = UNSET
    rewards: RewardRange | UnsetType = UNSET
    contexts: SomeNames | Annotated[dict[Name, Weight], Meta(min_length=1)] | UnsetType = UNSET
    costs: dict[Name, str] = {}
    groups: dict[Name, SomeNames | ColumnRule] = {}
    limits: list[LimitEntry] = []


DESCRIPTIONS: dict[type, dict[str, str]] = {
    ProblemEntry: {
        "draws": "how many experts are drawn for each request",
        "experts": "a list of experts, or the CSV file that lists them",
        "$schema": "where an editor finds this schema; ignored",
        "floor": "the least probability that the paper's policies give an expert in a draw; by "
        "default 1/(10 x number of experts)",
        "period": "the limits hold at the end of every so many requests",
        "rewards": "the range of rewards; by default from 0 to 1",
        "contexts": "kinds of requests, each with its own preferences: a list of names, or names "
        "with weights that say how often each comes relative to the others",
        "costs": "each cost of the experts with its unit, such as usd: US dollars",
        "groups": "further groups: lists of experts, or rules on a column of the CSV file",
        "limits": "limits on long-run averages over requests, whatever the context",
    },
    ExpertEntry: {
        "name": "the name of the expert, which no other expert has",
        "group": "the group of the expert, or a list of groups",
    },
    ExpertsFile: {
        "csv": "a CSV file in the same folder with one line per expert: a header, the names of "
        "the experts in the first column, and one column per cost",
        "group": "the column that holds the group of each expert, or a list of such columns; by "
        "default the column called group, if there is one",
    },
    ColumnRule: {
        "column": "a column of numbers in the CSV file",
        "at_least": "members have this number or more",
        "at_most": "members have this number or less",
        "blank": "whether an expert without a number is a member",
    },
    LimitEntry: {
        "per": "request: the average over requests of what the consulted experts cost together, "
        "or of how many of them are in the group; draw: that average divided by draws, so that "
        "at_least: 0.04 on a group is 4% of the draws",
        "cost": "the limited cost",
        "group": "the limited group",
        "at_most": "upper bound of the average",
        "at_least": "lower bound of the average",
    },
    RewardRange: {
        "from": "the lowest reward of a panel",
        "to": "the highest reward of a panel",
    },
}
EXACTLY_ONE: dict[type, tuple[str, ...]] = {LimitEntry: ("cost", "group")}
AT_LEAST_ONE: dict[type, tuple[str, ...]] = {
    LimitEntry: ("at_most", "at_least"),
    ColumnRule: ("at_most", "at_least"),
}
"""Keys of which a mapping has exactly one, or at least one."""

EXPERT_KEYS = ("name", "group")
"""All other keys of an expert are costs."""

atexit.register(gc.freeze)  # msgspec may crash when it frees Meta types at exit (its issue 717)
PROBLEM_TYPE = inspect.type_info(ProblemEntry)
EXPERTS_TYPE = inspect.type_info(Annotated[list[ExpertEntry], Meta(min_length=2)])


def as_list(value: str | list[str] | UnsetType) -> list[str]:
    """No entry, one, or several."""
    if value is UNSET:
        return []
    return [value] if isinstance(value, str) else list(value)


def problem_schema() -> dict[str, Any]:
    """The JSON Schema of problem files (draft 2020-12)."""
    made = msgspec.json.schema(ProblemEntry)
    for struct, texts in DESCRIPTIONS.items():
        part = made["$defs"][struct.__name__]
        for key, text in texts.items():
            part["properties"][key] = {"description": text, **part["properties"][key]}
        for word, rules in (("oneOf", EXACTLY_ONE), ("anyOf", AT_LEAST_ONE)):
            if struct in rules:
                part[word] = [{"required": [key]} for key in rules[struct]]
    expert = made["$defs"]["ExpertEntry"]
    costs = expert["properties"].pop("costs")  # keys beside the others
    expert |= {key: costs[key] for key in ("propertyNames", "additionalProperties")}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, "title": "A problem for bylot", **made}


def format_schema(made: dict[str, Any]) -> str:
    """A schema as it is published."""
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def published_schema() -> str:
    """The schema that comes with the package."""
    return packaged_text("problem.schema.json")


def starter_text() -> str:
    """A small problem file with comments."""
    return packaged_text("starter.yaml")


def packaged_text(name: str) -> str:
    """A file of this package."""
    return files("bylot.problem_files").joinpath(name).read_text(encoding="utf-8")


def decode_problem(document: Document) -> ProblemEntry:
    """Check a document against the structs and convert it."""
    check_value(document, (), document.data, PROBLEM_TYPE)
    data = dict(document.data)
    if isinstance(data["experts"], list):
        data["experts"] = [separate_costs(expert) for expert in data["experts"]]
    return msgspec.convert(data, ProblemEntry)


def decode_experts(document: Document) -> list[ExpertEntry]:
    """The same for a document that holds a list of experts and nothing else."""
    check_value(document, ("experts",), document.data["experts"], EXPERTS_TYPE)
    return msgspec.convert(
        [separate_costs(expert) for expert in document.data["experts"]], list[ExpertEntry]
    )


def separate_costs(expert: Mapping[str, Any]) -> dict[str, Any]:
    """Move the costs of an expert to a key of their own."""
    known = {key: expert[key] for key in EXPERT_KEYS if key in expert}
    costs = {key: value for key, value in expert.items() if key not in EXPERT_KEYS}
    return {**known, "costs": costs}


def check_value(document: Document, keys: Keys, value: Any, info: Any) -> None:
    """Raise ProblemFileError, with the line, for an entry that is not of the type."""
    if isinstance(info, inspect.UnionType):
        info = next((part for part in info.types if has_kind(value, part)), info)
    if not has_kind(value, info):
        raise wrong_kind_error(document, keys, value, info)
    least, got = getattr(info, "min_length", None), None
    match info:
        case inspect.StructType():
            check_struct(document, keys, value, info)
        case inspect.DictType() | inspect.ListType() if least and len(value) < least:
            got = f"({len(value)} entries)"
        case inspect.DictType():
            for key, part in value.items():
                check_value(document, (*keys, key), key, info.key_type)
                check_value(document, (*keys, key), part, info.value_type)
        case inspect.ListType():
            for n, part in enumerate(value):
                check_value(document, (*keys, n), part, info.item_type)
        case inspect.StrType(pattern=str()) if not is_readable_name(value):
            got = quote_field(value)
        case inspect.IntType() | inspect.FloatType() if not is_in_range(value, info):
            got = shorten(document.texts.get(keys, repr(value)))
    if got is not None:
        expected = describe_type(info)
        raise document.error(keys, format_keys(keys), got=Verbatim(got), expected=expected)


def check_struct(document: Document, keys: Keys, value: dict[str, Any], info: Any) -> None:
    """Check the keys of a mapping; those of an expert that are not fields are costs."""
    where = format_keys(keys) if keys else "the problem"
    types = {one.encode_name: one.type for one in info.fields}
    costs = types.pop("costs") if info.cls is ExpertEntry else None
    for key, part in value.items():
        if key in types:
            check_value(document, (*keys, key), part, types[key])
        elif costs is not None:
            check_value(document, (*keys, key), key, costs.key_type)
            check_value(document, (*keys, key), part, costs.value_type)
        else:
            what = f"unknown key {quote_field(key)} in {where}"
            remedy = suggest_known_name(key, list(types), "keys", can_add=False)
            raise document.error((*keys, key), what, remedy=remedy)
    for field in info.fields:
        if field.required and field.encode_name not in value:
            what = f"missing key {field.encode_name!r} in {where}"
            remedy = f"add {field.encode_name}: {DESCRIPTIONS[info.cls][field.encode_name]}"
            raise document.error(keys, what, remedy=remedy)
    for rules, most in ((EXACTLY_ONE, 1), (AT_LEAST_ONE, 2)):
        names = rules.get(info.cls, ())
        found = [name for name in names if name in value]
        if names and not found:
            what = f"{where} has neither {' nor '.join(names)}"
            raise document.error(keys, what, remedy="add one of them")
        if len(found) > most:
            what = f"{where} has both {' and '.join(found)}"
            raise document.error(keys, what, remedy="keep one of them")


def has_kind(value: Any, info: Any) -> bool:
    """Is the value of the Python type that the type allows, whatever it says?"""
    match info:
        case inspect.UnionType():
            return any(has_kind(value, part) for part in info.types)
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.ListType():
            return isinstance(value, list)
        case inspect.LiteralType():
            return value in info.values
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str)


def is_in_range(value: float, info: Any) -> bool:
    """Is a number finite and within the bounds of its type?"""
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an int of more than 308 digits
        return False
    return (
        finite
        and (info.ge is None or value >= info.ge)
        and (info.gt is None or value > info.gt)
        and (info.le is None or value <= info.le)
    )


def is_readable_name(name: str) -> bool:
    """Can people see all characters of a name?

    >>> is_readable_name("ann b."), is_readable_name("ann "), is_readable_name("")
    (True, False, False)
    """
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and name == name.strip()


def format_keys(keys: Keys) -> str:
    """The path of an entry.

    >>> format_keys(("experts", 2, "usd")), format_keys(())
    ('experts[2].usd', 'problem')
    """
    parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys]
    return shorten("".join(parts).removeprefix(".")) if keys else "problem"


def describe_type(info: Any) -> str:
    """What a type allows, after "expected"."""
    match info:
        case inspect.UnionType():
            return " or ".join(map(describe_type, info.types))
        case inspect.StructType():
            return f"a mapping with the keys {', '.join(one.encode_name for one in info.fields)}"
        case inspect.DictType():
            return "a mapping of names to values"
        case inspect.ListType():
            return f"a list of at least {info.min_length}" if info.min_length else "a list"
        case inspect.LiteralType():
            return " or ".join(sorted(map(str, info.values), reverse=True))
        case inspect.StrType():
            return "text" if info.pattern is None else f"a name of {NAME_RULE}"
    kind = "a whole number" if isinstance(info, inspect.IntType) else "a finite number"
    if info.ge is not None and info.le is not None:
        return f"{kind} from {info.ge:g} to {info.le:,}"
    ends = [] if info.ge is None else [f"of {info.ge:g} or more"]
    ends += [] if info.gt is None else [f"above {info.gt:g}"]
    ends += [] if info.le is None else [f"at most {info.le:g}"]
    return f"{kind} {' and '.join(ends)}".strip()


def wrong_kind_error(document: Document, keys: Keys, value: Any, info: Any) -> ProblemFileError:
    """The error for a value of another kind than its type."""
    blank = isinstance(value, dict | list) or value is None
    text = document.texts.get(keys, "" if blank else str(value))
    remedy = None
    if isinstance(value, str):
        remedy = suggest_number(value) if has_kind(0, info) else None
    elif isinstance(value, bool | int | float | AmbiguousScalar) and has_kind("", info):
        remedy = f'put it in quotes if it is a name: "{text}"'
    return document.error(
        keys,
        format_keys(keys),
        got=describe_value(value, text),
        expected=describe_type(info),
        remedy=remedy,
    )


def suggest_number(text: str) -> str | None:
    """How to write a text as the number it seems to be.

    >>> suggest_number("1e3"), suggest_number("4%"), suggest_number("1,5"), suggest_number("many")
    ('remove the quotes', 'write 0.04 for 4%', 'write 1.5', None)
    """
    if parse_decimal(text) is not None:
        return "remove the quotes"
    percent = parse_decimal(text.removesuffix("%").strip()) if text.endswith("%") else None
    if percent is not None:
        return f"write {percent / 100:g} for {text}"
    decimal = text.replace(",", ".", 1)
    return f"write {decimal}" if parse_decimal(decimal) is not None else None
