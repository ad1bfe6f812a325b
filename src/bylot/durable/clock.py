"""The time that lines of a log are given."""

import time


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000
