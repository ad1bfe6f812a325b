"""YAML, as nodes; only what means the same to every program that reads YAML.

Anchors, aliases and tags are refused: a problem needs none, and few lines of them can stand for
gigabytes. Numbers are decimal, as in YAML 1.2, so that 1e3 is one; PyYAML reads YAML 1.1.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.resolver import Resolver

from bylot.errors import ProblemFileError
from bylot.problem_files.nodes import (
    MAX_DEPTH,
    AmbiguousScalar,
    FileLocation,
    Node,
    SourceText,
    file_error,
    mapping_node,
)

YAML_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
YAML_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
YAML_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
YAML_NON_FINITE = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
YAML_NULLS = ("", "~", "null", "Null", "NULL")


def parse_yaml(source: SourceText) -> Node:
    """The one document of a file."""
    events = yaml_events(source)
    next(events)  # the stream
    begun = next(events)
    if isinstance(begun, yaml.StreamEndEvent):
        raise file_error(source.path, "holds nothing but comments", "add draws, experts and limits")
    document = node_from_event(source, events, next(events), 0)
    next(events)
    more = next(events)
    if not isinstance(more, yaml.StreamEndEvent):
        what = "a second document begins"
        raise file_error(
            event_location(source, more), what, "keep one problem in a file, without `---`"
        )
    return document


def yaml_events(source: SourceText) -> Iterator[Any]:
    """What PyYAML meets, one after the other, without making anything of it."""
    line = 0
    try:
        for event in yaml.parse(source.text, Loader=yaml.SafeLoader):
            line = event.start_mark.line
            yield event
    except yaml.MarkedYAMLError as error:
        raise yaml_error(source, error) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # such as "\UFFFFFFFF"
        what = f"is not YAML from here on ({str(error).splitlines()[0]})"
        raise file_error(
            FileLocation(source.path, line + 1), what, "write signs as they are"
        ) from None


def yaml_error(source: SourceText, error: yaml.MarkedYAMLError) -> ProblemFileError:
    """A mistake in the writing; what is never closed is blamed on the line that opens it."""
    problem, mark, opening = str(error.problem), error.problem_mark, error.context_mark
    if opening is not None and (mark is None or "stream" in problem):
        mark, opening = opening, None
    what = f"is not YAML: {error.context or ''} {problem}".replace("  ", " ")
    if opening is not None and mark is not None and opening.line != mark.line:
        what += f" (begun in line {opening.line + 1})"
    return file_error(
        FileLocation(source.path, mark.line + 1 if mark else 1), what, yaml_remedy(problem)
    )


def yaml_remedy(problem: str) -> str:
    """What to do about a mistake in the writing."""
    if "'\\t'" in problem:
        return "indent with blanks, not with tabs"
    if "cannot start any token" in problem:
        return "put the word in quotes"
    if "mapping values are not allowed" in problem:
        return "put words that hold a colon in quotes, and check the indentation"
    return "check quotes, brackets and the indentation of this line and the one before"


def event_location(source: SourceText, event: Any) -> FileLocation:
    """Where an event begins."""
    return FileLocation(source.path, event.start_mark.line + 1)


def node_from_event(source: SourceText, events: Iterator[Any], event: Any, depth: int) -> Node:
    """The node that begins with an event."""
    here = event_location(source, event)
    reject_yaml_extras(event, here)
    if isinstance(event, yaml.ScalarEvent):
        quoted = event.style is not None
        return Node(event.value if quoted else resolve_scalar(event.value), here, event.value)
    if depth == MAX_DEPTH:
        raise source.too_deep(event.start_mark.index)
    parts = []
    while not isinstance(part := next(events), yaml.CollectionEndEvent):
        parts.append(node_from_event(source, events, part, depth + 1))
    if isinstance(event, yaml.SequenceStartEvent):
        return Node(parts, here)
    return mapping_node(list(zip(parts[::2], parts[1::2], strict=True)), here)


def reject_yaml_extras(event: Any, here: FileLocation) -> None:
    """Refuse what a problem has no use for."""
    if isinstance(event, yaml.AliasEvent):
        raise file_error(here, f"*{event.anchor} stands for something else", "write it out")
    if event.anchor is not None:
        raise file_error(
            here, f"&{event.anchor} is an anchor", "remove it, and write out what repeats"
        )
    if event.tag is not None:
        raise file_error(here, f"{event.tag} is a tag", "remove it; types follow from the key")


def resolve_scalar(word: str) -> Any:
    """What an unquoted word is.

    >>> [resolve_scalar(word) for word in ("ann", "no", "1e3", "3", "~")]
    ['ann', False, 1000.0, 3, None]
    >>> {resolve_scalar(word) for word in ("1_000", "1:30", "007", "2026-01-01")}
    {<Unclear.WORD: 'unclear'>}
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
    return word if tag == "tag:yaml.org,2002:str" else AmbiguousScalar.WORD
