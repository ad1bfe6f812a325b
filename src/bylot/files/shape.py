"""Shapes: what a value in a file must look like. The reader checks them and the JSON Schema is
made of them, so that the two cannot differ. What values mean together is left to the reader.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from bylot.data.sheet import number
from bylot.errors import ProblemFileError
from bylot.files.node import Node, Unclear, fault, kind, quoted
from bylot.problem.reading import instead

LONGEST = 200  # signs of a name
READABLE = f"of 1 to {LONGEST} printable signs, without blanks at its ends"


def readable(name: str) -> bool:
    """Can people see all of a name?

    >>> readable("ann b."), readable("ann "), readable("")
    (True, False, False)
    """
    return 0 < len(name) <= LONGEST and name.isprintable() and name == name.strip()


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
class Name:
    """A word or a few: printable, not long, and without blanks at its ends, which nobody sees."""

    wanted: str = "a name"

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, str)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise other(node, what, self)
        if not readable(node.value):
            said = f"{what} is {quoted(node.value) or 'empty'}"
            raise fault(node.place, said, f"write {self.wanted} {READABLE}")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "maxLength": LONGEST, "pattern": r"^\S(.*\S)?$"}


@dataclass(frozen=True)
class Text:
    """Any text."""

    wanted: str = "a text"

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, str)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise other(node, what, self)
        if not node.value.isprintable():
            raise fault(node.place, f"{what} is {quoted(node.value)}", "write it on one line")

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def wanted(self) -> str:
        return " or ".join(self.words)

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, str)

    def check(self, node: Node, what: str) -> None:
        if node.value not in self.words:
            raise fault(node.place, f"{what} is {given(node)}", f"write {self.wanted}")

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class Number:
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
            raise other(node, what, self)
        if not finite(node.value):
            raise fault(node.place, f"{what} is {given(node)}, not finite", f"write {self.wanted}")
        low = self.least is not None and node.value < self.least
        low = low or (self.above is not None and node.value <= self.above)
        if low or (self.most is not None and node.value > self.most):
            raise fault(node.place, f"{what} is {given(node)}", f"write {self.wanted}")

    def schema(self) -> dict[str, Any]:
        ends = {"minimum": self.least, "exclusiveMinimum": self.above, "maximum": self.most}
        kept = {word: end for word, end in ends.items() if end is not None}
        return {"type": "integer" if self.whole else "number", **kept}


@dataclass(frozen=True)
class Many:
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
            raise other(node, what, self)
        if len(node.value) < self.least:
            raise fault(node.place, f"{what} lists {len(node.value)}", f"write {self.wanted}")
        for part in node.value:
            self.part.check(part, f"an entry of {what}")

    def schema(self) -> dict[str, Any]:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.part.schema(), **least}


@dataclass(frozen=True)
class Table:
    """A mapping from names of the user's own."""

    part: Shape
    least: int = 0
    wanted: str = "names, each with its value"

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, dict)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise other(node, what, self)
        if len(node.value) < self.least:
            raise fault(node.place, f"{what} is empty", f"write {self.wanted}, or leave it out")
        for key, value in node.value.items():
            Name().check(Node(key, node.keys[key]), f"a name in {what}")
            self.part.check(value, f"{key!r} in {what}")

    def schema(self) -> dict[str, Any]:
        least = {"minProperties": self.least} if self.least else {}
        names = {"propertyNames": Name().schema()}
        return {"type": "object", **names, "additionalProperties": self.part.schema(), **least}


@dataclass(frozen=True)
class Either:
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
        raise other(node, what, self)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [part.schema() for part in self.parts]}


class Field(NamedTuple):
    """A key of a record: what it holds, and what that is, for editors and for people."""

    shape: Shape
    about: str
    required: bool = False


@dataclass(frozen=True)
class Record:
    """A mapping of known keys; of others as well, if a shape for them is given.

    one_of: keys of which there is exactly one; any_of: of which there is one or more
    """

    fields: Mapping[str, Field]
    one_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    others: Shape | None = None
    wanted: str = field(default="keys with values", compare=False)

    def fits(self, node: Node) -> bool:
        return isinstance(node.value, dict)

    def check(self, node: Node, what: str) -> None:
        if not self.fits(node):
            raise other(node, what, self)
        for key, value in node.value.items():
            if key in self.fields:
                self.fields[key].shape.check(value, key)
            elif self.others is not None:
                Name().check(Node(key, node.keys[key]), f"a key of {what}")
                self.others.check(value, key)
            else:
                unknown = f"{what} has no key {quoted(key)}"
                remedy = instead(key, list(self.fields), "keys").removesuffix(", or add it")
                raise fault(node.keys[key], unknown, remedy)
        self.complete(node, what)

    def complete(self, node: Node, what: str) -> None:
        """Is there everything there must be, and not too much?"""
        for key, part in self.fields.items():
            if part.required and key not in node.value:
                raise fault(node.place, f"{what} has no {key}", f"add it: {part.about}")
        for keys, most in ((self.one_of, 1), (self.any_of, len(self.any_of))):
            met = [key for key in keys if key in node.value]
            if keys and not met:
                raise fault(node.place, f"{what} has no {' or '.join(keys)}", "add one of them")
            if len(met) > most:
                raise fault(node.place, f"{what} has {' and '.join(met)}", "keep one of them")

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
            made["propertyNames"] = Name().schema()
        required = [key for key, part in fields if part.required]
        made |= {"required": required} if required else {}
        for word, keys in (("oneOf", self.one_of), ("anyOf", self.any_of)):
            made |= {word: [{"required": [key]} for key in keys]} if keys else {}
        return made


def finite(value: float) -> bool:
    """Also for whole numbers of any length.

    >>> finite(10**400), finite(3)
    (False, True)
    """
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def given(node: Node) -> str:
    """A value for a message: as it is written, or what it is."""
    return quoted(node.text) or kind(node)


def other(node: Node, what: str, shape: Shape) -> ProblemFileError:
    """The error for a value of another kind than is wanted."""
    said = kind(node) if not node.text else f"{quoted(node.text)}, {kind(node)}"
    remedy = f"write {shape.wanted}"
    if isinstance(node.value, str) and not shape.fits(node):
        remedy += in_digits(node.value)
    elif isinstance(node.value, bool | int | float | Unclear) and shape.fits(Node("", node.place)):
        remedy += f'; if it is one, put it in quotes: "{node.text}"'
    return fault(node.place, f"{what} is {said}", remedy)


def in_digits(text: str) -> str:
    """How to write a text as the number it seems to be.

    >>> in_digits("1e3"), in_digits("4%"), in_digits("1,5"), in_digits("many")
    (', without quotes', ': 0.04 for 4%', ': 1.5', '')
    """
    if number(text) is not None:
        return ", without quotes"
    percent = number(text.removesuffix("%").strip()) if text.endswith("%") else None
    if percent is not None:
        return f": {percent / 100:g} for {text}"
    return f": {text.replace(',', '.')}" if number(text.replace(",", ".", 1)) is not None else ""
