"""Numbers on the command line: argparse says which option was wrong if one of these raises."""


def natural(text: str) -> int:
    """A whole number, at least 0."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def positive(text: str) -> int:
    """A whole number, at least 1."""
    value = natural(text)
    if value == 0:
        raise ValueError
    return value
