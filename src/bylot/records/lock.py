"""One process at a time in a folder: a lock that dies with the process that holds it."""

import os
import socket
import sys
from pathlib import Path

from bylot.errors import BylotError


def lock(path: Path) -> int:
    """Take the lock of this file, or say who has it; to be given back to `unlock`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        claim(descriptor)
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


def claim(descriptor: int) -> None:
    """Lock it now or raise."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 1_000, os.SEEK_SET)  # what is locked cannot be read: not the text
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Let others in. The file stays: to remove it would be a race with the next one."""
    os.ftruncate(descriptor, 0)
    os.close(descriptor)
