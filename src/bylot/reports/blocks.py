"""The blocks of a report, independent of its format."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be tested"


class Heading(NamedTuple):
    """A heading; level 1 is the title of the report."""

    text: str
    level: int = 2


class Paragraph(NamedTuple):
    text: str


class Banner(NamedTuple):
    """A warning at the top of a report."""

    text: str


class Bullets(NamedTuple):
    items: Sequence[str]


class TableBlock(NamedTuple):
    """A table; the first `words` columns hold text, the others numbers."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


class Figure(NamedTuple):
    """A figure, with an alternative text."""

    png: Path
    svg: Path
    alt: str
    caption: str


class JudgedClaim(NamedTuple):
    """A claim of the paper with its verdict."""

    id: str
    section: str
    claim: str
    rule: str
    measured: str
    numbers: dict[str, Any]
    verdict: str
    caveats: list[str]


class Verdicts(NamedTuple):
    rows: Sequence[JudgedClaim]


Block = Heading | Paragraph | Banner | Bullets | TableBlock | Figure | Verdicts
