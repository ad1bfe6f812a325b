"""Tables in Parquet, read as sheets, if polars is there; or else in text, as all other files."""

import math
from pathlib import Path
from typing import Any

from bylot.data.lines import fault
from bylot.data.sheet import Sheet, different, once, sheet
from bylot.extras import install


def opened(path: Path) -> Sheet:
    """The sheet in a file, by its name: *.parquet, or text."""
    return from_parquet(path) if path.suffix.lower() == ".parquet" else sheet(path)


def from_parquet(path: Path) -> Sheet:
    """The rows of a table; nulls and NaN are blanks, True and False 1 and 0."""
    table = loaded(path)
    different(path, table.columns)
    if not len(table):
        raise fault(path, "holds no rows", "give a table with entries")
    fields = [[written(value) for value in row] for row in table.rows()]
    return once(Sheet(path, tuple(table.columns), fields, text=False))


def loaded(path: Path) -> Any:
    """The table in a file."""
    try:
        import polars as pl
    except ModuleNotFoundError:
        remedy = f"{install('reproduce')}, or save it as CSV"
        raise fault(path, "is in Parquet, which needs polars", remedy) from None
    if not path.is_file():
        raise fault(path, "no such file", "give the path of a file that exists")
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = " ".join(str(error).split())
        what = f"cannot be read as Parquet ({reason})"
        raise fault(path, what, "write it anew, or save it as CSV") from None


def written(value: object) -> str:
    """A value as a field of a text file would have it.

    >>> written(True), written(0.25), written(7), written(None), written(math.nan), written(" a")
    ('1', '0.25', '7', '', '', 'a')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value).strip()
