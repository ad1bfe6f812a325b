"""How far a run is, on standard error: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bylot.errors import BylotError
from bylot.extras import install
from bylot.text import say

Progress = Callable[[int], object]
"""To be called with the number of cells that were finished since."""

EVERY = 10.0  # seconds between lines


@contextmanager
def progress(total_cells: int, known: int = 0, unit: str = "cell") -> Iterator[Progress]:
    """Shows cells as they are finished, and the time left; `known` were there before.

    >>> with progress(total_cells=4, known=1) as advance:
    ...     _ = advance(3)
    """
    if not sys.stderr.isatty():
        yield Lines(total_cells, known, unit=unit)
        return
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        raise BylotError(f"progress needs tqdm: {install('reproduce')}") from None

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no thread that watches the bar and outlives it

    with Bar(total=total_cells, initial=known, unit=unit, file=sys.stderr) as bar:
        yield bar.update


class Lines:
    """Progress where nothing can be redrawn: a line at most every ten seconds."""

    def __init__(
        self,
        total: int,
        known: int,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "cell",
    ) -> None:
        self.total, self.known, self.done = total, known, known
        self.clock, self.unit = clock, unit
        self.start = self.last = clock()

    def __call__(self, cells: int) -> None:
        self.done += cells
        now = self.clock()
        if now - self.last >= EVERY:
            self.last = now
            left = (now - self.start) * (self.total - self.done) / (self.done - self.known or 1)
            say(f"... {self.done:,} of {self.total:,} {self.unit}s, about {spell(left)} left")


def spell(seconds: float) -> str:
    """A duration, roughly.

    >>> spell(48), spell(200), spell(9_000)
    ('48 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"
