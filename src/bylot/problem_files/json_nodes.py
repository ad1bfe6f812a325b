"""JSON, as nodes. The standard library judges the text; here only the lines are found."""

import json
import re
from typing import Any

from bylot.errors import ProblemFileError
from bylot.problem_files.nodes import MAX_DEPTH, Node, SourceText, file_error, mapping_node

JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)


def parse_json(source: SourceText) -> Node:
    """The value that a file holds."""
    tokens = list(JSON_TOKEN.finditer(source.text))
    depth = 0
    for token in tokens:  # before anybody recurses
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > MAX_DEPTH:
            raise source.too_deep(token.start())
    try:
        json.loads(source.text, parse_int=float)  # float: no limit on digits
    except json.JSONDecodeError as error:
        raise json_error(source, error) from None
    return JsonReader(source, tokens).read()


def json_error(source: SourceText, error: json.JSONDecodeError) -> ProblemFileError:
    """A mistake in the writing."""
    what = f"is not JSON: {error.msg[0].lower()}{error.msg[1:]} at column {error.colno}"
    remedy = "check quotes, commas and brackets; JSON has no comments, YAML and TOML do"
    return file_error(source.place(error.pos), what, remedy)


class JsonReader:
    """Reads tokens of a text that is known to be JSON."""

    def __init__(self, source: SourceText, tokens: list[re.Match[str]]) -> None:
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
            return mapping_node([(key, value) for key, value in self.parts("}")], place)
        return Node(json_scalar(token[0]), place, token[0].strip('"'))

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


def json_scalar(text: str) -> Any:
    """A text, number, truth or null.

    >>> json_scalar('"a"'), json_scalar("1e3"), json_scalar("7"), json_scalar("null")
    ('a', 1000.0, 7, None)
    """
    return json.loads(text, parse_int=parse_json_integer)


def parse_json_integer(digits: str) -> float:
    """An int, but for one of more digits than Python reads."""
    return int(digits) if len(digits) < 300 else float(digits)
