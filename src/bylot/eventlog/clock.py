"""Clocks: the time of a process, which follows no jump, and the lead of a log over it."""

import logging
import time
from collections.abc import Callable

from bylot.eventlog.events import now_us

CLOCK_LOGGER = logging.getLogger("bylot.eventlog")

BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # also while suspended
CLOCK_JUMP_US = 60_000_000  # differences from here on are logged
MAX_CLOCK_SLEW = 10  # at most one part in ten of the elapsed time
MAX_IDLE_US = 365 * 24 * 3_600 * 1_000_000


def read_elapsed_us() -> int:
    """Microseconds since the boot of the machine, which no setting of its clock changes."""
    return time.clock_gettime_ns(BOOT_CLOCK) // 1_000


class SteadyClock:
    """Microseconds since 1970 that advance with the time that passes.

    It starts with the clock of the machine. If that is set to another time later, it follows by at
    most a tenth of the elapsed time: a jump neither ends a wait nor prolongs it.

    >>> ticks, wall = iter([0, 10, 20]), iter([500, 510, 9_000_000])
    >>> clock = SteadyClock(lambda: next(wall), lambda: next(ticks))
    >>> clock(), clock()
    (510, 521)
    """

    def __init__(
        self, wall: Callable[[], int] = now_us, elapsed: Callable[[], int] = read_elapsed_us
    ) -> None:
        self.wall, self.elapsed = wall, elapsed
        self.tick, self.at = elapsed(), wall()
        self.is_apart = False  # from the clock of the machine, so far that it was logged

    def __call__(self) -> int:
        tick = self.elapsed()
        passed, self.tick = tick - self.tick, tick
        apart, slew = self.wall() - (self.at + passed), passed // MAX_CLOCK_SLEW
        self.at += passed + min(max(apart, -slew), slew)
        if (abs(apart) > CLOCK_JUMP_US) != self.is_apart:
            self.is_apart = not self.is_apart
            text = "the clock of the machine is %+.0f s from the time that has passed since the "
            text += "start; waits go on by the latter"
            CLOCK_LOGGER.warning(text, apart / 1e6)
        return self.at


def compute_clock_lead(name: str, last: int, at: int) -> int:
    """The lead of a router's time over the clock, from its last event until it is closed.

    Times of a log never go back. After an event in the future, time goes on from there at the
    normal speed, so that waits take as long as they should. After a gap of more than a year, time
    goes on as if a year had passed, in case the clock is wrong.

    >>> compute_clock_lead("triage", 5_000_000, 2_000_000), compute_clock_lead("triage", 5, 60)
    (3000000, 0)
    """
    ahead = last - at
    lead = max(ahead, 0) + min(ahead + MAX_IDLE_US, 0)
    if abs(lead) > CLOCK_JUMP_US:
        text = "router %r: its last event is %.0f s %s the clock of the machine; is that right?"
        where = "after" if ahead > 0 else "before"
        CLOCK_LOGGER.warning(text, name, abs(ahead) / 1e6, where)
    return lead
