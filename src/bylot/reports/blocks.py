"""What a report is made of, whatever it is written in."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bylot_paper.claims import JudgedClaim


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


class Verdicts(NamedTuple):
    """Judged claims."""

    rows: Sequence[JudgedClaim]


Block = Heading | Paragraph | Banner | Bullets | TableBlock | Figure | Verdicts
