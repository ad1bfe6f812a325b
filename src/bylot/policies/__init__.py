"""Policies: which panel to draw, and how to learn from its reward.

`base` has the contract, `registry` the list; every other module is an algorithm or a part of some.
"""

from bylot.policies.bandits import Cbwk, Cucb, Greedy, Moe, Ts, TsBwk
from bylot.policies.base import Policy
from bylot.policies.c2mab_v import C2mabV
from bylot.policies.distinct import Distinct
from bylot.policies.iid_draws import Strict, Tangent
from bylot.policies.noisy_or import NoisyOr
from bylot.policies.omd import Adaptive, Anytime, Fixed, Omd
from bylot.policies.plain import PlainPolicy
from bylot.policies.random_panels import Random
from bylot.policies.registry import (
    POLICIES,
    POLICY_CLASSES,
    POLICY_NAMES,
    Auto,
    describe_ignored_feedback,
    find_policy,
    policy_from_data,
    policy_to_data,
    register_policy,
    resolve_policy,
    summarize_policy,
)

__all__ = [
    "POLICIES",
    "POLICY_CLASSES",
    "POLICY_NAMES",
    "Adaptive",
    "Anytime",
    "Auto",
    "C2mabV",
    "Cbwk",
    "Cucb",
    "Distinct",
    "Fixed",
    "Greedy",
    "Moe",
    "NoisyOr",
    "Omd",
    "PlainPolicy",
    "Policy",
    "Random",
    "Strict",
    "Tangent",
    "Ts",
    "TsBwk",
    "describe_ignored_feedback",
    "find_policy",
    "policy_from_data",
    "policy_to_data",
    "register_policy",
    "resolve_policy",
    "summarize_policy",
]
