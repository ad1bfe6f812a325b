"""TOML, as nodes. The standard library judges the text; here only the lines are found."""

import re
import tomllib

from bylot.errors import ProblemFileError
from bylot.files.node import DEEPEST, Node, Place, fault
from bylot.files.source import Source

BLANK = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
TEXT = r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'"
KEY = re.compile(rf"{TEXT}|[A-Za-z0-9_-]+", re.DOTALL)
ATOM = re.compile(rf"{TEXT}|[0-9]{{4}}-[0-9-]+ [0-9][^\s,\]}}#]*|[^\s,\]}}#]+", re.DOTALL)
BRACKET = re.compile(rf"{TEXT}|#[^\n]*|[\[\]{{}}]", re.DOTALL)
WHERE = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)$")
ENDLESS = re.compile(r"[0-9_]{1000}")


def parse(source: Source) -> Node:
    """The table that a file holds."""
    try:
        tomllib.loads(source.text)
        return Reader(source).read()
    except tomllib.TOMLDecodeError as error:
        raise explained(source, str(error)) from None
    except RecursionError:
        raise source.too_deep(deep(source.text)) from None
    except ValueError:  # more digits than Python turns into a number
        digits = ENDLESS.search(source.text)
        here = source.place(digits.start() if digits else 0)
        raise fault(here, "a number has too many digits", "write fewer") from None


def deep(text: str) -> int:
    """The place of the bracket that is one too many.

    >>> deep("a = " + "[" * 99)
    20
    """
    depth = 0
    for bracket in BRACKET.finditer(text):
        depth += (bracket[0] in "[{") - (bracket[0] in "]}")
        if depth > DEEPEST:
            return bracket.start()
    return 0


def explained(source: Source, message: str) -> ProblemFileError:
    """A mistake in the writing."""
    found = WHERE.search(message)
    last = source.place(len(source.text.rstrip()))
    here = Place(source.path, int(found[1])) if found and found[1] else last
    what = message[: found.start()].strip() if found else message
    again = "overwrite" in what or "twice" in what
    remedy = "keep one of the two" if again else "check quotes, commas and brackets"
    return fault(here, f"is not TOML: {what[:1].lower()}{what[1:]}", remedy)


class Reader:
    """Reads a text that is known to be TOML."""

    def __init__(self, source: Source) -> None:
        self.source, self.at = source, 0
        self.root = self.table = Node({}, source.place(0))

    @property
    def place(self) -> Place:
        """The line of what comes next."""
        return self.source.place(self.at)

    def skip(self, sign: str = "") -> bool:
        """Pass over blanks and comments, then over this sign if it comes next; did it?"""
        self.at = matched(BLANK, self.source.text, self.at).end()
        met = bool(sign) and self.source.text.startswith(sign, self.at)
        self.at += len(sign) if met else 0
        return met

    def read(self) -> Node:
        """One statement after the other: a header, or a key and its value."""
        self.skip()
        while self.at < len(self.source.text):
            here = self.place
            if self.skip("[["):
                self.table = appended(self.root, self.keys(), here)
                self.skip("]]")
            elif self.skip("["):
                self.table = descended(self.root, self.keys(), here)
                self.skip("]")
            else:
                self.entry(self.table)
            self.skip()
        return self.root

    def entry(self, table: Node) -> None:
        """A key and its value."""
        here, (*path, key) = self.place, self.keys()
        self.skip("=")
        inner = descended(table, path, here)
        inner.value[key], inner.keys[key] = self.value(), here

    def keys(self) -> list[str]:
        """Names between dots."""
        found: list[str] = []
        while not found or self.skip("."):
            self.skip()
            token = matched(KEY, self.source.text, self.at)
            self.at = token.end()
            found.append(next(iter(tomllib.loads(f"{token[0]} = 0"))))
            self.skip()
        return found

    def value(self) -> Node:
        """A list, an inline table, or one word."""
        self.skip()
        here = self.place
        if self.skip("["):
            parts = []
            while not self.skip("]"):
                parts.append(self.value())
                self.skip(",")
            return Node(parts, here)
        if self.skip("{"):
            table = Node({}, here)
            while not self.skip("}"):
                self.entry(table)
                self.skip(",")
            return table
        token = matched(ATOM, self.source.text, self.at)
        self.at = token.end()
        value = tomllib.loads(f"word = {token[0]}")["word"]
        return Node(value, here, value if isinstance(value, str) else token[0])


def matched(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    """A match that a text known to be TOML must have."""
    found = pattern.match(text, at)
    if found is None:
        raise AssertionError(f"no {pattern.pattern!r} at {at} of a text that tomllib accepts")
    return found


def descended(table: Node, path: list[str], here: Place) -> Node:
    """The table at the end of a path, made where it is not there yet; of a list, its last."""
    for key in path:
        if key not in table.value:
            table.value[key], table.keys[key] = Node({}, here), here
        table = table.value[key]
        table = table.value[-1] if isinstance(table.value, list) else table
    return table


def appended(root: Node, path: list[str], here: Place) -> Node:
    """A new last table in the list at the end of a path."""
    *outer, key = path
    table = descended(root, outer, here)
    if key not in table.value:
        table.value[key], table.keys[key] = Node([], here), here
    table.value[key].value.append(Node({}, here))
    last: Node = table.value[key].value[-1]
    return last
