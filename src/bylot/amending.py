"""Refusals of a change to a router that runs: the remedy must be one that can be had then."""

from bylot.errors import InfeasibleLimits, PolicyError


def refused(error: InfeasibleLimits | PolicyError) -> InfeasibleLimits | PolicyError:
    """The same, where policy, horizon and draws stay as they are.

    >>> print(refused(PolicyError("too tight; take 'omd'")))
    too tight; loosen the limits or change the experts, or make a new router and there take 'omd'
    """
    if isinstance(error, PolicyError):
        fault, _, remedy = str(error).rpartition("; ")
        there = f"make a new router and there {remedy}"
        return PolicyError(f"{fault}; loosen the limits or change the experts, or {there}")
    if error.draws is None:
        return error
    said, _, _ = str(error).partition(" Or draw more experts")
    message = f"{said} Or make a new router with draws={error.draws}."
    return InfeasibleLimits(message, error.conflict, error.remedies, error.smallest, error.draws)
