"""Policies on the command line: the one way to write them, for every verb that takes any."""

from typing import Any

NAMES = (
    *("auto", "distinct", "panel", "tangent", "strict", "omd", "random", "greedy", "cucb", "cbwk"),
    *("ts", "ts-bwk", "moe", "omd-plain", "omd-sum", "omd-frozen", "cbwk-instant"),
    "ts-bwk-instant",
)
"""Those of `bylot.policies`, written down once more: help should not wait for that import."""

POLICY_HELP = (
    f"{', '.join(NAMES)}; settings may follow a colon, as in panel:explore=0.02,pace=none or "
    "auto:propensities=false,contexts=20 (docs/policies.md has them)"
)
"""What can be written."""


def format_policy(policy: Any) -> str:
    """A policy as it can be written here: its name, and the settings that are not as usual."""
    from bylot.policies import POLICIES, policy_to_data

    for name, usual in POLICIES.items():
        if policy == usual:
            return name
    plain = policy_to_data(policy)
    name = plain.pop("name")
    usual_ones = policy_to_data(POLICIES[name])
    changed = [f"{key}={value}" for key, value in plain.items() if value != usual_ones[key]]
    return f"{name}:{','.join(changed)}"


def split_policies(text: str) -> list[str]:
    """The policies of a list with commas, each with its settings, which have commas too.

    >>> split_policies("distinct, panel:explore=0.02,guard=false,omd")
    ['distinct', 'panel:explore=0.02,guard=false', 'omd']
    """
    found: list[str] = []
    for part in text.split(","):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part.strip()}"
        else:
            found.append(part.strip())
    return found
