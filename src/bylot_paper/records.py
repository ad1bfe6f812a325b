"""The records of a run: one table, and the folder that it is written to and read from.

A run folder holds settings (run.json), one table (records.parquet) and, of an unfinished run, parts
that are not merged into the table yet. A process that is killed at any moment leaves a folder that
the next one can resume.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from bylot._atomic_write import PARTIAL_FILE_SUFFIX, explain_write_errors, save_file, sync_folder
from bylot._text import print_progress
from bylot.errors import BylotError
from bylot.numerics.compile_cache import PACKAGE_FOLDER, list_sources

RUN_FORMAT, RUN_FORMAT_VERSION = "bylot-run", 5
PART_FILE_NAME = re.compile(r".+-[0-9a-f]{12}\.parquet")
RECORD_SCHEMA = pl.Schema(
    {
        **dict.fromkeys(["cell", "experiment", "environment", "level", "policy"], pl.String()),
        **dict.fromkeys(["dimensions", "seed", "period"], pl.Int64()),
        **dict.fromkeys(["reward", "reward_late", "reward_250", "reward_1000"], pl.Float64()),
        **dict.fromkeys(["workload", "expert"], pl.Float64()),
        **dict.fromkeys(["workload_bound", "expert_bound", "outside", "r2"], pl.Float64()),
        "feasible": pl.Boolean(),
        **dict.fromkeys(["optimum", "optimum_gap", "optimum_spread", "uniform"], pl.Float64()),
        **dict.fromkeys(["regret_true", "regret_proxy", "r1_bound", "r2_bound"], pl.Float64()),
        **dict.fromkeys(["replaced", "periods", "bad_periods"], pl.Int64()),
        "refused": pl.String(),
        "size": pl.Int64(),
        **dict.fromkeys(["mixture", "mixture_gap", "mixture_by_context"], pl.Float64()),
        "propensities": pl.Boolean(),
        "micros": pl.Float64(),
        "curve_t": pl.List(pl.Int64()),
        **dict.fromkeys(["curve_reward", "curve_workload", "curve_expert"], pl.List(pl.Float64())),
        **dict.fromkeys(["curve_r1_true", "curve_r1_proxy", "curve_r2"], pl.List(pl.Float64())),
    }
)
CellRecord = dict[str, Any]  # the columns of one cell

RUN_OUTPUTS = (
    *("report.md", "report.html", "summary.json", "claims.json", "beyond.json"),
    *("default.json", "figures"),
)
"""Files and folders that reports write into the folder of a run."""

RECORD_SOURCES = (
    *("bylot/environments", "bylot/harness.py", "bylot/limits", "bylot/metrics.py"),
    *("bylot/numerics", "bylot/optima", "bylot/outcome_tables", "bylot/policies", "bylot/problem"),
    *("bylot/simulation.py", "bylot/theory.py", "bylot_paper/crowd.py"),
    *("bylot_paper/crowd_sources.py", "bylot_paper/grid.py"),
    *("bylot_paper/policies", "bylot_paper/run.py", "bylot_paper/scenarios.py"),
)
"""The sources that determine records; a run can be resumed if others change."""


@dataclass(frozen=True)
class Records:
    """The cells of a run, sorted by id, and the settings of the run."""

    cells: pl.DataFrame
    run: dict[str, Any]


def build_record_table(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Build a table from rows of all columns: a string, a number, an array for a list, or None."""
    for row in rows:
        if wrong := sorted(row.keys() ^ RECORD_SCHEMA.keys()):
            raise BylotError("row", got=wrong, expected="the columns of RECORD_SCHEMA")
    return pl.DataFrame(rows, schema=RECORD_SCHEMA)


def join_tables(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Join tables and sort by cell; a cell that occurs twice must be equal both times."""
    cells = pl.concat([RECORD_SCHEMA.to_frame(), *tables])
    twice = cells.filter(pl.col("cell").is_duplicated()).partition_by("cell", as_dict=True)
    for (cell,), copies in twice.items():
        copies = copies.drop("micros")  # measured by a clock, and not determined by the cell
        if any(not copies[i].equals(copies[0]) for i in range(1, len(copies))):
            raise BylotError(
                f"cell {cell} was recorded twice with different results, although its id fixes "
                "everything",
                remedy="start again with --fresh, and report it if it happens again",
            )
    return cells.unique("cell", keep="first").sort("cell").rechunk()


def encode_parquet(cells: pl.DataFrame, compression: Any) -> bytes:
    file = io.BytesIO()
    cells.write_parquet(file, compression=compression, row_group_size=1_000)
    return file.getvalue()


def decode_parquet(content: bytes) -> pl.DataFrame | None:
    """The table in a parquet file; None if it is damaged or has another schema."""
    try:
        cells = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    return cells if cells.schema == RECORD_SCHEMA else None


def format_checksum_line(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}  records.parquet"


def name_part_file(name: str, content: bytes) -> str:
    """A file name that contains the checksum of the content.

    >>> name_part_file("regime/seed=07", b"...")
    'regime+seed=07-ab5df625bc76.parquet'
    """
    return f"{name.replace('/', '+')}-{hashlib.sha256(content).hexdigest()[:12]}.parquet"


def read_part(path: Path) -> pl.DataFrame | None:
    """Read the cells of a part; None if it is damaged, no cells if it has just been merged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return RECORD_SCHEMA.to_frame()
    except OSError:
        return None
    name = path.name.rpartition("-")[0]
    return decode_parquet(content) if path.name == name_part_file(name, content) else None


class RunFolder:
    """The files of a run: settings, table, the table's checksum in sha256sum's format, parts."""

    def __init__(self, path: Path) -> None:
        self.path, self.parts = path, path / "parts"
        self.manifest, self.table = path / "run.json", path / "records.parquet"
        self.checksum = path / "records.sha256"

    def list_parts(self) -> list[Path]:
        """The parts that are not merged yet; other files are ignored."""
        return sorted(
            path for path in self.parts.glob("*.parquet") if PART_FILE_NAME.fullmatch(path.name)
        )

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

    def read_tables(self) -> Iterator[pl.DataFrame]:
        """Read everything recorded.

        The table is read last, because a merge writes it before deleting the parts.
        """
        for path in self.list_parts():
            part = read_part(path)
            if part is None:
                self.pass_over(path)
            else:
                yield part
        yield from self.read_table()

    def pass_over(self, part: Path) -> None:
        """Say that a part is damaged."""
        print_progress(f"bylot: skipping damaged part {part}")

    def read_table(self) -> list[pl.DataFrame]:
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
        try:
            sums = self.checksum.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            sums = [format_checksum_line(content)]
        cells = decode_parquet(content) if format_checksum_line(content) in sums else None
        if cells is None:
            raise BylotError(
                f"{self.table} is damaged or was not written by bylot",
                remedy="restore it from a copy, or delete it and run again to recompute its cells",
            )
        return [cells]


def read_records(folder: Path) -> Records:
    """Read the records of a run, finished or not, without writing anything."""
    run_folder = RunFolder(folder)
    run = run_folder.read_manifest()
    if run is None:
        raise BylotError(
            f"{folder} {'has no run.json' if folder.is_dir() else 'is not a folder'}",
            remedy=f"run `bylot reproduce --out {folder}`",
        )
    return Records(join_tables(list(run_folder.read_tables())), run)


class RecordStore(RunFolder):
    """The records of one run in a folder that no other process writes to meanwhile.

    run: the settings that all records share; a folder with other settings is refused
    fresh: delete the records in the folder first; only files that a store wrote are deleted
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], fresh: bool = False) -> None:
        super().__init__(folder)
        self.run = dict(run)
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.lock = lock_folder(folder / ".lock")
        try:
            self.prepare_folder(fresh)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock. Its file stays: deleting it would race with the next process."""
        os.ftruncate(self.lock, 0)
        os.close(self.lock)

    def prepare_folder(self, fresh: bool) -> None:
        """Start a run in the folder, or resume the one in it."""
        other = "give another --out"
        found = self.read_manifest()
        if found is None:
            if self.table.exists() or self.parts.exists():
                raise BylotError(f"{self.path} has records but no run.json", remedy=other)
            for name in RUN_OUTPUTS:
                if (self.path / name).exists():
                    raise BylotError(
                        f"{self.path} has a {name} that was not written by a run there",
                        remedy=other,
                    )
        with explain_write_errors(self.path):
            if found is not None and fresh:
                damaged = self.parts.glob("*.parquet.damaged")
                for path in [*self.list_parts(), *damaged, self.table, self.checksum]:
                    path.unlink(missing_ok=True)
                self.manifest.unlink()  # last, so that it describes whatever is left
                found = None
            if found is not None and found != self.run:
                changes = ", ".join(list_changes(found, self.run))
                raise BylotError(
                    f"{self.path} has a run with other settings: {changes}",
                    remedy=f"{other}, or --fresh to delete its records",
                )
            for folder in (self.path, self.parts):
                for path in folder.glob(f".*{PARTIAL_FILE_SUFFIX}"):  # of a killed process
                    path.unlink()
        if found is None:
            save_file(self.manifest, f"{json.dumps(self.run, indent=2, sort_keys=True)}\n".encode())

    def list_known_cells(self) -> set[str]:
        """The ids of the cells that need not be computed."""
        return {cell for cells in self.read_tables() for cell in cells["cell"]}

    def pass_over(self, part: Path) -> None:
        """Rename a damaged part, so that its cells count as missing."""
        with explain_write_errors(part):
            part.rename(part.with_name(f"{part.name}.damaged"))
        print_progress(f"bylot: renamed damaged part {part}; its cells count as missing")

    def add(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Record the cells of one job, all or none."""
        content = encode_parquet(build_record_table(rows), "uncompressed")
        with explain_write_errors(self.path):
            self.parts.mkdir(exist_ok=True)
        save_file(self.parts / name_part_file(name, content), content)

    def merge(self) -> Records:
        """Merge all parts into the table, whose bytes depend on its cells only."""
        parts = self.list_parts()
        cells = join_tables(list(self.read_tables()))
        if parts or not self.table.exists():
            content = encode_parquet(cells, "zstd")
            old = self.checksum.read_text(encoding="utf-8") if self.checksum.exists() else ""
            save_file(self.checksum, f"{format_checksum_line(content)}\n{old}".encode())
            save_file(self.table, content)  # meanwhile the checksum file lists both tables
            save_file(self.checksum, f"{format_checksum_line(content)}\n".encode())
        with explain_write_errors(self.path):
            if os.name == "posix":  # before the parts are deleted
                sync_folder(self.path)
            for path in parts:
                path.unlink(missing_ok=True)  # a damaged one was renamed
            with contextlib.suppress(OSError):  # damaged parts stay
                self.parts.rmdir()
        return Records(cells, self.run)


def lock_folder(path: Path) -> int:
    """Lock this file until the process ends or closes it; raise if another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, 1_000, os.SEEK_SET)  # locked bytes cannot be read: not the text
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = os.read(descriptor, 200).decode(errors="replace") or "another process"
        os.close(descriptor)
        raise BylotError(
            f"{path.parent} is in use by {holder}", remedy="wait for it, or give another --out"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return descriptor


def list_changes(found: Mapping[str, Any], wanted: Mapping[str, Any], of: str = "") -> list[str]:
    """Describe the differences between two settings.

    >>> a, b = {"rounds": 9, "data": {"name": "a"}}, {"rounds": 8, "data": {"name": "b"}}
    >>> list_changes(a, b)
    ["data name 'a' (now 'b')", 'rounds 9 (now 8)']
    """
    lines = []
    for key in sorted({*found, *wanted}):
        one, other = found.get(key), wanted.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            lines += list_changes(one, other, f"{of}{key} ")
        elif one != other:
            was, now = (
                text if len(text) <= 24 else f"{text[:13]}...{text[-1]}"  # such as digests
                for text in (repr(one), repr(other))
            )
            lines.append(f"{of}{key} {was} (now {now})")
    return lines


def code_digest(source: Path = PACKAGE_FOLDER.parent) -> str:
    """Digest of the names and contents of RECORD_SOURCES, wherever they are installed."""
    digest = hashlib.sha256()
    for path in list_sources(source, RECORD_SOURCES):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(source).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
