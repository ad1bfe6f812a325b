"""Files that are written whole or not at all, and a refusal of the disk in one line."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from bylot.errors import BylotError

PARTIAL_FILE_SUFFIX = ".bylot-part"  # of what a process that was killed may leave behind
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step, whatever happens to the process or the machine meanwhile."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL_FILE_SUFFIX}")
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


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Around what needs the disk: what it refuses, and what to do."""
    try:
        yield
    except OSError as error:
        remedy = (
            "make room for it"
            if error.errno in DISK_FULL_ERRNOS
            else "give another --out or folder"
        )
        raise BylotError(f"{path} cannot be written: {error.strerror}; {remedy}") from error


def save_file(path: Path, content: bytes) -> None:
    """`replace_file`, with its refusal in one line."""
    with explain_write_errors(path):
        replace_file(path, content)
