"""A problem file as a document: plain data, and the line of each entry.

PyYAML finds the lines of YAML and JSON, the standard library parses JSON and TOML. Which keys a
problem has is in `schema`; what their values mean together is in `experts` and `problem_file`.
"""

import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple

import yaml
from yaml.resolver import Resolver

from bylot.errors import LocatedError, ProblemError, ProblemFileError
from bylot.outcome_tables.sheets import TABLE_SUFFIXES, quote_field, read_text, shorten

YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast
MAX_DEPTH = 16  # levels of nested lists and mappings; a problem needs five
MAX_PROBLEM_FILE_BYTES = 1_000_000  # ten thousand experts take half of it
CONTROL_CHARACTERS = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""Also the separators that only some programs treat as the end of a line."""

Keys = tuple[str | int, ...]
"""The path of an entry in a document: ("experts", 0, "name")."""


class Verbatim(str):
    """Text that is its own repr: what a file says, for `got` of an error."""

    __repr__ = str.__str__


class AmbiguousScalar(NamedTuple):
    """An unquoted word that one YAML program reads as text and another as a number or a date."""

    text: str


@dataclass(repr=False)
class Document:
    """What a file contains, or a request; lines and texts are unknown in TOML."""

    path: Path | None = None  # None: a request
    data: Any = None  # also AmbiguousScalar, and dates of TOML
    lines: dict[Keys, int] = field(default_factory=dict)  # of each key and list entry, from 1
    texts: dict[Keys, str] = field(default_factory=dict)  # scalars as they are written
    max_entries: float = math.inf  # of YAML
    parent: str = ""  # where the problem is in a request: "problem."
    max_depth: int = MAX_DEPTH
    is_private: bool = False  # it may contain secrets, so that no error shows a text of it
    anchors: dict[str, Any] | None = None  # values by anchor; None: there may be none
    kind: type[LocatedError] = ProblemFileError
    noun: str = "problem"  # what a file has one of

    def __repr__(self) -> str:
        return f"Document({str(self.path)!r})"  # the rest is long, and may have secrets

    def line(self, keys: Keys) -> int | None:
        """The line of an entry, or else of the nearest one that contains it."""
        known = (self.lines.get(keys[:n]) for n in range(len(keys), -1, -1))
        return next((line for line in known if line is not None), None)

    def error(self, keys: Keys, what: str, **parts: Any) -> LocatedError:
        """The error for an entry; `parts` are those of its kind."""
        field = f"{self.parent if keys else ''}{format_keys(keys)}"
        return self.kind(
            what, **{"path": self.path, "line": self.line(keys), "field": field, **parts}
        )

    def depth_error(self, keys: Keys, **parts: Any) -> LocatedError:
        """The error for too many levels."""
        what = f"more than {self.max_depth} nested lists or mappings"
        return self.error(keys, what, remedy=f"a {self.noun} needs fewer", **parts)

    def part(self, *keys: str | int) -> "Document":
        """An entry as a document of its own, with its lines in the same file."""
        size, found = len(keys), self.data
        for key in keys:
            found = found[key]
        lines = {path[size:]: n for path, n in self.lines.items() if path[:size] == keys}
        return replace(
            self,
            data=found,
            lines=lines,
            texts={path[size:]: x for path, x in self.texts.items() if path[:size] == keys},
            kind=ProblemFileError,
            parent=f"{format_keys(keys)}.",
        )

    @contextmanager
    def locate_errors(self, *keys: str | int) -> Iterator[None]:
        """Raise an error about the problem as one about this entry."""
        try:
            yield
        except ProblemError as error:
            raise self.error(keys, **vars(error)) from None


def format_keys(keys: Keys) -> str:
    """The path of an entry.

    >>> format_keys(("experts", 2, "usd")), format_keys(())
    ('experts[2].usd', 'problem')
    """
    parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys]
    return shorten("".join(parts).removeprefix(".")) if keys else "problem"


def read_document(path: Path) -> Document:
    """Parse a file in the format that its suffix names."""
    suffix = path.suffix.lower()
    if suffix not in DOCUMENT_PARSERS and not path.is_dir():
        expected = f"one of {', '.join(DOCUMENT_PARSERS)}"
        remedy = "start from the output of `bylot problem new`"
        if suffix in TABLE_SUFFIXES:
            remedy += (
                "; name a table of experts in it (`experts: {csv: FILE}`), and give a table "
                "of outcomes with --outcomes"
            )
        raise Document(path).error(
            (), "file name suffix", got=path.suffix, expected=expected, remedy=remedy
        )
    text = read_text(
        path,
        MAX_PROBLEM_FILE_BYTES,
        ProblemFileError,
        "put the experts in a CSV file and write `experts: {csv: FILE}`",
    )
    return parse_document(Document(path), text, suffix)


def parse_document(document: Document, text: str, suffix: str) -> Document:
    """Parse the text of a problem file in the format of a suffix, and complete its document."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if found := CONTROL_CHARACTERS.search(text):
        raise document.error(
            (),
            f"control character U+{ord(found[0]):04X}",
            line=text.count("\n", 0, found.start()) + 1,
            remedy="remove it",
        )
    if not text.strip():
        raise document.error(
            (), "empty file", remedy="start from the output of `bylot problem new`"
        )
    DOCUMENT_PARSERS[suffix](document, text)
    return document


def parse_yaml(document: Document, text: str) -> None:
    """Parse YAML without anchors, aliases and tags.

    A problem needs none of them, and a few lines of aliases can expand to gigabytes. Numbers are
    those of YAML 1.2, so that 1e3 is one; PyYAML's own are those of YAML 1.1.
    """
    events = yaml_events(document, text)
    next(events)  # start of the stream
    if isinstance(next(events), yaml.StreamEndEvent):
        raise document.error((), "only comments", remedy="add draws, experts and limits")
    document.data = read_yaml_value(document, events, next(events), ())
    next(events)  # end of the document
    if not isinstance(more := next(events), yaml.StreamEndEvent):
        raise document.error(
            (),
            "a second YAML document",
            line=more.start_mark.line + 1,
            remedy=f"keep one {document.noun} per file, without `---`",
        )


MERGE_KEY = "<<"

YAML_REMEDIES = {
    "'\\t'": "indent with spaces, not with tabs",
    "cannot start any token": "put the word in quotes",
    "escape code": "write the characters themselves instead of escapes",
    "mapping values are not allowed": "put text that contains a colon in quotes, and check the "
    "indentation",
    "": "check quotes, brackets and the indentation of this line and the one before",
}
"""What to do about a syntax error whose message contains this."""


def yaml_events(document: Document, text: str) -> Iterator[Any]:
    """PyYAML's parser events; its errors become ours."""
    line = 0
    try:
        for event in yaml.parse(text, Loader=YAML_LOADER):
            line = event.start_mark.line
            yield event
    except yaml.MarkedYAMLError as error:
        problem, mark, opening = str(error.problem), error.problem_mark, error.context_mark
        if mark is not None and "character that" in problem:  # libyaml does not name it
            sign = text.split("\n")[mark.line][mark.column : mark.column + 1]
            problem = problem.replace("character that", f"character {sign!r} that")
        if opening is not None and (mark is None or "stream" in problem):
            mark, opening = opening, None  # at the end of the file: report where the part begins
        what = f"not valid YAML: {error.context or ''} {problem}".replace("  ", " ")
        if opening is not None and mark is not None and opening.line != mark.line:
            what += f" (started in line {opening.line + 1})"
        remedy = next(remedy for part, remedy in YAML_REMEDIES.items() if part in problem)
        line = mark.line if mark else 0
        raise document.error((), what, line=line + 1, remedy=remedy) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # such as "\UFFFFFFFF"
        raise document.error(
            (),
            f"not valid YAML: {str(error).splitlines()[0]}",
            line=line + 1,
            remedy=YAML_REMEDIES["escape code"],
        ) from None


def read_yaml_value(document: Document, events: Iterator[Any], event: Any, keys: Keys) -> Any:
    """The value that starts with an event; its lines and texts are added to the document."""
    line = event.start_mark.line + 1
    document.lines.setdefault(keys, line)
    if len(document.lines) > document.max_entries:
        raise document.error(
            (),
            f"more than {document.max_entries:,} entries",
            line=line,
            remedy="send JSON, which may have more",
        )
    is_alias = isinstance(event, yaml.AliasEvent)
    known = document.anchors
    if event.anchor is not None and known is None:
        name = "" if document.is_private else event.anchor
        raise document.error(
            keys,
            f"{'alias *' if is_alias else 'anchor &'}{name} is not supported",
            line=line,
            remedy="write out what repeats",
        )
    if known is not None and is_alias:
        if event.anchor not in known:
            raise document.error(
                keys,
                "an alias without an anchor before it",
                line=line,
                remedy="write out what repeats",
            )
        return known[event.anchor]
    value = read_yaml_content(document, events, event, keys)
    if known is not None and event.anchor is not None:
        known[event.anchor] = value
    return value


def read_yaml_content(document: Document, events: Iterator[Any], event: Any, keys: Keys) -> Any:
    """The value that starts with an event that is no alias."""
    line = event.start_mark.line + 1
    if event.tag is not None:
        raise document.error(
            keys,
            f"tag {'!' if document.is_private else event.tag} is not supported",
            line=line,
            remedy="remove it; types follow from the key",
        )
    if isinstance(event, yaml.ScalarEvent):
        document.texts[keys] = event.value
        return resolve_scalar(event.value) if event.implicit[0] else event.value
    if len(keys) == document.max_depth:
        raise document.depth_error(keys, line=line)
    if isinstance(event, yaml.SequenceStartEvent):
        parts: list[Any] = []
        while not isinstance(part := next(events), yaml.CollectionEndEvent):
            parts.append(read_yaml_value(document, events, part, (*keys, len(parts))))
        return parts
    mapping: dict[str, Any] = {}
    while not isinstance(part := next(events), yaml.CollectionEndEvent):
        inner = Document(document.path, is_private=document.is_private)
        line = part.start_mark.line + 1
        key: Any = [] if isinstance(part, yaml.SequenceStartEvent) else {}  # neither is followed
        if document.anchors is not None and getattr(part, "value", "") == MERGE_KEY:
            key = MERGE_KEY
        elif not isinstance(part, yaml.CollectionStartEvent):
            key = read_yaml_value(inner, events, part, ())
        if not isinstance(key, str):
            text = "" if document.is_private else inner.texts.get((), "")
            got, remedy = describe_value(key, text), "put it in quotes"
            last = next(reversed(mapping.values()), None)
            if text.isdecimal() and type(last) is int:  # {usd: 0,5} or {usd: 0,05}
                remedy = f"write {last}.{text} if it is one number, else put it in quotes"
            raise document.error(keys, "key", got=got, expected="text", remedy=remedy, line=line)
        if key in mapping:
            raise document.error(
                keys,
                f"duplicate key {key!r}, also in line {document.lines[(*keys, key)]}",
                line=line,
                remedy="keep one of them",
            )
        document.lines[(*keys, key)] = line
        mapping[key] = read_yaml_value(document, events, next(events), (*keys, key))
    return merge_mappings(document, keys, mapping) if MERGE_KEY in mapping else mapping


def merge_mappings(document: Document, keys: Keys, mapping: dict[str, Any]) -> dict[str, Any]:
    """A mapping with those under its key `<<`, whose entries it may replace."""
    given = mapping.pop(MERGE_KEY)
    others = given if isinstance(given, list) else [given]
    if document.anchors is None or not all(isinstance(one, dict) for one in others):
        raise document.error((*keys, MERGE_KEY), f"{MERGE_KEY} is not followed by a mapping")
    merged: dict[str, Any] = {}
    for one in reversed(others):
        merged |= one
    return {**merged, **mapping}


def describe_value(value: Any, text: str = "") -> Verbatim:
    """A value of the wrong type for a message.

    >>> describe_value(True, "yes"), describe_value([1])
    ('yes' (true or false), (a list))
    """
    kind = next((kind for types, kind in VALUE_KINDS if isinstance(value, types)), "a date")
    return Verbatim(f"{quote_field(text)} ({kind})" if text else f"({kind})")


VALUE_KINDS: list[tuple[type | UnionType, str]] = [
    (str, "text"),
    (bool, "true or false"),  # which is an int too
    (int | float, "a number"),
    (dict, "a mapping"),
    (list, "a list"),
    (NoneType, "nothing"),
    (AmbiguousScalar, "a number or date to some programs, text to others"),
]
YAML_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
YAML_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
YAML_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
YAML_NON_FINITE = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
YAML_NULLS = ("", "~", "null", "Null", "NULL")


def resolve_scalar(word: str) -> Any:
    """The value of an unquoted word.

    >>> [resolve_scalar(word) for word in ("ann", "no", "1e3", "3", "~")]
    ['ann', False, 1000.0, 3, None]
    >>> resolve_scalar("1_000"), resolve_scalar("007")
    (AmbiguousScalar(text='1_000'), AmbiguousScalar(text='007'))
    """
    if word in YAML_NULLS:
        return None
    if YAML_NUMBER.fullmatch(word):
        return int(word) if YAML_INTEGER.fullmatch(word) else float(word)
    if word.lower() in YAML_BOOLEANS and word in (word.lower(), word.upper(), word.capitalize()):
        return YAML_BOOLEANS[word.lower()]
    if word.lower() in YAML_NON_FINITE:
        return YAML_NON_FINITE[word.lower()]
    # PyYAML's resolver is that of YAML 1.1: octals, 1_000, 1:30 and dates.
    tag = Resolver().resolve(yaml.ScalarNode, word, (True, False))  # type: ignore[no-untyped-call]
    return word if tag == "tag:yaml.org,2002:str" else AmbiguousScalar(word)


def parse_json(document: Document, text: str) -> None:
    """Parse JSON; as JSON is almost YAML, PyYAML's events give the lines."""
    try:  # a number with more digits than Python converts becomes a float
        document.data = json.loads(text, parse_int=lambda n: int(n) if len(n) < 300 else float(n))
    except json.JSONDecodeError as error:
        raise document.error(
            (),
            f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]} at column {error.colno}",
            line=error.lineno,
            remedy="check quotes, commas and brackets; JSON has no comments, YAML and TOML have",
        ) from None
    except RecursionError:
        pass  # the events below find the line
    events = yaml.parse(text.replace("\t", " "), Loader=yaml.SafeLoader)  # libyaml has no pairs
    try:
        start = list(itertools.islice(events, 3))  # of the stream, of the document, of the value
        read_yaml_value(document, events, start[2], ())
    except yaml.YAMLError:
        pass  # a key of more than 1,024 characters: entries behind it have no line


def parse_toml(document: Document, text: str) -> None:
    """Parse TOML; only syntax errors have a line."""
    try:
        document.data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said, _, place = str(error).partition(" (at line ")
        is_double = "overwrite" in said or "twice" in said
        remedy = "keep one of them" if is_double else "check quotes, commas and brackets"
        found = re.match(r"\d+", place)
        line = int(found[0]) if found else None
        raise document.error(
            (), f"not valid TOML: {said[:1].lower()}{said[1:]}", line=line, remedy=remedy
        ) from None
    except RecursionError:
        raise document.depth_error(()) from None
    except ValueError:
        raise document.error(  # too many for Python
            (), "a number has too many digits", remedy="write fewer digits"
        ) from None


DOCUMENT_PARSERS = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".toml": parse_toml,
    ".json": parse_json,
}


class ProblemDumper(yaml.SafeDumper):
    """Puts text in quotes that `resolve_scalar` would read as something else."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Plain words without quotes, all other text with double quotes."""
        plain = re.fullmatch(r"[A-Za-z][\w-]*", text, re.ASCII) and resolve_scalar(text) == text
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


ProblemDumper.add_representer(str, ProblemDumper.represent_text)


def format_yaml(data: dict[str, Any]) -> str:
    """Write data as YAML, with the innermost lists and mappings on one line."""
    given: dict[str, Any] = {"default_flow_style": None, "width": math.inf, "sort_keys": False}
    return str(yaml.dump(data, Dumper=ProblemDumper, allow_unicode=True, **given))
