"""Nodes: what is written in a file, in whatever format, and in which line of which file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from bylot.errors import ProblemError, ProblemFileError

DEEPEST = 16  # levels of lists and mappings; a problem needs four


class Place(NamedTuple):
    """A line of a file, counted from 1."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{shown(self.path)}, line {self.line}"


class Unclear(Enum):
    """Unquoted words that one YAML program reads as text and another as a number or a date."""

    WORD = "unclear"


@dataclass(frozen=True)
class Node:
    """A value and where it begins.

    value: dict[str, Node], list[Node], str, int, float, bool, None, Unclear, or a date of TOML
    text:  a single value as it is written
    keys:  of a mapping, where each key is written
    """

    value: Any
    place: Place
    text: str = ""
    keys: dict[str, Place] = field(default_factory=dict)

    def get(self, key: str) -> "Node | None":
        """What a mapping has under a key, if anything."""
        found: Node | None = self.value.get(key)
        return found


def mapping(entries: Sequence[tuple[Node, Node]], place: Place) -> Node:
    """A mapping of these keys and values, each key once."""
    values: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    for key, value in entries:
        if not isinstance(key.value, str):
            what = f"the key {quoted(key.text) or 'here'} is {kind(key)}, not a name"
            raise fault(key.place, what, "put it in quotes, if it is one")
        if key.value in keys:
            what = f"{quoted(key.value)} is written again, after line {keys[key.value].line}"
            raise fault(key.place, what, "keep one of the two")
        values[key.value], keys[key.value] = value, key.place
    return Node(values, place, keys=keys)


def several(node: Node) -> list[Node]:
    """The entries of a list, or the one that stands for a list of one."""
    return node.value if isinstance(node.value, list) else [node]


def kind(node: Node) -> str:
    """What a value is, in words."""
    match node.value:
        case str():
            return "text"
        case bool():  # which is an int too
            return "read as true or false"
        case int() | float():
            return "a number"
        case dict():
            return "a mapping of keys to values"
        case list():
            return "a list"
        case None:
            return "nothing"
        case Unclear():
            return "a number or date to some programs and text to others"
    return "a date"


def shown(path: Path) -> str:
    """A path on one line, whatever a file is called."""
    return str(path) if str(path).isprintable() else repr(str(path))


def quoted(text: str) -> str:
    """A word for a message: in quotes, on one line, and not too long; nothing for nothing."""
    return repr(text if len(text) <= 40 else text[:37] + "...") if text else ""


def fault(place: Place | Path, what: str, remedy: str) -> ProblemFileError:
    """The error for something in a line, or for a file as a whole."""
    where = shown(place) if isinstance(place, Path) else place
    return ProblemFileError(f"{where}: {what}; {remedy}")


@contextmanager
def blamed(place: Place) -> Iterator[None]:
    """An error of what a file says is one of the line that says it."""
    try:
        yield
    except ProblemError as error:
        raise ProblemFileError(f"{place}: {error}") from None
