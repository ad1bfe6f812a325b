"""The records of a run: one table, and the folder it is read from.

A run folder holds settings (run.json), one table (records.parquet) and, of an unfinished run, parts
that are not merged into the table yet. `run_store` writes it.
"""

import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bylot._atomic_write import save_file
from bylot._text import print_progress
from bylot.errors import BylotError

RUN_FORMAT, RUN_FORMAT_VERSION = "bylot-run", 4
PART_FILE_NAME = re.compile(r".+-[0-9a-f]{12}\.parquet")
RECORD_SCHEMA = pl.Schema(
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
        "propensities": pl.Boolean(),
        "micros": pl.Float64(),
        "curve_t": pl.List(pl.Int64()),
        **dict.fromkeys(["curve_reward", "curve_workload", "curve_expert"], pl.List(pl.Float64())),
        **dict.fromkeys(["curve_r1_true", "curve_r1_proxy", "curve_r2"], pl.List(pl.Float64())),
    }
)
TIMED_COLUMN = "micros"
"""The one column that is measured by a clock and not determined by the cell."""

RecordTable = pl.DataFrame
RecordRow = Mapping[str, Any]
"""A value for every column: a string or number, an array where the column is a list, or None."""


@dataclass(frozen=True)
class Records:
    """The cells of a run, sorted by id, and the settings of the run."""

    cells: RecordTable
    run: dict[str, Any]


def build_record_table(rows: Sequence[RecordRow]) -> RecordTable:
    """Build a table from rows, column by column."""
    for row in rows:
        if row.keys() != RECORD_SCHEMA.keys():
            wrong = sorted(row.keys() ^ RECORD_SCHEMA.keys())
            raise BylotError("row", got=wrong, expected="the columns of RECORD_SCHEMA")
    return pl.DataFrame(
        [
            build_column(name, kind, [row[name] for row in rows])
            for name, kind in RECORD_SCHEMA.items()
        ]
    )


def build_column(name: str, kind: pl.DataType, values: Sequence[Any]) -> pl.Series:
    """Build one column; None becomes null."""
    if isinstance(kind, pl.List):
        values = [None if x is None else pl.Series(x, dtype=kind.inner) for x in values]
    return pl.Series(name, values, dtype=kind)


def join_tables(tables: Sequence[RecordTable]) -> RecordTable:
    """Join tables and sort by cell; a cell that occurs twice must be equal both times."""
    cells = pl.concat([RECORD_SCHEMA.to_frame(), *tables])
    twice = cells.filter(pl.col("cell").is_duplicated()).partition_by("cell", as_dict=True)
    for (cell,), copies in twice.items():
        copies = copies.drop(TIMED_COLUMN)
        if any(not copies[i].equals(copies[0]) for i in range(1, len(copies))):
            raise BylotError(
                f"cell {cell} was recorded twice with different results, although its id fixes "
                "everything",
                remedy="start again with --fresh, and report it if it happens again",
            )
    return cells.unique("cell", keep="first").sort("cell").rechunk()


def encode_parquet(cells: RecordTable, compression: Any) -> bytes:
    """The bytes of a parquet file."""
    file = io.BytesIO()
    cells.write_parquet(file, compression=compression, row_group_size=1_000)
    return file.getvalue()


def decode_parquet(content: bytes) -> RecordTable | None:
    """The table in a parquet file; None if it is damaged or has another schema."""
    try:
        cells = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    return cells if cells.schema == RECORD_SCHEMA else None


def read_records(folder: Path) -> Records:
    """Read the records of a run, finished or not, without writing anything.

    The table is read last, because a merge writes it before deleting the parts.
    """
    run_folder = RunFolder(folder)
    run = run_folder.read_manifest()
    if run is None:
        what = "has no run.json" if folder.is_dir() else "is not a folder"
        raise BylotError(f"{folder} {what}", remedy=f"run `bylot reproduce --out {folder}`")
    parts = []
    for path in run_folder.list_parts():
        part = read_part(path)
        if part is None:
            print_progress(f"bylot: skipping damaged part {path}")
        else:
            parts.append(part)
    return Records(join_tables([*parts, *run_folder.read_table()]), run)


class RunFolder:
    """The files of a run: settings, table, the table's checksum in sha256sum's format, parts."""

    def __init__(self, path: Path) -> None:
        self.path, self.parts = path, path / "parts"
        self.manifest, self.table = path / "run.json", path / "records.parquet"
        self.checksum = path / "records.sha256"

    def list_parts(self) -> list[Path]:
        """The parts that are not merged yet; other files are ignored."""
        paths = self.parts.glob("*.parquet")
        return sorted(path for path in paths if PART_FILE_NAME.fullmatch(path.name))

    def read_manifest(self) -> dict[str, Any] | None:
        """Read the settings; None if there are none."""
        other = "give another --out"
        try:
            data = json.loads(self.manifest.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise BylotError(
                f"cannot read {self.manifest}: {error}", remedy=f"{other}, or delete that folder"
            ) from None
        if not isinstance(data, dict) or data.get("form") != RUN_FORMAT:
            raise BylotError(f"{self.manifest} is not from a bylot run", remedy=other)
        if data.get("version") != RUN_FORMAT_VERSION:
            raise BylotError(
                f"version of {self.manifest}",
                got=data.get("version"),
                expected=str(RUN_FORMAT_VERSION),
                remedy=f"use the bylot that wrote it, or {other}",
            )
        if not isinstance(data.get("data"), dict) or type(data.get("rounds")) is not int:
            raise BylotError(
                f"{self.manifest} lacks the settings of the run, so it was edited",
                remedy=f"restore it from a copy, or {other}",
            )
        return data

    def read_table(self) -> list[RecordTable]:
        """Read the table and check its checksum; an empty list if there is none."""
        try:
            content = self.table.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BylotError(
                f"cannot read {self.table}: {error.strerror}",
                remedy="delete it, or give another --out",
            ) from None
        cells = decode_parquet(content) if self.matches_checksum(content) else None
        if cells is None:
            raise BylotError(
                f"{self.table} is damaged or was not written by bylot",
                remedy="restore it from a copy, or delete it and run again to recompute its cells",
            )
        return [cells]

    def matches_checksum(self, content: bytes) -> bool:
        """Is this the table that was written? True if there is no checksum."""
        try:
            lines = self.checksum.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return True
        return format_checksum_line(content) in lines

    def replace_table(self, content: bytes) -> None:
        """Replace table and checksum; in between, the checksum file lists both tables."""
        old = self.checksum.read_text(encoding="utf-8") if self.checksum.exists() else ""
        save_file(self.checksum, f"{format_checksum_line(content)}\n{old}".encode())
        save_file(self.table, content)
        save_file(self.checksum, f"{format_checksum_line(content)}\n".encode())


def format_checksum_line(content: bytes) -> str:
    """A line of the checksum file."""
    return f"{hashlib.sha256(content).hexdigest()}  records.parquet"


def name_part_file(name: str, content: bytes) -> str:
    """A file name that contains the checksum of the content.

    >>> name_part_file("regime/seed=07", b"...")
    'regime+seed=07-ab5df625bc76.parquet'
    """
    return f"{name.replace('/', '+')}-{hashlib.sha256(content).hexdigest()[:12]}.parquet"


def read_part(path: Path) -> RecordTable | None:
    """Read the cells of a part; None if it is damaged, no cells if it has just been merged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return RECORD_SCHEMA.to_frame()
    except OSError:
        return None
    name = path.name.rpartition("-")[0]
    return decode_parquet(content) if path.name == name_part_file(name, content) else None
