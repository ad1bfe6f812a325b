"""Checks of written reports: pages of HTML are well-formed, tables of Markdown are complete."""

import re
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects what a browser would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def is_rectangular(lines: list[str]) -> bool:
    """Whether every row of a Markdown table has as many cells as its header."""
    counts = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    return len(counts) == 1 and set(lines[1]) <= set("|-:")


def find_tables(text: str) -> list[list[str]]:
    """The tables of a Markdown text."""
    parts = [part.splitlines() for part in text.split("\n\n")]
    return [lines for lines in parts if lines[0].startswith("|")]
