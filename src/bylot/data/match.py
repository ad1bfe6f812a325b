"""Whose column is whose: the experts of a problem among the columns of a table."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bylot.data.lines import fault, quoted

NAMED = 5  # names that a message spells out


class Match(NamedTuple):
    """Where each expert of the problem stands in the table, and the columns nobody asked for."""

    places: list[int]
    unused: tuple[str, ...]


def matched(path: Path, columns: Sequence[str], experts: Sequence[str]) -> Match:
    """Every expert's column; columns of others may be there, as who is left out of a problem for
    once need not be cut out of a table.

    >>> matched(Path("t.csv"), ["ann", "bob", "cat"], ["cat", "ann"])
    Match(places=[2, 0], unused=('bob',))
    """
    place = {name: n for n, name in enumerate(columns)}
    missing = [name for name in experts if name not in place]
    unused = tuple(name for name in columns if name not in set(experts))
    if missing:
        what = f"no column for {len(missing)} of the {len(experts)} experts of the problem, "
        what += listed([with_nearest(name, unused) for name in missing])
        if unused:
            what += f"; not in the problem: {listed(list(map(quoted, unused)))}"
        raise fault(path, what, "write names alike in both files, or add columns", 1)
    return Match([place[name] for name in experts], unused)


def with_nearest(name: str, others: Sequence[str]) -> str:
    """A name, and one that may have been meant.

    >>> with_nearest("gpt-4o", ["gpt4o", "yi"])
    "'gpt-4o' (is it 'gpt4o'?)"
    """
    fold = {other.casefold(): other for other in others}
    close = difflib.get_close_matches(name.casefold(), fold, n=1)
    return quoted(name) + (f" (is it {quoted(fold[close[0]])}?)" if close else "")


def listed(names: Sequence[str]) -> str:
    """The first few.

    >>> listed(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
