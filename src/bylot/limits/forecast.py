"""How many requests are still to come: learned from when requests came so far.

Time is local, in microseconds, so that days and weeks have their shape whatever the season. It is
cut into hours; each of the 168 hours of a week has a mean, and the deviation of the last minutes
fades away.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit

HOUR_US = 3_600_000_000
WEEK_HOURS, DAY_HOURS = 168, 24
FIRST_HOUR = 72  # of the week, Monday first, at which 1970 began: a Thursday
MAX_WEEKS = 5.0  # that the mean of an hour counts as: older ones are forgotten
DAY_SHAPE_WEEKS = 1.0  # that the mean of the same hour on other days counts as
FLAT_WEEKS = 0.25  # that the mean of all hours counts as, beside those of one hour of the day
DECLARED_WEEKS = 0.1  # that a declared traffic counts as
MAX_GAP_HOURS = 744  # without a request that are learned as empty; a longer gap says nothing
RECENT_US = 600_000_000.0  # over which the traffic of the moment is averaged
DEVIATION_KEPT = 0.6  # of its deviation from the usual traffic, an hour later
DEVIATION_REQUESTS = 10.0  # that the usual traffic counts as in a deviation
MIN_DEVIATION, MAX_DEVIATION = 0.05, 50.0
FIRST_REQUEST_HOURS, FIRST_HOURS = 1 / 60, 1.0  # at least and at most before the first request
FIRST_PART = 1 / 24  # of the time to come that counts as passed before the first request
CAUTION = 1.0  # more requests than were seen, before a day is over


class TrafficState(NamedTuple):
    """Requests by hour of the week, and in the hour that has not ended."""

    means: Floats  # (168,) requests in each hour of the week
    weeks: Floats  # (168,) weeks that they are means of
    rates: Floats  # (168,) requests expected in each hour of the week
    sums: Floats  # (169,) of the rates before each hour of the week
    hour: Ints  # number of this hour since 1970; of that of the first request; -1: there was none
    since: Ints  # the time of the first request; of the last one
    requests: Floats  # of this hour; of all hours
    recent: Floats  # (2,) requests of the last minutes, and those that are usual; both fade

    def is_valid(self, rule: Any) -> bool:
        amounts = (self.means, self.weeks, self.rates, self.sums, self.requests, self.recent)
        return all(bool((one >= 0).all()) for one in amounts)


def make_traffic(per_day: float = 0.0, size: int = WEEK_HOURS) -> TrafficState:
    """Nothing is known but, if it is more than 0, how many requests per day are expected.

    size: 0 if no limit needs a forecast
    """
    mean, weeks = per_day / DAY_HOURS, DECLARED_WEEKS * (per_day > 0.0)
    return TrafficState(
        means=np.full(size, mean),
        weeks=np.full(size, weeks),
        rates=np.full(size, mean),
        sums=mean * np.arange(size + 1, dtype=np.float64),
        hour=np.full(2, -1, np.int64),
        since=np.zeros(2, np.int64),
        requests=np.zeros(2),
        recent=np.zeros(2),
    )


def shift_traffic(traffic: TrafficState, offset: int) -> None:
    """Continue in another local time, later by so many microseconds."""
    hours = round(offset / HOUR_US)
    for hourly in (traffic.means, traffic.weeks, traffic.rates):
        hourly[:] = np.roll(hourly, hours)
    traffic.sums[1:] = np.cumsum(traffic.rates)
    if traffic.hour[0] >= 0:
        traffic.hour[:] += hours
        traffic.since[:] += offset


@jit
def note_request(traffic: TrafficState, at: int, requests: float) -> None:
    """Count requests at a local time, which never goes back by more than what is ignored here."""
    hour = at // HOUR_US
    if traffic.hour[0] < 0:
        traffic.hour[0] = traffic.hour[1] = hour
        traffic.since[0] = traffic.since[1] = at
    fade_recent(traffic, at)
    if hour > traffic.hour[0]:
        gap = hour - traffic.hour[0]
        close_hour(traffic)
        if gap <= MAX_GAP_HOURS:
            for _ in range(gap - 1):
                traffic.hour[0] += 1
                close_hour(traffic)
        traffic.hour[0] = hour
        update_rates(traffic)
    traffic.requests[0] += requests
    traffic.requests[1] += requests
    traffic.recent[0] += requests


@jit
def fade_recent(traffic: TrafficState, at: int) -> None:
    """Let recent requests fade until this time, and count those that are usual meanwhile."""
    passed = max(at - traffic.since[1], 0) / RECENT_US
    kept, slot = math.exp(-passed), (at // HOUR_US + FIRST_HOUR) % WEEK_HOURS
    usual = traffic.rates[slot] * (RECENT_US / HOUR_US)
    traffic.recent[0] *= kept
    traffic.recent[1] = kept * traffic.recent[1] + (1.0 - kept) * usual
    traffic.since[1] = max(at, traffic.since[1])


@jit
def close_hour(traffic: TrafficState) -> None:
    """Learn from an hour that is over; of the first one, a part was before the first request."""
    slot, after = (traffic.hour[0] + FIRST_HOUR) % WEEK_HOURS, traffic.hour[0] - traffic.hour[1]
    count = traffic.requests[0]
    if after > 0:
        traffic.weeks[slot] = min(traffic.weeks[slot] + 1.0, MAX_WEEKS)
        traffic.means[slot] += (count - traffic.means[slot]) / traffic.weeks[slot]
    traffic.requests[0] = 0.0


@jit
def update_rates(traffic: TrafficState) -> None:
    """The expected requests of each hour of the week: its own mean, with that of the same hour on
    other days and that of all hours for as many weeks as the constants say.
    """
    total, known = 0.0, 0.0
    for slot in range(WEEK_HOURS):
        total += traffic.weeks[slot] * traffic.means[slot]
        known += traffic.weeks[slot]
    flat = total / known if known > 0.0 else 0.0
    for slot in range(DAY_HOURS):
        day_total, day_known = FLAT_WEEKS * flat, FLAT_WEEKS
        for n in range(slot, WEEK_HOURS, DAY_HOURS):
            day_total += traffic.weeks[n] * traffic.means[n]
            day_known += traffic.weeks[n]
        shape = day_total / day_known
        for n in range(slot, WEEK_HOURS, DAY_HOURS):
            weight = traffic.weeks[n]
            traffic.rates[n] = weight * traffic.means[n] + DAY_SHAPE_WEEKS * shape
            traffic.rates[n] /= weight + DAY_SHAPE_WEEKS
    for slot in range(WEEK_HOURS):
        traffic.sums[slot + 1] = traffic.sums[slot] + traffic.rates[slot]


@jit
def sum_rates(traffic: TrafficState, start: int, end: int) -> float:
    """Requests that are usual between two local times."""
    total = 0.0
    for sign, at in ((1.0, end), (-1.0, start)):
        hours, rest = at // HOUR_US, (at % HOUR_US) / HOUR_US
        slot = (hours + FIRST_HOUR) % WEEK_HOURS
        weeks = (hours + FIRST_HOUR) // WEEK_HOURS
        total += sign * (weeks * traffic.sums[WEEK_HOURS])
        total += sign * (traffic.sums[slot] + rest * traffic.rates[slot])
    return float(max(total, 0.0))


@jit
def count_known_hours(traffic: TrafficState) -> float:
    """Hours that were learned from, of all weeks."""
    known = 0.0
    for slot in range(WEEK_HOURS):
        known += traffic.weeks[slot]
    return known


@jit
def forecast_requests(traffic: TrafficState, at: int, end: int) -> float:
    """Return the requests to come between a local time and another, at least 1."""
    return forecast_for_window(traffic, at, end, (end - at) / HOUR_US)


@jit
def forecast_for_window(traffic: TrafficState, at: int, end: int, hours: float) -> float:
    """Return the requests to come between two local times for a window of some hours, at least 1.

    At first as many per hour as there were so far, with FIRST_PART of the window, at most an hour,
    added to the time that has passed: for a day, a burst of seconds is the traffic of an hour.
    Later the usual number, times (1 + deviation), of which a part is left in every later hour.
    Either with some CAUTION, which fades within a day.
    """
    known = count_known_hours(traffic)
    caution = 1.0 + CAUTION / (1.0 + known)
    if known == 0.0:
        before = max(min(FIRST_PART * hours, FIRST_HOURS), FIRST_REQUEST_HOURS)
        passed = (at - traffic.since[0]) / HOUR_US + before
        seen = traffic.requests[1] + 1.0
        return float(max(caution * seen / passed * (end - at) / HOUR_US, 1.0))
    ratio = (traffic.recent[0] + DEVIATION_REQUESTS) / (traffic.recent[1] + DEVIATION_REQUESTS)
    deviation = min(max(ratio, MIN_DEVIATION), MAX_DEVIATION) - 1.0
    total, hour_end, start = sum_rates(traffic, at, end), (at // HOUR_US + 1) * HOUR_US, at
    for _ in range(DAY_HOURS):
        if start >= end:
            break
        part = (min(hour_end, end) - start) / HOUR_US
        total += deviation * part * traffic.rates[(start // HOUR_US + FIRST_HOUR) % WEEK_HOURS]
        deviation *= DEVIATION_KEPT
        start, hour_end = hour_end, hour_end + HOUR_US
    return float(max(caution * total, 1.0))


@jit
def compute_daily_requests(traffic: TrafficState, at: int, hours: float) -> float:
    """Return the requests per day for a window of some hours: the mean of the week as expected."""
    return forecast_for_window(traffic, at, at + 7 * DAY_HOURS * HOUR_US, hours) / 7.0
