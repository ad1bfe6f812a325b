"""Numbers on the command line: argparse says which option was wrong if one of these raises."""

import argparse

MOST = 1_000_000  # rounds, of which a world holds all values in memory


def natural(text: str) -> int:
    """A whole number, at least 0."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def positive(text: str) -> int:
    """A whole number, at least 1 and no more than a machine can play."""
    value = natural(text)
    if not 1 <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{text} given; wanted a number from 1 to {MOST:,}")
    return value
