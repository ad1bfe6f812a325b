"""Reports as a self-contained HTML file and as Markdown with linked figures."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bylot._atomic_write import save_file
from bylot.reports import blocks
from bylot.reports.blocks import Block, TableBlock

PAGE_CSS = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --faint: #595959; --line: #d4d4d4;
  --holds: #005b8f; --fails: #a63a00; --unknown: #595959; --banner: #fff3d6; --stripe: #f6f6f6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181b; --faint: #a6a6a6;
  --line: #43474d; --holds: #6fbdf0; --fails: #ff9d66; --unknown: #b5b5b5; --banner: #4a3a0c;
  --stripe: #1e2125; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
h3 { font-size: 1.05rem; margin-top: 1.6rem; }
.banner { background: var(--banner); padding: .7rem 1rem; border-left: .35rem solid var(--fails);
  font-weight: 600; }
.scroll { overflow-x: auto; margin: 0 0 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
.caption { color: var(--faint); font-size: .85rem; margin: 1rem 0 .3rem; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th.word, td.word { text-align: left; white-space: normal; min-width: 4.5rem; }
th.word:first-child, td.word:first-child { min-width: 9rem; }
tbody tr:nth-child(even) { background: var(--stripe); }
figure { margin: 1.5rem 0; } figure img { width: 100%; height: auto; background: #fff; }
figcaption { color: var(--faint); font-size: .9rem; }
@media screen and (max-width: 50rem) { .drawing { overflow-x: auto; }
  figure img { width: auto; max-width: none; } } /* as large as drawn, or its text is too small */
article { border-top: 1px solid var(--line); padding: .6rem 0; }
article p { margin: .15rem 0; } .rule, .measured { font-size: .88rem; }
.rule { color: var(--faint); }
.verdict { font-weight: 700; } .holds { color: var(--holds); } .fails { color: var(--fails); }
.unknown { color: var(--unknown); } code { font-size: .85em; color: var(--faint); }
@media print { main { max-width: none; padding: 0; } body { font-size: 10pt; }
  figure, article, tr { break-inside: avoid; } .scroll { overflow: visible; }
  table { font-size: 7pt; } th, td { padding: .1rem .25rem; white-space: normal; } }
"""


def render_html(report: Sequence[Block], title: str) -> str:
    """Render a report as one HTML page with embedded styles and figures."""
    body = "\n".join(map(render_block_html, report))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{PAGE_CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def render_block_html(block: Block) -> str:
    match block:
        case blocks.Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case blocks.Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case blocks.Banner(text):
            return f'<p class="banner">{escape(text)}</p>'
        case blocks.Bullets(items):
            return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"
        case TableBlock():
            return render_table_html(block)
        case blocks.Figure(_, svg, alt, caption):
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
        pairs = zip(kinds, row, strict=True)
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in pairs)

    head = f"<thead><tr>{cells('th', block.head)}</tr></thead>"
    rows = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in block.rows)
    return (
        f'<p class="caption">{escape(block.caption)}</p>\n'
        f'<div class="scroll"><table aria-label="{escape(block.caption)}">\n'
        f"{head}\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def render_markdown(report: Sequence[Block], folder: Path) -> str:
    """Render a report as Markdown; links are relative to the folder."""
    return "\n\n".join(render_block_markdown(block, folder) for block in report) + "\n"


def render_block_markdown(block: Block, folder: Path) -> str:
    match block:
        case blocks.Heading(text, level):
            return f"{'#' * level} {escape_markdown(text)}"
        case blocks.Paragraph(text):
            return escape_markdown(text)
        case blocks.Banner(text):
            return f"> **{escape_markdown(text)}**"
        case blocks.Bullets(items):
            return "\n".join(f"- {escape_markdown(item)}" for item in items)
        case TableBlock(caption, head, rows, words):
            return f"{escape_markdown(caption)}\n\n{render_table_markdown(head, rows, words)}"
        case blocks.Figure(png, _, alt, caption):
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
    report: Sequence[Block], name: str, folder: Path, data: Mapping[str, Any]
) -> list[Path]:
    """Write report.md, report.html and JSON files with the numbers."""
    texts = {"report.md": render_markdown(report, folder), "report.html": render_html(report, name)}
    for file, content in data.items():
        plain = replace_nonfinite(content)
        texts[file] = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for file, text in texts.items():
        save_file(folder / file, text.encode())
    return [folder / file for file in texts]


def replace_nonfinite(value: Any) -> Any:
    """Replace infinite numbers and NaN, which JSON does not have, by None.

    >>> replace_nonfinite({"a": [1.0, math.inf]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: replace_nonfinite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
