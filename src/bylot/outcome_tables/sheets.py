"""Text files with one entry per line, in UTF-8, and sheets, whose line 1 names the columns.

Fields lie between tabs, commas or semicolons and may be blank, but for the first of a line: it is
the name of that line, which no other line has.
"""

import csv
import math
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bylot.errors import DataError, LocatedError, install_command
from bylot.problem.validation import suggest_known_name

MAX_LISTED_LINES = 5  # in a message
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx", ".xls", ".ods")
PROBLEM_SUFFIXES = (".yaml", ".yml", ".toml", ".json")
SPREADSHEET_STARTS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # xlsx and ods; xls
WHOLE_NUMBER = re.compile("-?[0-9]{1,18}", re.ASCII)
DECIMAL_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE
)


def read_text(
    path: Path,
    largest: int = -1,
    error: type[LocatedError] = DataError,
    shrink: str = "remove what is not needed",
) -> str:
    """The text of a UTF-8 file; `shrink` is the remedy if it has more than `largest` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1 if largest >= 0 else -1)
    except (FileNotFoundError, ValueError):  # ValueError: a name that no file can have
        raise error("no such file", path=path, remedy="give the path of an existing file") from None
    except IsADirectoryError:
        raise error("is a directory", path=path, remedy="give the path of a file in it") from None
    except OSError as reason:
        raise error(
            f"cannot be read ({reason.strerror})", path=path, remedy="make it readable"
        ) from None
    if 0 <= largest < len(content):
        raise error(f"has more than {largest:,} bytes", path=path, remedy=shrink)
    if content.startswith(SPREADSHEET_STARTS):
        raise error(
            "is a spreadsheet or an archive, not text",
            path=path,
            remedy="save the table as CSV in UTF-8",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        raise error(
            "not UTF-8 text",
            path=path,
            line=content.count(b"\n", 0, reason.start) + 1,
            remedy="save the file as UTF-8",
        ) from None


def read_text_lines(path: Path, largest: int = -1) -> list[str]:
    """The lines of a text file, without their ends and without blank lines at its end."""
    text = read_text(path, largest)
    if "\0" in text:
        raise data_error(
            path,
            "contains a zero byte",
            "save the file as plain text",
            text.count("\n", 0, text.index("\0")) + 1,
        )
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise data_error(path, "empty file", "give a file with one line per entry")
    return lines


def split_at_tabs(line: str) -> list[str]:
    """Fields between tabs, without the spaces around them."""
    return [field.strip() for field in line.split("\t")]


def split_at_commas(line: str, comma: str = ",") -> list[str]:
    """Fields between commas, which may be quoted; none if the quotes do not match."""
    if '"' not in line:
        return [field.strip() for field in line.split(comma)]
    try:
        (fields,) = csv.reader([line], delimiter=comma, skipinitialspace=True, strict=True)
    except csv.Error:
        return []
    return [field.strip() for field in fields]


def describe_lines(bad: list[int], total: int) -> str:
    """How many lines, and the numbers of the first.

    >>> describe_lines([2, 7], total=9)
    '2 of 9 lines (line 2, 7)'
    """
    more = ", ..." if len(bad) > MAX_LISTED_LINES else ""
    listed = ", ".join(map(str, bad[:MAX_LISTED_LINES]))
    return f"{len(bad)} of {total} lines (line {listed}{more})"


def data_error(path: Path, what: str, remedy: str, line: int | str | None = None) -> DataError:
    """An error in a data file; `line` is a number, or the name of a row."""
    return DataError(what, path=path, line=line, remedy=remedy)


def shorten(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= 40 else f"{text[:37]}..."


def quote_field(text: str) -> str:
    """A field for a message: in quotes, on one line, and not too long."""
    return repr(shorten(text))


def sort_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """The different ids, sorted as numbers if all are whole numbers, else as text.

    >>> sort_ids(["10", "9", "10"]), sort_ids(["10", "9", "a"])
    (('9', '10'), ('10', '9', 'a'))
    """
    different = set(ids)
    if all(WHOLE_NUMBER.fullmatch(name) for name in different):
        return tuple(sorted(different, key=lambda name: (int(name), name)))  # "7", "07": two
    return tuple(sorted(different))


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
            raise data_error(
                self.path,
                f"no column {quote_field(name)}",
                suggest_known_name(name, self.columns, "columns"),
                1,
            )
        place = self.columns.index(name)
        return [fields[place] for fields in self.fields]

    def line(self, row: int) -> int:
        """The number, from 1, of a row's line in the file."""
        return row + 2

    def place(self, row: int) -> int | str:
        """Where a row is, for a message: its line, or what else it can be found by."""
        return self.line(row) if self.text else f"row {row + 1}"


def read_sheet(path: Path, largest: int = -1) -> Sheet:
    """Read a CSV file with a header and at least one line, of at most `largest` bytes."""
    lines = read_text_lines(path, largest)
    cut: Callable[[str], list[str]] = split_at_tabs if "\t" in lines[0] else split_at_commas
    if ";" in lines[0] and not set(lines[0]) & set(",\t"):
        cut = partial(split_at_commas, comma=";")
    columns, *fields = map(cut, lines)
    check_columns(path, columns)
    bad = [n for n, row in enumerate(fields, 2) if len(row) != len(columns)]
    if bad:
        raise data_error(
            path,
            f"{describe_lines(bad, len(lines))} do not have {len(columns)} fields, as line 1 has",
            "correct or remove them; fields are separated by tabs, commas or semicolons",
        )
    if not fields:
        raise data_error(path, "only a header", "add at least one line")
    return check_unique_names(Sheet(path, tuple(columns), fields))


def check_columns(path: Path, columns: list[str]) -> None:
    """Reject a header with fewer than two columns, with a missing or with a duplicate name."""
    if len(columns) < 2:
        what, remedy = "not a header of two columns or more", "separate the names by tabs or commas"
        if path.suffix.lower() in PROBLEM_SUFFIXES:
            what, remedy = "a problem file, not a table", "give the path of a CSV file"
        raise data_error(path, what, remedy, 1)
    seen: dict[str, int] = {}
    for n, name in enumerate(columns, 1):
        before = seen.setdefault(name, n)
        if before != n:
            raise data_error(
                path,
                f"columns {before} and {n} are both called {quote_field(name)}",
                "rename one of them",
                1,
            )
        if not name and n > 1:  # the first one is missing in tables saved with their index
            raise data_error(path, f"column {n} has no name", "give it one, or remove it", 1)


def check_unique_names(read: Sheet) -> Sheet:
    """Reject a line without a name, and a second line with the same name."""
    what = quote_field(read.columns[0]) if read.columns[0] else "the name"
    seen: dict[str, int] = {}
    for row, name in enumerate(read.names):
        if not name:
            raise data_error(read.path, f"{what} is blank", "fill it in", read.place(row))
        before = seen.setdefault(name, row)
        if before != row:
            first = read.place(before)
            first = f"line {first}" if isinstance(first, int) else first
            raise data_error(
                read.path,
                f"{what} is {quote_field(name)}, as in {first}",
                "keep one of them; each line needs its own id or name in the first column",
                read.place(row),
            )
    return read


def parse_decimal(field: str) -> float | None:
    """A finite decimal number, None if a field holds something else.

    >>> parse_decimal("-.5e1"), parse_decimal("nan"), parse_decimal("1,5"), parse_decimal("")
    (-5.0, None, None, None)
    """
    value = float(field) if DECIMAL_NUMBER.fullmatch(field) else math.inf
    return value if math.isfinite(value) else None


def suggest_decimal(field: str) -> str | None:
    """The remedy for a number with a decimal comma or in per cent; None for other fields.

    >>> suggest_decimal("0,5"), suggest_decimal("4 %"), suggest_decimal("many")
    ('write 0.5: decimals have a point', 'write 0.04 for 4 %', None)
    """
    percent = parse_decimal(field.removesuffix("%").strip()) if field.endswith("%") else None
    if percent is not None:
        return f"write {percent / 100:g} for {field}"
    decimal = field.replace(",", ".", 1)
    return None if parse_decimal(decimal) is None else f"write {decimal}: decimals have a point"


def open_sheet(path: Path) -> Sheet:
    """Read text, or Parquet (*.parquet): nulls and NaN become blanks, True and False 1 and 0."""
    if path.suffix.lower() != ".parquet":
        return read_sheet(path)
    table = load_parquet(path, "CSV")
    check_columns(path, table.columns)
    if not len(table):
        raise data_error(path, "no rows", "give a table with at least one row")
    fields = [[format_field(value) for value in row] for row in table.rows()]
    return check_unique_names(Sheet(path, tuple(table.columns), fields, text=False))


def import_polars(path: Path, other: str) -> Any:
    """The package polars; `other` is the format that needs no package."""
    try:
        import polars
    except ModuleNotFoundError:
        raise data_error(
            path,
            "a Parquet file needs polars",
            f"{install_command('reproduce')}, or save it as {other}",
        ) from None
    return polars


def load_parquet(path: Path, other: str) -> Any:
    pl = import_polars(path, other)
    if not path.is_file():
        raise data_error(path, "no such file", "give the path of an existing file")
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise data_error(
            path,
            f"is not a Parquet file ({' '.join(str(error).split())})",
            f"write it again, or save it as {other}",
        ) from None


def format_field(value: object) -> str:
    """A value as it would be written in a CSV file.

    >>> [format_field(value) for value in (True, 0.25, 7, None, math.nan, " a")]
    ['1', '0.25', '7', '', '', 'a']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value).strip()
