"""The folder of a run, as it is read: settings, one table, and parts not yet merged into it."""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bylot._atomic_write import save_file
from bylot._text import print_progress
from bylot.errors import BylotError

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
        "told": pl.Boolean(),
        "micros": pl.Float64(),
        "curve_t": pl.List(pl.Int64()),
        **dict.fromkeys(["curve_reward", "curve_workload", "curve_expert"], pl.List(pl.Float64())),
        **dict.fromkeys(["curve_r1_true", "curve_r1_proxy", "curve_r2"], pl.List(pl.Float64())),
    }
)

TIMED_COLUMN = "micros"
"""The one column that a clock has measured, and not the cell decides."""

RecordTable = pl.DataFrame

RecordRow = Mapping[str, Any]
"""A value for every column: a string or number, an array where the column is a list, or None."""


@dataclass(frozen=True)
class Records:
    """The cells of a run, sorted by name, and the settings they were run with."""

    cells: RecordTable
    run: dict[str, Any]


def build_record_table(rows: Sequence[RecordRow]) -> RecordTable:
    """Rows as a table, built by columns."""
    for row in rows:
        if row.keys() != RECORD_SCHEMA.keys():
            wrong = sorted(row.keys() ^ RECORD_SCHEMA.keys())
            raise BylotError(f"a row must have the columns of SCHEMA; look at {wrong}")
    return pl.DataFrame(
        [
            build_column(name, kind, [row[name] for row in rows])
            for name, kind in RECORD_SCHEMA.items()
        ]
    )


def build_column(name: str, kind: pl.DataType, values: Sequence[Any]) -> pl.Series:
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


def join_tables(tables: Sequence[RecordTable]) -> RecordTable:
    """All cells of some tables once, sorted; one that comes twice must be the same both times."""
    cells = pl.concat([RECORD_SCHEMA.to_frame(), *tables])
    twice = cells.filter(pl.col("cell").is_duplicated()).partition_by("cell", as_dict=True)
    for (cell,), copies in twice.items():
        same = copies.drop(TIMED_COLUMN)
        if any(not same[i].equals(same[0]) for i in range(1, len(same))):
            raise BylotError(
                f"cell {cell} was recorded twice, with different results: it should depend on its "
                "name alone; start afresh with --fresh, and if it happens again, report it"
            )
    return cells.unique("cell", keep="first").sort("cell").rechunk()


def encode_parquet(cells: RecordTable, compression: Any) -> bytes:
    """The bytes of a parquet file."""
    file = io.BytesIO()
    cells.write_parquet(file, compression=compression, row_group_size=1_000)
    return file.getvalue()


def decode_parquet(content: bytes) -> RecordTable | None:
    """The table in a parquet file, None if it is damaged or not ours."""
    try:
        cells = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    return cells if cells.schema == RECORD_SCHEMA else None


RUN_FORMAT, RUN_FORMAT_VERSION = "bylot-run", 3
PART_FILE_NAME = re.compile(r".+-[0-9a-f]{12}\.parquet")


def read_records(folder: Path) -> Records:
    """The records in a folder, those of an unfinished run included; nothing is written.

    The table is read last: whoever merges meanwhile writes it before the parts go.
    """
    place = RunFolder(folder)
    run = place.run()
    if run is None:
        what = "holds no run (run.json)" if folder.is_dir() else "is not a folder"
        raise BylotError(f"{folder} {what}; make one with: bylot reproduce --out {folder}")
    parts = []
    for path in place.parts():
        part = read_part(path)
        if part is None:
            print_progress(f"bylot: {path} is damaged and was left out")
        else:
            parts.append(part)
    return Records(join_tables([*parts, *place.merged()]), run)


@dataclass(frozen=True)
class RunFolder:
    """Where everything of a run is."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The settings of the run."""
        return self.path / "run.json"

    @property
    def table(self) -> Path:
        """All merged records."""
        return self.path / "records.parquet"

    @property
    def seal(self) -> Path:
        """The digest of the table, in the form that sha256sum checks."""
        return self.path / "records.sha256"

    @property
    def crumbs(self) -> Path:
        """The folder of parts."""
        return self.path / "parts"

    def parts(self) -> list[Path]:
        """The files of records that were not merged yet; files of others are no part."""
        return sorted(
            path for path in self.crumbs.glob("*.parquet") if PART_FILE_NAME.fullmatch(path.name)
        )

    def run(self) -> dict[str, Any] | None:
        """The settings, None if there are none."""
        try:
            data = json.loads(self.manifest.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise BylotError(
                f"{self.manifest} cannot be read ({error}); give another --out, "
                "or remove that folder yourself"
            ) from None
        if not isinstance(data, dict) or data.get("form") != RUN_FORMAT:
            raise BylotError(f"{self.manifest} is not of a bylot run; give another --out")
        if data.get("version") != RUN_FORMAT_VERSION:
            raise BylotError(
                f"{self.manifest} has version {data.get('version')!r}, this bylot knows {RUN_FORMAT_VERSION}; "
                "use the bylot that wrote it, or give another --out"
            )
        facts = data.get("data")
        if not isinstance(facts, dict) or type(data.get("rounds")) is not int:
            raise BylotError(
                f"{self.manifest} does not say what was played, so somebody changed it; "
                "restore it from a copy, or give another --out"
            )
        return data

    def merged(self) -> Iterator[RecordTable]:
        """The table, if there is one."""
        try:
            content = self.table.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise BylotError(
                f"{self.table} cannot be read: {error.strerror}; remove it or give another --out"
            ) from None
        cells = decode_parquet(content) if self.sealed(content) else None
        if cells is None:
            raise BylotError(
                f"{self.table} is damaged or not ours; restore it from a copy, or remove it and "
                "run again to compute its cells anew"
            )
        yield cells

    def sealed(self, content: bytes) -> bool:
        """Is this the table that was written? Without a seal nobody can tell."""
        try:
            lines = self.seal.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return True
        return format_checksum_line(content) in lines

    def replace_table(self, content: bytes) -> None:
        """Another table under a seal; until both are changed the seal names the old one too."""
        old = self.seal.read_text(encoding="utf-8") if self.seal.exists() else ""
        save_file(self.seal, f"{format_checksum_line(content)}\n{old}".encode())
        save_file(self.table, content)
        save_file(self.seal, f"{format_checksum_line(content)}\n".encode())


def format_checksum_line(content: bytes) -> str:
    """A line of the seal."""
    return f"{hashlib.sha256(content).hexdigest()}  records.parquet"


def name_part_file(name: str, content: bytes) -> str:
    """A file name that tells whether the content is whole.

    >>> name_part_file("regime/seed=07", b"...")
    'regime+seed=07-ab5df625bc76.parquet'
    """
    return f"{name.replace('/', '+')}-{hashlib.sha256(content).hexdigest()[:12]}.parquet"


def read_part(path: Path) -> RecordTable | None:
    """The cells of a part, None if it is damaged; no cells if it was merged a moment ago."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return RECORD_SCHEMA.to_frame()
    except OSError:
        return None
    name = path.name.rpartition("-")[0]
    return decode_parquet(content) if path.name == name_part_file(name, content) else None
