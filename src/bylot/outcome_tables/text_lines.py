"""Text files with one entry per line, in UTF-8; the lines may end in either way."""

import csv
import re
from collections.abc import Iterable
from pathlib import Path

from bylot.errors import DataError, LocatedError

MAX_LISTED_LINES = 5  # in a message


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
        remedy = "give the path of an existing file"
        raise error("no such file", path=path, remedy=remedy) from None
    except IsADirectoryError:
        raise error("is a directory", path=path, remedy="give the path of a file in it") from None
    except OSError as reason:
        what = f"cannot be read ({reason.strerror})"
        raise error(what, path=path, remedy="make it readable") from None
    if 0 <= largest < len(content):
        raise error(f"has more than {largest:,} bytes", path=path, remedy=shrink)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        line = content.count(b"\n", 0, reason.start) + 1
        remedy = "save the file as UTF-8"
        raise error("not UTF-8 text", path=path, line=line, remedy=remedy) from None


def read_text_lines(path: Path, largest: int = -1) -> list[str]:
    """The lines of a text file, without their ends and without blank lines at its end."""
    text = read_text(path, largest)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise data_error(path, "contains a zero byte", "save the file as plain text", line)
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise data_error(path, "empty file", "give a file with one line per entry")
    return lines


def split_at_tabs(line: str) -> list[str]:
    """Fields between tabs, without the spaces around them."""
    return [field.strip() for field in line.split("\t")]


def split_at_commas(line: str) -> list[str]:
    """Fields between commas, which may be quoted; none if the quotes do not match."""
    if '"' not in line:
        return [field.strip() for field in line.split(",")]
    try:
        (fields,) = csv.reader([line], skipinitialspace=True, strict=True)
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


WHOLE_NUMBER = re.compile("-?[0-9]{1,18}", re.ASCII)


def sort_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """The different ids, sorted as numbers if all are whole numbers, else as text.

    >>> sort_ids(["10", "9", "10"]), sort_ids(["10", "9", "a"])
    (('9', '10'), ('10', '9', 'a'))
    """
    different = set(ids)
    if all(WHOLE_NUMBER.fullmatch(name) for name in different):
        return tuple(sorted(different, key=lambda name: (int(name), name)))  # "7", "07": two
    return tuple(sorted(different))
