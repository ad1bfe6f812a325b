"""Settings in words: what follows the name of a policy and a colon, as in `noisy-or:explore=0.02`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from bylot.errors import PolicyError
from bylot.policies.base import Policy
from bylot.policies.distinct import Distinct
from bylot.policies.noisy_or import MAX_POSTERIOR_BYTES, NoisyOr, count_posterior_bytes
from bylot.policies.tangent import Tangent
from bylot.policies.validation import check_bools
from bylot.problem import Problem

MAX_NOISY_OR_EXPERTS = (
    300  # experts: nobody has seen how `noisy-or` learns about the pairs of more, which take long
)


@dataclass(frozen=True)
class Auto:
    """Who plays is left to the problem.

    propensities: must the chance of every panel be told, so that its log can be evaluated? What was
                  not told when a panel was drawn cannot be found out later, so this is the default
    contexts:     how many there will be, about; None: as many as are declared, else 1
    """

    propensities: bool = True
    contexts: int | None = None

    def __post_init__(self) -> None:
        check_bools(propensities=self.propensities)
        told = self.contexts
        if told is not None and (type(told) is not int or told < 1):
            raise PolicyError(f"contexts={told!r} is no number of contexts; give 1, or none")

    def settled(self, problem: Problem) -> Policy:
        """The policy for this problem.

        `tangent`, if panels of M different experts cannot keep the limits; `distinct`, if chances
        are to be told, or where beliefs about pairs are too many; else `noisy-or`.
        """
        if problem.full_conflict is not None:
            return Tangent()
        fits = (
            problem.size <= MAX_NOISY_OR_EXPERTS
            and count_posterior_bytes(self.contexts or 1, problem.size) <= MAX_POSTERIOR_BYTES
        )
        if self.propensities or not fits:
            return Distinct()
        return NoisyOr()


if TYPE_CHECKING:
    from bylot.policies.base import Policy

PolicyOrAuto = TypeVar("PolicyOrAuto", bound="Policy | Auto")
SettingValue = bool | int | float | str | None

SETTING_WORDS: dict[str, SettingValue] = {"true": True, "false": False, "none": None, "null": None}
POLICY_SPEC_FORM = "settings follow a colon, as in noisy-or:explore=0.02,guard=true"


def parse_policy_spec(usual: PolicyOrAuto, policy: str) -> PolicyOrAuto:
    """Usual settings, but for those that the words after the first colon change."""
    name, _, words = policy.partition(":")
    changes: dict[str, SettingValue] = {}
    for word in words.split(","):
        setting, sign, text = (part.strip() for part in word.partition("="))
        if not (setting and sign and text):
            raise PolicyError(
                f"policy {policy!r}: {word!r} is no SETTING=VALUE; {POLICY_SPEC_FORM}"
            )
        if setting in changes:
            raise PolicyError(f"policy {policy!r} gives {setting!r} twice; give each setting once")
        changes[setting] = parse_setting_value(text)
    check_setting_names(name, changes, [field.name for field in fields(usual)])
    return replace(usual, **changes)


def parse_setting_value(text: str) -> SettingValue:
    """What a word stands for: a number, true, false or none in any case, or itself.

    >>> (
    ...     parse_setting_value("2"),
    ...     parse_setting_value("1e-2"),
    ...     parse_setting_value("False"),
    ...     parse_setting_value("null"),
    ...     parse_setting_value("sum"),
    ... )
    (2, 0.01, False, None, 'sum')
    """
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return SETTING_WORDS.get(text.lower(), text)


def check_setting_names(
    policy: str, given: Iterable[str], settings: Sequence[str], otherwise: str = ""
) -> None:
    """Refuse a setting that a policy does not have, with those that it has, and with what else may
    be the matter if none of these looks like it.
    """
    for setting in given:
        if setting not in settings:
            close = get_close_matches(setting, settings, n=1)
            meant = f"did you mean {close[0]!r}? Its" if close else "its"
            those = f"{meant} settings are {', '.join(settings)}" if settings else "it has none"
            more = "" if close else otherwise
            raise PolicyError(f"policy {policy!r} has no setting {setting!r}; {those}{more}")
