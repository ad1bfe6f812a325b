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
from bylot.files.node import DEEPEST, Node, Place, Unclear, fault, mapping
from bylot.files.source import Source

NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
ENDLESS = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
NOTHING = ("", "~", "null", "Null", "NULL")


def parse(source: Source) -> Node:
    """The one document of a file."""
    events = steps(source)
    next(events)  # the stream
    begun = next(events)
    if isinstance(begun, yaml.StreamEndEvent):
        raise fault(source.path, "holds nothing but comments", "add draws, experts and limits")
    document = read(source, events, next(events), 0)
    next(events)
    more = next(events)
    if not isinstance(more, yaml.StreamEndEvent):
        what = "a second document begins"
        raise fault(place(source, more), what, "keep one problem in a file, without `---`")
    return document


def steps(source: Source) -> Iterator[Any]:
    """What PyYAML meets, one after the other, without making anything of it."""
    line = 0
    try:
        for event in yaml.parse(source.text, Loader=yaml.SafeLoader):
            line = event.start_mark.line
            yield event
    except yaml.MarkedYAMLError as error:
        raise explained(source, error) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # such as "\UFFFFFFFF"
        what = f"is not YAML from here on ({str(error).splitlines()[0]})"
        raise fault(Place(source.path, line + 1), what, "write signs as they are") from None


def explained(source: Source, error: yaml.MarkedYAMLError) -> ProblemFileError:
    """A mistake in the writing; what is never closed is blamed on the line that opens it."""
    problem, mark, opening = str(error.problem), error.problem_mark, error.context_mark
    if opening is not None and (mark is None or "stream" in problem):
        mark, opening = opening, None
    what = f"is not YAML: {error.context or ''} {problem}".replace("  ", " ")
    if opening is not None and mark is not None and opening.line != mark.line:
        what += f" (begun in line {opening.line + 1})"
    return fault(Place(source.path, mark.line + 1 if mark else 1), what, remedy(problem))


def remedy(problem: str) -> str:
    """What to do about a mistake in the writing."""
    if "'\\t'" in problem:
        return "indent with blanks, not with tabs"
    if "cannot start any token" in problem:
        return "put the word in quotes"
    if "mapping values are not allowed" in problem:
        return "put words that hold a colon in quotes, and check the indentation"
    return "check quotes, brackets and the indentation of this line and the one before"


def place(source: Source, event: Any) -> Place:
    """Where an event begins."""
    return Place(source.path, event.start_mark.line + 1)


def read(source: Source, events: Iterator[Any], event: Any, depth: int) -> Node:
    """The node that begins with an event."""
    here = place(source, event)
    plain(event, here)
    if isinstance(event, yaml.ScalarEvent):
        quoted = event.style is not None
        return Node(event.value if quoted else meaning(event.value), here, event.value)
    if depth == DEEPEST:
        raise source.too_deep(event.start_mark.index)
    parts = []
    while not isinstance(part := next(events), yaml.CollectionEndEvent):
        parts.append(read(source, events, part, depth + 1))
    if isinstance(event, yaml.SequenceStartEvent):
        return Node(parts, here)
    return mapping(list(zip(parts[::2], parts[1::2], strict=True)), here)


def plain(event: Any, here: Place) -> None:
    """Refuse what a problem has no use for."""
    if isinstance(event, yaml.AliasEvent):
        raise fault(here, f"*{event.anchor} stands for something else", "write it out")
    if event.anchor is not None:
        raise fault(here, f"&{event.anchor} is an anchor", "remove it, and write out what repeats")
    if event.tag is not None:
        raise fault(here, f"{event.tag} is a tag", "remove it; types follow from the key")


def meaning(word: str) -> Any:
    """What an unquoted word is.

    >>> [meaning(word) for word in ("ann", "no", "1e3", "3", "~")]
    ['ann', False, 1000.0, 3, None]
    >>> {meaning(word) for word in ("1_000", "1:30", "007", "2026-01-01")}
    {<Unclear.WORD: 'unclear'>}
    """
    if word in NOTHING:
        return None
    if NUMBER.fullmatch(word):
        return int(word) if WHOLE.fullmatch(word) else float(word)
    if word.lower() in TRUTH and word in (word.lower(), word.upper(), word.capitalize()):
        return TRUTH[word.lower()]
    if word.lower() in ENDLESS:
        return ENDLESS[word.lower()]
    # PyYAML's resolver is that of YAML 1.1: octals, 1_000, 1:30 and dates.
    tag = Resolver().resolve(yaml.ScalarNode, word, (True, False))  # type: ignore[no-untyped-call]
    return word if tag == "tag:yaml.org,2002:str" else Unclear.WORD
