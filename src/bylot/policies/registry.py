"""The registry of policies: their names, specs such as `noisy-or:explore=0.02`, and `auto`.

A new policy is one file and one line here; everything else about it is on its class.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, TypeVar

from bylot.errors import PolicyError
from bylot.policies.base import Policy
from bylot.policies.distinct import Distinct
from bylot.policies.moe import Moe
from bylot.policies.noisy_or import MAX_POSTERIOR_BYTES, NoisyOr, count_posterior_bytes
from bylot.policies.omd import Omd
from bylot.policies.random_panels import Random
from bylot.policies.strict import Strict
from bylot.policies.tangent import Tangent
from bylot.policies.thompson import Ts, TsBwk
from bylot.policies.ucb import Cbwk, Cucb, Greedy
from bylot.policies.validation import check_bools
from bylot.problem import Problem

POLICY_CLASSES: dict[str, type[Policy]] = {}
"""Classes of settings by name, in the order in which lists show them."""

POLICIES: dict[str, Policy] = {}
"""Policies that have a name: the classes with their default settings, and their variants."""


def register_policy(policy: type[Policy]) -> type[Policy]:
    """Add a policy and its variants."""
    POLICY_CLASSES[policy.name] = policy
    POLICIES[policy.name] = policy()
    for name, (settings, _) in policy.variants.items():
        POLICIES[name] = policy(**settings)
    return policy


for policy_class in (
    *(Distinct, NoisyOr, Tangent, Strict),
    *(Omd, Random, Greedy, Cucb, Cbwk, Ts, TsBwk, Moe),
):
    register_policy(policy_class)

MAX_NOISY_OR_EXPERTS = 300  # `noisy-or` is untested with more; its time grows with their pairs


@dataclass(frozen=True)
class Auto:
    """The policy that the problem calls for, by the rule in `docs/default`.

    propensities: must every decision record its propensity, so that its log can be evaluated?
                  What is not recorded when a panel is drawn cannot be recovered later
    contexts:     about how many there will be; None: as many as are declared, else 1
    """

    propensities: bool = True
    contexts: int | None = None

    def __post_init__(self) -> None:
        check_bools(propensities=self.propensities)
        if self.contexts is not None and (type(self.contexts) is not int or self.contexts < 1):
            raise PolicyError(
                f"contexts={self.contexts!r} is no number of contexts; give 1, or none"
            )

    def resolve(self, problem: Problem) -> Policy:
        """Choose the policy.

        `tangent`, if full panels cannot satisfy the limits; `distinct`, if propensities are needed
        or beliefs about pairs take too much memory; else `noisy-or`.
        """
        if problem.full_conflict is not None:
            return Tangent()
        needed = count_posterior_bytes(self.contexts or 1, problem.size)
        fits = problem.size <= MAX_NOISY_OR_EXPERTS and needed <= MAX_POSTERIOR_BYTES
        return NoisyOr() if fits and not self.propensities else Distinct()


POLICY_NAMES = ("auto", *POLICIES)
"""All built-in names that `find_policy` knows."""

PolicyOrAuto = TypeVar("PolicyOrAuto", bound="Policy | Auto")
SettingValue = bool | int | float | str | None

SETTING_WORDS: dict[str, SettingValue] = {"true": True, "false": False, "none": None, "null": None}
POLICY_SPEC_FORM = "settings follow a colon, as in noisy-or:explore=0.02,guard=true"


def find_policy(policy: str | Policy | Auto) -> Policy | Auto:
    """The policy of this name or spec, or the given settings as they are.

    >>> find_policy("noisy-or:explore=0.02") == NoisyOr(explore=0.02)
    True
    """
    if isinstance(policy, (Policy, Auto)):
        return policy
    name, colon, _ = policy.partition(":") if isinstance(policy, str) else (policy, "", "")
    names = ("auto", *POLICIES)
    if not isinstance(name, str) or name not in names:
        close = get_close_matches(str(name), names, n=1)
        meant = f"did you mean {close[0]!r}? The" if close else "the"
        more = f"; {POLICY_SPEC_FORM}" if isinstance(name, str) and set(name) & set("=(") else ""
        raise PolicyError(
            f"there is no policy {name!r}; {meant} ones there are: {', '.join(names)}{more}"
        )
    usual = Auto() if name == "auto" else POLICIES[name]
    return parse_policy_spec(usual, policy) if colon else usual


def resolve_policy(policy: str | Policy | Auto, problem: Problem) -> Policy:
    """The policy that plays on a problem; `auto` is resolved."""
    found = find_policy(policy)
    return found.resolve(problem) if isinstance(found, Auto) else found


def summarize_policy(name: str) -> str:
    """What the policy or variant of this name does, to follow its name in a sentence."""
    kind = type(POLICIES[name])
    return kind.summary if name == kind.name else kind.variants[name][1]


def policy_to_data(policy: Policy | Auto) -> dict[str, Any]:
    """The name and settings as plain data, for saved files."""
    if isinstance(policy, Auto):
        return {"name": "auto", "propensities": policy.propensities, "contexts": policy.contexts}
    return {"name": policy.name, **policy.to_settings()}


def policy_from_data(data: Mapping[str, Any]) -> Policy | Auto:
    """The inverse of `policy_to_data`."""
    settings = dict(data)
    name = settings.pop("name")
    kind: type[Policy] | type[Auto] | None = Auto if name == "auto" else POLICY_CLASSES.get(name)
    if kind is None:
        raise PolicyError(f"this bylot does not know the policy {dict(data)!r}; upgrade it")
    later = "; if a later bylot wrote this, upgrade it"
    check_setting_names(name, settings, [field.name for field in fields(kind)], later)
    return Auto(**settings) if issubclass(kind, Auto) else kind.from_settings(settings)


def parse_policy_spec(usual: PolicyOrAuto, policy: str) -> PolicyOrAuto:
    """Default settings, changed by those after the first colon of a spec."""
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
    """A number, true, false or none in any case, or the text itself.

    >>> [parse_setting_value(text) for text in ("2", "1e-2", "False", "null", "sum")]
    [2, 0.01, False, None, 'sum']
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
    """Raise for a setting that a policy does not have, with those that it has."""
    for setting in given:
        if setting not in settings:
            close = get_close_matches(setting, settings, n=1)
            meant = f"did you mean {close[0]!r}? Its" if close else "its"
            those = f"{meant} settings are {', '.join(settings)}" if settings else "it has none"
            more = "" if close else otherwise
            raise PolicyError(f"policy {policy!r} has no setting {setting!r}; {those}{more}")
