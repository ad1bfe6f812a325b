"""Formats of values on the pages. `static/formatting.js` has the same formats under the same names:
the server renders a page once, the browser then updates it, and a test compares the two.
"""

import math
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from bylot._text import MISSING_TEXT, format_number, format_percent, round_half_up

FORMATS: dict[str, Callable[[Any], str]] = {
    "number": format_number,
    # A whole number with separators: 1,234,567.
    "count": lambda n: MISSING_TEXT if n is None else f"{n:,}",
    "percent": format_percent,
    # Two decimals, so that a column is aligned.
    "hundredths": lambda x: (
        MISSING_TEXT if x is None or not math.isfinite(x) else str(round_half_up(x, 2))
    ),
    # The probability of a whole panel, which may be tiny; 0 means unknown.
    "propensity": lambda part: format_number(part or None),
    # A time in UTC, to the second.
    "time": lambda at: at[:19].replace("T", " ") if at else MISSING_TEXT,
    # Colour level of a cell, 0 to 9: ceil(9 sqrt(p)), so that small probabilities differ.
    "level": lambda part: str(min(9, math.ceil(9 * math.sqrt(max(0.0, part or 0.0))))),
    # A length in a drawing, as an SVG attribute.
    "width": lambda part: (
        "0%" if part is None else f"{round_half_up(100 * min(1.0, max(0.0, part)), 2)}%"
    ),
    # The path of a router's page.
    "router": lambda name: "/routers/" + quote(name or "", safe="!'()*"),
    # Text as it is; the templates escape it.
    "plain": lambda text: MISSING_TEXT if text is None or text == "" else str(text),
}
"""By the names that templates use."""
