"""Reports: their blocks, as a self-contained HTML file and as Markdown; how their figures look.

Colours are for colour-blind readers, and lines differ in a grey print.
"""

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from bylot._atomic_write import save_file
from bylot.errors import BylotError, install_command
from bylot.harness import SeedCurves


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


PAGE_CSS = Path(__file__).with_name("pages.css").read_text(encoding="utf-8")


def render_html(report: Sequence[Block], title: str) -> str:
    """Render a report as one HTML page with embedded styles and figures."""
    body = "\n".join(map(render_block_html, report))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{PAGE_CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def render_block_html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text, lead):
            return f"<p{' class=lead' if lead else ''}>{escape(text)}</p>"
        case Banner(text):
            return f'<p class="banner">{escape(text)}</p>'
        case Bullets(items):
            return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"
        case TableBlock():
            return render_table_html(block)
        case Figure(_, svg, alt, caption):
            drawn = base64.b64encode(svg.read_bytes()).decode()
            return (
                f'<figure><div class="drawing"><img alt="{escape(alt)}" '
                f'src="data:image/svg+xml;base64,{drawn}"></div>'
                f"<figcaption>{escape(caption)}</figcaption></figure>"
            )
        case _:
            return block.to_html()


def render_table_html(block: TableBlock) -> str:
    """A table that scrolls if it is wider than the screen."""

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = [' class="word"' if place < block.words else "" for place in range(len(row))]
        return "".join(
            f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True)
        )

    rows = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in block.rows)
    return (
        f'<p class="caption">{escape(block.caption)}</p>\n'
        f'<div class="scroll"><table aria-label="{escape(block.caption)}">\n'
        f"<thead><tr>{cells('th', block.head)}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def render_markdown(report: Sequence[Block], folder: Path) -> str:
    """Render a report as Markdown; links are relative to the folder."""
    return "\n\n".join(render_block_markdown(block, folder) for block in report) + "\n"


def render_block_markdown(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {escape_markdown(text)}"
        case Paragraph(text, lead):
            return f"**{escape_markdown(text)}**" if lead else escape_markdown(text)
        case Banner(text):
            return f"> **{escape_markdown(text)}**"
        case Bullets(items):
            return "\n".join(f"- {escape_markdown(item)}" for item in items)
        case TableBlock(caption, head, rows, words):
            return f"{escape_markdown(caption)}\n\n{render_table_markdown(head, rows, words)}"
        case Figure(png, _, alt, caption):
            link = png.relative_to(folder).as_posix()
            return f"![{escape_markdown(alt)}]({link})\n\n{escape_markdown(caption)}"
        case _:
            return block.to_markdown()


def render_table_markdown(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    r"""A table with numbers aligned to the right.

    >>> print(render_table_markdown(("a", "b"), [("x|y", "1")], words=1))
    | a | b |
    |---|--:|
    | x\|y | 1 |
    """
    rule = "|".join("---" if column < words else "--:" for column in range(len(head)))
    lines = [f"| {' | '.join(map(escape_markdown, row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def escape_markdown(text: str) -> str:
    """Escape the characters that Markdown or HTML would interpret."""
    flat = " ".join(text.split())
    for sign in ("\\", "|", "*", "_", "`", "[", "]", "#"):
        flat = flat.replace(sign, f"\\{sign}")
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def write_pages(
    report: Sequence[Block], name: str, folder: Path, data: Mapping[str, Any] = MappingProxyType({})
) -> list[Path]:
    """Write report.md, report.html and JSON files with the numbers."""
    texts = {"report.md": render_markdown(report, folder), "report.html": render_html(report, name)}
    for file, text in texts.items():
        save_file(folder / file, text.encode())
    return [*(folder / file for file in texts), *write_data(folder, data)]


def write_data(folder: Path, data: Mapping[str, Any]) -> list[Path]:
    """Write JSON files with numbers."""
    for file, content in data.items():
        text = json.dumps(replace_nonfinite(content), indent=1, ensure_ascii=False, allow_nan=False)
        save_file(folder / file, f"{text}\n".encode())
    return [folder / file for file in data]


def replace_nonfinite(value: Any) -> Any:
    """Replace infinite numbers and NaN, which JSON does not have, by None.

    >>> replace_nonfinite({"a": [1.0, math.inf]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: replace_nonfinite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"  # Okabe and Ito's, and grey
PURPLE, SKY, AMBER, BLACK = "#CC79A7", "#56B4E9", "#E69F00", "#000000"


class SeriesStyle(NamedTuple):
    """How one series is drawn; line and marker differ as well as the colour."""

    name: str
    colour: str
    line: Any
    marker: str


PAPER_POLICY_STYLES = {
    "omd": SeriesStyle("OMD (the paper's)", BLUE, "-", "o"),
    "ts-bwk": SeriesStyle("TS-BwK", SKY, (0, (5, 1.5)), "s"),
    "cbwk": SeriesStyle("CBwK", PURPLE, (0, (4, 1.5, 1, 1.5)), "D"),
    "moe": SeriesStyle("MoE", BLACK, (0, (1, 1)), "P"),
    "ts": SeriesStyle("TS", GREEN, (0, (7, 2)), "^"),
    "cucb": SeriesStyle("CUCB", ORANGE, (0, (3, 1, 1, 1, 1, 1)), "v"),
    "greedy": SeriesStyle("Greedy", AMBER, (0, (2, 1)), "<"),
    "random": SeriesStyle("Random", "#8A8A8A", (0, (1, 2)), "X"),
}
"""The paper's eight policies in the order of legends: limit-aware ones first."""

BEYOND_POLICY_STYLES = {
    **{name: PAPER_POLICY_STYLES[name] for name in ("omd", "ts-bwk", "cbwk")},
    "strict": SeriesStyle("strict", AMBER, (0, (2, 1)), "<"),
    "tangent": SeriesStyle("tangent", GREEN, (0, (7, 2)), "^"),
    "distinct": SeriesStyle("distinct", ORANGE, (0, (12, 1.5)), "v"),
}
"""Beyond the paper: its best beside ours."""


def make_figure_folder(path: Path) -> Path:
    """Create the folder; call this before the work whose figures go there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BylotError(
            f"{path} cannot be a folder for figures: {error.strerror}",
            remedy="give another folder",
        ) from None
    return path


def load_pyplot() -> Any:
    """Import matplotlib without a display; raise an error that names the extra if it is missing."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise BylotError(f"figures need matplotlib: {install_command('plot')}") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def make_panels(
    rows: int, columns: int, size: tuple[float, float], title: str, **shared: Any
) -> tuple[Any, Any]:
    """A figure with a title, and a (rows, columns) array of axes."""
    figure, axes = load_pyplot().subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **shared
    )
    figure.suptitle(title)
    return figure, axes


def put_legend(figure: Any, columns: int, *handles_and_names: Sequence[Any]) -> None:
    """One legend for all panels, outside them; by default of all that is labelled."""
    figure.legend(
        *handles_and_names,
        ncols=columns,
        loc="outside lower center",
        frameon=False,
        fontsize=9,
    )


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Save as PNG and SVG; the same figure gives the same bytes: no date, no random ids."""
    plt = load_pyplot()
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    figure.set_layout_engine("none")  # the layout of the PNG fits; a second one takes as long
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    plt.close(figure)
    files = {folder / f"{name}.png": png, folder / f"{name}.svg": svg}
    for path, content in files.items():
        save_file(path, content.getvalue())
    return [*files]


def draw_std_band(
    axes: Any, x: Any, curve: SeedCurves, style: SeriesStyle, alpha: float, least: float = -np.inf
) -> None:
    """Shade one standard deviation around the mean, but not below `least`."""
    low = np.maximum(curve.mean - curve.std, least)
    axes.fill_between(x, low, curve.mean + curve.std, color=style.colour, alpha=alpha, linewidth=0)


KNOWN_POLICY_STYLES = {**PAPER_POLICY_STYLES, **BEYOND_POLICY_STYLES}


def assign_styles(policies: Sequence[str]) -> dict[str, SeriesStyle]:
    """A style for each policy, no two of one colour as long as there are colours.

    >>> made = assign_styles(["tangent", "ts"])  # both are green on their own
    >>> made["tangent"].colour == made["ts"].colour
    False
    """
    made: dict[str, SeriesStyle] = {}
    for policy in policies:
        taken = {style.colour for style in made.values()}
        own = [KNOWN_POLICY_STYLES[policy]] if policy in KNOWN_POLICY_STYLES else []
        free = [
            style for style in [*own, *KNOWN_POLICY_STYLES.values()] if style.colour not in taken
        ]
        made[policy] = (free or own or [*KNOWN_POLICY_STYLES.values()])[0]._replace(name=policy)
    return made
