"""Values as the pages show them. `static/words.js` has the same functions under the same names: the
server writes a page once, the browser then keeps it up to date, and a test compares the two.
"""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from urllib.parse import quote

MISSING_TEXT = "–"
"""What is not known, or not yet."""

DECIMAL_STEPS = (1e3, 1e2, 1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-4)
"""The least number that is written with 0, 1, 2, ... decimals."""


def number(x: float | None) -> str:
    """Four digits, and all those before the point.

    >>> number(2.990049), number(0.0499), number(12345.5), number(2e-7), number(None)
    ('2.99', '0.0499', '12,346', '2.0e-7', '–')
    """
    if x is None or not math.isfinite(x):
        return MISSING_TEXT
    size = abs(x)
    if size == 0:
        return "0"
    if size >= 1e15 or size < DECIMAL_STEPS[-1]:
        mantissa, exponent = f"{round_half_up(x, 1 - Decimal(x).adjusted()):.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    text = (
        f"{round_half_up(x, next(n for n, least in enumerate(DECIMAL_STEPS) if size >= least)):,}"
    )
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(n: int | None) -> str:
    """A whole number.

    >>> count(1234567)
    '1,234,567'
    """
    return MISSING_TEXT if n is None else f"{n:,}"


def percent(part: float | None) -> str:
    """A chance or a share.

    >>> percent(0.6215), percent(0.00004), percent(0), percent(1)
    ('62.2%', '<0.1%', '0%', '100%')
    """
    if part is None or not math.isfinite(part):
        return MISSING_TEXT
    if 0 < part < 0.0005:
        return "<0.1%"
    text = f"{round_half_up(100 * part, 1)}"
    return text.removesuffix(".0") + "%"


def chance(part: float | None) -> str:
    """The chance of a whole panel, which may be tiny, if it is told.

    >>> chance(0.25), chance(0.00123), chance(3.2e-9), chance(None)
    ('0.25', '0.00123', '3.2e-9', '–')
    """
    return MISSING_TEXT if not part else number(part)


def time(at: str | None) -> str:
    """A moment, in UTC, to the second.

    >>> time("2026-11-15T17:18:45.123456Z")
    '2026-11-15 17:18:45'
    """
    return MISSING_TEXT if not at else at[:19].replace("T", " ")


def level(part: float | None) -> str:
    """How strongly a cell is coloured, 0 to 9: ceil(9 sqrt(chance)), so that small ones differ.

    >>> [level(part) for part in (0, 0.01, 0.3, 1)]
    ['0', '1', '5', '9']
    """
    return "0" if part is None else str(min(9, math.ceil(9 * math.sqrt(max(0.0, part)))))


def width(part: float | None) -> str:
    """A length within a drawing, of all of it: an attribute of SVG, not a style.

    >>> width(0.5), width(None)
    ('50.00%', '0%')
    """
    return "0%" if part is None else f"{round_half_up(100 * min(1.0, max(0.0, part)), 2)}%"


def router(name: str | None) -> str:
    """The address of a router's page.

    >>> router("a/b?")
    '/routers/a%2Fb%3F'
    """
    return "/routers/" + quote(name or "", safe="!'()*")


def plain(text: Any) -> str:
    """As it is; names of people's own may hold anything, and are escaped where they are written."""
    return MISSING_TEXT if text is None or text == "" else str(text)


def round_half_up(x: float, decimals: int) -> Decimal:
    """To so many decimals, halves away from zero, as JavaScript's toFixed does."""
    return Decimal(x).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP)


FORMATS: dict[str, Callable[[Any], str]] = {
    word.__name__: word
    for word in (number, count, percent, chance, time, level, width, router, plain)
}
"""By the names that templates use."""
