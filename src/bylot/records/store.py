"""The folder of a run, as it is written: parts as jobs finish, one table at the end.

A process that is killed at any moment leaves a folder that the next one can go on with.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bylot.errors import BylotError
from bylot.records.folder import Folder, sound, stamped
from bylot.records.lock import lock, unlock
from bylot.records.table import Records, Row, Table, joined, packed, table
from bylot.text import say
from bylot.whole import SUFFIX, keep, writing

OUTPUTS = (
    *("report.md", "report.html", "summary.json", "claims.json", "beyond.json"),
    *("default.json", "figures"),
)
"""What is made of records, in the same folder."""


class Store:
    """Records of one run in a folder that no other process writes to meanwhile.

    run:   the settings that all records share; a folder with others is refused
    fresh: forget what the folder has; only files that a store wrote are deleted
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], fresh: bool = False) -> None:
        self.folder, self.run = Folder(folder), dict(run)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock(folder / ".lock")
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
        unlock(self._lock)

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
            what = ", ".join(differences(found, self.run))
            raise BylotError(
                f"{self.folder.path} holds a run with other settings: {what}; "
                "give another --out, or --fresh to delete its records"
            )
        with writing(self.folder.path):
            for place in (self.folder.path, self.folder.crumbs):
                for path in place.glob(f".*{SUFFIX}"):  # of a process that was killed
                    path.unlink()
        if found is None:
            text = json.dumps(self.run, indent=2, sort_keys=True) + "\n"
            keep(self.folder.manifest, text.encode())

    def refuse_files_of_others(self) -> None:
        """A folder without a run must not hold files that this one would write over."""
        for name in OUTPUTS:
            if (self.folder.path / name).exists():
                raise BylotError(
                    f"{self.folder.path} holds {name}, which no run here wrote; give another --out"
                )

    def forget(self) -> None:
        """Delete the records; the settings last, so that what is left is always explained."""
        with writing(self.folder.path):
            for path in [*self.folder.parts(), *self.folder.crumbs.glob("*.parquet.damaged")]:
                path.unlink()
            self.folder.table.unlink(missing_ok=True)
            self.folder.seal.unlink(missing_ok=True)
            self.folder.manifest.unlink()

    def known(self) -> set[str]:
        """The names of the cells that need not be computed."""
        return {cell for cells in self.pieces() for cell in cells["cell"]}

    def pieces(self) -> Iterator[Table]:
        """All that is recorded; a damaged part is set aside, so that its cells are missing."""
        yield from self.folder.merged()
        for path in self.folder.parts():
            part = sound(path)
            if part is not None:
                yield part
                continue
            with writing(path):
                path.rename(path.with_name(f"{path.name}.damaged"))
            say(f"bylot: {path} is damaged and was set aside; its cells count as missing")

    def add(self, name: str, rows: Sequence[Row]) -> None:
        """Record the cells of one job, whole or not at all."""
        content = packed(table(rows), "uncompressed")
        with writing(self.folder.path):
            self.folder.crumbs.mkdir(exist_ok=True)
        keep(self.folder.crumbs / stamped(name, content), content)

    def merge(self) -> Records:
        """Put everything into the one table, whose bytes depend on nothing but its cells."""
        parts = self.folder.parts()
        cells = joined(list(self.pieces()))
        if parts or not self.folder.table.exists():
            self.folder.replace_table(packed(cells, "zstd"))
        with writing(self.folder.path):
            keep_names(self.folder.path)  # the table's, before the parts go
            for path in parts:
                path.unlink(missing_ok=True)  # a damaged one was set aside
            with contextlib.suppress(OSError):  # damaged parts stay
                self.folder.crumbs.rmdir()
        return Records(cells, self.run)


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any], of: str = "") -> list[str]:
    """What is not the same in two settings, as text.

    >>> differences({"rounds": 9, "data": {"name": "a"}}, {"rounds": 8, "data": {"name": "b"}})
    ["data name 'a' (now 'b')", 'rounds 9 (now 8)']
    """
    lines = []
    for key in sorted({*found, *wanted}):
        one, other = found.get(key), wanted.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            lines += differences(one, other, f"{of}{key} ")
        elif one != other:
            lines.append(f"{of}{key} {shortened(one)} (now {shortened(other)})")
    return lines


def keep_names(folder: Path) -> None:
    """The names in a folder survive a power cut only if it is told to keep them, too."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def shortened(value: Any) -> str:
    """A setting as a person can take it in: nobody reads 64 digits of a digest."""
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:13]}...{text[-1]}"
