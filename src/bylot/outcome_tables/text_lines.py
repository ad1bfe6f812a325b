"""Lines of a text file cut into named fields; what the fields mean is left to the reader of them.

A file may be separated by tabs, commas (quotes as spreadsheets write them) or blanks, end its lines
in either way, begin with a byte order mark and end with blank lines. A blank line elsewhere, a
missing, spare or empty field is malformed, and no malformed line is ever passed over.
"""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bylot.errors import DataError, LocatedError

MAX_LISTED_LINES = 5  # malformed lines that a message lists; the others are counted

COLUMN_WORDS = {
    "task": {"task", "item", "question", "object", "document", "example", "instance", "sample"},
    "worker": {"worker", "annotator", "user", "rater", "judge", "labeler", "labeller", "assessor"},
    "label": {"label", "answer", "response", "truth", "gold", "class", "category", "judgment"}
    | {"judgement", "vote", "truelabel", "goldlabel", "groundtruth", "workerlabel"},
}
"""What columns are called in a header: letters only, in lower case, without a final "id"."""


class FieldRows(NamedTuple):
    """The data lines of one file, each with its fields in the order that was asked for."""

    path: Path
    fields: list[tuple[str, ...]]
    header: bool  # was line 1 a header?

    def line(self, row: int) -> int:
        """The number, from 1, of a row's line in the file."""
        return row + 1 + self.header


def read_field_rows(path: Path, columns: Sequence[str]) -> FieldRows:
    """Every line of a file as one field for each of the columns."""
    lines = read_text_lines(path)
    split = guess_separator(lines, len(columns))
    cut = [split(line) for line in lines]
    bad = [n for n, fields in enumerate(cut, 1) if len(fields) != len(columns) or "" in fields]
    if bad:
        raise malformed_lines_error(path, bad, len(lines), columns)
    order = find_header(path, cut, columns)
    if order is None:
        return FieldRows(path, [tuple(fields) for fields in cut], False)
    return FieldRows(path, [tuple(fields[i] for i in order) for fields in cut[1:]], True)


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


def guess_separator(lines: list[str], wanted: int) -> Callable[[str], list[str]]:
    """The way of cutting that gives most lines the wanted number of fields; tabs first in a tie."""
    ways = (split_at_tabs, split_at_commas, split_at_blanks)
    return max(ways, key=lambda way: sum(len(way(line)) == wanted for line in lines))


def split_at_tabs(line: str) -> list[str]:
    """Fields between tabs; blanks about them do not count."""
    return [field.strip() for field in line.split("\t")]


def split_at_commas(line: str) -> list[str]:
    """Fields between commas, which may be quoted; none at all if the quotes do not match."""
    if '"' not in line:
        return [field.strip() for field in line.split(",")]
    try:
        (fields,) = csv.reader([line], skipinitialspace=True, strict=True)
    except csv.Error:
        return []
    return [field.strip() for field in fields]


def split_at_blanks(line: str) -> list[str]:
    """Fields between any number of blanks and tabs."""
    return re.split("[ \t]+", line.strip(" \t"))


def find_header(path: Path, cut: list[list[str]], columns: Sequence[str]) -> list[int] | None:
    """Where each column stands according to line 1; None if line 1 is data.

    Line 1 is a header if it names every column once by a word we know, in any order. If its word
    for the task or for the label is met again in that column it may be data: that is an error, as
    a wrong guess would lose a line or make one up. (A worker may well be called "worker".)
    """
    meanings = [column_meaning(field) for field in cut[0]]
    if any(meanings.count(column) != 1 for column in columns):
        return None
    order = [meanings.index(column) for column in columns]
    for n, fields in enumerate(cut[1:], 2):
        for i in (order[0], order[-1]):
            if fields[i] == cut[0][i]:
                what = (
                    f"may be a header or data, as line {n} has {quote_field(fields[i])} there too"
                )
                raise data_error(path, what, "call that task or label otherwise", 1)
    return order


def column_meaning(field: str) -> str | None:
    """The column that a word of a header stands for.

    >>> column_meaning("Worker ID"), column_meaning("true_label"), column_meaning("w17")
    ('worker', 'label', None)
    """
    word = re.sub("[^a-z]", "", field.lower()).removesuffix("id")
    return next((column for column, words in COLUMN_WORDS.items() if word in words), None)


def malformed_lines_error(
    path: Path, bad: list[int], total: int, columns: Sequence[str]
) -> DataError:
    """The error for lines that have not one field for each column."""
    what = (
        f"{describe_lines(bad, total)} do not hold the {len(columns)} fields {', '.join(columns)}"
    )
    return data_error(
        path, what, "correct or remove them; fields lie between tabs, commas or blanks"
    )


def describe_lines(bad: list[int], total: int) -> str:
    """How many lines, and the first of them.

    >>> describe_lines([2, 7], total=9)
    '2 of 9 lines (line 2, 7)'
    """
    listed = ", ".join(map(str, bad[:MAX_LISTED_LINES])) + (
        ", ..." if len(bad) > MAX_LISTED_LINES else ""
    )
    return f"{len(bad)} of {total} lines (line {listed})"


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
    """Different ids in their order: that of numbers if all are whole numbers, else of text.

    >>> sort_ids(["10", "9", "10"]), sort_ids(["10", "9", "a"])
    (('9', '10'), ('10', '9', 'a'))
    """
    different = set(ids)
    if all(WHOLE_NUMBER.fullmatch(name) for name in different):
        return tuple(sorted(different, key=lambda name: (int(name), name)))  # "7", "07": two
    return tuple(sorted(different))
