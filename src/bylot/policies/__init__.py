"""Policies: which panel to draw, and how to learn from its reward.

`base` has the contract, `catalog` the list, `registry` finds what a caller names; every other
module is an algorithm or a part of some. Names are imported when first used, so that a router
loads the policy that it plays and no other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bylot.policies.base import Policy
    from bylot.policies.catalog import (
        POLICIES,
        POLICY_CLASSES,
        POLICY_NAMES,
        register_policy,
        summarize_policy,
    )
    from bylot.policies.distinct import Distinct
    from bylot.policies.noisy_or import NoisyOr
    from bylot.policies.omd import Omd
    from bylot.policies.plain import PlainPolicy
    from bylot.policies.registry import (
        Auto,
        describe_ignored_feedback,
        find_policy,
        policy_from_data,
        policy_to_data,
        resolve_policy,
    )
    from bylot.policies.tangent import Tangent

CATALOG = ("POLICIES", "POLICY_CLASSES", "POLICY_NAMES", "register_policy", "summarize_policy")
PUBLIC_HOMES = {
    "base": ("Policy",),
    "catalog": CATALOG,
    "distinct": ("Distinct",),
    "noisy_or": ("NoisyOr",),
    "omd": ("Omd",),
    "plain": ("PlainPolicy",),
    "tangent": ("Tangent",),
}
"""Modules of public names; `registry` has all others."""

__all__ = [
    "POLICIES",
    "POLICY_CLASSES",
    "POLICY_NAMES",
    "Auto",
    "Distinct",
    "NoisyOr",
    "Omd",
    "PlainPolicy",
    "Policy",
    "Tangent",
    "describe_ignored_feedback",
    "find_policy",
    "policy_from_data",
    "policy_to_data",
    "register_policy",
    "resolve_policy",
    "summarize_policy",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bylot.policies' has no attribute {name!r}")
    home = next((home for home, names in PUBLIC_HOMES.items() if name in names), "registry")
    return getattr(import_module(f"bylot.policies.{home}"), name)
