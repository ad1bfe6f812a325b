"""What a report is made of, whatever it is written in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be tested"


class Heading(NamedTuple):
    """A title; level 1 is that of the whole report."""

    text: str
    level: int = 2


class Paragraph(NamedTuple):
    """A paragraph."""

    text: str


class Banner(NamedTuple):
    """What must not be overlooked."""

    text: str


class Bullets(NamedTuple):
    """A list."""

    items: Sequence[str]


class TableBlock(NamedTuple):
    """Text under a head; the first `words` columns are words, the others numbers."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


class Figure(NamedTuple):
    """A drawn figure, with what it says for those who do not see it."""

    png: Path
    svg: Path
    alt: str
    caption: str


class JudgedClaim(NamedTuple):
    """A judged claim."""

    id: str
    section: str
    claim: str
    rule: str
    measured: str
    numbers: dict[str, Any]
    verdict: str
    caveats: list[str]


class Verdicts(NamedTuple):
    """Judged claims."""

    rows: Sequence[JudgedClaim]


Block = Heading | Paragraph | Banner | Bullets | TableBlock | Figure | Verdicts
