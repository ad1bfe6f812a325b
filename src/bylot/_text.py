"""Plain text for people: numbers, tables, lists, percentages, progress; words for pass and fail."""

import difflib
import heapq
import math
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import ROUND_HALF_UP, Decimal

MAX_NAMES_COMPARED = 10  # by difflib, which takes 0.1 ms for each
MISSING_TEXT = "–"  # for a value that is unknown, or not known yet
DECIMAL_STEPS = (1e3, 1e2, 1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""The smallest number that is written with 0, 1, 2, ... decimals."""

PASS_FAIL_WORDS = {
    **dict.fromkeys(("true", "yes", "pass", "passed", "ok", "correct", "right", "success"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "failed", "wrong", "incorrect", "failure"), 0.0),
}
"""Words in lower case that are an outcome or a reward."""


def print_progress(line: str) -> None:
    """Print a line of progress to standard error."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def announce_if_slow(line: str, seconds: float = 3.0) -> Iterator[None]:
    """Print what the user is waiting for, if it takes longer than this."""
    timer = threading.Timer(seconds, print_progress, [line])
    timer.daemon = True  # must not delay the end of the process
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns under a header row: numbers to the right, words to the left.

    >>> format_table([("name", "n", "why"), ("a", "10", "so"), ("b", "9", "")])
    ['name   n  why', 'a     10  so', 'b      9']
    """
    columns = [align_column(column) for column in zip(*rows, strict=True)]
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def format_labels(values: Mapping[str, str]) -> list[str]:
    """Label each value.

    >>> format_labels({"reward": "0.8", "spend": "3 US dollars"})
    ['reward  0.8', 'spend   3 US dollars']
    """
    width = max(map(len, values))
    return [f"{label.ljust(width)}  {value}" for label, value in values.items()]


def align_column(column: Sequence[str]) -> list[str]:
    """Pad cells to one width."""
    width = max(map(len, column))
    numbers = all(cell == "" or cell[0] in "+-0123456789" for cell in column[1:])
    return [cell.rjust(width) if numbers else cell.ljust(width) for cell in column]


def join_words(words: Iterable[str], last: str) -> str:
    """Join words to a list with "and" or "or" before the last one.

    >>> join_words(["a", "b", "c"], "or"), join_words(["a"], "or")
    ('a, b or c', 'a')
    """
    *others, final = list(words) or [""]
    return f"{', '.join(others)} {last} {final}" if others else final


def find_similar(wrong: object, known: Iterable[str], cutoff: float = 0.65) -> str | None:
    """Return the known name that was probably meant, whatever the case of its letters, or None.

    >>> find_similar("perod", ["period", "draws"]), find_similar("costs", ["contexts"])
    ('period', None)
    """
    names = {name.casefold(): name for name in known}
    text = str(wrong).casefold()
    letters = set(text)
    near = heapq.nsmallest(MAX_NAMES_COMPARED, names, lambda name: len(letters ^ set(name)))
    close = difflib.get_close_matches(text, near, n=1, cutoff=cutoff)
    return names[close[0]] if close else None


def format_sizes(fewest: int, most: int) -> str:
    """How many members a panel may have.

    >>> format_sizes(3, 3), format_sizes(1, 3)
    ('3', '1 to 3')
    """
    return f"{most}" if fewest == most else f"{fewest} to {most}"


def name_panels(fewest: int, most: int) -> str:
    """Panels of this many members, in a sentence.

    >>> name_panels(3, 3), name_panels(1, 3)
    ('full panels', 'panels of 1 to 3 experts')
    """
    return "full panels" if fewest == most else f"panels of {format_sizes(fewest, most)} experts"


def format_percent(part: float | None) -> str:
    """A probability, a share or a change in percent.

    >>> [format_percent(part) for part in (0.6215, 0.00004, 0, 1.5, None)]
    ['62.2%', '<0.1%', '0%', '150%', '–']
    """
    if part is None or not math.isfinite(part):
        return MISSING_TEXT
    if 0 < part < 0.0005:
        return "<0.1%"
    return f"{round_half_up(100 * part, 1)}".removesuffix(".0") + "%"


def format_number(x: float | None) -> str:
    """Four significant digits, and all digits before the decimal point.

    >>> [format_number(x) for x in (2.990049, 12345.5, 0.00007512, 2e-7, None)]
    ['2.99', '12,346', '0.00007512', '2.0e-7', '–']
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


def round_half_up(x: float, decimals: int) -> Decimal:
    """Round halves away from zero, like JavaScript's toFixed."""
    return Decimal(x).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP)
