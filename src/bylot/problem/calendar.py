"""Windows of the calendar of a time zone: hours, days, weeks (from Monday) and months.

Instants are those of `instants`. The rules of zones for the future change every year, so two
machines may disagree about a window that is to come.

A day starts at the first instant at which the local date is that day or a later one; likewise a
week and a month. So a clock that goes back over midnight does not return to the day before, and a
day that no local clock shows has no window. An hour starts wherever the local clock shows a full
hour, and wherever the UTC offset changes; so an hour that is repeated is two windows.
"""

from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from bylot._text import find_similar, join_words
from bylot._windows import WINDOW_NAMES as WINDOW_NAMES
from bylot._windows import WINDOW_SIZES, WindowSize
from bylot._windows import WindowName as WindowName
from bylot.errors import ProblemError
from bylot.numerics.jit import Ints
from bylot.problem.instants import (
    FULL_DAY_US,
    FULL_HOUR_US,
    SECOND_US,
    check_instant,
    check_zone,
    cut_text,
    is_whole,
    make_utc,
    open_zone,
    read_offset,
)

FAR_FUTURE = 2**62
MAX_EDGES = 4_096  # of one list; 341 years of months
LONGEST_DAYS = max(size.longest_days for size in WINDOW_SIZES.values())
MARGIN_US = 3 * FULL_DAY_US  # more than two local clocks can differ: offsets are below a day
SKIPPED_WINDOWS = 8  # computed in addition; Apia, Kiritimati and others skipped one day each

CHANGES_SPAN_S = 365 * 86_400  # of which the changes of an offset are kept together
SCAN_STEP_S = 2 * 86_400  # no two changes of an offset since 1970 are within six days
SCAN_SECONDS = (*range(0, CHANGES_SPAN_S, SCAN_STEP_S), CHANGES_SPAN_S - 1)
SCAN_STEPS = tuple(timedelta(seconds=second) for second in SCAN_SECONDS)
MAX_SPANS_KEPT = 4_096


class Calendar(NamedTuple):
    """Which windows, and the time zone whose clocks and dates they follow."""

    per: WindowName
    zone: str = "UTC"


class Window(NamedTuple):
    """The instants from `start`, and before `end`."""

    start: int
    end: int


class OffsetHistory(NamedTuple):
    """The UTC offsets of a zone: `offsets[k]` from `starts[k]` to before `starts[k + 1]`."""

    starts: Ints
    offsets: Ints


def check_per(per: object) -> WindowName:
    """Require the name of a window.

    >>> check_per("week")
    'week'
    """
    for name in WINDOW_NAMES:
        if isinstance(per, str) and per == name:
            return name
    close = find_similar(cut_text(per), WINDOW_NAMES)
    raise ProblemError(
        "per",
        got=cut_text(per),
        expected=join_words(map(repr, WINDOW_NAMES), "or"),
        remedy=f"did you mean {close!r}?" if close else "use one of these",
    )


def find_window(calendar: Calendar, at: int) -> Window:
    """Find the window that contains the instant.

    >>> window = find_window(Calendar("day", "Europe/Berlin"), 1_730_030_400_000_000)
    >>> (window.end - window.start) / FULL_HOUR_US  # clocks go back
    25.0
    """
    start, end = list_edges(calendar, at, 2).tolist()
    return Window(start, end)


def list_edges(calendar: Calendar, at: int, count: int) -> Ints:
    """List the start of the window that contains the instant, and those of the windows after it.

    The edges increase strictly; the last ones may lie after the year 2200.

    >>> from bylot.problem.instants import format_instant
    >>> [format_instant(edge, "UTC") for edge in list_edges(Calendar("month"), 0, 3).tolist()]
    ['1970-01-01 00:00 UTC', '1970-02-01 00:00 UTC', '1970-03-01 00:00 UTC']
    """
    per, zone = check_per(calendar.per), check_zone(calendar.zone)
    at, count = check_instant(at), _check_edges(count)
    size = WINDOW_SIZES[per]
    longest = round(size.longest_days * FULL_DAY_US)  # and an offset can add a day or two
    last = at + (count + SKIPPED_WINDOWS) * longest + MARGIN_US
    history = _read_history(zone, at - longest - MARGIN_US, last)
    if not (size.days or size.months):
        return _list_hours(history, at, count)
    today = _find_local_day(history, at)
    midnights = _list_midnights(size, today, count + SKIPPED_WINDOWS)
    starts = _find_first_instants(history, midnights)
    return starts[:-1][np.diff(starts) > 0][:count]  # a skipped day would start with the next one


def list_edges_until(calendar: Calendar, first: int, last: int) -> Ints:
    """The starts of the windows from one instant to another, and the end of the last."""
    parts = [list_edges(calendar, first, MAX_EDGES)]
    while parts[-1][-1] <= last:
        parts.append(list_edges(calendar, int(parts[-1][-1]), MAX_EDGES)[1:])
    edges = np.concatenate(parts)
    return np.asarray(edges[: int(np.searchsorted(edges, last, side="right")) + 1])


def _list_hours(history: OffsetHistory, at: int, count: int) -> Ints:
    """List the full hours of the local clock and the changes of the offset."""
    last, edges = at + count * FULL_HOUR_US, list[Ints]()  # no hour is longer than an hour
    first = int(np.searchsorted(history.starts, at, side="right")) - 1
    starts, offsets = history.starts[first:].tolist(), history.offsets[first:].tolist()
    for start, end, offset in zip(starts, [*starts[1:], last], offsets, strict=True):
        local = max(at, start) + offset
        hours = np.arange(local - local % FULL_HOUR_US, min(end, last) + offset, FULL_HOUR_US)
        edges.append(np.maximum(hours - offset, start))
    return np.concatenate(edges)[:count]


def _find_local_day(history: OffsetHistory, at: int) -> int:
    """Find the latest local date until the instant, as a number of days since 1970."""
    before = int(np.searchsorted(history.starts, at, side="right")) - 1
    shown = history.starts[1 : before + 1] + history.offsets[:before] - 1  # before each change
    return int(max([at + int(history.offsets[before]), *shown.tolist()])) // FULL_DAY_US


def _list_midnights(size: WindowSize, today: int, count: int) -> Ints:
    """List the local midnights with which this window and those after it start."""
    if size.months:
        month = int(np.datetime64(today, "D").astype("M8[M]").astype(np.int64))
        months = month - month % size.months + size.months * np.arange(count)
        return months.astype("M8[M]").astype("M8[us]").astype(np.int64)
    days = today - (today + 3) % size.days + size.days * np.arange(count)  # 1970: a Thursday
    return days * FULL_DAY_US


def _find_first_instants(history: OffsetHistory, local: Ints) -> Ints:
    """Find for each local time the first instant at which the clock shows it or a later one.

    That is in the first piece k with starts[k + 1] + offsets[k] > local.
    """
    ends = np.append(history.starts[1:], FAR_FUTURE)
    reached = np.maximum.accumulate(ends + history.offsets)
    k = np.searchsorted(reached, local, side="right")
    return np.asarray(np.maximum(history.starts[k], local - history.offsets[k]))


def _read_history(zone: str, first: int, last: int) -> OffsetHistory:
    """Read the offsets from one instant to another."""
    starts, offsets = list[int](), list[int]()
    span = CHANGES_SPAN_S * SECOND_US
    for number in range(first // span, last // span + 1):
        for start, offset in _list_changes(zone, number):
            if not offsets or offset != offsets[-1]:
                starts.append(start)
                offsets.append(offset)
    return OffsetHistory(np.array(starts), np.array(offsets))


@lru_cache(MAX_SPANS_KEPT)
def _list_changes(zone: str, number: int) -> tuple[tuple[int, int], ...]:
    """List the start of a span of time and the changes of the offset in it, with the offsets.

    The rules of a zone cannot be asked for its changes: look every two days, and bisect.
    """
    clock, first = open_zone(zone), number * CHANGES_SPAN_S
    utc = make_utc(clock, first)
    looks = [clock.fromutc(utc + ago).utcoffset() for ago in SCAN_STEPS]
    changes = [(first, read_offset(clock, first))]
    for (low, before), (high, after) in pairwise(zip(SCAN_SECONDS, looks, strict=True)):
        if before != after:
            changes += _find_changes(clock, first + low, first + high)
    return tuple((second * SECOND_US, offset) for second, offset in changes)


def _find_changes(clock: ZoneInfo, low: int, high: int) -> list[tuple[int, int]]:
    """Find the seconds from `low` to `high` at which the offset changes, and the new offsets."""
    changes, offset = list[tuple[int, int]](), read_offset(clock, low)
    while offset != read_offset(clock, high):
        after = high
        while after - low > 1:
            middle = (low + after) // 2
            same = read_offset(clock, middle) == offset
            low, after = (middle, after) if same else (low, middle)
        low, offset = after, read_offset(clock, after)
        changes.append((low, offset))
    return changes


def _check_edges(count: object) -> int:
    """Require a number of edges."""
    if is_whole(count) and 1 <= count <= MAX_EDGES:
        return int(count)
    raise ProblemError(
        "number of edges",
        got=count,
        expected=f"an integer from 1 to {MAX_EDGES}",
        remedy="list them from a later instant again",
    )
