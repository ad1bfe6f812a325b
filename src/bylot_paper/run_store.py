"""The folder of a run, as it is written: parts as jobs finish, one table at the end.

A process that is killed at any moment leaves a folder that the next one can go on with.
"""

import contextlib
import hashlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
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


def lock_folder(path: Path) -> int:
    """Take the lock of this file, or say who has it; to be given back to `unlock_folder`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        claim_file_lock(descriptor)
    except (BlockingIOError, PermissionError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = os.read(descriptor, 200).decode(errors="replace") or "another process"
        os.close(descriptor)
        raise BylotError(
            f"{path.parent} is in use by {holder}; wait for it, or give another --out"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return descriptor


def claim_file_lock(descriptor: int) -> None:
    """Lock it now or raise."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 1_000, os.SEEK_SET)  # what is locked cannot be read: not the text
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock_folder(descriptor: int) -> None:
    """Let others in. The file stays: to remove it would be a race with the next one."""
    os.ftruncate(descriptor, 0)
    os.close(descriptor)


RUN_OUTPUTS = (
    *("report.md", "report.html", "summary.json", "claims.json", "beyond.json"),
    *("default.json", "figures"),
)
"""What is made of records, in the same folder."""


class RecordStore:
    """Records of one run in a folder that no other process writes to meanwhile.

    run:   the settings that all records share; a folder with others is refused
    fresh: forget what the folder has; only files that a store wrote are deleted
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], fresh: bool = False) -> None:
        self.folder, self.run = RunFolder(folder), dict(run)
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(folder / ".lock")
        try:
            self.settle(fresh)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes in."""
        unlock_folder(self._lock)

    def settle(self, fresh: bool) -> None:
        """Make the folder ours, or go on with the run that is in it."""
        found = self.folder.run()
        if found is None and (self.folder.table.exists() or self.folder.crumbs.exists()):
            raise BylotError(
                f"{self.folder.path} holds records or parts, but no run.json that says of what; "
                "give another --out"
            )
        if found is None:
            self.refuse_files_of_others()
        if found is not None and fresh:
            self.forget()
            found = None
        if found is not None and found != self.run:
            what = ", ".join(list_setting_differences(found, self.run))
            raise BylotError(
                f"{self.folder.path} holds a run with other settings: {what}; "
                "give another --out, or --fresh to delete its records"
            )
        with explain_write_errors(self.folder.path):
            for place in (self.folder.path, self.folder.crumbs):
                for path in place.glob(f".*{PARTIAL_FILE_SUFFIX}"):  # of a process that was killed
                    path.unlink()
        if found is None:
            text = json.dumps(self.run, indent=2, sort_keys=True) + "\n"
            save_file(self.folder.manifest, text.encode())

    def refuse_files_of_others(self) -> None:
        """A folder without a run must not hold files that this one would write over."""
        for name in RUN_OUTPUTS:
            if (self.folder.path / name).exists():
                raise BylotError(
                    f"{self.folder.path} holds {name}, which no run here wrote; give another --out"
                )

    def forget(self) -> None:
        """Delete the records; the settings last, so that what is left is always explained."""
        with explain_write_errors(self.folder.path):
            for path in [*self.folder.parts(), *self.folder.crumbs.glob("*.parquet.damaged")]:
                path.unlink()
            self.folder.table.unlink(missing_ok=True)
            self.folder.seal.unlink(missing_ok=True)
            self.folder.manifest.unlink()

    def known(self) -> set[str]:
        """The names of the cells that need not be computed."""
        return {cell for cells in self.pieces() for cell in cells["cell"]}

    def pieces(self) -> Iterator[RecordTable]:
        """All that is recorded; a damaged part is set aside, so that its cells are missing."""
        yield from self.folder.merged()
        for path in self.folder.parts():
            part = read_part(path)
            if part is not None:
                yield part
                continue
            with explain_write_errors(path):
                path.rename(path.with_name(f"{path.name}.damaged"))
            print_progress(
                f"bylot: {path} is damaged and was set aside; its cells count as missing"
            )

    def add(self, name: str, rows: Sequence[RecordRow]) -> None:
        """Record the cells of one job, whole or not at all."""
        content = encode_parquet(build_record_table(rows), "uncompressed")
        with explain_write_errors(self.folder.path):
            self.folder.crumbs.mkdir(exist_ok=True)
        save_file(self.folder.crumbs / name_part_file(name, content), content)

    def merge(self) -> Records:
        """Put everything into the one table, whose bytes depend on nothing but its cells."""
        parts = self.folder.parts()
        cells = join_tables(list(self.pieces()))
        if parts or not self.folder.table.exists():
            self.folder.replace_table(encode_parquet(cells, "zstd"))
        with explain_write_errors(self.folder.path):
            sync_folder(self.folder.path)  # the table's, before the parts go
            for path in parts:
                path.unlink(missing_ok=True)  # a damaged one was set aside
            with contextlib.suppress(OSError):  # damaged parts stay
                self.folder.crumbs.rmdir()
        return Records(cells, self.run)


def list_setting_differences(
    found: Mapping[str, Any], wanted: Mapping[str, Any], of: str = ""
) -> list[str]:
    """What is not the same in two settings, as text.

    >>> list_setting_differences(
    ...     {"rounds": 9, "data": {"name": "a"}}, {"rounds": 8, "data": {"name": "b"}}
    ... )
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


def sync_folder(folder: Path) -> None:
    """The names in a folder survive a power cut only if it is told to keep them, too."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def shorten_setting(value: Any) -> str:
    """A setting as a person can take it in: nobody reads 64 digits of a digest."""
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:13]}...{text[-1]}"


RECORD_SOURCES = (
    "bylot/environments",
    "bylot/metrics.py",
    "bylot/numerics",
    "bylot/optima",
    "bylot/outcome_tables",
    "bylot/policies",
    "bylot/problem",
    "bylot/sample_problems.py",
    "bylot/simulation.py",
    "bylot/theory.py",
    "bylot_paper/comparison.py",
    "bylot_paper/crowd.py",
    "bylot_paper/crowd_files.py",
    "bylot_paper/crowd_scenario.py",
    "bylot_paper/crowd_sources.py",
    "bylot_paper/default_rule.py",
    "bylot_paper/grid.py",
    "bylot_paper/outcome.py",
    "bylot_paper/policy_settings.py",
    "bylot_paper/run.py",
    "bylot_paper/scenarios.py",
    "bylot_paper/trec.py",
)
"""The parts of the package that records depend on; the others may change and a run go on."""


def code_digest(source: Path = PACKAGE_FOLDER.parent) -> str:
    """Of the contents and names of the sources, not of when or where they were installed."""
    digest = hashlib.sha256()
    for path in list_sources(source, RECORD_SOURCES):
        content = path.read_bytes()
        name = path.relative_to(source).as_posix()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
