"""The windows of the calendar by name, and how long each is.

Nothing is imported here, so that the command line can list the names at once.
"""

from typing import Literal, NamedTuple, get_args

DAYS_PER_MONTH = 146_097 / 4_800  # 400 years have 146,097 days and 4,800 months
LONGEST_MONTH_DAYS = 31

WindowName = Literal["hour", "day", "week", "month"]
WINDOW_NAMES: tuple[WindowName, ...] = get_args(WindowName)
WINDOW_WORDS = " or ".join((", ".join(WINDOW_NAMES[:-1]), WINDOW_NAMES[-1]))


class WindowSize(NamedTuple):
    """How long a window is: some months, else some days, else an hour.

    The first window of so many months begins with the year 1970, one of days with its first Monday.
    """

    months: int = 0
    days: int = 0
    played_days: int = 93  # of a simulation: several windows, and not just workdays

    @property
    def mean_days(self) -> float:
        """Days of an average window."""
        return self.months * DAYS_PER_MONTH if self.months else self.days or 1 / 24

    @property
    def longest_days(self) -> float:
        """Days of the longest window, by the local clock."""
        return self.months * LONGEST_MONTH_DAYS if self.months else self.mean_days


WINDOW_SIZES: dict[WindowName, WindowSize] = {
    "hour": WindowSize(played_days=7),
    "day": WindowSize(days=1, played_days=28),
    "week": WindowSize(days=7, played_days=42),
    "month": WindowSize(months=1),
}
