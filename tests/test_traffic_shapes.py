"""Simulated traffic: arrivals follow the rates of the local clock, and are pure in the seed."""

import math
import pickle
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, get_args
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bylot.environments.traffic import (
    MAX_ARRIVALS,
    MAX_PER_DAY,
    MAX_TRAFFIC_DAYS,
    Traffic,
    TrafficHours,
    TrafficShape,
    find_instants,
    traffic_from_text,
)
from bylot.errors import BylotError, ValuesError
from bylot.numerics.jit import Bools, Floats, Ints
from bylot.problem.instants import END_OF_INSTANTS

SHAPES: tuple[TrafficShape, ...] = get_args(TrafficShape)
HOUR = 3_600_000_000  # in microseconds
HALF_HOUR = HOUR // 2  # the offsets of all zones below are multiples of it
BERLIN = "Europe/Berlin"


def make_week(swing: float, weekend: float) -> Floats:
    """(7, 24) requests in each hour of a week, from Monday on, at one request per day."""
    curve = np.array([1 + swing * np.cos(2 * np.pi * (hour - 14) / 24) for hour in range(24)])
    week = np.outer([1.0] * 5 + [weekend] * 2, curve)
    return np.asarray(7 * week / week.sum())


FLAT, DAILY, WEEKEND = make_week(0, 1), make_week(7 / 9, 1), make_week(7 / 9, 0.3)


def find_local_time(instant: int, zone: str) -> datetime:
    """What a local clock shows."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (epoch + timedelta(microseconds=instant)).astimezone(ZoneInfo(zone))


def find_instant(start: str, zone: str = "UTC", days: int = 0) -> int:
    """The instant, in microseconds since 1970, so many local days after a local time."""
    local = datetime.fromisoformat(start) + timedelta(days=days)
    return int(local.replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000


def sum_by_hour_of_week(halves: Iterable[int], counts: Iterable[int], zone: str) -> Floats:
    """(7, 24) the sums of these counts of half hours since 1970, by local hour of the week."""
    sums = np.zeros((7, 24))
    for half, count in zip(halves, counts, strict=True):
        local = find_local_time(half * HALF_HOUR, zone)
        sums[local.weekday(), local.hour] += count
    return sums


def compute_deviation(traffic: Traffic, believed: Floats, zone: str) -> float:
    """The largest z-score of a year's arrivals by hour of the week, if the rates were these."""
    first = find_instant(traffic.start, traffic.zone) // HALF_HOUR
    last = find_instant(traffic.start, traffic.zone, days=364) // HALF_HOUR
    arrivals, halves = traffic.arrivals_until(364, seed=3), range(first, last)
    counts = np.bincount(arrivals // HALF_HOUR - first, minlength=len(halves)).tolist()
    seen = sum_by_hour_of_week(halves, counts, zone)
    hours = sum_by_hour_of_week(halves, [1] * len(halves), zone) / 2
    mean = traffic.per_day * hours * believed
    return float(np.abs((seen - mean) / np.sqrt(mean)).max())


def count_by_hour(arrivals: Ints, start: int, hours: int) -> Ints:
    """(hours,) arrivals in each hour from the start on."""
    return np.bincount((arrivals - start) // HOUR, minlength=hours)


def compute_z(seen: float, mean: float, variance: float | None = None) -> float:
    """The z-score of a count; of Poisson if no variance is given."""
    return abs(seen - mean) / float(np.sqrt(mean if variance is None else variance))


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "Asia/Kolkata", "America/New_York"])
@pytest.mark.parametrize(
    ("shape", "week"), [("flat", FLAT), ("daily", DAILY), ("weekend", WEEKEND)], ids=SHAPES[:3]
)
def test_arrivals_follow_the_rates_of_the_local_hour(
    shape: TrafficShape, week: Floats, zone: str
) -> None:
    traffic = Traffic(shape, 5_000, start="2026-02-03", zone=zone)
    assert compute_deviation(traffic, week, zone) < 5  # of 168 z-scores; fixed seed


@pytest.mark.parametrize(
    ("shape", "believed", "zone"),
    [
        ("daily", make_week(6 / 8, 1), BERLIN),
        ("daily", np.roll(DAILY, 1, axis=1), BERLIN),
        ("daily", DAILY, "UTC"),
        ("weekend", make_week(7 / 9, 0.27), BERLIN),
        ("flat", 1.06 * FLAT, BERLIN),
    ],
    ids=["ratio of 7", "peak at 15", "another zone", "weekends of 27 %", "6 % more"],
)
def test_the_test_above_would_notice_other_rates(
    shape: TrafficShape, believed: Floats, zone: str
) -> None:
    traffic = Traffic(shape, 5_000, start="2026-02-03", zone=BERLIN)
    assert compute_deviation(traffic, believed, zone) > 5


def test_a_day_peaks_at_14_and_has_an_eighth_of_that_at_2() -> None:
    rates = Traffic("daily", 2_400).hours(1, seed=0).rates
    assert rates.argmax() == 14
    assert rates.argmin() == 2
    assert rates[14] / rates[2] == pytest.approx(8)


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_a_week_has_seven_times_the_requests_of_per_day(shape: TrafficShape) -> None:
    assert Traffic(shape, 2_400).hours(7, seed=0).sum_rates()[-1] == pytest.approx(7 * 2_400)


def compute_dispersion(arrivals: Ints, hours: int, mean: float) -> float:
    """The z-score of chi^2 of the counts by hour: mean n and variance 2 n + n / mean if Poisson."""
    counts = count_by_hour(arrivals, find_instant("2026-01-01"), hours)
    squares = float(((counts - mean) ** 2 / mean).sum())
    return compute_z(squares, hours, 2 * hours + hours / mean)


def test_counts_by_hour_vary_as_those_of_a_poisson_process() -> None:
    arrivals = Traffic("flat", 240).arrivals_until(500, seed=1)
    assert compute_dispersion(arrivals, 500 * 24, mean=10) < 5


def test_the_test_above_would_notice_even_gaps() -> None:
    even = find_instant("2026-01-01") + np.arange(500 * 240) * (HOUR // 10)
    assert compute_dispersion(even, 500 * 24, mean=10) > 5


def test_arrivals_are_uniform_within_their_hour() -> None:
    arrivals = Traffic("daily", 10_000).arrivals_until(100, seed=1)
    counts = np.bincount(arrivals % HOUR // (HOUR // 60), minlength=60)
    mean = len(arrivals) / 60
    assert np.abs(counts - mean).max() < 5 * np.sqrt(mean)


BURST_DAYS = 1_000


def find_bursts(seed: int) -> tuple[Bools, Ints, Floats]:
    """Which hours have more than five times the requests of the daily curve, all counts, and the
    curve; an hour without a burst has a mean of 22 to 178, so that none is taken for another.
    """
    arrivals = Traffic("bursts", 2_400).arrivals_until(BURST_DAYS, seed)
    counts = count_by_hour(arrivals, find_instant("2026-01-01"), 24 * BURST_DAYS)
    curve = np.tile(2_400 * DAILY[0], BURST_DAYS)
    return counts > 5 * curve, counts, curve


def test_bursts_have_20_times_the_requests_and_other_hours_are_as_usual() -> None:
    burst, counts, curve = find_bursts(seed=5)
    seen, usual = counts[burst].sum(), curve[burst].sum()
    assert compute_z(seen, 20 * usual) < 5
    assert compute_z(seen, 19 * usual) > 5, "a factor of 19 would be noticed"
    assert compute_z(seen, 21 * usual) > 5
    assert compute_z(counts[~burst].sum(), curve[~burst].sum()) < 5


def test_bursts_begin_on_one_day_in_ten_at_any_hour_and_last_one_or_two_hours() -> None:
    burst, _, _ = find_bursts(seed=5)
    begins = np.flatnonzero(burst & ~np.append(False, burst[:-1]))
    lengths = np.flatnonzero(burst & ~np.append(burst[1:], False)) - begins + 1
    n, p = BURST_DAYS, 0.1
    assert compute_z(len(begins), n * p, n * p * (1 - p)) < 5
    assert compute_z(len(begins), n / 5, n * p * (1 - p)) > 5, "one in five would be noticed"
    assert set(lengths.tolist()) == {1, 2}  # two in a row would be longer; none are, by this seed
    assert compute_z((lengths == 2).sum(), len(begins) / 2, len(begins) / 4) < 5
    hours = np.bincount(begins % 24, minlength=24)
    mean = len(begins) / 24
    assert np.abs(hours - mean).max() < 5 * np.sqrt(mean)
    assert not np.array_equal(burst, find_bursts(seed=6)[0])


def find_dead_days(days: int, seed: int) -> tuple[Bools, Ints]:
    """Which days have no request, and the counts of all of them."""
    arrivals = Traffic("dead-days", 1_000, start="2026-01-05").arrivals_until(days, seed)  # Monday
    counts = np.bincount((arrivals - find_instant("2026-01-05")) // (24 * HOUR), minlength=days)
    return counts == 0, counts


def test_about_every_12th_day_is_dead_and_the_others_are_as_usual() -> None:
    n, p = 2_100, 1 / 12
    dead, counts = find_dead_days(n, seed=5)
    assert compute_z(dead.sum(), n * p, n * p * (1 - p)) < 5
    assert compute_z(dead.sum(), n / 7, n * p * (1 - p)) > 5, "one day in 7 would be noticed"
    usual = np.tile(1_000 * WEEKEND.sum(axis=1), n // 7)
    assert usual.min() == pytest.approx(375), "so that no other day is empty by chance"
    assert compute_z(counts.sum(), usual[~dead].sum()) < 5
    assert np.abs((counts - usual) / np.sqrt(usual))[~dead].max() < 5
    by_weekday = np.bincount(np.flatnonzero(dead) % 7, minlength=7)
    assert np.abs(by_weekday - dead.sum() / 7).max() < 5 * np.sqrt(dead.sum() / 7)
    assert not np.array_equal(dead, find_dead_days(n, seed=6)[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_fewer_rounds_have_the_same_first_arrivals(shape: TrafficShape) -> None:
    traffic = Traffic(shape, 50, start="2026-01-01T09:30", zone=BERLIN)
    longest = traffic.arrivals(20_000, seed=7)
    assert longest.dtype == np.int64
    assert (np.diff(longest) >= 0).all()
    for rounds in (0, 1, 2, 255, 256, 257, 1_000, 4_095, 19_999):
        assert_array_equal(traffic.arrivals(rounds, seed=7), longest[:rounds])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_arrivals_of_some_days_are_the_first_arrivals(shape: TrafficShape) -> None:
    traffic = Traffic(shape, 50, start="2026-01-01T09:30", zone=BERLIN)
    longest = traffic.arrivals(20_000, seed=7)
    for days in (0, 1, 2, 30, 87, 88, 300):  # on the 88th day clocks change
        end = find_instant("2026-01-01", BERLIN, days)
        assert_array_equal(traffic.arrivals_until(days, seed=7), longest[longest < end])


def test_a_first_guess_that_is_too_small_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traffic = Traffic("daily", 50)
    expected = traffic.arrivals_until(100, seed=0)
    small = SimpleNamespace(ceil=lambda _: 1, sqrt=math.sqrt)
    monkeypatch.setattr("bylot.environments.traffic.math", small)
    assert_array_equal(traffic.arrivals_until(100, seed=0), expected)
    assert_array_equal(traffic.arrivals(len(expected), seed=0), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_arrivals_depend_on_the_settings_and_the_seed_only(shape: TrafficShape) -> None:
    traffic = Traffic(shape, 500)
    first = traffic.arrivals(5_000, seed=1)
    traffic.arrivals(300, seed=2)
    assert_array_equal(traffic.arrivals(5_000, seed=1), first)
    assert_array_equal(pickle.loads(pickle.dumps(traffic)).arrivals(5_000, seed=1), first)
    for other in (replace(traffic, per_day=501), replace(traffic, start="2026-01-02")):
        assert not np.array_equal(other.arrivals(5_000, seed=1), first)
    assert not np.array_equal(traffic.arrivals(5_000, seed=2), first)


@pytest.mark.parametrize("shape", SHAPES)
def test_bursts_and_dead_days_stay_on_their_dates_if_the_start_moves(shape: TrafficShape) -> None:
    early = Traffic(shape, 500, "2026-01-01", BERLIN).hours(400, seed=4)
    for day in range(1, 40):
        start = (datetime(2026, 1, 1) + timedelta(days=day)).date().isoformat()
        late = Traffic(shape, 500, start, BERLIN).hours(400 - day, seed=4)
        for whole, part in zip(early, late, strict=True):
            assert_array_equal(whole[24 * day :], part)


def test_a_burst_before_midnight_goes_on_if_the_start_is_midnight() -> None:
    rates = Traffic("bursts", 500).hours(3_000, seed=4).rates.reshape(-1, 24)
    burst = rates > 5 * rates.min(axis=0)
    days = np.flatnonzero(burst[:-1, 23] & burst[1:, 0]) + 1
    assert len(days) > 0, "there is such a burst"
    for day in days.tolist():
        start = (datetime(2026, 1, 1) + timedelta(days=day)).date().isoformat()
        late = Traffic("bursts", 500, start).hours(1, seed=4)
        assert_array_equal(late.rates, rates[day])


def test_no_request_arrives_in_an_hour_of_rate_0() -> None:
    hours = TrafficHours(HOUR * np.arange(4), np.full(4, HOUR), np.array([2.0, 0.0, 0.0, 1.0]))
    instants = find_instants(hours, np.array([0.0, 1.0, 2.0, 2.5]))  # of 3 requests
    assert_array_equal(instants, [0, HOUR // 2, 3 * HOUR, 3 * HOUR + HOUR // 2])


def count_day(day: str, zone: str = BERLIN) -> tuple[int, Ints]:
    """The arrivals of a local day at 10,000 per hour: all, and (24,) by local hour."""
    arrivals = Traffic("flat", 240_000, day, zone).arrivals_until(1, seed=2)
    end = find_instant(day, zone, days=1)
    assert find_instant(day, zone) <= arrivals[0] < arrivals[-1] < end
    halves, counts = np.unique(arrivals // HALF_HOUR, return_counts=True)
    sums = sum_by_hour_of_week(halves.tolist(), counts.tolist(), zone).sum(axis=0)
    return len(arrivals), sums.astype(np.int64)


def test_the_day_on_which_clocks_go_forward_has_23_hours() -> None:
    total, hours = count_day("2026-03-29")
    assert compute_z(total, 230_000) < 5
    assert compute_z(total, 240_000) > 5, "a day of 24 hours would be noticed"
    assert hours[2] == 0
    assert np.abs(np.delete(hours, 2) - 10_000).max() < 5 * np.sqrt(10_000)


def test_the_day_on_which_clocks_go_back_has_25_hours() -> None:
    total, hours = count_day("2026-10-25")
    assert compute_z(total, 250_000) < 5
    assert compute_z(total, 240_000) > 5, "a day of 24 hours would be noticed"
    assert compute_z(hours[2], 20_000) < 5
    assert np.abs(np.delete(hours, 2) - 10_000).max() < 5 * np.sqrt(10_000)


@pytest.mark.parametrize(
    ("zone", "start", "length", "count"),
    [
        (BERLIN, "2026-01-01", 24, 24),
        (BERLIN, "2026-03-29", 23, 23),
        (BERLIN, "2026-10-25", 25, 24),
        ("America/Havana", "2026-03-08", 23, 23),  # midnight is skipped
        ("America/Havana", "2026-11-01", 25, 24),  # midnight is repeated
        ("Australia/Lord_Howe", "2026-10-04", 23.5, 24),  # clocks change by half an hour
        ("Australia/Lord_Howe", "2026-04-05", 24.5, 24),
        ("Asia/Kolkata", "2026-03-29", 24, 24),
        ("Pacific/Apia", "2011-12-29", 24, 24),
        ("Pacific/Apia", "2011-12-30", 0, 0),  # this day was skipped
        (BERLIN, "2026-03-29T01:30", 21.5, 22),
        (BERLIN, "2026-03-29T23:59:59.999999", 1 / HOUR, 1),
    ],
)
def test_hours_follow_the_local_clock(zone: str, start: str, length: float, count: int) -> None:
    hours = Traffic("daily", 24, start, zone).hours(1, seed=0)
    assert len(hours.starts) == count
    assert hours.lengths.sum() == round(length * HOUR)
    assert (hours.lengths > 0).all()
    assert_array_equal(hours.starts[1:], hours.starts[:-1] + hours.lengths[:-1])
    local = [find_local_time(one, zone) for one in hours.starts.tolist()]
    assert_allclose(hours.rates, [24 * DAILY[0, one.hour] for one in local], rtol=1e-12)
    assert all(one.date() == datetime.fromisoformat(start).date() for one in local)


def test_requests_arrive_from_the_start_on() -> None:
    traffic = Traffic("flat", 240_000, "2026-05-04T18:30", "Asia/Kolkata")
    arrivals, start = traffic.arrivals_until(1, seed=0), find_instant("2026-05-04T13:00")
    assert start < arrivals[0] < start + HOUR // 10
    assert compute_z(len(arrivals), 55_000) < 5


def test_all_instants_are_in_the_range_of_calendars() -> None:
    assert Traffic("flat", 1, "1971-01-01", "Pacific/Kiritimati").hours(1, seed=0).starts[0] > 0
    last = Traffic("flat", 1, "2100-12-31", "Etc/GMT+12").hours(MAX_TRAFFIC_DAYS, seed=0)
    assert last.starts[-1] + last.lengths[-1] < END_OF_INSTANTS


def test_many_requests_can_arrive_in_the_same_microsecond() -> None:
    arrivals = Traffic("daily", MAX_PER_DAY).arrivals(10_000, seed=0)
    assert (np.diff(arrivals) == 0).any()
    assert (np.diff(arrivals) >= 0).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flat:per_day=10", Traffic("flat", 10)),
        ("dead-days:per_day=1e3", Traffic("dead-days", 1_000.0)),
        (
            "daily:per_day=2000,start=2026-03-01,zone=Europe/Berlin",
            Traffic("daily", 2_000, "2026-03-01", BERLIN),
        ),
        (
            " bursts: zone=UTC, start=2026-03-01T08:30:15 ,per_day = 0.5 ",
            Traffic("bursts", 0.5, "2026-03-01T08:30:15"),
        ),
    ],
)
def test_traffic_is_read_from_text(text: str, expected: Traffic) -> None:
    assert traffic_from_text(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dayly:per_day=20", "invalid shape 'dayly': .*; did you mean 'daily'?"),
        ("dead_days:per_day=20", "did you mean 'dead-days'?"),
        ("", "invalid shape '': .*; the shapes are 'flat', 'daily', 'weekend', 'bursts', 'dead-"),
        ("per_day=20", "invalid shape 'per_day=20'"),
        ("daily", "the traffic has no per_day; write daily:per_day=2000 for"),
        ("daily:", "the traffic has no per_day"),
        ("daily:zone=UTC", "the traffic has no per_day"),
        ("daily:per_day", "invalid setting of traffic 'per_day': expected NAME=VALUE"),
        ("daily:per_day=20,", "invalid setting of traffic ''"),
        ("daily:perday=20", "traffic has no setting 'perday'; did you mean 'per_day'?"),
        ("daily:shape=flat", "traffic has no setting 'shape'; the settings are 'per_day'"),
        ("daily:per_day=20,per_day=30", "per_day of traffic is given twice"),
        ("daily:per_day=many", "invalid per_day 'many': expected a number"),
        ("daily:per_day=nan", "invalid per_day nan"),
        ("daily:per_day=20,zone=Europe/Berln", "'Europe/Berln': .*; did you mean 'Europe/Berlin'?"),
        ("daily:per_day=20,start=tomorrow", "invalid start 'tomorrow': expected an ISO date"),
    ],
)
def test_wrong_text_is_refused_with_a_remedy(text: str, message: str) -> None:
    with pytest.raises(BylotError, match=message.replace("?", r"\?")):
        traffic_from_text(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("shape", value) for value in ("Daily", None, 3, ["flat"])),
        *(("per_day", value) for value in (0, -1, 1e-4, 2e9, np.inf, np.nan, True, "20", None)),
        *(("start", value) for value in ("", "2026-02-30", "2026-01-01T00:00+01:00", "1970-12-31")),
        *(("start", value) for value in ("2101-01-01", 2026, None, datetime(2026, 1, 1))),
        *(("zone", value) for value in ("", "Berlin/Europe", "../UTC", "Europe", "+01:00", None)),
    ],
)
def test_an_invalid_setting_is_refused_with_its_value_and_a_remedy(name: str, value: Any) -> None:
    settings: dict[str, Any] = {"shape": "flat", "per_day": 20, name: value}
    with pytest.raises(BylotError) as caught:
        Traffic(**settings)
    assert caught.value.got is value
    assert caught.value.expected
    assert caught.value.remedy


@pytest.mark.parametrize("bad", [-1, 1.5, "3", None, True, 2**63])
@pytest.mark.parametrize("name", ["rounds", "days", "seed"])
def test_an_invalid_number_is_refused(name: str, bad: Any) -> None:
    traffic = Traffic("flat", 20)
    draw = traffic.arrivals_until if name == "days" else traffic.arrivals
    size = "days" if name == "days" else "rounds"
    with pytest.raises(ValuesError, match=f"invalid {name} .*: expected an integer from 0 to"):
        draw(**{size: 3, "seed": 0, name: bad})


def test_too_many_days_or_requests_are_refused() -> None:
    with pytest.raises(ValuesError, match=r"100 requests at 0\.002 per day take over 36,500 days"):
        Traffic("flat", 0.002).arrivals(100, seed=0)
    with pytest.raises(ValuesError, match="invalid days 2: expected days with at most 1,000,000"):
        Traffic("flat", MAX_PER_DAY).arrivals_until(2, seed=0)
    with pytest.raises(ValuesError, match="invalid rounds"):
        Traffic("flat", MAX_PER_DAY).arrivals(MAX_ARRIVALS + 1, seed=0)
