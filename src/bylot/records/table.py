"""The table of records: a row a cell, from rows of scalars and arrays, the same bytes every time.

What the columns mean is the experiments' to say; where the table is kept, the store's.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bylot.errors import BylotError
from bylot.extras import install

try:
    import polars as pl
except ModuleNotFoundError:
    raise BylotError(f"records need polars: {install('reproduce')}") from None

SCHEMA = pl.Schema(
    {
        **dict.fromkeys(["cell", "experiment", "environment", "level", "policy"], pl.String()),
        **dict.fromkeys(["dimensions", "seed", "period"], pl.Int64()),
        **dict.fromkeys(["reward", "reward_late", "workload", "expert"], pl.Float64()),
        **dict.fromkeys(["workload_bound", "expert_bound", "outside", "r2"], pl.Float64()),
        "feasible": pl.Boolean(),
        **dict.fromkeys(["optimum", "optimum_gap", "optimum_spread", "uniform"], pl.Float64()),
        **dict.fromkeys(["regret_true", "regret_proxy", "r1_bound", "r2_bound"], pl.Float64()),
        **dict.fromkeys(["replaced", "periods", "bad_periods"], pl.Int64()),
        "refused": pl.String(),
        "size": pl.Int64(),
        **dict.fromkeys(["mixture", "mixture_gap"], pl.Float64()),
        "told": pl.Boolean(),
        "micros": pl.Float64(),
        "curve_t": pl.List(pl.Int64()),
        **dict.fromkeys(["curve_reward", "curve_workload", "curve_expert"], pl.List(pl.Float64())),
        **dict.fromkeys(["curve_r1_true", "curve_r1_proxy", "curve_r2"], pl.List(pl.Float64())),
    }
)

TIMED = "micros"
"""The one column that a clock has measured, and not the cell decides."""

Table = pl.DataFrame

Row = Mapping[str, Any]
"""A value for every column: a string or number, an array where the column is a list, or None."""


@dataclass(frozen=True)
class Records:
    """The cells of a run, sorted by name, and the settings they were run with."""

    cells: Table
    run: dict[str, Any]


def table(rows: Sequence[Row]) -> Table:
    """Rows as a table, built by columns."""
    for row in rows:
        if row.keys() != SCHEMA.keys():
            wrong = sorted(row.keys() ^ SCHEMA.keys())
            raise BylotError(f"a row must have the columns of SCHEMA; look at {wrong}")
    return pl.DataFrame(
        [column(name, kind, [row[name] for row in rows]) for name, kind in SCHEMA.items()]
    )


def column(name: str, kind: pl.DataType, values: Sequence[Any]) -> pl.Series:
    """One column; None becomes null."""
    if not isinstance(kind, pl.List):
        return pl.Series(name, values, dtype=kind)
    arrays = [np.asarray(value) for value in values if value is not None]
    if not arrays:
        return pl.Series(name, [None] * len(values), dtype=kind)
    flat = pl.Series(np.concatenate(arrays), dtype=kind.inner)
    start, lists = 0, []
    for value in values:
        lists.append(None if value is None else flat.slice(start, len(value)))
        start += 0 if value is None else len(value)
    return pl.Series(name, lists)  # told the type, polars would copy element by element


def joined(tables: Sequence[Table]) -> Table:
    """All cells of some tables once, sorted; one that comes twice must be the same both times."""
    cells = pl.concat([SCHEMA.to_frame(), *tables])
    twice = cells.filter(pl.col("cell").is_duplicated()).partition_by("cell", as_dict=True)
    for (cell,), copies in twice.items():
        same = copies.drop(TIMED)
        if any(not same[i].equals(same[0]) for i in range(1, len(same))):
            raise BylotError(
                f"cell {cell} was recorded twice, with different results: it should depend on its "
                "name alone; start afresh with --fresh, and if it happens again, report it"
            )
    return cells.unique("cell", keep="first").sort("cell").rechunk()


def packed(cells: Table, compression: Any) -> bytes:
    """The bytes of a parquet file."""
    file = io.BytesIO()
    cells.write_parquet(file, compression=compression, row_group_size=1_000)
    return file.getvalue()


def unpacked(content: bytes) -> Table | None:
    """The table in a parquet file, None if it is damaged or not ours."""
    try:
        cells = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    return cells if cells.schema == SCHEMA else None
