"""Atomic file writes, and errors of the file system as BylotError."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from bylot.errors import BylotError

PARTIAL_FILE_SUFFIX = ".bylot-part"  # a killed process may leave such a file behind
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically: a crash leaves the old content or the new."""
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
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable: after a power failure a renamed file is found."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into a BylotError with a remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in DISK_FULL_ERRNOS
        raise BylotError(
            f"{path} cannot be written: {error.strerror}",
            remedy="free some space" if full else "use another --out or folder",
        ) from error


def save_file(path: Path, content: bytes) -> None:
    """Write a file atomically, or raise a BylotError with a remedy."""
    with explain_write_errors(path):
        replace_file(path, content)
