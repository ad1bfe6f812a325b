"""The folder of a run, as it is read: settings, one table, and parts not yet merged into it."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bylot.errors import BylotError
from bylot.records.table import SCHEMA, Records, Table, joined, unpacked
from bylot.text import say
from bylot.whole import keep

FORM, VERSION = "bylot-run", 3
PART = re.compile(r".+-[0-9a-f]{12}\.parquet")


def read(folder: Path) -> Records:
    """The records in a folder, those of an unfinished run included; nothing is written.

    The table is read last: whoever merges meanwhile writes it before the parts go.
    """
    place = Folder(folder)
    run = place.run()
    if run is None:
        what = "holds no run (run.json)" if folder.is_dir() else "is not a folder"
        raise BylotError(f"{folder} {what}; make one with: bylot reproduce --out {folder}")
    parts = []
    for path in place.parts():
        part = sound(path)
        if part is None:
            say(f"bylot: {path} is damaged and was left out")
        else:
            parts.append(part)
    return Records(joined([*parts, *place.merged()]), run)


@dataclass(frozen=True)
class Folder:
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
        return sorted(path for path in self.crumbs.glob("*.parquet") if PART.fullmatch(path.name))

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
        if not isinstance(data, dict) or data.get("form") != FORM:
            raise BylotError(f"{self.manifest} is not of a bylot run; give another --out")
        if data.get("version") != VERSION:
            raise BylotError(
                f"{self.manifest} has version {data.get('version')!r}, this bylot knows {VERSION}; "
                "use the bylot that wrote it, or give another --out"
            )
        facts = data.get("data")
        if not isinstance(facts, dict) or type(data.get("rounds")) is not int:
            raise BylotError(
                f"{self.manifest} does not say what was played, so somebody changed it; "
                "restore it from a copy, or give another --out"
            )
        return data

    def merged(self) -> Iterator[Table]:
        """The table, if there is one."""
        try:
            content = self.table.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise BylotError(
                f"{self.table} cannot be read: {error.strerror}; remove it or give another --out"
            ) from None
        cells = unpacked(content) if self.sealed(content) else None
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
        return sealing(content) in lines

    def replace_table(self, content: bytes) -> None:
        """Another table under a seal; until both are changed the seal names the old one too."""
        old = self.seal.read_text(encoding="utf-8") if self.seal.exists() else ""
        keep(self.seal, f"{sealing(content)}\n{old}".encode())
        keep(self.table, content)
        keep(self.seal, f"{sealing(content)}\n".encode())


def sealing(content: bytes) -> str:
    """A line of the seal."""
    return f"{hashlib.sha256(content).hexdigest()}  records.parquet"


def stamped(name: str, content: bytes) -> str:
    """A file name that tells whether the content is whole.

    >>> stamped("regime/seed=07", b"...")
    'regime+seed=07-ab5df625bc76.parquet'
    """
    return f"{name.replace('/', '+')}-{hashlib.sha256(content).hexdigest()[:12]}.parquet"


def sound(path: Path) -> Table | None:
    """The cells of a part, None if it is damaged; no cells if it was merged a moment ago."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return SCHEMA.to_frame()
    except OSError:
        return None
    name = path.name.rpartition("-")[0]
    return unpacked(content) if path.name == stamped(name, content) else None
