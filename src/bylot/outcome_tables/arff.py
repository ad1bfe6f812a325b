"""ARFF files: a header of attributes, then comma-separated data, as Weka and ASlib write them."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bylot.errors import DataError
from bylot.outcome_tables.sheets import data_error, parse_decimal, quote_field, read_text, shorten
from bylot.problem.validation import suggest_known_name

ATTRIBUTE = re.compile(
    r"@attribute\s+(?:'([^']+)'|\"([^\"]+)\"|(\S+))\s+(\{.*\}|\S+)\s*$", re.IGNORECASE
)
FIELD = re.compile(
    r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^,'"\s][^,]*?|))\s*(?:,|$)"""
)
MISSING = "?"
SPLIT_REMEDY = "separate fields by commas, and put quotes around a field that has a comma"


class ArffTable(NamedTuple):
    """The rows of an ARFF file; None where a value is missing."""

    path: Path
    attributes: tuple[str, ...]
    rows: list[list[str | None]]
    lines: list[int]  # the line of each row, from 1

    def place(self, attribute: str) -> int:
        """The position of an attribute."""
        if attribute not in self.attributes:
            raise data_error(
                self.path,
                f"no attribute {quote_field(attribute)}",
                suggest_known_name(attribute, self.attributes, "attributes"),
            )
        return self.attributes.index(attribute)

    def texts(self, attribute: str) -> list[str]:
        """The value of an attribute in every row; none is missing."""
        place, found = self.place(attribute), []
        for row, line in zip(self.rows, self.lines, strict=True):
            value = row[place]
            if not value:
                raise data_error(self.path, f"{attribute} is missing", "fill it in", line)
            found.append(value)
        return found

    def numbers(self, attribute: str) -> Iterator[float]:
        """The value of a numeric attribute in every row; NaN if it is missing."""
        place = self.place(attribute)
        for row, line in zip(self.rows, self.lines, strict=True):
            text = row[place]
            value = math.nan if text is None else parse_decimal(text)
            if value is None:
                got, where = shorten(str(text)), {"path": self.path, "line": line}
                raise DataError(attribute, got=got, expected="a number, or ? if missing", **where)
            yield value


def read_arff(path: Path) -> ArffTable:
    """Read an ARFF file; names of attributes are in lower case, sparse rows are refused."""
    attributes: list[str] = []
    rows: list[list[str | None]] = []
    lines: list[int] = []
    in_data = False
    for number, text in enumerate(read_text(path).splitlines(), 1):
        line = text.strip()
        if not line or line.startswith("%"):
            continue
        if in_data:
            rows.append(split_arff_row(path, number, line, len(attributes)))
            lines.append(number)
        elif line.lower().startswith("@data"):
            in_data = True
        elif line.lower().startswith("@attribute"):
            attributes.append(parse_attribute(path, number, line, attributes))
        elif not line.lower().startswith("@relation"):
            raise data_error(
                path,
                f"{quote_field(line)} is no header of an ARFF file",
                "begin with @RELATION, then one @ATTRIBUTE NAME TYPE a line, then @DATA",
                number,
            )
    if not in_data:
        raise data_error(path, "no @DATA", "add it after the attributes, and the rows after it")
    if not rows:
        raise data_error(path, "no rows after @DATA", "add at least one")
    return ArffTable(path, tuple(attributes), rows, lines)


def parse_attribute(path: Path, number: int, line: str, known: list[str]) -> str:
    """The name of an attribute, of which the file has one only."""
    found = ATTRIBUTE.match(line)
    if found is None:
        raise data_error(
            path,
            f"{quote_field(line)} is no attribute",
            "write @ATTRIBUTE NAME TYPE, with quotes around a name that has spaces",
            number,
        )
    name = next(part for part in found.groups()[:3] if part is not None).lower()
    if name in known:
        raise data_error(
            path, f"a second attribute {quote_field(name)}", "rename or remove one of them", number
        )
    return name


def split_arff_row(path: Path, number: int, line: str, count: int) -> list[str | None]:
    r"""The fields of a row; quotes are removed, and an unquoted ? is a missing value.

    >>> split_arff_row(Path("a.arff"), 9, r"a, 'it\'s, b', ?, '?', o'neil", 5)
    ['a', "it's, b", None, '?', "o'neil"]
    """
    if line.startswith("{"):
        raise data_error(path, "a sparse row", "write all fields of it", number)
    fields: list[str | None] = []
    if "'" not in line and '"' not in line:
        fields = [None if part.strip() == MISSING else part.strip() for part in line.split(",")]
    else:
        at = 0
        while at <= len(line):
            part = FIELD.match(line, at)
            if part is None:
                raise data_error(path, "quotes do not match", SPLIT_REMEDY, number)
            single, double, bare = part.groups()
            quoted = single if single is not None else double
            if quoted is not None:
                fields.append(re.sub(r"\\(.)", r"\1", quoted))
            else:
                fields.append(None if bare == MISSING else bare)
            if not part.group().endswith(","):
                break
            at = part.end()
    if len(fields) != count:
        raise data_error(
            path, f"{len(fields)} fields, and the file has {count} attributes", SPLIT_REMEDY, number
        )
    return fields
