"""Settings in words: what follows the name of a policy and a colon, as in `panel:explore=0.02`."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from bylot.errors import PolicyError

if TYPE_CHECKING:
    from bylot.policies.auto import Auto
    from bylot.policies.policy import Policy

Settings = TypeVar("Settings", bound="Policy | Auto")
Value = bool | int | float | str | None

WORDS: dict[str, Value] = {"true": True, "false": False, "none": None, "null": None}
FORM = "settings follow a colon, as in panel:explore=0.02,guard=true"


def spelled(usual: Settings, policy: str) -> Settings:
    """Usual settings, but for those that the words after the first colon change."""
    name, _, words = policy.partition(":")
    changes: dict[str, Value] = {}
    for word in words.split(","):
        setting, sign, text = (part.strip() for part in word.partition("="))
        if not (setting and sign and text):
            raise PolicyError(f"policy {policy!r}: {word!r} is no SETTING=VALUE; {FORM}")
        if setting in changes:
            raise PolicyError(f"policy {policy!r} gives {setting!r} twice; give each setting once")
        changes[setting] = value(text)
    known(name, changes, [field.name for field in fields(usual)])
    return replace(usual, **changes)


def value(text: str) -> Value:
    """What a word stands for: a number, true, false or none in any case, or itself.

    >>> value("2"), value("1e-2"), value("False"), value("null"), value("sum")
    (2, 0.01, False, None, 'sum')
    """
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return WORDS.get(text.lower(), text)


def known(policy: str, given: Iterable[str], settings: Sequence[str], otherwise: str = "") -> None:
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
