"""Nodes: what is written in a file, in whatever format, and in which line of which file."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from bylot.errors import ProblemError, ProblemFileError

MAX_DEPTH = 16  # levels of lists and mappings; a problem needs four


class FileLocation(NamedTuple):
    """A line of a file, counted from 1."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{format_path(self.path)}, line {self.line}"


class AmbiguousScalar(Enum):
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
    place: FileLocation
    text: str = ""
    keys: dict[str, FileLocation] = field(default_factory=dict)

    def get(self, key: str) -> "Node | None":
        """What a mapping has under a key, if anything."""
        found: Node | None = self.value.get(key)
        return found


def mapping_node(entries: Sequence[tuple[Node, Node]], place: FileLocation) -> Node:
    """A mapping of these keys and values, each key once."""
    values: dict[str, Node] = {}
    keys: dict[str, FileLocation] = {}
    for key, value in entries:
        if not isinstance(key.value, str):
            what = f"the key {quote_value(key.text) or 'here'} is {describe_kind(key)}, not a name"
            raise file_error(key.place, what, "put it in quotes, if it is one")
        if key.value in keys:
            what = f"{quote_value(key.value)} is written again, after line {keys[key.value].line}"
            raise file_error(key.place, what, "keep one of the two")
        values[key.value], keys[key.value] = value, key.place
    return Node(values, place, keys=keys)


def as_node_list(node: Node) -> list[Node]:
    """The entries of a list, or the one that stands for a list of one."""
    return node.value if isinstance(node.value, list) else [node]


def describe_kind(node: Node) -> str:
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
        case AmbiguousScalar():
            return "a number or date to some programs and text to others"
    return "a date"


def format_path(path: Path) -> str:
    """A path on one line, whatever a file is called."""
    return str(path) if str(path).isprintable() else repr(str(path))


def quote_value(text: str) -> str:
    """A word for a message: in quotes, on one line, and not too long; nothing for nothing."""
    return repr(text if len(text) <= 40 else text[:37] + "...") if text else ""


def file_error(place: FileLocation | Path, what: str, remedy: str) -> ProblemFileError:
    """The error for something in a line, or for a file as a whole."""
    where = format_path(place) if isinstance(place, Path) else place
    return ProblemFileError(f"{where}: {what}; {remedy}")


@contextmanager
def locate_errors(place: FileLocation) -> Iterator[None]:
    """An error of what a file says is one of the line that says it."""
    try:
        yield
    except ProblemError as error:
        raise ProblemFileError(f"{place}: {error}") from None


MAX_PROBLEM_FILE_BYTES = 1_000_000  # bytes; ten thousand experts take half of it
CONTROL_CHARACTERS = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""Control characters, and signs that only some programs take for the end of a line."""


@dataclass(frozen=True)
class SourceText:
    """A file and its text, with every end of line as one sign."""

    path: Path
    text: str

    @cached_property
    def _ends(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self.text)]

    def place(self, offset: int) -> FileLocation:
        """The line of a place in the text."""
        return FileLocation(self.path, 1 + bisect_right(self._ends, offset - 1))

    def too_deep(self, offset: int) -> ProblemFileError:
        """The error for brackets within brackets without end."""
        what = f"more than {MAX_DEPTH} lists or mappings are inside one another here"
        return file_error(self.place(offset), what, "write it flatter; a problem needs four")


def read_source(path: Path) -> SourceText:
    """The text of a file: not too long, not empty, in UTF-8, without control characters."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PROBLEM_FILE_BYTES + 1)
    except (FileNotFoundError, ValueError):  # ValueError: a name that no file can have
        raise file_error(path, "no such file", "give the path of a file that exists") from None
    except IsADirectoryError:
        raise file_error(path, "is a folder", "give the file itself") from None
    except OSError as error:
        raise file_error(path, f"cannot be read ({error.strerror})", "make it readable") from None
    if len(content) > MAX_PROBLEM_FILE_BYTES:
        remedy = "put the experts in a CSV file, and name that under experts"
        raise file_error(path, f"has more than {MAX_PROBLEM_FILE_BYTES:,} bytes", remedy)
    return SourceText(path, decode_source(path, content))


def decode_source(path: Path, content: bytes) -> str:
    """Bytes as text, if they are text that says something."""
    remedy = "save it as plain text in UTF-8"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise file_error(FileLocation(path, line), "is not text in UTF-8", remedy) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    odd = CONTROL_CHARACTERS.search(text)
    if odd:
        place = SourceText(path, text).place(odd.start())
        raise file_error(place, f"holds the control character U+{ord(odd[0]):04X}", "remove it")
    if not text.strip():
        raise file_error(path, "is empty", "start from what `bylot problem new` prints")
    return text
