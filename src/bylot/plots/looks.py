"""How any choice of policies is drawn: as elsewhere where that tells them apart, else otherwise."""

from collections.abc import Sequence

from bylot.plots.style import OURS, POLICIES, Look

KNOWN = {**POLICIES, **OURS}


def looks(policies: Sequence[str]) -> dict[str, Look]:
    """A look for each policy, no two of one colour as long as there are colours.

    >>> made = looks(["tangent", "ts"])  # both are green where they are on their own
    >>> made["tangent"].colour == made["ts"].colour
    False
    """
    made: dict[str, Look] = {}
    for policy in policies:
        taken = {look.colour for look in made.values()}
        own = [KNOWN[policy]] if policy in KNOWN else []
        free = [look for look in [*own, *KNOWN.values()] if look.colour not in taken]
        made[policy] = (free or own or [*KNOWN.values()])[0]._replace(name=policy)
    return made
