"""Instants and time zones: whole microseconds since 1970 (UTC), and what local clocks show then.

No clock is read: the caller gives the instant. The rules of the zones come from `zoneinfo`, that is
from the system, or from the package tzdata.
"""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from numbers import Integral
from typing import TypeGuard
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from bylot._text import find_similar
from bylot.errors import ProblemError

SECOND_US = 1_000_000
LAST_SECOND = 253_402_300_799  # of the year 9999, the last that a timestamp can have
FULL_HOUR_US = 3_600 * SECOND_US
FULL_DAY_US = 24 * FULL_HOUR_US
END_OF_INSTANTS = int(datetime(2201, 1, 1, tzinfo=UTC).timestamp()) * SECOND_US
NEAR_SPAN_US = 4_096 * 32 * FULL_DAY_US  # edges of windows are not farther from an instant

NOT_ZONES = frozenset({"localtime", "posixrules"})  # links that differ from machine to machine
MAX_ZONE_LETTERS = 64  # of a name that is compared with those of the database
EXAMPLE_ZONES = "use a name such as 'Europe/Berlin' or 'UTC'"


def check_zone(zone: object) -> str:
    """Require a time zone of the database; other names are not looked up as files.

    >>> check_zone("Asia/Kolkata")
    'Asia/Kolkata'
    """
    if not isinstance(zone, str) or zone not in _list_zones():
        raise ProblemError(
            "time zone",
            got=cut_text(zone),
            expected="a name of the IANA time zone database",
            remedy=_suggest_zone(zone),
        )
    return zone


def compute_utc_offset(zone: str, at: int) -> int:
    """How far the local clock is ahead of UTC, in microseconds.

    >>> compute_utc_offset("Asia/Kolkata", 0) / FULL_HOUR_US
    5.5
    """
    at = check_instant(at, beyond=NEAR_SPAN_US)
    return read_offset(open_zone(check_zone(zone)), at // SECOND_US)


def format_instant(at: int, zone: str) -> str:
    """Write date and time of the local clock; the UTC offset too if the clock shows it twice.

    >>> format_instant(1_794_956_400_000_000, "Europe/Berlin")
    '2026-11-18 00:00 Europe/Berlin'
    >>> format_instant(1_729_990_800_000_000, "Europe/Berlin")
    '2024-10-27 02:00+01:00 Europe/Berlin'
    """
    at = check_instant(at, beyond=NEAR_SPAN_US)
    clock = open_zone(check_zone(zone))
    local = clock.fromutc(make_utc(clock, at // SECOND_US))
    if local.replace(fold=1 - local.fold).utcoffset() == local.utcoffset():
        local = local.replace(tzinfo=None)
    digits = "seconds" if local.second else "minutes"
    return f"{local.isoformat(sep=' ', timespec=digits)} {zone}"


def describe_reset(at: int, zone: str) -> str:
    """What to do about a budget that is spent until this time."""
    return f"try again after {format_instant(at, zone)}"


def check_instant(at: object, *, beyond: int = 0) -> int:
    """Require an instant from 1970 to 2200, or one that is not farther than `beyond` from it."""
    if is_whole(at) and -beyond <= at < END_OF_INSTANTS + beyond:
        return int(at)
    raise ProblemError(
        "instant",
        got=at,
        expected="whole microseconds since 1970 (UTC), before the year 2201",
        remedy="check the clock, and that the unit is microseconds",
    )


def is_whole(given: object) -> TypeGuard[int]:
    """Whether it is an integer of any type, and no bool."""
    return isinstance(given, Integral) and not isinstance(given, bool | np.bool_)


def read_offset(clock: ZoneInfo, second: int) -> int:
    """Read the UTC offset of a zone in microseconds; its rules have whole seconds."""
    offset = clock.fromutc(make_utc(clock, second)).utcoffset() or timedelta()
    return offset // timedelta(microseconds=1)


def make_utc(clock: ZoneInfo, second: int) -> datetime:
    """Make what `fromutc` of a zone takes: the time in UTC, labelled with that zone."""
    return datetime(1970, 1, 1, tzinfo=clock) + timedelta(seconds=second)


@lru_cache(None)
def open_zone(zone: str) -> ZoneInfo:
    """Load the rules of a checked name."""
    try:
        return ZoneInfo(zone)
    except (LookupError, OSError, ValueError) as error:  # listed, but without a readable file
        raise ProblemError(
            f"the rules of the time zone {zone!r} cannot be read",
            remedy="install the package tzdata",
        ) from error


@lru_cache(1)
def _list_zones() -> frozenset[str]:
    """List the names of the database."""
    return frozenset(available_timezones()) - NOT_ZONES


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


def cut_text(given: object) -> object:
    """Shorten a text that is too long for a message."""
    long = isinstance(given, str) and len(given) > MAX_ZONE_LETTERS
    return f"{str(given)[:MAX_ZONE_LETTERS]}..." if long else given
