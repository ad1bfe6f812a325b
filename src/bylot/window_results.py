"""What a simulation spent in each window of the calendar, and whether its limits were kept there.

A limit on some contexts without a window is judged in periods of the requests that it counts. How a
limit stands in the window of a running router is in `limits.window_status`.
"""

from typing import NamedTuple

import numpy as np

from bylot.numerics.jit import Bools, Floats, Ints
from bylot.problem.calendar import list_edges_until
from bylot.problem.window_bounds import mark_totals
from bylot.trace import Trace

WINDOW_TOLERANCE = 1e-9  # relative; totals are sums of many costs


class WindowResults(NamedTuple):
    """A limit in the windows that had requests, or in the periods of the requests that it counts.

    A total must be within its bound in every window. The average of a share is judged only in
    windows that are over, as later requests of a window may still correct it.
    """

    limit: int  # its place in the problem
    starts: Ints  # (n,) in microseconds since 1970; of a period, the number of its first request
    requests: Ints  # (n,) that arrived, up to the end of each window
    amounts: Floats  # (n,) the total of the window, or the average of the requests decided in it
    judged: Bools  # (n,)
    outside: Bools  # (n,) of the judged ones
    complete: Bools  # (n,) windows that were played from their start to their end
    bound: float

    @property
    def windows(self) -> int:
        """The number of windows that are judged."""
        return int(self.judged.sum())

    @property
    def bad(self) -> int:
        """The number of windows outside the bound."""
        return int(self.outside.sum())

    @property
    def used(self) -> float | None:
        """The mean amount in complete windows, relative to the bound; None without any."""
        if not self.complete.any() or self.bound <= 0:
            return None
        return float(self.amounts[self.complete].mean()) / self.bound


def measure_windows(trace: Trace, times: Ints) -> tuple[WindowResults, ...]:
    """Measure each limit of the calendar in a simulation with these arrivals."""
    return tuple(
        measure_limit(trace, times, j, list_edges_until(limit.calendar, times[0], times[-1]))
        for j, limit in enumerate(trace.problem.limits)
        if limit.calendar is not None
    )


def measure_limit(trace: Trace, times: Ints, j: int, edges: Ints) -> WindowResults:
    """Measure limit j in its windows, which begin and end at these instants."""
    limit = trace.problem.limits[j]
    place = np.searchsorted(edges, times, side="right") - 1
    arrived = np.bincount(place, minlength=edges.size - 1)
    counted = ~trace.refused & trace.counted[:, j]
    decided = np.bincount(place, counted, minlength=edges.size - 1)
    amounts = np.asarray(np.bincount(place, trace.spend[:, j], edges.size - 1), np.float64)
    over = edges[1:] <= times[-1]
    judged = np.full(over.size, True)
    if not mark_totals(trace.problem)[j]:
        amounts = amounts / np.maximum(decided, 1.0)
        judged = over & (decided > 0)
    away = limit.sign * (limit.bound - amounts) > WINDOW_TOLERANCE * limit.bound
    some = arrived > 0
    return WindowResults(
        limit=j,
        starts=edges[:-1][some],
        requests=np.cumsum(arrived)[some],
        amounts=amounts[some],
        judged=judged[some],
        outside=(judged & away)[some],
        complete=(over & (np.arange(over.size) > 0))[some],
        bound=limit.bound,
    )


def measure_counted_periods(trace: Trace, period: int) -> tuple[WindowResults, ...]:
    """Measure each limit on some contexts without a window, in periods of requests that it counts.

    If the whole run is a period, or has none that is complete, it is measured in all of them.
    """
    found = []
    for j, limit in enumerate(trace.problem.limits):
        if limit.per is not None or limit.averages_all:
            continue
        counted = np.flatnonzero(~trace.refused & trace.counted[:, j])
        size = period if period < trace.refused.size else max(counted.size, 1)
        place = np.arange(counted.size) // size
        sizes = np.bincount(place)
        amounts = np.bincount(place, trace.spend[counted, j]) / np.maximum(sizes, 1)
        judged = (sizes == size) | (counted.size < size)
        away = limit.sign * (limit.bound - amounts) > WINDOW_TOLERANCE * limit.bound
        found.append(
            WindowResults(
                limit=j,
                starts=counted[::size],
                requests=counted[np.cumsum(sizes) - 1] + 1,
                amounts=amounts,
                judged=judged,
                outside=judged & away,
                complete=judged,
                bound=limit.bound,
            )
        )
    return tuple(found)
