"""Windows of the calendar of a time zone: hours, days, weeks (from Monday) and months.

Times are whole microseconds since 1970 (UTC). No clock is read: the caller gives the instant. The
rules of the zones come from `zoneinfo`, that is from the system, or from the package tzdata; those
of the future change every year, so two machines may disagree about a window that is to come.

A day starts at the first instant at which the local date is that day or a later one; likewise a
week and a month. So a clock that goes back over midnight does not return to the day before, and a
day that no local clock shows has no window. An hour starts wherever the local clock shows a full
hour, and wherever the UTC offset changes; so an hour that is repeated is two windows.
"""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from numbers import Integral
from typing import Literal, NamedTuple, TypeGuard, get_args
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from bylot._text import find_similar, join_words
from bylot.errors import ProblemError
from bylot.numerics.jit import Ints

WindowName = Literal["hour", "day", "week", "month"]
WINDOW_NAMES: tuple[WindowName, ...] = get_args(WindowName)

SECOND_US = 1_000_000
LAST_SECOND = 253_402_300_799  # of the year 9999, the last that a timestamp can have
FULL_HOUR_US = 3_600 * SECOND_US
FULL_DAY_US = 24 * FULL_HOUR_US
LONGEST_WINDOW_US = {  # by the local clock, which an offset can change by another day or two
    "hour": FULL_HOUR_US,
    "day": FULL_DAY_US,
    "week": 7 * FULL_DAY_US,
    "month": 31 * FULL_DAY_US,
}
END_OF_INSTANTS = int(datetime(2201, 1, 1, tzinfo=UTC).timestamp()) * SECOND_US
FAR_FUTURE = 2**62
MAX_EDGES = 4_096  # of one list; 341 years of months
EDGE_SPAN_US = MAX_EDGES * 32 * FULL_DAY_US  # edges are not farther than this from an instant
MARGIN_US = 3 * FULL_DAY_US  # more than two local clocks can differ: offsets are below a day
SKIPPED_WINDOWS = 8  # computed in addition; Apia, Kiritimati and others skipped one day each

CHANGES_SPAN_S = 365 * 86_400  # of which the changes of an offset are kept together
SCAN_STEP_S = 2 * 86_400  # no two changes of an offset since 1970 are within six days
SCAN_SECONDS = (*range(0, CHANGES_SPAN_S, SCAN_STEP_S), CHANGES_SPAN_S - 1)
SCAN_STEPS = tuple(timedelta(seconds=second) for second in SCAN_SECONDS)
MAX_SPANS_KEPT = 4_096

NOT_ZONES = frozenset({"localtime", "posixrules"})  # links that differ from machine to machine
MAX_ZONE_LETTERS = 64  # of a name that is compared with those of the database
EXAMPLE_ZONES = "use a name such as 'Europe/Berlin' or 'UTC'"


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
    close = find_similar(_cut_text(per), WINDOW_NAMES)
    raise ProblemError(
        "per",
        got=_cut_text(per),
        expected=join_words(map(repr, WINDOW_NAMES), "or"),
        remedy=f"did you mean {close!r}?" if close else "use one of these",
    )


def check_zone(zone: object) -> str:
    """Require a time zone of the database; other names are not looked up as files.

    >>> check_zone("Asia/Kolkata")
    'Asia/Kolkata'
    """
    if not isinstance(zone, str) or zone not in _list_zones():
        raise ProblemError(
            "time zone",
            got=_cut_text(zone),
            expected="a name of the IANA time zone database",
            remedy=_suggest_zone(zone),
        )
    return zone


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

    >>> [format_instant(edge, "UTC") for edge in list_edges(Calendar("month"), 0, 3).tolist()]
    ['1970-01-01 00:00 UTC', '1970-02-01 00:00 UTC', '1970-03-01 00:00 UTC']
    """
    per, zone = check_per(calendar.per), check_zone(calendar.zone)
    at, count = _check_instant(at), _check_edges(count)
    longest = LONGEST_WINDOW_US[per]
    last = at + (count + SKIPPED_WINDOWS) * longest + MARGIN_US
    history = _read_history(zone, at - longest - MARGIN_US, last)
    if per == "hour":
        return _list_hours(history, at, count)
    today = _find_local_day(history, at)
    midnights = _list_midnights(per, today, count + SKIPPED_WINDOWS)
    starts = _find_first_instants(history, midnights)
    return starts[:-1][np.diff(starts) > 0][:count]  # a skipped day would start with the next one


def list_edges_until(calendar: Calendar, first: int, last: int) -> Ints:
    """The starts of the windows from one instant to another, and the end of the last."""
    parts = [list_edges(calendar, first, MAX_EDGES)]
    while parts[-1][-1] <= last:
        parts.append(list_edges(calendar, int(parts[-1][-1]), MAX_EDGES)[1:])
    edges = np.concatenate(parts)
    return np.asarray(edges[: int(np.searchsorted(edges, last, side="right")) + 1])


def compute_utc_offset(zone: str, at: int) -> int:
    """How far the local clock is ahead of UTC, in microseconds.

    >>> compute_utc_offset("Asia/Kolkata", 0) / FULL_HOUR_US
    5.5
    """
    at = _check_instant(at, beyond=EDGE_SPAN_US)
    return _read_offset(_open_zone(check_zone(zone)), at // SECOND_US)


def format_instant(at: int, zone: str) -> str:
    """Write date and time of the local clock; the UTC offset too if the clock shows it twice.

    >>> format_instant(1_794_956_400_000_000, "Europe/Berlin")
    '2026-11-18 00:00 Europe/Berlin'
    >>> format_instant(1_729_990_800_000_000, "Europe/Berlin")
    '2024-10-27 02:00+01:00 Europe/Berlin'
    """
    at = _check_instant(at, beyond=EDGE_SPAN_US)
    clock = _open_zone(check_zone(zone))
    local = clock.fromutc(_make_utc(clock, at // SECOND_US))
    if local.replace(fold=1 - local.fold).utcoffset() == local.utcoffset():
        local = local.replace(tzinfo=None)
    digits = "seconds" if local.second else "minutes"
    return f"{local.isoformat(sep=' ', timespec=digits)} {zone}"


def describe_reset(at: int, zone: str) -> str:
    """What to do about a budget that is spent until this time."""
    return f"try again after {format_instant(at, zone)}"


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
    latest: int = max([at + int(history.offsets[before]), *shown.tolist()])
    return latest // FULL_DAY_US


def _list_midnights(per: WindowName, today: int, count: int) -> Ints:
    """List the local midnights with which this window and those after it start."""
    if per == "month":
        months = np.datetime64(today, "D").astype("M8[M]") + np.arange(count)
        midnights: Ints = months.astype("M8[us]").astype(np.int64)
        return midnights
    days = np.arange(today, today + count)
    if per == "week":
        days = today - (today + 3) % 7 + 7 * np.arange(count)  # 1970 began on a Thursday
    return days * FULL_DAY_US


def _find_first_instants(history: OffsetHistory, local: Ints) -> Ints:
    """Find for each local time the first instant at which the clock shows it or a later one.

    That is in the first piece k with starts[k + 1] + offsets[k] > local.
    """
    ends = np.append(history.starts[1:], FAR_FUTURE)
    reached = np.maximum.accumulate(ends + history.offsets)
    k = np.searchsorted(reached, local, side="right")
    first: Ints = np.maximum(history.starts[k], local - history.offsets[k])
    return first


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
    clock, first = _open_zone(zone), number * CHANGES_SPAN_S
    utc = _make_utc(clock, first)
    looks = [clock.fromutc(utc + ago).utcoffset() for ago in SCAN_STEPS]
    changes = [(first, _read_offset(clock, first))]
    for (low, before), (high, after) in pairwise(zip(SCAN_SECONDS, looks, strict=True)):
        if before != after:
            changes += _find_changes(clock, first + low, first + high)
    return tuple((second * SECOND_US, offset) for second, offset in changes)


def _find_changes(clock: ZoneInfo, low: int, high: int) -> list[tuple[int, int]]:
    """Find the seconds from `low` to `high` at which the offset changes, and the new offsets."""
    changes, offset = list[tuple[int, int]](), _read_offset(clock, low)
    while offset != _read_offset(clock, high):
        after = high
        while after - low > 1:
            middle = (low + after) // 2
            same = _read_offset(clock, middle) == offset
            low, after = (middle, after) if same else (low, middle)
        low, offset = after, _read_offset(clock, after)
        changes.append((low, offset))
    return changes


def _read_offset(clock: ZoneInfo, second: int) -> int:
    """Read the UTC offset of a zone in microseconds; its rules have whole seconds."""
    offset = clock.fromutc(_make_utc(clock, second)).utcoffset() or timedelta()
    return offset // timedelta(microseconds=1)


def _make_utc(clock: ZoneInfo, second: int) -> datetime:
    """Make what `fromutc` of a zone takes: the time in UTC, labelled with that zone."""
    return datetime(1970, 1, 1, tzinfo=clock) + timedelta(seconds=second)


def _check_instant(at: object, *, beyond: int = 0) -> int:
    """Require an instant from 1970 to 2200, or one that is not farther than `beyond` from it."""
    if _is_whole(at) and -beyond <= at < END_OF_INSTANTS + beyond:
        return int(at)
    raise ProblemError(
        "instant",
        got=at,
        expected="whole microseconds since 1970 (UTC), before the year 2201",
        remedy="check the clock, and that the unit is microseconds",
    )


def _check_edges(count: object) -> int:
    """Require a number of edges."""
    if _is_whole(count) and 1 <= count <= MAX_EDGES:
        return int(count)
    expected, remedy = f"an integer from 1 to {MAX_EDGES}", "list them from a later instant again"
    raise ProblemError("number of edges", got=count, expected=expected, remedy=remedy)


def _is_whole(given: object) -> TypeGuard[int]:
    """Whether it is an integer of any type, and no bool."""
    return isinstance(given, Integral) and not isinstance(given, bool | np.bool_)


@lru_cache(1)
def _list_zones() -> frozenset[str]:
    """List the names of the database."""
    return frozenset(available_timezones()) - NOT_ZONES


@lru_cache(None)
def _open_zone(zone: str) -> ZoneInfo:
    """Load the rules of a checked name."""
    try:
        return ZoneInfo(zone)
    except (LookupError, OSError, ValueError) as error:  # listed, but without a readable file
        what = f"the rules of the time zone {zone!r} cannot be read"
        raise ProblemError(what, remedy="install the package tzdata") from error


def _suggest_zone(zone: object) -> str:
    """Write the remedy for an unknown zone: the name that was meant, or an example."""
    if not _list_zones():
        return "no time zone database was found: install the package tzdata"
    wrong = str(zone).strip().replace(" ", "_").casefold()
    if len(wrong) > MAX_ZONE_LETTERS or any(letter.isdigit() for letter in wrong):
        return EXAMPLE_ZONES  # nothing is near an offset: Etc/GMT+2 is two hours behind UTC
    places = defaultdict[str, list[str]](list)
    for name in sorted(_list_zones()):
        if not name.startswith("Etc/"):
            places[name.rpartition("/")[2].casefold()].append(name)
    place = wrong.rpartition("/")[2]
    close = find_similar(place, places, 0.75 if len(place) > 4 else 1.0)  # PST is not EST
    if close is None:
        return EXAMPLE_ZONES
    return f"did you mean {find_similar(wrong, places[close], cutoff=0.0)!r}?"


def _cut_text(given: object) -> object:
    """Shorten a text that is too long for a message."""
    long = isinstance(given, str) and len(given) > MAX_ZONE_LETTERS
    return f"{str(given)[:MAX_ZONE_LETTERS]}..." if long else given
