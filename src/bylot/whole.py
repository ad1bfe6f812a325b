"""Files that are written whole or not at all."""

import contextlib
import os
import secrets
from pathlib import Path

SUFFIX = ".bylot-part"  # of what a process that was killed may leave behind


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step, whatever happens to the process or the machine meanwhile."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{SUFFIX}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
