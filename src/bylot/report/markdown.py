"""A report as Markdown: figures are linked, everything else is in the text."""

from collections.abc import Sequence
from pathlib import Path

from bylot.report.blocks import Banner, Block, Bullets, Figure, Heading, Table, Text, Verdicts


def markdown(blocks: Sequence[Block], folder: Path) -> str:
    """The whole report, to be saved in a folder that the links are relative to."""
    return "\n\n".join(block_text(block, folder) for block in blocks) + "\n"


def block_text(block: Block, folder: Path) -> str:
    """One block."""
    match block:
        case Heading(text, level):
            return f"{'#' * level} {safe(text)}"
        case Text(text):
            return safe(text)
        case Banner(text):
            return f"> **{safe(text)}**"
        case Bullets(items):
            return "\n".join(f"- {safe(item)}" for item in items)
        case Table(caption, head, rows, words):
            return f"{safe(caption)}\n\n{grid(head, rows, words)}"
        case Figure(png, _, alt, caption):
            link = png.relative_to(folder).as_posix()
            return f"![{safe(alt)}]({link})\n\n{safe(caption)}"
        case Verdicts(rows):
            head = ("verdict", "claim", "measured", "rule", "id")
            judged = [(row.verdict, row.claim, row.measured, row.rule, row.id) for row in rows]
            return grid(head, judged, words=len(head))


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    r"""A table; numbers stand to the right.

    >>> print(grid(("a", "b"), [("x|y", "1")], words=1))
    | a | b |
    |---|--:|
    | x\|y | 1 |
    """
    rule = "|".join("---" if column < words else "--:" for column in range(len(head)))
    lines = [f"| {' | '.join(map(safe, row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def safe(text: str) -> str:
    """No character that Markdown or HTML within it would take for markup."""
    flat = " ".join(text.split())
    for sign in ("\\", "|", "*", "_", "`", "[", "]", "#"):
        flat = flat.replace(sign, f"\\{sign}")
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
