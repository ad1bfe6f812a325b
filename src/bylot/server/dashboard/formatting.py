"""Formats of values on the pages. `static/formatting.js` has the same formats under the same names:
the server renders a page once, the browser then updates it, and a test compares the two.
"""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from urllib.parse import quote

MISSING_TEXT = "–"  # for a value that is unknown, or not known yet
DECIMAL_STEPS = (1e3, 1e2, 1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-4)
"""The smallest number that is written with 0, 1, 2, ... decimals."""


def format_number(x: float | None) -> str:
    """Four significant digits, and all digits before the decimal point.

    >>> [format_number(x) for x in (2.990049, 0.0499, 12345.5, 2e-7, None)]
    ['2.99', '0.0499', '12,346', '2.0e-7', '–']
    """
    if x is None or not math.isfinite(x):
        return MISSING_TEXT
    size = abs(x)
    if size == 0:
        return "0"
    if size >= 1e15 or size < DECIMAL_STEPS[-1]:
        mantissa, exponent = f"{round_half_up(x, 1 - Decimal(x).adjusted()):.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = next(n for n, least in enumerate(DECIMAL_STEPS) if size >= least)
    text = f"{round_half_up(x, decimals):,}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_count(n: int | None) -> str:
    """A whole number with separators: 1,234,567."""
    return MISSING_TEXT if n is None else f"{n:,}"


def format_percent(part: float | None) -> str:
    """A probability or a share in percent.

    >>> [format_percent(part) for part in (0.6215, 0.00004, 0, 1)]
    ['62.2%', '<0.1%', '0%', '100%']
    """
    if part is None or not math.isfinite(part):
        return MISSING_TEXT
    if 0 < part < 0.0005:
        return "<0.1%"
    return f"{round_half_up(100 * part, 1)}".removesuffix(".0") + "%"


def format_propensity(part: float | None) -> str:
    """The probability of a whole panel, which may be tiny; zero and None mean unknown.

    >>> [format_propensity(part) for part in (0.25, 0.00123, 3.2e-9, None)]
    ['0.25', '0.00123', '3.2e-9', '–']
    """
    return MISSING_TEXT if not part else format_number(part)


def format_time(at: str | None) -> str:
    """A time in UTC, to the second.

    >>> format_time("2026-11-15T17:18:45.123456Z")
    '2026-11-15 17:18:45'
    """
    return MISSING_TEXT if not at else at[:19].replace("T", " ")


def format_level(part: float | None) -> str:
    """Colour level of a cell, 0 to 9: ceil(9 sqrt(p)), so that small probabilities differ.

    >>> [format_level(part) for part in (0, 0.01, 0.3, 1)]
    ['0', '1', '5', '9']
    """
    return "0" if part is None else str(min(9, math.ceil(9 * math.sqrt(max(0.0, part)))))


def format_width(part: float | None) -> str:
    """A length in a drawing, as an SVG attribute.

    >>> format_width(0.5), format_width(None)
    ('50.00%', '0%')
    """
    return "0%" if part is None else f"{round_half_up(100 * min(1.0, max(0.0, part)), 2)}%"


def format_router_path(name: str | None) -> str:
    """The path of a router's page.

    >>> format_router_path("a/b?")
    '/routers/a%2Fb%3F'
    """
    return "/routers/" + quote(name or "", safe="!'()*")


def format_plain(text: Any) -> str:
    """Text as it is; the templates escape it."""
    return MISSING_TEXT if text is None or text == "" else str(text)


def round_half_up(x: float, decimals: int) -> Decimal:
    """Round halves away from zero, like JavaScript's toFixed."""
    return Decimal(x).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP)


FORMATS: dict[str, Callable[[Any], str]] = {
    "number": format_number,
    "count": format_count,
    "percent": format_percent,
    "propensity": format_propensity,
    "time": format_time,
    "level": format_level,
    "width": format_width,
    "router": format_router_path,
    "plain": format_plain,
}
"""By the names that templates use."""
