"""When requests arrive in a simulation: a Poisson process whose rate changes with the local hour.

What a request is worth, and what its panel costs, is left to the environments.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

import numpy as np

from bylot.environments.base import BLOCK_ROUNDS, check_number
from bylot.environments.outcomes import draw_block_uniforms
from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.problem.instants import FULL_DAY_US, FULL_HOUR_US, SECOND_US, check_zone
from bylot.problem.limit_input import float_from_real
from bylot.problem.validation import int_from_whole, suggest_known_name

ARRIVAL_STREAM, CALENDAR_STREAM = 5, 6  # of the gaps between requests; of bursts and dead days
MIN_PER_DAY, MAX_PER_DAY = 0.001, 1_000_000_000
MIN_START_YEAR, MAX_START_YEAR = 1971, 2100
MAX_TRAFFIC_DAYS = 36_500  # 100 years, so that all instants are in the years 1970 to 2200
MAX_ARRIVALS = 1_000_000_000

PEAK_HOUR = 14  # from 14:00 to 15:00; the quietest hour is 12 hours away
PEAK_TO_NIGHT = 8.0
WEEKEND_SHARE = 0.3  # of the requests of a weekday, on a Saturday or Sunday
BURST_PROBABILITY = 0.1  # that one begins on a given day
BURST_FACTOR = 20.0
DEAD_DAY_PROBABILITY = 1 / 12

TrafficShape = Literal["flat", "daily", "weekend", "bursts", "dead-days"]


class TrafficHours(NamedTuple):
    """Consecutive hours of the local clock, without gaps, and the rate of requests in each.

    Where clocks change, an hour that is skipped is missing, and one that is repeated is one entry
    of two hours.
    """

    starts: Ints  # (n,) in microseconds since 1970
    lengths: Ints  # (n,) in microseconds
    rates: Floats  # (n,) requests per hour

    def sum_rates(self) -> Floats:
        """(n + 1,) the expected number of requests before each hour, and before the end."""
        return np.cumsum(np.append(0.0, self.rates * (self.lengths / FULL_HOUR_US)))


@dataclass(frozen=True)
class Traffic:
    """When requests arrive: a Poisson process with a constant rate in each hour of a local clock.

    Parameters
    ----------
    shape : str
        'flat', always the same rate; 'daily', the hour of 14:00 has eight times the requests of
        that of 2:00; 'weekend', the same, and Saturdays and Sundays have 30 % of the requests of
        other days; 'bursts', as 'daily', and on one day in ten, at a random hour, 20 times the
        requests for one or two hours; 'dead-days', as 'weekend', and one day in twelve, at random,
        has no request.
    per_day : float
        The mean number of requests per day of a week without bursts and dead days.
    start : str
        The local time from which on requests arrive, as an ISO date or date and time.
    zone : str
        The time zone, a name of the tz database such as 'Europe/Berlin'.

    Raises
    ------
    ValuesError
        If a part is invalid.
    ProblemError
        If there is no such time zone.

    Examples
    --------
    >>> Traffic("daily", per_day=2_000).arrivals(3, seed=0) // 1_000_000  # in seconds
    array([1767225644, 1767225762, 1767225800])
    >>> traffic = Traffic("flat", per_day=24_000, start="2026-03-29", zone="Europe/Berlin")
    >>> traffic.arrivals_until(1, seed=0).size  # clocks go forward: a day of 23 hours
    23054
    """

    shape: TrafficShape
    per_day: float
    start: str = "2026-01-01"
    zone: str = "UTC"

    def __post_init__(self) -> None:
        check_traffic_shape(self.shape)
        per_day = check_number(
            "per_day",
            self.per_day,
            float_from_real,
            lambda x: MIN_PER_DAY <= x <= MAX_PER_DAY,
            f"a number of requests, from {MIN_PER_DAY} to {MAX_PER_DAY:,}",
            "give the mean number of requests per day",
        )
        datetime_from_start(self.start)
        check_zone(self.zone)
        object.__setattr__(self, "per_day", per_day)

    def arrivals(self, rounds: int, seed: int) -> Ints:
        """Return the (rounds,) instants of the first requests.

        Fewer rounds have the same first instants.

        Parameters
        ----------
        rounds, seed : int
            How many requests; the seed of the random numbers.

        Returns
        -------
        ndarray of int64
            Microseconds since 1970 (UTC), sorted.

        Raises
        ------
        ValuesError
            If there are not as many requests in 36,500 days.
        """
        rounds = check_whole_number("rounds", rounds, MAX_ARRIVALS)
        sums = sum_unit_gaps(rounds, check_whole_number("seed", seed, 2**63 - 1))
        if not rounds:
            return np.empty(0, np.int64)
        last = float(sums[-1])
        days = min(14 + math.ceil(1.25 * last / self.per_day), MAX_TRAFFIC_DAYS)  # a guess
        while (hours := self.hours(days, seed)).sum_rates()[-1] <= last:
            if days == MAX_TRAFFIC_DAYS:
                raise ValuesError(
                    f"{rounds:,} requests at {self.per_day:g} per day take over {days:,} days",
                    remedy="give a larger per_day or fewer rounds",
                )
            days = min(2 * days, MAX_TRAFFIC_DAYS)
        return find_instants(hours, sums)

    def arrivals_until(self, days: int, seed: int) -> Ints:
        """Return the instants of all requests of the first local days.

        Parameters
        ----------
        days, seed : int
            How many days, of which the first is that of the start, from the start on; the seed of
            the random numbers.

        Returns
        -------
        ndarray of int64
            Microseconds since 1970 (UTC), sorted: the first of `arrivals`.

        Raises
        ------
        ValuesError
            If these are too many days or requests.
        """
        hours = self.hours(days, seed)
        mean = float(hours.sum_rates()[-1])
        if mean > MAX_ARRIVALS:
            raise ValuesError(
                "days",
                got=days,
                expected=f"days with at most {MAX_ARRIVALS:,} requests",
                remedy="give fewer days",
            )
        count = 64 + math.ceil(mean + 6.0 * math.sqrt(mean))
        while (sums := sum_unit_gaps(count, seed))[-1] < mean:
            count *= 2
        return find_instants(hours, sums[: np.searchsorted(sums, mean)])

    def hours(self, days: int, seed: int) -> TrafficHours:
        """The hours of the first local days; the first day is that of the start, from there on.

        Bursts and dead days are functions of the seed and the date.
        """
        days = check_whole_number("days", days, MAX_TRAFFIC_DAYS)
        seed = check_whole_number("seed", seed, 2**63 - 1)
        zone = ZoneInfo(self.zone)
        local = datetime_from_start(self.start).replace(tzinfo=zone)
        start = (local - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        first = local.toordinal() - 1  # a burst of the day before can last until the first day
        edges = find_local_hours(first, days + 1, zone)
        starts = np.maximum(edges[:-1], start)
        lengths = edges[1:] - starts
        some = lengths > 0
        rates = self._compute_rates(first, days + 1, seed)
        return TrafficHours(starts[some], lengths[some], rates[some])

    def _compute_rates(self, first: int, days: int, seed: int) -> Floats:
        """(24 days,) requests per hour, from midnight of the day with this ordinal on."""
        weekdays = (np.arange(first, first + days) + 6) % 7  # Monday is 0
        rates = (self.per_day * compute_week_shares(self.shape)[weekdays]).ravel()
        u = draw_block_uniforms(first, first + days, 4, seed, CALENDAR_STREAM)
        if self.shape == "dead-days":
            rates[np.repeat(u[:, 3] < DEAD_DAY_PROBABILITY, 24)] = 0.0
        if self.shape == "bursts":
            day = np.flatnonzero(u[:, 0] < BURST_PROBABILITY)
            hour = 24 * day + (24 * u[day, 1]).astype(np.int64)
            both = np.append(hour, hour[u[day, 2] < 0.5] + 1)  # half of them last two hours
            rates[np.unique(both[both < rates.size])] *= BURST_FACTOR
        return rates


def compute_week_shares(shape: TrafficShape) -> Floats:
    """(7, 24) the mean number of requests in each hour of a week, from Monday on; the sum is 7.

    The curve of a day is 1 + a cos(2 pi (hour - 14) / 24), (1 + a) / (1 - a) = 8.

    >>> compute_week_shares("weekend").sum(axis=1).round(3)
    array([1.25 , 1.25 , 1.25 , 1.25 , 1.25 , 0.375, 0.375])
    """
    swing = 0.0 if shape == "flat" else (PEAK_TO_NIGHT - 1.0) / (PEAK_TO_NIGHT + 1.0)
    curve = 1.0 + swing * np.cos(2.0 * np.pi * (np.arange(24) - PEAK_HOUR) / 24)
    weekdays = np.ones(7)
    if shape in ("weekend", "dead-days"):
        weekdays[5:] = WEEKEND_SHARE
    return np.outer(7.0 * weekdays / weekdays.sum(), curve / 24.0)


def find_local_hours(first: int, days: int, zone: ZoneInfo) -> Ints:
    """(24 days + 1,) the instants at which the hours of these local days begin, and the end.

    first: the ordinal of a date. An hour that the clock skips ends when it begins, and one that it
    repeats lasts for both.
    """
    midnights = [date.fromordinal(first + n) for n in range(days + 1)]
    begin = np.array([find_local_instant(one, 0, zone) for one in midnights])
    hours = begin[:-1, None] + FULL_HOUR_US * np.arange(24)
    for n in np.flatnonzero(np.diff(begin) != FULL_DAY_US).tolist():
        changed = [find_local_instant(midnights[n], hour, zone) for hour in range(24)]
        hours[n] = np.minimum(changed, begin[n + 1])  # some zones have skipped a whole day
    return np.append(hours.ravel(), begin[-1])


def find_local_instant(day: date, hour: int, zone: ZoneInfo) -> int:
    """The instant at which a clock shows this hour for the first time."""
    return int(datetime(day.year, day.month, day.day, hour, tzinfo=zone).timestamp()) * SECOND_US


def sum_unit_gaps(count: int, seed: int) -> Floats:
    """(count,) the instants of a Poisson process of rate 1; a smaller count has the same first."""
    whole = -(-count // BLOCK_ROUNDS) * BLOCK_ROUNDS  # no logarithm depends on where the array ends
    u = draw_block_uniforms(0, whole, 1, seed, ARRIVAL_STREAM)[:, 0]
    return np.cumsum(-np.log1p(-u))[:count]


def find_instants(hours: TrafficHours, sums: Floats) -> Ints:
    """The instants, rounded down, before which these numbers of requests are expected.

    They turn a Poisson process of rate 1 into one with the rates of the hours.
    """
    edges = hours.sum_rates()
    k = np.searchsorted(edges, sums, side="right") - 1  # never an hour of rate 0
    part = (sums - edges[k]) / (edges[k + 1] - edges[k])
    return hours.starts[k] + np.minimum(
        (part * hours.lengths[k]).astype(np.int64), hours.lengths[k] - 1
    )


def check_traffic_shape(given: object) -> None:
    """Require one of the shapes."""
    shapes = get_args(TrafficShape)
    if given not in shapes:
        raise ValuesError(
            "shape",
            got=given,
            expected="a shape of traffic",
            remedy=suggest_known_name(given, shapes, "shapes", can_add=False),
        )


def check_whole_number(what: str, given: object, most: int) -> int:
    """Require an integer from 0 to `most`."""
    expected = f"an integer from 0 to {most:,}"
    return check_number(what, given, int_from_whole, lambda n: 0 <= n <= most, expected)


def datetime_from_start(given: object) -> datetime:
    """Parse a local date, or date and time."""
    try:
        local = datetime.fromisoformat(str(given))
    except ValueError:
        local = None
    is_local = isinstance(given, str) and local is not None and local.tzinfo is None
    if local is None or not is_local or not MIN_START_YEAR <= local.year <= MAX_START_YEAR:
        raise ValuesError(
            "start",
            got=given,
            expected=f"an ISO date, or date and time, in the years {MIN_START_YEAR} to "
            f"{MAX_START_YEAR} and without an offset from UTC",
            remedy="write '2026-03-01' or '2026-03-01T08:30', and name the zone in zone",
        )
    return local


def traffic_from_text(text: str) -> Traffic:
    """Parse a shape and its settings, as on the command line.

    Parameters
    ----------
    text : str
        SHAPE:NAME=VALUE,..., with the settings of `Traffic`; per_day is required.

    Returns
    -------
    Traffic

    Raises
    ------
    ValuesError
        If the shape, a setting or its value is invalid.
    ProblemError
        If there is no such time zone.

    Examples
    --------
    >>> traffic_from_text("daily:per_day=2000,zone=Europe/Berlin")
    Traffic(shape='daily', per_day=2000.0, start='2026-01-01', zone='Europe/Berlin')
    """
    shape, _, rest = text.partition(":")
    settings, known = dict[str, Any](shape=shape.strip()), ("per_day", "start", "zone")
    check_traffic_shape(settings["shape"])
    for part in rest.split(",") if rest else ():
        name, equal, given = (one.strip() for one in part.partition("="))
        if not equal:
            raise ValuesError(
                "setting of traffic",
                got=part,
                expected="NAME=VALUE, such as per_day=2000 or zone=Europe/Berlin, comma-separated",
            )
        if name not in known:
            raise ValuesError(
                f"traffic has no setting {name!r}",
                remedy=suggest_known_name(name, known, "settings", can_add=False),
            )
        if name in settings:
            raise ValuesError(f"{name} of traffic is given twice", remedy="give it once")
        settings[name] = given
    if "per_day" not in settings:
        raise ValuesError(
            "the traffic has no per_day",
            remedy=f"write {settings['shape']}:per_day=2000 for 2,000 requests per day",
        )
    with suppress(ValueError):  # a text is refused below
        settings["per_day"] = float(settings["per_day"])
    return Traffic(**settings)
