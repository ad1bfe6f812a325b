"""Sheets: text files whose line 1 names the columns; what the columns hold is left to the reader.

Fields lie between tabs or commas and may be blank, but for the first of a line: it is the name of
that line, which no other line has. What else a file may look like is in `lines`.
"""

import math
import re
from pathlib import Path
from typing import NamedTuple

from bylot.data.lines import at_commas, at_tabs, counted, fault, located, quoted, written
from bylot.problem.reading import instead

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)


class Sheet(NamedTuple):
    """The lines of one file, each with a field for each column."""

    path: Path
    columns: tuple[str, ...]
    fields: list[list[str]]
    text: bool = True  # has it lines, or rows that no editor numbers?

    @property
    def names(self) -> list[str]:
        """The first field of every line."""
        return [fields[0] for fields in self.fields]

    def column(self, name: str) -> list[str]:
        """The field of every line in a column."""
        if name not in self.columns:
            what = f"there is no column {quoted(name)}"
            raise fault(self.path, what, instead(name, self.columns, "columns"), 1)
        place = self.columns.index(name)
        return [fields[place] for fields in self.fields]

    def line(self, row: int) -> int:
        """The number, from 1, of a row's line in the file."""
        return row + 2

    def place(self, row: int) -> int | str:
        """Where a row is, for a message: its line, or what else it can be found by."""
        return self.line(row) if self.text else f"row {row + 1}"


def sheet(path: Path, largest: int = -1) -> Sheet:
    """A file with a header and at least one line below it, of at most so many bytes."""
    lines = written(path, largest)
    cut = at_tabs if "\t" in lines[0] else at_commas
    columns, *fields = map(cut, lines)
    different(path, columns)
    bad = [n for n, row in enumerate(fields, 2) if len(row) != len(columns)]
    if bad:
        what = f"{counted(bad, len(lines))} do not hold {len(columns)} fields, as line 1 does"
        raise fault(path, what, "correct or remove them; fields lie between tabs or commas")
    if not fields:
        raise fault(path, "holds a header and nothing else", "give a file with entries")
    return once(Sheet(path, tuple(columns), fields))


def different(path: Path, columns: list[str]) -> None:
    """Refuse a header of fewer than two columns, or in which a name is missing or met again.

    The first column may be without a name, as it is where tables are saved with their index.
    """
    if len(columns) < 2:
        what = "is not a header that names two columns or more"
        semicolons = ", not semicolons" if columns and ";" in columns[0] else ""
        raise fault(path, what, f"write one, with tabs or commas{semicolons} between the names", 1)
    seen: dict[str, int] = {}
    for n, name in enumerate(columns, 1):
        before = seen.setdefault(name, n)
        if before != n:
            what = f"columns {before} and {n} are both called {quoted(name)}"
            raise fault(path, what, "give each column a name of its own", 1)
        if not name and n > 1:
            raise fault(path, f"column {n} has no name", "give it one, or remove it", 1)


def once(read: Sheet) -> Sheet:
    """Refuse a line without a name, and a second line of the same name."""
    what = quoted(read.columns[0]) if read.columns[0] else "the name"
    seen: dict[str, int] = {}
    for row, name in enumerate(read.names):
        if not name:
            raise fault(read.path, f"{what} is blank", "fill it in", read.place(row))
        before = seen.setdefault(name, row)
        if before != row:
            said = f"{what} is {quoted(name)}, as in {located(read.place(before))}"
            raise fault(read.path, said, "keep one of the two lines", read.place(row))
    return read


def number(field: str) -> float | None:
    """A finite number in plain writing, None if a field holds something else.

    >>> number("-.5e1"), number("nan"), number("1,5"), number("")
    (-5.0, None, None, None)
    """
    value = float(field) if NUMBER.fullmatch(field) else math.inf
    return value if math.isfinite(value) else None
