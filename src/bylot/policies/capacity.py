"""How many contexts a router can have: as declared, or as many as its policy has memory for."""

from dataclasses import replace

from bylot.errors import PolicyError
from bylot.policies.base import Policy
from bylot.policies.registry import Auto, find_policy
from bylot.policies.validation import check_at_least_one

MAX_UNDECLARED_CONTEXTS = 100_000  # of a router in memory
MAX_STORED_CONTEXTS = 1_000  # of a router in a store, if nothing is declared


def limit_contexts(policy: Policy, size: int, declared: int) -> int:
    """Contexts with `size` experts: those declared, or fewer, if the policy has no more memory."""
    return min(declared, policy.max_contexts(size))


def choose_stored_contexts(policy: Policy, size: int) -> int:
    """Contexts of a router in a store for which nothing is declared."""
    return max(1, limit_contexts(policy, size, MAX_STORED_CONTEXTS))


def fill_auto_contexts(policy: str | Policy | Auto, declared: int | None) -> Policy | Auto:
    """The policy; `auto` with the number of declared contexts, unless it has one.

    >>> fill_auto_contexts("auto:propensities=false", 4_000)
    Auto(propensities=False, contexts=4000)
    """
    found = find_policy(policy)
    if declared is None or not isinstance(found, Auto) or found.contexts is not None:
        return found
    return replace(found, contexts=check_at_least_one("max_contexts", declared))


def check_max_contexts(policy: Policy, size: int, declared: int) -> int:
    """The declared contexts, if the policy has memory for them."""
    check_at_least_one("max_contexts", declared)
    most = max(1, limit_contexts(policy, size, declared))  # `start` raises if there is none at all
    if most < declared:
        raise PolicyError(
            f"max_contexts={declared:,} cannot be reached: with {size:,} experts there is room for "
            f"what {policy.name} remembers of {most:,} contexts; "
            f"declare at most {most:,}, or take 'distinct', which remembers less"
        )
    return declared
