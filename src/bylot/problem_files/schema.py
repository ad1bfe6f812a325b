"""Shapes: what a value in a file must look like. The reader checks them and the JSON Schema is
made of them, so that the two cannot differ. What values mean together is left to the reader.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from bylot.errors import ProblemFileError
from bylot.outcome_tables.sheets import parse_decimal
from bylot.problem.validation import MAX_DRAWS_PER_REQUEST, suggest_known_name
from bylot.problem_files.nodes import AmbiguousScalar, Node, describe_kind, file_error, quote_value

MAX_NAME_LENGTH = 200  # signs of a name
NAME_RULE = f"of 1 to {MAX_NAME_LENGTH} printable signs, without blanks at its ends"


def is_readable_name(name: str) -> bool:
    """Can people see all of a name?

    >>> is_readable_name("ann b."), is_readable_name("ann "), is_readable_name("")
    (True, False, False)
    """
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and name == name.strip()


class Shape(Protocol):
    """Something that a value can be."""

    @property
    def wanted(self) -> str:
        """In words, after "write"."""

    def fits(self, node: Node) -> bool:
        """Is the value of this kind at all, whatever it says?"""

    def check(self, node: Node, what: str) -> None:
        """Raise ProblemFileError if this value, called so, is not of this shape."""

    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema, draft 2020-12."""


@dataclass(frozen=True)
class NameShape:
    """A word or a few: printable, not long, and without blanks at its ends, which nobody sees."""

    wanted: str = "a name"

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, str)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise wrong_kind_error(node, what, self)
        if not is_readable_name(node.value):
            said = f"{what} is {quote_value(node.value) or 'empty'}"
            raise file_error(node.place, said, f"write {self.wanted} {NAME_RULE}")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "maxLength": MAX_NAME_LENGTH, "pattern": r"^\S(.*\S)?$"}


@dataclass(frozen=True)
class TextShape:
    """Any text."""

    wanted: str = "a text"

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, str)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise wrong_kind_error(node, what, self)
        if not node.value.isprintable():
            raise file_error(
                node.place, f"{what} is {quote_value(node.value)}", "write it on one line"
            )

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True)
class ChoiceShape:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def wanted(self) -> str:
        return " or ".join(self.words)

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, str)

    def check(self, node: Node, what: str) -> None:
        if node.value not in self.words:
            raise file_error(
                node.place, f"{what} is {describe_value(node)}", f"write {self.wanted}"
            )

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class NumberShape:
    """A finite number; whole, if that is said."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    whole: bool = False

    @property
    def wanted(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.least is not None and self.most is not None:
            return f"{kind} from {self.least:g} to {self.most:,}"
        ends = [] if self.least is None else [f" of {self.least:g} or more"]
        ends += [] if self.above is None else [f" above {self.above:g}"]
        ends += [] if self.most is None else [f" and {self.most:g} or less"]
        return kind + ",".join(ends)

    def fits(self, node: Node) -> bool:
        kinds = int if self.whole else (int, float)
        return isinstance(node.value, kinds) and not isinstance(node.value, bool)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise wrong_kind_error(node, what, self)
        if not is_finite_number(node.value):
            raise file_error(
                node.place, f"{what} is {describe_value(node)}, not finite", f"write {self.wanted}"
            )
        low = self.least is not None and node.value < self.least
        low = low or (self.above is not None and node.value <= self.above)
        if low or (self.most is not None and node.value > self.most):
            raise file_error(
                node.place, f"{what} is {describe_value(node)}", f"write {self.wanted}"
            )

    def schema(self) -> dict[str, Any]:
        ends = {"minimum": self.least, "exclusiveMinimum": self.above, "maximum": self.most}
        kept = {word: end for word, end in ends.items() if end is not None}
        return {"type": "integer" if self.whole else "number", **kept}


@dataclass(frozen=True)
class ListShape:
    """A list."""

    part: Shape
    least: int = 0

    @property
    def wanted(self) -> str:
        return "a list" if not self.least else f"a list of {self.least} or more"

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, list)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise wrong_kind_error(node, what, self)
        if len(node.value) < self.least:
            raise file_error(node.place, f"{what} lists {len(node.value)}", f"write {self.wanted}")
        for part in node.value:
            self.part.check(part, f"an entry of {what}")

    def schema(self) -> dict[str, Any]:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.part.schema(), **least}


@dataclass(frozen=True)
class TableShape:
    """A mapping from names of the user's own."""

    part: Shape
    least: int = 0
    wanted: str = "names, each with its value"

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, dict)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise wrong_kind_error(node, what, self)
        if len(node.value) < self.least:
            raise file_error(
                node.place, f"{what} is empty", f"write {self.wanted}, or leave it out"
            )
        for key, value in node.value.items():
            NameShape().check(Node(key, node.keys[key]), f"a name in {what}")
            self.part.check(value, f"{key!r} in {what}")

    def schema(self) -> dict[str, Any]:
        least = {"minProperties": self.least} if self.least else {}
        names = {"propertyNames": NameShape().schema()}
        return {"type": "object", **names, "additionalProperties": self.part.schema(), **least}


@dataclass(frozen=True)
class EitherShape:
    """A value of the first of several kinds that fits."""

    parts: tuple[Shape, ...]

    @property
    def wanted(self) -> str:
        return ", or ".join(part.wanted for part in self.parts)

    def fits(self, node: Node) -> bool:
        return any(part.fits(node) for part in self.parts)

    def check(self, node: Node, what: str) -> None:
        for part in self.parts:
            if part.fits(node):
                return part.check(node, what)
        raise wrong_kind_error(node, what, self)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [part.schema() for part in self.parts]}


class FieldShape(NamedTuple):
    """A key of a record: what it holds, and what that is, for editors and for people."""

    shape: Shape
    about: str
    required: bool = False


@dataclass(frozen=True)
class RecordShape:
    """A mapping of known keys; of others as well, if a shape for them is given.

    one_of: keys of which there is exactly one; any_of: of which there is one or more
    """

    fields: Mapping[str, FieldShape]
    one_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    others: Shape | None = None
    wanted: str = field(default="keys with values", compare=False)

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, dict)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise wrong_kind_error(node, what, self)
        for key, value in node.value.items():
            if key in self.fields:
                self.fields[key].shape.check(value, key)
            elif self.others is not None:
                NameShape().check(Node(key, node.keys[key]), f"a key of {what}")
                self.others.check(value, key)
            else:
                unknown = f"{what} has no key {quote_value(key)}"
                remedy = suggest_known_name(key, list(self.fields), "keys", can_add=False)
                raise file_error(node.keys[key], unknown, remedy)
        self.complete(node, what)

    def complete(self, node: Node, what: str) -> None:
        """Is there everything there must be, and not too much?"""
        for key, part in self.fields.items():
            if part.required and key not in node.value:
                raise file_error(node.place, f"{what} has no {key}", f"add it: {part.about}")
        for keys, most in ((self.one_of, 1), (self.any_of, len(self.any_of))):
            met = [key for key in keys if key in node.value]
            if keys and not met:
                raise file_error(
                    node.place, f"{what} has no {' or '.join(keys)}", "add one of them"
                )
            if len(met) > most:
                raise file_error(node.place, f"{what} has {' and '.join(met)}", "keep one of them")

    def schema(self) -> dict[str, Any]:
        fields = self.fields.items()
        made: dict[str, Any] = {
            "type": "object",
            "properties": {
                key: {"description": part.about, **part.shape.schema()} for key, part in fields
            },
            "additionalProperties": False if self.others is None else self.others.schema(),
        }
        if self.others is not None:
            made["propertyNames"] = NameShape().schema()
        required = [key for key, part in fields if part.required]
        made |= {"required": required} if required else {}
        for word, keys in (("oneOf", self.one_of), ("anyOf", self.any_of)):
            made |= {word: [{"required": [key]} for key in keys]} if keys else {}
        return made


def is_finite_number(value: float) -> bool:
    """Also for whole numbers of any length.

    >>> is_finite_number(10**400), is_finite_number(3)
    (False, True)
    """
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def describe_value(node: Node) -> str:
    """A value for a message: as it is written, or what it is."""
    return quote_value(node.text) or describe_kind(node)


def wrong_kind_error(node: Node, what: str, shape: Shape) -> ProblemFileError:
    """The error for a value of another kind than is wanted."""
    said = (
        describe_kind(node) if not node.text else f"{quote_value(node.text)}, {describe_kind(node)}"
    )
    remedy = f"write {shape.wanted}"
    if isinstance(node.value, str) and not shape.fits(node):
        remedy += suggest_number(node.value)
    elif isinstance(node.value, bool | int | float | AmbiguousScalar) and shape.fits(
        Node("", node.place)
    ):
        remedy += f'; if it is one, put it in quotes: "{node.text}"'
    return file_error(node.place, f"{what} is {said}", remedy)


def suggest_number(text: str) -> str:
    """How to write a text as the number it seems to be.

    >>> suggest_number("1e3"), suggest_number("4%"), suggest_number("1,5"), suggest_number("many")
    (', without quotes', ': 0.04 for 4%', ': 1.5', '')
    """
    if parse_decimal(text) is not None:
        return ", without quotes"
    percent = parse_decimal(text.removesuffix("%").strip()) if text.endswith("%") else None
    if percent is not None:
        return f": {percent / 100:g} for {text}"
    return (
        f": {text.replace(',', '.')}"
        if parse_decimal(text.replace(",", ".", 1)) is not None
        else ""
    )


COST_SHAPE = NumberShape(least=0)
NAMES_SHAPE = EitherShape((NameShape(), ListShape(NameShape())))

EXPERT_SHAPE = RecordShape(
    {
        "name": FieldShape(NameShape(), "the name of the expert, which no other expert has", True),
        "group": FieldShape(NAMES_SHAPE, "the group the expert belongs to, or a list of groups"),
    },
    others=COST_SHAPE,
    wanted="{name: ..., and each cost of the expert}",
)

SHEET_SHAPE = RecordShape(
    {
        "csv": FieldShape(
            NameShape("the name of a file"),
            "a CSV file with a line for each expert, beside this file: a header, the names of the "
            "experts in its first column, and a column for each cost",
            True,
        ),
        "group": FieldShape(
            NAMES_SHAPE,
            "the column that holds the group of each expert, or a list of such columns; the "
            "column called group, if there is one and this is left out",
        ),
    },
    wanted="{csv: the name of a file}",
)

BY_COLUMN_SHAPE = RecordShape(
    {
        "column": FieldShape(NameShape(), "a column of numbers in the CSV file", True),
        "at_least": FieldShape(NumberShape(), "members have this number there or more"),
        "at_most": FieldShape(NumberShape(), "members have this number there or less"),
        "blank": FieldShape(
            ChoiceShape(("in", "out")), "is an expert without a number there a member?"
        ),
    },
    any_of=("at_least", "at_most"),
    wanted="{column: ..., at_least: ...}",
)

LIMIT_SHAPE = RecordShape(
    {
        "cost": FieldShape(NameShape(), "the cost that is limited"),
        "group": FieldShape(NameShape(), "the group whose members are counted"),
        "at_most": FieldShape(COST_SHAPE, "the average stays at or under this"),
        "at_least": FieldShape(COST_SHAPE, "the average stays at or above this"),
        "per": FieldShape(
            ChoiceShape(("request", "draw")),
            "request: what all experts consulted for a request cost together, or how many of them "
            "are of the group, on average; draw: the same divided by draws, so that at_least: 0.04 "
            "of a group is 4% of the draws",
            True,
        ),
    },
    one_of=("cost", "group"),
    any_of=("at_most", "at_least"),
    wanted="{cost or group: ..., at_most or at_least: ..., per: request or draw}",
)

REWARDS_SHAPE = RecordShape(
    {
        "from": FieldShape(NumberShape(), "the lowest reward a panel can have", True),
        "to": FieldShape(NumberShape(), "the highest reward a panel can have", True),
    },
    wanted="{from: 0, to: 1}",
)

PROBLEM_SHAPE = RecordShape(
    {
        "$schema": FieldShape(TextShape(), "where an editor finds this schema; not read"),
        "draws": FieldShape(
            NumberShape(least=1, most=MAX_DRAWS_PER_REQUEST, whole=True),
            "how many experts are drawn for each request",
            True,
        ),
        "floor": FieldShape(
            NumberShape(above=0, most=0.5),
            "the least probability that the paper's policies give any expert in a draw; "
            "1/(10 x number of experts) if it is left out",
        ),
        "period": FieldShape(
            NumberShape(least=1, most=2**62 - 1, whole=True),
            "the number of requests at whose end all limits are to hold, again and again",
        ),
        "rewards": FieldShape(REWARDS_SHAPE, "the range of rewards; from 0 to 1 if it is left out"),
        "contexts": FieldShape(
            EitherShape((ListShape(NameShape(), 1), TableShape(NumberShape(above=0), 1))),
            "kinds of requests, each of which learns its own preferences: a list of names, or "
            "names with weights, how often each comes in comparison with the others",
        ),
        "costs": FieldShape(
            TableShape(TextShape()),
            "each cost that experts have, with its unit, such as usd: US dollars per consultation",
        ),
        "experts": FieldShape(
            EitherShape((ListShape(EXPERT_SHAPE, 2), SHEET_SHAPE)),
            "the pool: a list of experts, or the CSV file that has them",
            True,
        ),
        "groups": FieldShape(
            TableShape(EitherShape((ListShape(NameShape(), 1), BY_COLUMN_SHAPE))),
            "further groups: lists of experts, or rules on a column of the CSV file",
        ),
        "limits": FieldShape(
            ListShape(LIMIT_SHAPE),
            "what was promised: long-run averages over requests, whatever the context",
        ),
    },
    wanted="draws, costs, experts and limits",
)


def problem_schema() -> dict[str, Any]:
    """The form as JSON Schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A problem for bylot",
        "description": "Experts to draw from, what they cost, and what was promised.",
        **PROBLEM_SHAPE.schema(),
    }


def published_schema() -> str:
    """The schema as it comes with the package."""
    return packaged_text("problem.schema.json")


def starter_text() -> str:
    """A small problem, with comments, to start from."""
    return packaged_text("starter.yaml")


def packaged_text(name: str) -> str:
    """A file of this package."""
    return files("bylot.problem_files").joinpath(name).read_text(encoding="utf-8")


def format_schema(made: dict[str, Any]) -> str:
    """A schema as it is published."""
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
