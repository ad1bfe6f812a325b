"""The blocks of a report, independent of its format."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Heading(NamedTuple):
    """A heading; level 1 is the title of the report."""

    text: str
    level: int = 2


class Paragraph(NamedTuple):
    """A paragraph; a `lead` says the most important thing and stands out."""

    text: str
    lead: bool = False


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


def make_table(
    text: Mapping[str, Any], rows: Sequence[Sequence[str]], more: Sequence[str] = (), **values: Any
) -> TableBlock:
    """A table of a file of texts: its caption, its first columns, and how many hold text; `more`
    are columns that depend on results.
    """
    return TableBlock(text["caption"].format(**values), [*text["head"], *more], rows, text["words"])


class Figure(NamedTuple):
    """A figure, with an alternative text."""

    png: Path
    svg: Path
    alt: str
    caption: str


def make_figure(
    text: Mapping[str, str], paths: Sequence[Path], mark: str = "", **values: str
) -> Figure:
    """Return a figure of a file of texts, drawn as PNG and SVG; `mark` goes before its words."""
    png, svg = paths
    alt, caption = (mark + text[key].format(**values) for key in ("alt", "caption"))
    return Figure(png, svg, alt, caption)


class RenderedBlock(Protocol):
    """A block of another package, which renders itself."""

    def to_html(self) -> str: ...

    def to_markdown(self) -> str: ...


Block = Heading | Paragraph | Banner | Bullets | TableBlock | Figure | RenderedBlock
