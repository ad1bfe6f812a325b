"""Checks of settings, and of the arguments that router and simulator share."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Literal, NamedTuple, TypeGuard, get_args

from bylot.errors import PolicyError, ProblemError, RewardError
from bylot.problem import Problem


class SettingKind(NamedTuple):
    """What a setting of a policy may be."""

    expected: str
    accepts: Callable[[Any], bool]


def is_number_in(value: Any, low: float, high: float) -> bool:
    """Is it a number in [low, high]?"""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and low <= value <= high


def is_positive_number(value: Any) -> bool:
    """A positive number that arithmetic can still multiply and divide by."""
    return is_number_in(value, 1e-100, 1e100)


def one_of(*words: str) -> SettingKind:
    """The kind of a setting with a choice of words."""
    return SettingKind(" or ".join(map(repr, words)), lambda value: value in words)


POSITIVE = SettingKind("a positive number", is_positive_number)
NOT_NEGATIVE = SettingKind(
    "0 or a positive number", lambda value: is_number_in(value, 0, 0) or is_positive_number(value)
)
PACE_SETTING = SettingKind(
    "a factor from 1 to 2, or None for fixed bounds",
    lambda value: value is None or is_number_in(value, 1, 2),
)
SHARE = SettingKind("a number from 0 to 1", lambda value: is_number_in(value, 0, 1))
KINDS_BY_DEFAULT = {
    bool: SettingKind("True or False", lambda value: isinstance(value, bool)),
    int: SettingKind("a whole number, at least 1", lambda value: is_count(value, 2**31)),
    float: POSITIVE,
}
"""What a setting may be if nothing else is said, by the type of its default."""


def is_count(value: Any, end: int) -> TypeGuard[int]:
    """Is it a whole number of at least 1, below the end?"""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < end


def check_settings(settings: Any, kinds: Mapping[str, SettingKind]) -> None:
    """Raise for a setting of a dataclass that is not of its kind."""
    for field in fields(settings):
        value, default = getattr(settings, field.name), field.default
        kind = kinds.get(field.name) or KINDS_BY_DEFAULT.get(type(default))
        if kind is not None and not kind.accepts(value):
            raise PolicyError(
                f"setting {field.name}",
                got=value,
                expected=kind.expected,
                remedy=f"the default is {default!r}",
            )


def check_iid_panels(policy: str, problem: Problem) -> None:
    """Refuse a minimum of members for a policy that may draw one expert every time."""
    if (problem.min_draws or 1) > 1:
        raise PolicyError(
            f"{policy} draws with replacement, so that a panel may have one member only",
            remedy=f"use 'noisy-or', which asks from min_draws={problem.min_draws} to "
            f"{problem.draws} different experts, or leave min_draws out",
        )


FeedbackKind = Literal["panel", "members", "winner"]
"""What will be reported: the reward alone, also a score of each member, or who earned it."""

FEEDBACK_WORDS: Mapping[FeedbackKind, str] = {
    "panel": "rewards",
    "members": "scores of members",
    "winner": "winners",
}
"""What is reported, in a sentence."""


class RunConfig(NamedTuple):
    """Seed, horizon, the range of rewards that learning maps to [0, 1], and the feedback."""

    seed: int
    horizon: int | None
    low: float
    high: float
    feedback: FeedbackKind = "panel"


def check_run_config(
    problem: Problem,
    seed: int,
    horizon: int | None,
    rewards: tuple[float, float],
    feedback: FeedbackKind = "panel",
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
    kinds = get_args(FeedbackKind)
    if feedback not in kinds:
        raise RewardError("feedback", got=feedback, expected=" or ".join(map(repr, kinds)))
    return RunConfig(seed, horizon, low, high, feedback)


def is_reward_in_range(value: float, low: float, high: float) -> bool:
    """Is a reward in range, up to rounding?"""
    spare = 1e-9 * (high - low)
    return low - spare <= value <= high + spare


def check_at_least_one(name: str, value: Any) -> int:
    """The value, if it is an integer of at least 1."""
    if not is_count(value, 2**62):
        raise PolicyError(f"{name}={value!r} given; wanted a whole number, at least 1")
    return value
