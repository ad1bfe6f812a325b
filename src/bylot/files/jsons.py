"""JSON, as nodes. The standard library judges the text; here only the lines are found."""

import json
import re
from typing import Any

from bylot.errors import ProblemFileError
from bylot.files.node import DEEPEST, Node, fault, mapping
from bylot.files.source import Source

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)


def parse(source: Source) -> Node:
    """The value that a file holds."""
    tokens = list(TOKEN.finditer(source.text))
    depth = 0
    for token in tokens:  # before anybody recurses
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > DEEPEST:
            raise source.too_deep(token.start())
    try:
        json.loads(source.text, parse_int=float)  # float: no limit on digits
    except json.JSONDecodeError as error:
        raise explained(source, error) from None
    return Reader(source, tokens).read()


def explained(source: Source, error: json.JSONDecodeError) -> ProblemFileError:
    """A mistake in the writing."""
    what = f"is not JSON: {error.msg[0].lower()}{error.msg[1:]} at column {error.colno}"
    remedy = "check quotes, commas and brackets; JSON has no comments, YAML and TOML do"
    return fault(source.place(error.pos), what, remedy)


class Reader:
    """Reads tokens of a text that is known to be JSON."""

    def __init__(self, source: Source, tokens: list[re.Match[str]]) -> None:
        self.source, self.tokens, self.next = source, tokens, 0

    def take(self) -> re.Match[str]:
        """The next token."""
        self.next += 1
        return self.tokens[self.next - 1]

    def read(self) -> Node:
        """The value that begins with the next token."""
        token = self.take()
        place = self.source.place(token.start())
        if token[0] == "[":
            return Node([part for (part,) in self.parts("]")], place)
        if token[0] == "{":
            return mapping([(key, value) for key, value in self.parts("}")], place)
        return Node(scalar(token[0]), place, token[0].strip('"'))

    def parts(self, close: str) -> list[list[Node]]:
        """What lies between brackets: lists of one value, or of a key and a value."""
        found = []
        while self.tokens[self.next][0] != close:
            part = [self.read()]
            if self.tokens[self.next][0] == ":":
                self.take()
                part.append(self.read())
            if self.tokens[self.next][0] == ",":
                self.take()
            found.append(part)
        self.take()
        return found


def scalar(text: str) -> Any:
    """A text, number, truth or null.

    >>> scalar('"a"'), scalar("1e3"), scalar("7"), scalar("null")
    ('a', 1000.0, 7, None)
    """
    return json.loads(text, parse_int=whole)


def whole(digits: str) -> float:
    """An int, but for one of more digits than Python reads."""
    return int(digits) if len(digits) < 300 else float(digits)
