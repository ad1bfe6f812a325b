"""Checks of settings, and of the arguments that router and simulator share."""

from typing import Any, NamedTuple

from bylot.errors import PolicyError, ProblemError, RewardError
from bylot.problem import Problem


def is_positive_number(value: Any) -> bool:
    """A positive number that arithmetic can still multiply and divide by."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 1e-100 < value < 1e100


def check_positive(name: str, value: Any, usual: float) -> None:
    """Raise for a setting that is not a positive number."""
    if not is_positive_number(value):
        raise PolicyError(f"{name}={value!r} is not a positive number; the default is {usual:g}")


def check_not_negative(name: str, value: Any, usual: float) -> None:
    """Raise for a setting that is neither 0 nor a positive number."""
    if isinstance(value, bool) or value != 0:
        check_positive(name, value, usual)


def check_choice(name: str, value: Any, *choices: str) -> None:
    """Raise for a setting that is not one of the choices."""
    if value not in choices:
        raise PolicyError(f"{name}={value!r}; use {' or '.join(map(repr, choices))}")


def check_bools(**values: Any) -> None:
    """Raise for settings that are neither True nor False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise PolicyError(f"{name}={value!r} is neither True nor False")


class RunConfig(NamedTuple):
    """Seed, horizon, and the range of rewards that learning maps to [0, 1]."""

    seed: int
    horizon: int | None
    low: float
    high: float


def check_run_config(
    problem: Problem, seed: int, horizon: int | None, rewards: tuple[float, float]
) -> RunConfig:
    """The arguments, checked."""
    if not isinstance(problem, Problem):
        raise ProblemError(f"a {type(problem).__name__} given; wanted a bylot.Problem first")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise PolicyError(f"seed={seed!r} given; wanted a whole number from 0 to 2^63 - 1")
    if horizon is not None:
        check_at_least_one("horizon", horizon)
    try:
        low, high = (float(end) for end in rewards)
    except (TypeError, ValueError):
        raise RewardError(f"rewards={rewards!r} given; wanted a pair (low, high)") from None
    if not (0 < high - low < 1e300):  # NaN and infinities fail this too
        raise RewardError(f"rewards={rewards} given; wanted a finite range (low, high), low < high")
    return RunConfig(seed, horizon, low, high)


def is_reward_in_range(value: float, low: float, high: float) -> bool:
    """Is a reward in range, up to rounding?"""
    spare = 1e-9 * (high - low)
    return low - spare <= value <= high + spare


def check_at_least_one(name: str, value: Any) -> int:
    """The value, if it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**62:
        raise PolicyError(f"{name}={value!r} given; wanted a whole number, at least 1")
    return value
