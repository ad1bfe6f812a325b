"""Policies by name; each file below reads like its pseudo-code."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from bylot.errors import PolicyError
from bylot.policies.base import HasDerivedState, HasMaxContexts, Policy
from bylot.policies.distinct import Distinct
from bylot.policies.moe import Moe
from bylot.policies.noisy_or import NoisyOr
from bylot.policies.omd import DUAL_STEPS, Adaptive, Anytime, Fixed, Omd
from bylot.policies.random_panels import Random
from bylot.policies.registry import POLICY_SPEC_FORM, Auto, check_setting_names, parse_policy_spec
from bylot.policies.strict import Strict
from bylot.policies.tangent import Tangent
from bylot.policies.thompson import Ts, TsBwk
from bylot.policies.ucb import Cbwk, Cucb, Greedy
from bylot.problem import Problem

POLICY_CLASSES: Mapping[str, type[Policy]] = {
    "distinct": Distinct,
    "noisy-or": NoisyOr,
    "tangent": Tangent,
    "strict": Strict,
    "omd": Omd,
    "random": Random,
    "greedy": Greedy,
    "cucb": Cucb,
    "cbwk": Cbwk,
    "ts": Ts,
    "ts-bwk": TsBwk,
    "moe": Moe,
}
"""Settings classes under the names they have in saved files; ours first, as lists show them."""

ALL_POLICY_CLASSES: Mapping[str, type[Policy] | type[Auto]] = {**POLICY_CLASSES, "auto": Auto}
"""The same, and the one that leaves it to the problem."""

POLICIES: Mapping[str, Policy] = {
    **{name: kind() for name, kind in POLICY_CLASSES.items()},
    "omd-plain": Omd.plain(),
    "omd-sum": Omd(batch_gradient="sum"),
    "omd-frozen": Omd(freeze_dual_in_batch=True),
    "cbwk-instant": Cbwk(dual_on="instant"),
    "ts-bwk-instant": TsBwk(dual_on="instant"),
}
"""Policies that go by a name: those above with their usual settings, and variants of them."""

POLICY_NAMES = ("auto", *POLICIES)
"""All that `find_policy` knows."""

__all__ = [
    "POLICIES",
    "POLICY_CLASSES",
    "POLICY_NAMES",
    "Adaptive",
    "Anytime",
    "Auto",
    "Cbwk",
    "Cucb",
    "Distinct",
    "Fixed",
    "Greedy",
    "HasDerivedState",
    "HasMaxContexts",
    "Moe",
    "NoisyOr",
    "Omd",
    "Policy",
    "Random",
    "Strict",
    "Tangent",
    "Ts",
    "TsBwk",
    "find_policy",
    "policy_from_data",
    "policy_to_data",
    "resolve_policy",
]


def find_policy(policy: str | Policy | Auto) -> Policy | Auto:
    """The policy of this name, or the given settings as they are.

    Settings other than the usual ones may follow a name:

    >>> find_policy("noisy-or:explore=0.02") == NoisyOr(explore=0.02)
    True
    """
    if type(policy) in ALL_POLICY_CLASSES.values():
        return policy  # type: ignore[return-value]
    name, colon, _ = policy.partition(":") if isinstance(policy, str) else (policy, "", "")
    if not isinstance(name, str) or name not in POLICY_NAMES:
        close = get_close_matches(str(name), POLICY_NAMES, n=1)
        meant = f"did you mean {close[0]!r}? The" if close else "the"
        more = f"; {POLICY_SPEC_FORM}" if isinstance(name, str) and set(name) & set("=(") else ""
        raise PolicyError(
            f"there is no policy {name!r}; {meant} ones there are: {', '.join(POLICY_NAMES)}{more}"
        )
    usual = Auto() if name == "auto" else POLICIES[name]
    return parse_policy_spec(usual, policy) if colon and isinstance(policy, str) else usual


def resolve_policy(policy: str | Policy | Auto, problem: Problem) -> Policy:
    """The policy that plays on a problem: the one of this name or these settings, or the one that
    the problem calls for.
    """
    found = find_policy(policy)
    return found.settled(problem) if isinstance(found, Auto) else found


def policy_to_data(policy: Policy | Auto) -> dict[str, Any]:
    """Settings as plain data, for saved files."""
    name = next(name for name, kind in ALL_POLICY_CLASSES.items() if type(policy) is kind)
    settings = {
        field.name: getattr(policy, field.name) for field in fields(ALL_POLICY_CLASSES[name])
    }
    if isinstance(policy, Omd):
        kind = next(name for name, oco in DUAL_STEPS.items() if isinstance(policy.dual, oco))
        settings["dual"] = {"kind": kind, **policy.dual._asdict()}
    return {"name": name, **settings}


def policy_from_data(data: Mapping[str, Any]) -> Policy | Auto:
    """Settings from plain data; the inverse of `policy_to_data`."""
    settings = dict(data)
    name, dual = settings.pop("name"), settings.get("dual")
    if name not in ALL_POLICY_CLASSES or (dual and dual["kind"] not in DUAL_STEPS):
        raise PolicyError(f"this bylot does not know the policy {dict(data)!r}; upgrade it")
    later = "; if a later bylot wrote this, upgrade it"
    check_setting_names(
        name, settings, [field.name for field in fields(ALL_POLICY_CLASSES[name])], later
    )
    if dual:
        settings["dual"] = DUAL_STEPS[dual["kind"]](dual["step"])
    return ALL_POLICY_CLASSES[name](**settings)
