"""How many contexts a router can have: as declared, or as many as its policy has room for."""

from dataclasses import replace

from bylot.errors import PolicyError
from bylot.policies import find_policy, policy_to_data
from bylot.policies.base import HasMaxContexts, Policy
from bylot.policies.registry import Auto
from bylot.policies.validation import check_at_least_one

MAX_UNDECLARED_CONTEXTS = 100_000  # contexts, where nothing is declared
MAX_STORED_CONTEXTS = 1_000  # the same, of a router in a store


def limit_contexts(policy: Policy, size: int, declared: int) -> int:
    """Contexts of so many experts: those declared, or fewer, if the policy remembers no more."""
    return (
        min(declared, policy.most_contexts(size))
        if isinstance(policy, HasMaxContexts)
        else declared
    )


def choose_stored_contexts(policy: Policy, size: int) -> int:
    """Contexts of a router in a store for which nothing is declared."""
    return max(1, limit_contexts(policy, size, MAX_STORED_CONTEXTS))


def fill_auto_contexts(policy: str | Policy | Auto, declared: int | None) -> Policy | Auto:
    """The policy; `auto`, if it was not told how many contexts there will be, with those declared.

    >>> fill_auto_contexts("auto:propensities=false", 4_000)
    Auto(propensities=False, contexts=4000)
    """
    found = find_policy(policy)
    if declared is None or not isinstance(found, Auto) or found.contexts is not None:
        return found
    return replace(found, contexts=check_at_least_one("max_contexts", declared))


def check_max_contexts(policy: Policy, size: int, declared: int) -> int:
    """The contexts declared, if there is room for them: who counts on them is told at once."""
    check_at_least_one("max_contexts", declared)
    most = max(1, limit_contexts(policy, size, declared))  # that there is none at all, `start` says
    if most < declared:
        raise PolicyError(
            f"max_contexts={declared:,} cannot be reached: with {size:,} experts there is room for "
            f"what {policy_to_data(policy)['name']} remembers of {most:,} contexts; "
            f"declare at most {most:,}, or take 'distinct', which remembers less"
        )
    return declared
