"""The ends of logs, recorded apart from the database: the loss of its last events is noticed.

A database that is damaged at its end, or restored from an older copy, is consistent: only somebody
who knows what was written can tell. An end is recorded after the commit of its events.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

LOG_END_FORMAT = struct.Struct("<q16s")
LOG_END_CHECK_BYTES = 8
LOG_END_RECORD_BYTES = LOG_END_FORMAT.size + LOG_END_CHECK_BYTES
MAX_RECORDED_ROUTERS = 1_000_000  # those with a higher number are not recorded


class LogEnd(NamedTuple):
    """The last event of a router's log."""

    seq: int
    seal: bytes


class LogEnds:
    """The ends of the logs that this process has written to, by the number of the router."""

    remedy = "restart this server"  # how to continue without events that are lost

    def __init__(self) -> None:
        self.by_router: dict[int, LogEnd] = {}

    def record(self, ends: Mapping[int, LogEnd]) -> None:
        """Record ends, after the commit of their events."""
        self.by_router.update(ends)

    def clear(self, router: int) -> None:
        """Forget a router, before it is deleted."""
        self.by_router.pop(router, None)

    def get(self, router: int) -> LogEnd | None:
        """The end of a log; None if it is not known."""
        return self.by_router.get(router)


class LogEndsFile(LogEnds):
    """The ends of all logs of a store, in a file of records of one size, at the router's number.

    Processes that write to different logs do not affect each other. The file is not synced: after
    a power failure it may be behind, never ahead. A record that is damaged counts as unknown, and
    so does all of a file that cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.remedy = f"stop all servers and delete {path}"

    def record(self, ends: Mapping[int, LogEnd]) -> None:
        if ends:
            self._write({router: encode_log_end(router, end) for router, end in ends.items()})

    def clear(self, router: int) -> None:
        if self.path.exists():
            self._write({router: bytes(LOG_END_RECORD_BYTES)})

    def get(self, router: int) -> LogEnd | None:
        if 0 <= router < MAX_RECORDED_ROUTERS:
            with suppress(OSError), self.path.open("rb") as file:
                file.seek(router * LOG_END_RECORD_BYTES)
                return decode_log_end(router, file.read(LOG_END_RECORD_BYTES))
        return None

    def list_routers(self) -> Iterator[int]:
        """The numbers of all routers whose ends are known."""
        content = b""
        with suppress(OSError):
            content = self.path.read_bytes()
        for router in range(len(content) // LOG_END_RECORD_BYTES):
            first = router * LOG_END_RECORD_BYTES
            if decode_log_end(router, content[first : first + LOG_END_RECORD_BYTES]) is not None:
                yield router

    def _write(self, records: Mapping[int, bytes]) -> None:
        """Write records in place; the file may have been deleted meanwhile."""
        with suppress(OSError):
            file = os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                for router, record in records.items():
                    if 0 <= router < MAX_RECORDED_ROUTERS:
                        os.pwrite(file, record, router * LOG_END_RECORD_BYTES)
            finally:
                os.close(file)


def encode_log_end(router: int, end: LogEnd) -> bytes:
    """A record: the end and a check sum, which covers the number too.

    >>> decode_log_end(7, encode_log_end(7, LogEnd(3, b"0123456789abcdef")))
    LogEnd(seq=3, seal=b'0123456789abcdef')
    >>> decode_log_end(8, encode_log_end(7, LogEnd(3, b"0123456789abcdef"))) is None
    True
    """
    content = LOG_END_FORMAT.pack(*end)
    return content + blake2b(content, digest_size=LOG_END_CHECK_BYTES, key=b"%d" % router).digest()


def decode_log_end(router: int, record: bytes) -> LogEnd | None:
    """Inverse of `encode_log_end`; None if it is not the record of an end of this log."""
    if len(record) != LOG_END_RECORD_BYTES:
        return None
    end = LogEnd(*LOG_END_FORMAT.unpack_from(record))
    return end if encode_log_end(router, end) == record else None
