"""Write the records of a run into a folder: parts as jobs finish, one table at the end.

A process that is killed at any moment leaves a folder that the next one can resume.
"""

import contextlib
import hashlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bylot._atomic_write import PARTIAL_FILE_SUFFIX, explain_write_errors, save_file
from bylot._text import print_progress
from bylot.errors import BylotError
from bylot.numerics.jit import PACKAGE_FOLDER, list_sources
from bylot_paper.records import (
    RecordRow,
    Records,
    RecordTable,
    RunFolder,
    build_record_table,
    encode_parquet,
    join_tables,
    name_part_file,
    read_part,
)

RUN_OUTPUTS = (
    *("report.md", "report.html", "summary.json", "claims.json", "beyond.json"),
    *("default.json", "figures"),
)
"""Files and folders that reports write into the folder of a run."""

RECORD_SOURCES = (
    *("bylot/environments", "bylot/harness.py", "bylot/metrics.py", "bylot/numerics"),
    *("bylot/optima", "bylot/outcome_tables", "bylot/policies", "bylot/problem"),
    *("bylot/simulation.py", "bylot/theory.py"),
    *("bylot_paper/crowd.py", "bylot_paper/crowd_files.py", "bylot_paper/crowd_scenario.py"),
    *("bylot_paper/crowd_sources.py", "bylot_paper/grid.py", "bylot_paper/outcome.py"),
    *("bylot_paper/policy_settings.py", "bylot_paper/run.py", "bylot_paper/scenarios.py"),
    "bylot_paper/trec.py",
)
"""The sources that determine records; a run can be resumed if others change."""


class RecordStore:
    """The records of one run in a folder that no other process writes to meanwhile.

    run: the settings that all records share; a folder with other settings is refused
    fresh: delete the records in the folder first; only files that a store wrote are deleted
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], fresh: bool = False) -> None:
        self.folder, self.run = RunFolder(folder), dict(run)
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
        folder, other = self.folder.path, "give another --out"
        found = self.folder.read_manifest()
        if found is None and (self.folder.table.exists() or self.folder.parts.exists()):
            raise BylotError(f"{folder} has records but no run.json", remedy=other)
        if found is None:
            for name in RUN_OUTPUTS:
                if (folder / name).exists():
                    what = f"{folder} has a {name} that was not written by a run there"
                    raise BylotError(what, remedy=other)
        if found is not None and fresh:
            self.delete_records()
            found = None
        if found is not None and found != self.run:
            changes = ", ".join(list_setting_differences(found, self.run))
            raise BylotError(
                f"{folder} has a run with other settings: {changes}",
                remedy=f"{other}, or --fresh to delete its records",
            )
        with explain_write_errors(folder):
            for place in (folder, self.folder.parts):
                for path in place.glob(f".*{PARTIAL_FILE_SUFFIX}"):  # of a killed process
                    path.unlink()
        if found is None:
            text = json.dumps(self.run, indent=2, sort_keys=True) + "\n"
            save_file(self.folder.manifest, text.encode())

    def delete_records(self) -> None:
        """Delete the records; the settings last, so that they describe whatever is left."""
        damaged = self.folder.parts.glob("*.parquet.damaged")
        with explain_write_errors(self.folder.path):
            for path in [*self.folder.list_parts(), *damaged]:
                path.unlink()
            self.folder.table.unlink(missing_ok=True)
            self.folder.checksum.unlink(missing_ok=True)
            self.folder.manifest.unlink()

    def list_known_cells(self) -> set[str]:
        """The ids of the cells that need not be computed."""
        return {cell for cells in self.read_tables() for cell in cells["cell"]}

    def read_tables(self) -> Iterator[RecordTable]:
        """Read everything recorded; a damaged part is renamed, so its cells count as missing."""
        yield from self.folder.read_table()
        for path in self.folder.list_parts():
            part = read_part(path)
            if part is not None:
                yield part
                continue
            with explain_write_errors(path):
                path.rename(path.with_name(f"{path.name}.damaged"))
            print_progress(f"bylot: renamed damaged part {path}; its cells count as missing")

    def add(self, name: str, rows: Sequence[RecordRow]) -> None:
        """Record the cells of one job, all or none."""
        content = encode_parquet(build_record_table(rows), "uncompressed")
        with explain_write_errors(self.folder.path):
            self.folder.parts.mkdir(exist_ok=True)
        save_file(self.folder.parts / name_part_file(name, content), content)

    def merge(self) -> Records:
        """Merge all parts into the table, whose bytes depend on its cells only."""
        parts = self.folder.list_parts()
        cells = join_tables(list(self.read_tables()))
        if parts or not self.folder.table.exists():
            self.folder.replace_table(encode_parquet(cells, "zstd"))
        with explain_write_errors(self.folder.path):
            sync_folder(self.folder.path)  # before the parts are deleted
            for path in parts:
                path.unlink(missing_ok=True)  # a damaged one was renamed
            with contextlib.suppress(OSError):  # damaged parts stay
                self.folder.parts.rmdir()
        return Records(cells, self.run)


def lock_folder(path: Path) -> int:
    """Lock this file until the process ends or closes it; raise if another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock_file_now(descriptor)
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


def lock_file_now(descriptor: int) -> None:
    """Lock an open file or raise."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 1_000, os.SEEK_SET)  # locked bytes cannot be read: not the text
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk: otherwise the names in it may not survive a power cut."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def list_setting_differences(
    found: Mapping[str, Any], wanted: Mapping[str, Any], of: str = ""
) -> list[str]:
    """Describe the differences between two settings.

    >>> a, b = {"rounds": 9, "data": {"name": "a"}}, {"rounds": 8, "data": {"name": "b"}}
    >>> list_setting_differences(a, b)
    ["data name 'a' (now 'b')", 'rounds 9 (now 8)']
    """
    lines = []
    for key in sorted({*found, *wanted}):
        one, other = found.get(key), wanted.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            lines += list_setting_differences(one, other, f"{of}{key} ")
        elif one != other:
            lines.append(f"{of}{key} {shorten_setting(one)} (now {shorten_setting(other)})")
    return lines


def shorten_setting(value: Any) -> str:
    """Shorten long values, such as digests."""
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:13]}...{text[-1]}"


def code_digest(source: Path = PACKAGE_FOLDER.parent) -> str:
    """Digest of the names and contents of RECORD_SOURCES, wherever they are installed."""
    digest = hashlib.sha256()
    for path in list_sources(source, RECORD_SOURCES):
        content = path.read_bytes()
        name = path.relative_to(source).as_posix()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
