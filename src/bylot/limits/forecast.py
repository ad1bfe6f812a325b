"""How many requests are still to come: learned from when requests came so far.

Time is local, in microseconds, so that days and weeks have their shape whatever the season. It is
cut into hours; each of the 168 hours of a week has a mean, and the deviation of the last minutes
fades away.
"""

import math

import numpy as np

from bylot.limits.records import HOUR, Limits, LimitState, Records
from bylot.numerics.jit import jit

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


def make_hours(per_day: float) -> Records:
    """Return the hours of a week, of which only the declared requests per day are known, if any."""
    hours = np.zeros(WEEK_HOURS + 1, HOUR)
    mean = per_day / DAY_HOURS
    hours["mean"][:WEEK_HOURS] = mean
    hours["weeks"][:WEEK_HOURS] = DECLARED_WEEKS * (per_day > 0.0)
    hours["rate"][:WEEK_HOURS] = mean
    hours["before"] = mean * np.arange(WEEK_HOURS + 1, dtype=np.float64)
    return hours


def shift_traffic(state: LimitState, offset: int) -> None:
    """Continue in another local time, later by so many microseconds."""
    hours = round(offset / HOUR_US)
    for name in ("mean", "weeks", "rate"):
        known = state.hours[name][:WEEK_HOURS]
        known[:] = np.roll(known, hours)
    state.hours["before"][1:] = np.cumsum(state.hours["rate"][:WEEK_HOURS])
    clock = state.clock[0]
    if clock["local_hour"] >= 0:
        clock["local_hour"] += hours
        clock["first_hour"] += hours
        clock["first_at"] += offset
        clock["last_at"] += offset


@jit
def note_request(limits: Limits, at: int, requests: float) -> None:
    """Count requests at a local time, which never goes back by more than what is ignored here."""
    clock = limits.clock[0]
    hour = at // HOUR_US
    if clock.local_hour < 0:
        clock.local_hour = clock.first_hour = hour
        clock.first_at = clock.last_at = at
    fade_recent(limits, at)
    if hour > clock.local_hour:
        gap = hour - clock.local_hour
        close_hour(limits)
        if gap <= MAX_GAP_HOURS:
            for _ in range(gap - 1):
                clock.local_hour += 1
                close_hour(limits)
        clock.local_hour = hour
        update_rates(limits)
    clock.hour_requests += requests
    clock.all_requests += requests
    clock.recent += requests


@jit
def fade_recent(limits: Limits, at: int) -> None:
    """Let recent requests fade until this time, and count those that are usual meanwhile."""
    clock = limits.clock[0]
    hours = limits.hours
    passed = max(at - clock.last_at, 0) / RECENT_US
    kept, slot = math.exp(-passed), (at // HOUR_US + FIRST_HOUR) % WEEK_HOURS
    usual = hours[slot].rate * (RECENT_US / HOUR_US)
    clock.recent *= kept
    clock.usual = kept * clock.usual + (1.0 - kept) * usual
    clock.last_at = max(at, clock.last_at)


@jit
def close_hour(limits: Limits) -> None:
    """Learn from an hour that is over; of the first one, a part was before the first request."""
    clock = limits.clock[0]
    hours = limits.hours
    slot = (clock.local_hour + FIRST_HOUR) % WEEK_HOURS
    after = clock.local_hour - clock.first_hour
    count = clock.hour_requests
    if after > 0:
        hours[slot].weeks = min(hours[slot].weeks + 1.0, MAX_WEEKS)
        hours[slot].mean += (count - hours[slot].mean) / hours[slot].weeks
    clock.hour_requests = 0.0


@jit
def update_rates(limits: Limits) -> None:
    """The expected requests of each hour of the week: its own mean, with that of the same hour on
    other days and that of all hours for as many weeks as the constants say.
    """
    hours = limits.hours
    total, known = 0.0, 0.0
    for slot in range(WEEK_HOURS):
        total += hours[slot].weeks * hours[slot].mean
        known += hours[slot].weeks
    flat = total / known if known > 0.0 else 0.0
    for slot in range(DAY_HOURS):
        day_total, day_known = FLAT_WEEKS * flat, FLAT_WEEKS
        for n in range(slot, WEEK_HOURS, DAY_HOURS):
            day_total += hours[n].weeks * hours[n].mean
            day_known += hours[n].weeks
        shape = day_total / day_known
        for n in range(slot, WEEK_HOURS, DAY_HOURS):
            weight = hours[n].weeks
            hours[n].rate = weight * hours[n].mean + DAY_SHAPE_WEEKS * shape
            hours[n].rate /= weight + DAY_SHAPE_WEEKS
    for slot in range(WEEK_HOURS):
        hours[slot + 1].before = hours[slot].before + hours[slot].rate


@jit
def sum_rates(limits: Limits, start: int, end: int) -> float:
    """Requests that are usual between two local times."""
    hours = limits.hours
    total = 0.0
    for sign, at in ((1.0, end), (-1.0, start)):
        number, rest = at // HOUR_US, (at % HOUR_US) / HOUR_US
        slot = (number + FIRST_HOUR) % WEEK_HOURS
        weeks = (number + FIRST_HOUR) // WEEK_HOURS
        total += sign * (weeks * hours[WEEK_HOURS].before)
        total += sign * (hours[slot].before + rest * hours[slot].rate)
    return float(max(total, 0.0))


@jit
def count_known_hours(limits: Limits) -> float:
    """Hours that were learned from, of all weeks."""
    hours = limits.hours
    known = 0.0
    for slot in range(WEEK_HOURS):
        known += hours[slot].weeks
    return known


@jit
def forecast_requests(limits: Limits, at: int, end: int) -> float:
    """Return the requests to come between a local time and another, at least 1."""
    return forecast_for_window(limits, at, end, (end - at) / HOUR_US)


@jit
def forecast_for_window(limits: Limits, at: int, end: int, window_hours: float) -> float:
    """Return the requests to come between two local times for a window of some hours, at least 1.

    At first as many per hour as there were so far, with FIRST_PART of the window, at most an hour,
    added to the time that has passed: for a day, a burst of seconds is the traffic of an hour.
    Later the usual number, times (1 + deviation), of which a part is left in every later hour.
    Either with some CAUTION, which fades within a day.
    """
    clock = limits.clock[0]
    hours = limits.hours
    known = count_known_hours(limits)
    caution = 1.0 + CAUTION / (1.0 + known)
    if known == 0.0:
        before = max(min(FIRST_PART * window_hours, FIRST_HOURS), FIRST_REQUEST_HOURS)
        passed = (at - clock.first_at) / HOUR_US + before
        seen = clock.all_requests + 1.0
        return float(max(caution * seen / passed * (end - at) / HOUR_US, 1.0))
    ratio = (clock.recent + DEVIATION_REQUESTS) / (clock.usual + DEVIATION_REQUESTS)
    deviation = min(max(ratio, MIN_DEVIATION), MAX_DEVIATION) - 1.0
    total, hour_end, start = sum_rates(limits, at, end), (at // HOUR_US + 1) * HOUR_US, at
    for _ in range(DAY_HOURS):
        if start >= end:
            break
        part = (min(hour_end, end) - start) / HOUR_US
        total += deviation * part * hours[(start // HOUR_US + FIRST_HOUR) % WEEK_HOURS].rate
        deviation *= DEVIATION_KEPT
        start, hour_end = hour_end, hour_end + HOUR_US
    return float(max(caution * total, 1.0))


@jit
def compute_daily_requests(limits: Limits, at: int, window_hours: float) -> float:
    """Return the requests per day for a window of some hours: the mean of the week as expected."""
    return forecast_for_window(limits, at, at + 7 * DAY_HOURS * HOUR_US, window_hours) / 7.0
