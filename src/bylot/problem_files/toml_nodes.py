"""TOML, as nodes. The standard library judges the text; here only the lines are found."""

import re
import tomllib

from bylot.errors import ProblemFileError
from bylot.problem_files.nodes import MAX_DEPTH, FileLocation, Node, SourceText, file_error

TOML_BLANK = re.compile(r"(?:[ \t\n]+|#[^\n]*)*")
TOML_TEXT = r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'"
TOML_KEY = re.compile(rf"{TOML_TEXT}|[A-Za-z0-9_-]+", re.DOTALL)
TOML_ATOM = re.compile(rf"{TOML_TEXT}|[0-9]{{4}}-[0-9-]+ [0-9][^\s,\]}}#]*|[^\s,\]}}#]+", re.DOTALL)
TOML_BRACKET = re.compile(rf"{TOML_TEXT}|#[^\n]*|[\[\]{{}}]", re.DOTALL)
TOML_LOCATION = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)$")
TOML_LONG_NUMBER = re.compile(r"[0-9_]{1000}")


def parse_toml(source: SourceText) -> Node:
    """The table that a file holds."""
    try:
        tomllib.loads(source.text)
        return TomlReader(source).read()
    except tomllib.TOMLDecodeError as error:
        raise toml_error(source, str(error)) from None
    except RecursionError:
        raise source.too_deep(find_deep_bracket(source.text)) from None
    except ValueError:  # more digits than Python turns into a number
        digits = TOML_LONG_NUMBER.search(source.text)
        here = source.place(digits.start() if digits else 0)
        raise file_error(here, "a number has too many digits", "write fewer") from None


def find_deep_bracket(text: str) -> int:
    """The place of the bracket that is one too many.

    >>> find_deep_bracket("a = " + "[" * 99)
    20
    """
    depth = 0
    for bracket in TOML_BRACKET.finditer(text):
        depth += (bracket[0] in "[{") - (bracket[0] in "]}")
        if depth > MAX_DEPTH:
            return bracket.start()
    return 0


def toml_error(source: SourceText, message: str) -> ProblemFileError:
    """A mistake in the writing."""
    found = TOML_LOCATION.search(message)
    last = source.place(len(source.text.rstrip()))
    here = FileLocation(source.path, int(found[1])) if found and found[1] else last
    what = message[: found.start()].strip() if found else message
    again = "overwrite" in what or "twice" in what
    remedy = "keep one of the two" if again else "check quotes, commas and brackets"
    return file_error(here, f"is not TOML: {what[:1].lower()}{what[1:]}", remedy)


class TomlReader:
    """Reads a text that is known to be TOML."""

    def __init__(self, source: SourceText) -> None:
        self.source, self.at = source, 0
        self.root = self.table = Node({}, source.place(0))

    @property
    def place(self) -> FileLocation:
        """The line of what comes next."""
        return self.source.place(self.at)

    def skip(self, sign: str = "") -> bool:
        """Pass over blanks and comments, then over this sign if it comes next; did it?"""
        self.at = match_toml(TOML_BLANK, self.source.text, self.at).end()
        met = bool(sign) and self.source.text.startswith(sign, self.at)
        self.at += len(sign) if met else 0
        return met

    def read(self) -> Node:
        """One statement after the other: a header, or a key and its value."""
        self.skip()
        while self.at < len(self.source.text):
            here = self.place
            if self.skip("[["):
                self.table = append_table(self.root, self.keys(), here)
                self.skip("]]")
            elif self.skip("["):
                self.table = descend_table(self.root, self.keys(), here)
                self.skip("]")
            else:
                self.entry(self.table)
            self.skip()
        return self.root

    def entry(self, table: Node) -> None:
        """A key and its value."""
        here, (*path, key) = self.place, self.keys()
        self.skip("=")
        inner = descend_table(table, path, here)
        inner.value[key], inner.keys[key] = self.value(), here

    def keys(self) -> list[str]:
        """Names between dots."""
        found: list[str] = []
        while not found or self.skip("."):
            self.skip()
            token = match_toml(TOML_KEY, self.source.text, self.at)
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
        token = match_toml(TOML_ATOM, self.source.text, self.at)
        self.at = token.end()
        value = tomllib.loads(f"word = {token[0]}")["word"]
        return Node(value, here, value if isinstance(value, str) else token[0])


def match_toml(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    """A match that a text known to be TOML must have."""
    found = pattern.match(text, at)
    if found is None:
        raise AssertionError(f"no {pattern.pattern!r} at {at} of a text that tomllib accepts")
    return found


def descend_table(table: Node, path: list[str], here: FileLocation) -> Node:
    """The table at the end of a path, made where it is not there yet; of a list, its last."""
    for key in path:
        if key not in table.value:
            table.value[key], table.keys[key] = Node({}, here), here
        table = table.value[key]
        table = table.value[-1] if isinstance(table.value, list) else table
    return table


def append_table(root: Node, path: list[str], here: FileLocation) -> Node:
    """A new last table in the list at the end of a path."""
    *outer, key = path
    table = descend_table(root, outer, here)
    if key not in table.value:
        table.value[key], table.keys[key] = Node([], here), here
    table.value[key].value.append(Node({}, here))
    last: Node = table.value[key].value[-1]
    return last
