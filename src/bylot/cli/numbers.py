"""Numbers on the command line: argparse says which option was wrong if one of these raises."""

import argparse
import math

MAX_COUNT_OPTION = 1_000_000  # rounds, of which a world holds all values in memory


def parse_natural(text: str) -> int:
    """A whole number, at least 0."""
    value = parse_whole(text)
    if value < 0:
        raise make_option_error(text, "a whole number of 0 or more")
    return value


def parse_positive(text: str) -> int:
    """A whole number, at least 1 and no more than a machine can play."""
    value = parse_whole(text)
    if not 1 <= value <= MAX_COUNT_OPTION:
        raise make_option_error(text, f"a whole number from 1 to {MAX_COUNT_OPTION:,}")
    return value


def parse_whole(text: str) -> int:
    """-1, which is in no range, if it is none."""
    try:
        return int(text)
    except ValueError:
        return -1


def parse_share(text: str) -> float:
    """A number strictly between 0 and 1."""
    value = parse_number(text)
    if not 0 < value < 1:
        raise make_option_error(text, "a number between 0 and 1, such as 0.95")
    return value


def parse_amount(text: str) -> float:
    """A finite number of 0 or more."""
    value = parse_number(text)
    if not 0 <= value < math.inf:
        raise make_option_error(text, "a number of 0 or more")
    return value


def parse_number(text: str) -> float:
    """NaN, which is in no range, if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def make_option_error(text: str, wanted: str) -> argparse.ArgumentTypeError:
    """The error for an option with a value that it cannot have."""
    return argparse.ArgumentTypeError(f"{text} given; wanted {wanted}")
