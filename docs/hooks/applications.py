"""Pages of the examples: the very text that lies beside each of them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("hospital", "crowd", "ads")


def page(name: str) -> str:
    """The text of an example, and where its files are."""
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    return f"{text}\n---\n\nThe files of this page are in `examples/{name}` of the source.\n"


PAGES: dict[str, Callable[[], str]] = {
    f"applications/{name}.md": partial(page, name) for name in NAMES
}
"""Each page and what makes it."""
