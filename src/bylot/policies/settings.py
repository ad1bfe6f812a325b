"""Checks of settings, where they are given."""

from typing import Any

from bylot.errors import PolicyError


def sane(value: Any) -> bool:
    """A positive number that arithmetic can still multiply and divide by."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 1e-100 < value < 1e100


def positive(name: str, value: Any, usual: float) -> None:
    """Refuse a setting that is not a positive number."""
    if not sane(value):
        raise PolicyError(f"{name}={value!r} is not a positive number; the default is {usual:g}")


def not_negative(name: str, value: Any, usual: float) -> None:
    """Refuse a setting that is neither 0 nor a positive number."""
    if isinstance(value, bool) or value != 0:
        positive(name, value, usual)


def one_of(name: str, value: Any, *choices: str) -> None:
    """Refuse a setting that is none of the choices."""
    if value not in choices:
        raise PolicyError(f"{name}={value!r}; use {' or '.join(map(repr, choices))}")


def yes_or_no(**values: Any) -> None:
    """Refuse settings that are neither True nor False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise PolicyError(f"{name}={value!r} is neither True nor False")
