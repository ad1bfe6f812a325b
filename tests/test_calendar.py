"""Windows of the calendar: by examples, by walking minute by minute, by properties in all zones."""

import bisect
import importlib.resources
import itertools
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bylot.errors import ProblemError
from bylot.numerics.jit import Ints
from bylot.problem import instants as instants_module
from bylot.problem.calendar import (
    MAX_EDGES,
    SCAN_STEP_S,
    WINDOW_NAMES,
    Calendar,
    Window,
    WindowName,
    check_per,
    find_window,
    list_edges,
)
from bylot.problem.instants import END_OF_INSTANTS, check_zone, compute_utc_offset, format_instant

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
DAY = 24 * HOUR
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = sorted(zoneinfo.available_timezones() - {"localtime"})
PAIRS_PER_WINDOW = 1_200

Lister = Callable[[Calendar, int, int], Ints]
Key = tuple[int, ...]


def count_us(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    """The instant of a date and time in UTC."""
    when = datetime(year, month, day, hour, minute, tzinfo=UTC)
    return (when - EPOCH) // timedelta(microseconds=1)


def show_utc(instants: Any) -> list[str]:
    """Instants as dates and times in UTC."""
    return [f"{EPOCH + timedelta(microseconds=int(at)):%Y-%m-%d %H:%M}" for at in instants]


def read_local(zone: str, at: int) -> datetime:
    """What the clocks of a zone show, by zoneinfo."""
    return (EPOCH + timedelta(microseconds=at)).astimezone(zoneinfo.ZoneInfo(zone))


def name_window(per: WindowName, day: date) -> Key:
    """A key that grows with the day, week or month of a date."""
    if per == "month":
        return day.year, day.month
    return (day.toordinal() - (day.weekday() if per == "week" else 0),)


# Examples


def test_a_day_of_23_hours_and_a_day_of_25_hours_in_berlin() -> None:
    berlin = Calendar("day", "Europe/Berlin")
    for noon in count_us(2024, 3, 30, 23), count_us(2024, 3, 31, 12), count_us(2024, 3, 31, 21, 59):
        window = find_window(berlin, noon)
        assert show_utc(window) == ["2024-03-30 23:00", "2024-03-31 22:00"]
    window = find_window(berlin, count_us(2024, 10, 27, 12))
    assert show_utc(window) == ["2024-10-26 22:00", "2024-10-27 23:00"]
    assert window.end - window.start == 25 * HOUR


def test_a_window_contains_its_start_and_not_its_end() -> None:
    start, end = find_window(Calendar("day"), count_us(2024, 5, 5, 5))
    assert find_window(Calendar("day"), start) == Window(start, end)
    assert find_window(Calendar("day"), end - 1) == Window(start, end)
    assert find_window(Calendar("day"), end) == Window(end, end + DAY)
    assert find_window(Calendar("day"), start - 1) == Window(start - DAY, start)


def test_a_repeated_hour_is_two_windows_and_a_skipped_hour_is_none() -> None:
    berlin = Calendar("hour", "Europe/Berlin")
    edges = list_edges(berlin, count_us(2024, 10, 26, 23, 30), 4)
    assert [format_instant(edge, "Europe/Berlin")[11:22] for edge in edges.tolist()] == [
        "01:00 Europ",
        "02:00+02:00",
        "02:00+01:00",
        "03:00 Europ",
    ]
    edges = list_edges(berlin, count_us(2024, 3, 31, 0, 30), 3)
    assert [format_instant(edge, "Europe/Berlin")[11:16] for edge in edges.tolist()] == [
        "01:00",
        "03:00",
        "04:00",
    ]
    assert np.diff(edges).tolist() == [HOUR, HOUR]


def test_a_leap_day_has_a_window_and_2100_has_none() -> None:
    day, february = find_window(Calendar("day"), count_us(2028, 2, 29, 23)), Calendar("month")
    assert show_utc(day) == ["2028-02-29 00:00", "2028-03-01 00:00"]
    for year, days in (2000, 29), (2026, 28), (2028, 29), (2100, 28):
        start, end = find_window(february, count_us(year, 2, 28, 12))
        assert end - start == days * DAY


def test_months_have_28_to_31_days_and_an_hour_less_or_more_where_clocks_change() -> None:
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    edges = list_edges(Calendar("month"), count_us(2023, 1, 31), 13)
    assert np.diff(edges).tolist() == [days * DAY for days in lengths]
    edges = list_edges(Calendar("month", "Europe/Berlin"), count_us(2023, 1, 1), 13)
    change = {2: -HOUR, 9: +HOUR}
    expected = [days * DAY + change.get(i, 0) for i, days in enumerate(lengths)]
    assert np.diff(edges).tolist() == expected


def test_weeks_start_on_monday() -> None:
    for hours in 0, 1, 100, 167:
        at = count_us(2024, 10, 21) + hours * HOUR
        assert show_utc(find_window(Calendar("week"), at)) == [
            "2024-10-21 00:00",
            "2024-10-28 00:00",
        ]
    window = find_window(Calendar("week", "Europe/Berlin"), count_us(2024, 10, 27, 22, 59))
    assert show_utc(window) == ["2024-10-20 22:00", "2024-10-27 23:00"]
    assert show_utc(find_window(Calendar("week"), 0)) == ["1969-12-29 00:00", "1970-01-05 00:00"]


def test_kolkata_starts_its_days_and_hours_at_half_past() -> None:
    at = count_us(2024, 7, 1, 12)
    hour, day = (find_window(Calendar(per, "Asia/Kolkata"), at) for per in WINDOW_NAMES[:2])
    assert show_utc(day) == ["2024-06-30 18:30", "2024-07-01 18:30"]
    assert show_utc(hour) == ["2024-07-01 11:30", "2024-07-01 12:30"]


def test_lord_howe_changes_by_half_an_hour() -> None:
    hours = Calendar("hour", "Australia/Lord_Howe")
    edges = list_edges(hours, count_us(2024, 4, 6, 14, 20), 4)
    assert show_utc(edges) == [  # 01:00, 01:30 again, 02:00, 03:00
        "2024-04-06 14:00",
        "2024-04-06 15:00",
        "2024-04-06 15:30",
        "2024-04-06 16:30",
    ]
    edges = list_edges(hours, count_us(2024, 10, 5, 14, 50), 4)
    assert show_utc(edges) == [  # 01:00, 02:30, 03:00, 04:00
        "2024-10-05 14:30",
        "2024-10-05 15:30",
        "2024-10-05 16:00",
        "2024-10-05 17:00",
    ]
    days = [count_us(2024, 4, 6, 20), count_us(2024, 10, 5, 20)]
    windows = [find_window(Calendar("day", "Australia/Lord_Howe"), at) for at in days]
    assert [(end - start) / HOUR for start, end in windows] == [24.5, 23.5]


def test_the_day_that_apia_skipped_has_no_window() -> None:
    edges = list_edges(Calendar("day", "Pacific/Apia"), count_us(2011, 12, 29, 12), 3)
    assert [format_instant(edge, "Pacific/Apia")[:16] for edge in edges.tolist()] == [
        "2011-12-29 00:00",
        "2011-12-31 00:00",
        "2012-01-01 00:00",
    ]
    assert np.diff(edges).tolist() == [DAY, DAY]
    month = find_window(Calendar("month", "Pacific/Apia"), count_us(2011, 12, 20))
    assert month.end - month.start == 30 * DAY


def test_where_midnight_is_skipped_the_day_starts_at_one() -> None:
    cairo = find_window(Calendar("day", "Africa/Cairo"), count_us(2023, 4, 28, 12))
    assert show_utc(cairo) == ["2023-04-27 22:00", "2023-04-28 21:00"]
    assert format_instant(cairo.start, "Africa/Cairo") == "2023-04-28 01:00 Africa/Cairo"
    havana = find_window(Calendar("day", "America/Havana"), count_us(2024, 3, 10, 12))
    assert show_utc(havana) == ["2024-03-10 05:00", "2024-03-11 04:00"]
    sao_paulo = find_window(Calendar("day", "America/Sao_Paulo"), count_us(2018, 11, 4, 12))
    assert show_utc(sao_paulo) == ["2018-11-04 03:00", "2018-11-05 02:00"]


def test_clocks_that_go_back_at_midnight_lengthen_the_day_before() -> None:
    cairo = find_window(Calendar("day", "Africa/Cairo"), count_us(2023, 10, 26, 20, 59))
    assert show_utc(cairo) == ["2023-10-25 21:00", "2023-10-26 22:00"]
    assert find_window(Calendar("day", "Africa/Cairo"), count_us(2023, 10, 26, 21)) == cairo


def test_clocks_that_go_back_over_midnight_do_not_return_to_the_day_before() -> None:
    """In St. John's 00:01 became 23:01, in Havana 01:00 becomes 00:00."""
    edges = list_edges(Calendar("day", "America/St_Johns"), count_us(2006, 10, 28, 12), 3)
    assert show_utc(edges) == ["2006-10-28 02:30", "2006-10-29 02:30", "2006-10-30 03:30"]
    late = count_us(2006, 10, 29, 3)  # shows 23:30 of the 28th, for the second time
    assert read_local("America/St_Johns", late).day == 28
    assert find_window(Calendar("day", "America/St_Johns"), late).start == edges[1]
    havana = find_window(Calendar("day", "America/Havana"), count_us(2024, 11, 3, 5, 30))
    assert show_utc(havana) == ["2024-11-03 04:00", "2024-11-04 05:00"]


def test_the_offset_of_the_local_clock() -> None:
    assert compute_utc_offset("UTC", 0) == 0
    change = count_us(2024, 10, 27, 1)
    assert compute_utc_offset("Europe/Berlin", change - 1) == 2 * HOUR
    assert compute_utc_offset("Europe/Berlin", change) == HOUR
    assert compute_utc_offset("America/New_York", change) == -4 * HOUR
    assert compute_utc_offset("Africa/Monrovia", 0) == -(44 * MINUTE + 30 * SECOND)


def test_an_instant_is_written_for_people() -> None:
    at = count_us(2026, 11, 17, 23)
    assert format_instant(at, "Europe/Berlin") == "2026-11-18 00:00 Europe/Berlin"
    assert format_instant(at + 7 * SECOND + 1, "UTC") == "2026-11-17 23:00:07 UTC"
    early = find_window(Calendar("month", "Asia/Tokyo"), 0).start
    assert format_instant(early, "Asia/Tokyo") == "1970-01-01 00:00 Asia/Tokyo"


def test_the_edges_of_the_supported_time_are_instants_too() -> None:
    for per, zone in itertools.product(WINDOW_NAMES, ["UTC", "Asia/Tokyo", "America/New_York"]):
        for at in 0, END_OF_INSTANTS - 1:
            edges = list_edges(Calendar(per, zone), at, MAX_EDGES)
            assert edges.dtype == np.int64
            assert edges.shape == (MAX_EDGES,)
            assert (np.diff(edges) > 0).all()
            assert edges[0] <= at < edges[1]
            assert format_instant(int(edges[0]), zone)
            assert format_instant(int(edges[-1]), zone)
            assert isinstance(compute_utc_offset(zone, int(edges[-1])), int)


# The oracle: walk minute by minute


class Walk(NamedTuple):
    """The local clock of a zone at every minute from `first` on."""

    zone: str
    first: int
    local: list[datetime]


def walk_zone(zone: str, around: int, days: int) -> Walk:
    """Read the clock at every minute of so many days before and after."""
    first, clock = (around - days * DAY) // MINUTE * MINUTE, zoneinfo.ZoneInfo(zone)
    utc, minute = EPOCH + timedelta(microseconds=first), timedelta(minutes=1)
    return Walk(zone, first, [(utc + i * minute).astimezone(clock) for i in range(days * 2_880)])


def list_walked_edges(walk: Walk, per: WindowName) -> list[int]:
    """List where windows start: the maximum of the dates so far grows, or a full hour begins."""
    edges = []
    latest = name_window(per, walk.local[0])
    for i, (before, now) in enumerate(itertools.pairwise(walk.local), start=1):
        if per == "hour":
            starts = now.minute == 0 or now.utcoffset() != before.utcoffset()
        else:
            starts = name_window(per, now) > latest
            latest = max(latest, name_window(per, now))
        if starts:
            edges.append(walk.first + i * MINUTE)
    return edges


def has_fault(walk: Walk, per: WindowName, lister: Lister) -> bool:
    """Whether the edges differ from those of the walk, at its edges, near changes and at random."""
    edges = list_walked_edges(walk, per)
    rng, steps = np.random.default_rng(0), itertools.pairwise(walk.local)
    changes = [i for i, (old, new) in enumerate(steps) if old.utcoffset() != new.utcoffset()]
    near = [walk.first + i * MINUTE + ago * HOUR // 2 for i in changes for ago in range(-6, 7)]
    instants = [*near, *edges[:20], *rng.integers(edges[0], edges[-1], 20).tolist()]
    for at in instants:
        place = bisect.bisect_right(edges, at)
        if 0 < place < len(edges):
            listed = lister(Calendar(per, walk.zone), at, len(edges) - place + 1)
            if listed.tolist() != edges[place - 1 :]:
                return True
    return False


WALKS = [
    ("Europe/Berlin", count_us(2024, 3, 31)),
    ("Europe/Berlin", count_us(2024, 10, 27)),
    ("Australia/Lord_Howe", count_us(2024, 4, 7)),
    ("Pacific/Apia", count_us(2011, 12, 30)),
    ("Pacific/Kwajalein", count_us(1993, 8, 21)),
    ("Pacific/Kiritimati", count_us(1994, 12, 31)),
    ("Africa/Cairo", count_us(2023, 4, 28)),
    ("Africa/Cairo", count_us(2023, 10, 27)),
    ("Africa/Casablanca", count_us(2024, 3, 27)),
    ("America/St_Johns", count_us(1988, 4, 3)),  # by two hours
    ("America/St_Johns", count_us(2009, 11, 1)),  # back over the start of a month
    ("America/Havana", count_us(2024, 11, 3)),
    ("America/Sao_Paulo", count_us(2019, 2, 17)),
    ("America/Recife", count_us(2000, 10, 12)),  # two changes within a week
    ("Asia/Gaza", count_us(2040, 10, 24)),  # likewise
    ("Asia/Kathmandu", count_us(1986, 1, 1)),
    ("Antarctica/Vostok", count_us(1994, 2, 1)),  # by seven hours
    ("Antarctica/Troll", count_us(2199, 3, 31)),
]


@pytest.mark.parametrize(("zone", "around"), WALKS, ids=lambda one: str(one))
def test_windows_are_those_of_a_walk_by_minutes(zone: str, around: int) -> None:
    walk = walk_zone(zone, around, days=33)
    if around < count_us(2025, 1, 1):  # rules of the future may change
        assert len({local.utcoffset() for local in walk.local}) > 1
    for per in WINDOW_NAMES:
        assert not has_fault(walk, per, list_edges)


def list_fixed_days(calendar: Calendar, at: int, count: int) -> Ints:
    """Wrong: days of 24 hours."""
    return np.arange(count) * DAY + int(list_edges(calendar, at, 1)[0])


def list_by_date(calendar: Calendar, at: int, count: int) -> Ints:
    """Wrong: the day of an instant is its local date, even where clocks have gone back."""
    day, zone = read_local(calendar.zone, at).date(), zoneinfo.ZoneInfo(calendar.zone)
    days = [day + timedelta(i) for i in range(count)]
    starts = [datetime(one.year, one.month, one.day, tzinfo=zone) for one in days]
    return np.array([(one - EPOCH) // timedelta(microseconds=1) for one in starts])


def list_hours_by_clock(calendar: Calendar, at: int, count: int) -> Ints:
    """Wrong: hours start at full hours only."""
    edges = list_edges(calendar, at - 2 * HOUR, count + 8).tolist()
    full = [edge for edge in edges if read_local(calendar.zone, edge).minute == 0]
    return np.array([edge for edge in full if edge > at - HOUR][:count])


def test_the_walk_notices_wrong_windows() -> None:
    berlin = walk_zone("Europe/Berlin", count_us(2024, 3, 31), days=4)
    st_johns = walk_zone("America/St_Johns", count_us(2006, 10, 29), days=4)
    lord_howe = walk_zone("Australia/Lord_Howe", count_us(2024, 4, 7), days=4)
    assert has_fault(berlin, "day", list_fixed_days)
    assert has_fault(st_johns, "day", list_by_date)
    assert has_fault(lord_howe, "hour", list_hours_by_clock)
    assert not has_fault(berlin, "day", list_by_date)
    assert not has_fault(berlin, "hour", list_hours_by_clock)


# Properties in all zones


def pick_instant(zone: str, rng: np.random.Generator) -> int:
    """Pick an instant of any time; or if it can be, one within a day of a change of the offset."""
    low = int(rng.integers(0, END_OF_INSTANTS - 1_000 * DAY))
    high = low + 182 * DAY
    offset = read_local(zone, low).utcoffset()
    if rng.random() < 0.2 or read_local(zone, high).utcoffset() == offset:
        return low
    while high - low > SECOND:
        middle = (low + high) // 2
        same = read_local(zone, middle).utcoffset() == offset
        low, high = (middle, high) if same else (low, middle)
    return max(0, high + int(rng.normal(0, 6 * HOUR)))


def find_broken_rule(
    calendar: Calendar, at: int, lister: Lister, rng: np.random.Generator
) -> str | None:
    """Name a rule that the windows from this instant on break."""
    edges = lister(calendar, at, 4).tolist()
    if not edges[0] <= at < edges[1] or sorted(set(edges)) != edges:
        return "the first window contains the instant, and edges increase"
    if edges[0] > 0 and lister(calendar, edges[0] - 1, 2).tolist()[1] != edges[0]:
        return "the window before ends where this one starts"
    for start, end in itertools.pairwise(edges):
        if start >= 0 and lister(calendar, int(rng.integers(start, end)), 2).tolist() != [
            start,
            end,
        ]:
            return "every instant of a window has the same window"
        rule = find_broken_hour if calendar.per == "hour" else find_broken_date
        if broken := rule(calendar, start, end):
            return broken
    return None


def find_broken_hour(calendar: Calendar, start: int, end: int) -> str | None:
    """Name a rule of hours that this window breaks."""
    before, first, last = (read_local(calendar.zone, at) for at in (start - 1, start, end - 1))
    if end - start > HOUR:
        return "no hour is longer than an hour"
    if first.utcoffset() != last.utcoffset() or first.hour != last.hour:
        return "in an hour, neither the offset nor the hour of the clock changes"
    full = first.minute == first.second == first.microsecond == 0
    if not full and first.utcoffset() == before.utcoffset():
        return "an hour starts at a full hour or a change of the offset"
    return None


def find_broken_date(calendar: Calendar, start: int, end: int) -> str | None:
    """Name a rule of days, weeks and months that this window breaks."""

    def name(at: int) -> Key:
        return name_window(calendar.per, read_local(calendar.zone, at))

    window = name(start)
    if any(name(start - ago) >= window for ago in (1, MINUTE, HOUR, 2 * HOUR, 8 * HOUR, DAY)):
        return "before the start, the date was earlier"
    if any(name(at) > window for at in (start + HOUR, (start + end) // 2, end - 1) if at < end):
        return "before the end, the date is not later"
    return None if name(end) > window else "at the end, the date is later"


@pytest.mark.parametrize("per", WINDOW_NAMES)
def test_windows_follow_the_rules_in_all_zones(per: WindowName) -> None:
    rng = np.random.default_rng(7)
    for i in range(max(PAIRS_PER_WINDOW, 2 * len(ZONES))):
        zone = ZONES[i % len(ZONES)]
        at = pick_instant(zone, rng)
        broken = find_broken_rule(Calendar(per, zone), at, list_edges, rng)
        assert broken is None, (zone, at, broken)
        window = find_window(Calendar(per, zone), at)
        assert window == tuple(list_edges(Calendar(per, zone), at, 2).tolist())
        offset = read_local(zone, at).utcoffset()
        assert timedelta(microseconds=compute_utc_offset(zone, at)) == offset


def test_the_rules_notice_wrong_windows() -> None:
    rng, at = np.random.default_rng(7), count_us(2024, 3, 30, 23)
    for per in WINDOW_NAMES[1:]:
        berlin = Calendar(per, "Europe/Berlin")
        assert find_broken_rule(berlin, at, list_fixed_days, rng)
    late = count_us(2006, 10, 29, 3)
    assert find_broken_rule(Calendar("day", "America/St_Johns"), late, list_by_date, rng)
    lord_howe = Calendar("hour", "Australia/Lord_Howe")
    assert find_broken_rule(lord_howe, count_us(2024, 4, 6, 15, 10), list_hours_by_clock, rng)


def read_changes(zone: str) -> list[int]:
    """Read the seconds at which the UTC offset changes from the file of a zone (RFC 9636)."""
    paths = [Path(folder, zone) for folder in zoneinfo.TZPATH]
    packaged = importlib.resources.files("tzdata").joinpath("zoneinfo", *zone.split("/"))
    data = next((path.read_bytes() for path in paths if path.is_file()), None)
    data = packaged.read_bytes() if data is None else data
    counts = np.frombuffer(data, ">i4", 6, 20)
    start = 44 + int(counts @ [1, 1, 8, 5, 6, 1])  # the second part has times of 8 bytes
    assert data[start : start + 4] == b"TZif"
    times, types = np.frombuffer(data, ">i4", 6, start + 20)[3:5].tolist()
    body = start + 44
    instants = np.frombuffer(data, ">i8", times, body).tolist()
    kinds = np.frombuffer(data, np.uint8, times, body + 8 * times)
    table = np.frombuffer(data, [("offset", ">i4"), ("rest", "V2")], types, body + 9 * times)
    offsets = table["offset"][kinds].tolist()
    after = itertools.pairwise(offsets)
    return [at for at, (old, new) in zip(instants[1:], after, strict=True) if old != new]


def test_a_look_every_two_days_finds_all_changes_of_an_offset() -> None:
    gaps = [
        later - earlier
        for zone in ZONES
        for earlier, later in itertools.pairwise(read_changes(zone))
        if earlier > -366 * 86_400
    ]
    assert len(gaps) > 10_000
    assert min(gaps) > 3 * SCAN_STEP_S


# Refusals


@pytest.mark.parametrize(
    ("zone", "remedy"),
    [
        ("Europe/Belrin", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("Berlin", "did you mean 'Europe/Berlin'?"),
        ("Amerika/New York", "did you mean 'America/New_York'?"),
        ("US/Eastren", "did you mean 'US/Eastern'?"),
        ("utc", "did you mean 'UTC'?"),
        ("CEST", "use a name such as 'Europe/Berlin' or 'UTC'"),
        ("PST", "use a name such as 'Europe/Berlin' or 'UTC'"),
        ("+02:00", "use a name such as 'Europe/Berlin' or 'UTC'"),
        ("GMT+2", "use a name such as 'Europe/Berlin' or 'UTC'"),
    ],
)
def test_an_unknown_zone_is_refused_with_a_remedy(zone: str, remedy: str) -> None:
    with pytest.raises(ProblemError) as caught:
        check_zone(zone)
    assert caught.value.got == zone
    assert caught.value.expected == "a name of the IANA time zone database"
    assert caught.value.remedy == remedy


NO_ZONES = [
    *("", ".", "..", "/", "/etc", "/etc/localtime", "../etc", "../../etc/passwd"),
    *("Europe", "Europe/", "Europe//Berlin", "Europe/../UTC", "./UTC", "Europe\\Berlin"),
    *("posixrules", "localtime", "posix/UTC", "right/UTC", "zone.tab", "tzdata.zi", "leapseconds"),
    *("UTC\0", "\0", "\ud800", " UTC", "UTC\n", "a" * 10_000, "../" * 3_000),
    *(None, 0, 2.0, True, b"UTC", ["UTC"], {"zone": "UTC"}, zoneinfo.ZoneInfo("UTC"), np.zeros(3)),
]


@pytest.mark.parametrize("zone", NO_ZONES, ids=lambda one: repr(one)[:20])
def test_what_is_no_zone_is_refused_and_no_file_is_opened_for_it(
    zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a file would be opened")

    check_zone("UTC")  # lists the database
    monkeypatch.setattr(instants_module, "ZoneInfo", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    calls: list[Callable[[], object]] = [
        lambda: check_zone(zone),
        lambda: find_window(Calendar("day", zone), 0),
        lambda: list_edges(Calendar("hour", zone), 0, 2),
        lambda: compute_utc_offset(zone, 0),
        lambda: format_instant(0, zone),
    ]
    for call in calls:
        with pytest.raises(ProblemError, match="invalid time zone") as caught:
            call()
        assert len(str(caught.value)) < 400
        assert caught.value.remedy


def test_a_listed_zone_without_a_readable_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = frozenset({"Nowhere/Known"})
    monkeypatch.setattr(instants_module, "_list_zones", lambda: names)
    with pytest.raises(ProblemError, match="cannot be read; install the package tzdata"):
        compute_utc_offset("Nowhere/Known", 0)
    monkeypatch.setattr(instants_module, "_list_zones", frozenset)
    with pytest.raises(ProblemError, match="no time zone database was found: install the package"):
        check_zone("UTC")


@pytest.mark.parametrize(
    ("per", "remedy"),
    [
        ("days", "did you mean 'day'?"),
        ("Week", "did you mean 'week'?"),
        ("monthly", "did you mean 'month'?"),
        ("year", "use one of these"),
        ("", "use one of these"),
        ("x" * 10_000, "use one of these"),
        (None, "use one of these"),
        (24, "use one of these"),
        (["day"], "use one of these"),
        (np.zeros(3), "use one of these"),
    ],
    ids=lambda one: repr(one)[:20],
)
def test_what_is_no_window_is_refused_with_a_remedy(per: Any, remedy: str) -> None:
    with pytest.raises(ProblemError, match="expected 'hour', 'day', 'week' or 'month'") as caught:
        check_per(per)
    assert caught.value.remedy == remedy
    assert len(str(caught.value)) < 400
    with pytest.raises(ProblemError, match="invalid per"):
        list_edges(Calendar(per), 0, 1)


@pytest.mark.parametrize(
    "at",
    [-1, END_OF_INSTANTS, 2**63, -(2**80), 1.0, float("nan"), True, None, "0", EPOCH],
    ids=repr,
)
def test_what_is_no_instant_is_refused(at: Any) -> None:
    for per in WINDOW_NAMES:
        with pytest.raises(ProblemError, match=r"invalid instant .* unit is microseconds"):
            find_window(Calendar(per), at)


@pytest.mark.parametrize("at", [-(2**60), 2**60, 2**80, 1.0, True, None, "0"], ids=repr)
def test_what_no_window_can_reach_is_not_written_either(at: Any) -> None:
    with pytest.raises(ProblemError, match="invalid instant"):
        format_instant(at, "UTC")
    with pytest.raises(ProblemError, match="invalid instant"):
        compute_utc_offset("UTC", at)


@pytest.mark.parametrize("count", [0, -1, MAX_EDGES + 1, 2**70, 1.0, True, None, "2"], ids=repr)
def test_what_is_no_number_of_edges_is_refused(count: Any) -> None:
    with pytest.raises(ProblemError, match=f"expected an integer from 1 to {MAX_EDGES}"):
        list_edges(Calendar("day"), 0, count)


def test_integers_of_numpy_are_instants_and_numbers() -> None:
    at, calendar = np.int64(count_us(2024, 7, 1)), Calendar("day", "Asia/Tokyo")
    edges = list_edges(calendar, at, np.int32(2))  # type: ignore[arg-type]
    assert edges.tolist() == list_edges(calendar, int(at), 2).tolist()
    assert all(type(edge) is int for edge in find_window(calendar, at))  # type: ignore[arg-type]
