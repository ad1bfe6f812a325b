"""Membership: the servers that share a store, and which of them owns which router.

A router has one owner at a time, by its lease. A router without a lease goes to the first server in
an order by a hash of its name and the address of the server. Servers with more than 1.25 times
their share are left out. So few routers move when a server joins or leaves.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from bylot.store import ServerRow

LOAD_FACTOR = 1.25  # a server owns at most so many times its fair share of routers


def order_servers(name: str, servers: Iterable[ServerRow]) -> list[ServerRow]:
    """Servers in the order in which a router prefers them: by a hash of both names."""
    return sorted(
        servers,
        key=lambda one: blake2b(f"{one.address} {name}".encode(), digest_size=8).digest(),
    )


def compute_load_bound(routers: int, servers: int) -> int:
    """The most routers that a server should own.

    >>> compute_load_bound(40, 4), compute_load_bound(1, 4)
    (13, 1)
    """
    return max(1, math.ceil(LOAD_FACTOR * routers / max(servers, 1)))


class Membership:
    """What one server knows of the others; only the event loop changes it.

    me:      this server
    servers: all that are announced, by owner
    owners:  of leased routers, by the name of the router
    leaving: this server stops, and opens no router any more
    """

    def __init__(self, me: ServerRow) -> None:
        self.me = me
        self.servers: dict[str, ServerRow] = {}
        self.owners: dict[str, str] = {}
        self.leaving = False

    def update(self, servers: Sequence[ServerRow], owners: Mapping[str, str]) -> None:
        """Take over what the store says."""
        self.servers = {one.owner: one for one in servers}
        self.owners = dict(owners)

    def find(self, name: str) -> ServerRow:
        """The owner of a router or, if it has none that is announced, the one that it prefers."""
        owner = self.servers.get(self.owners.get(name, ""))
        if owner is None and self.owners.get(name) == self.me.owner:
            return self.me
        return owner or choose_server(name, self.candidates, self.owners) or self.me

    @property
    def candidates(self) -> list[ServerRow]:
        """The servers that may open routers."""
        others = [one for one in self.servers.values() if one.owner != self.me.owner]
        return others if self.leaving else [self.me, *others]


def choose_server(
    name: str, servers: Sequence[ServerRow], owners: Mapping[str, str]
) -> ServerRow | None:
    """The first server that a router prefers and that does not own too many others."""
    loads = Counter(owner for router, owner in owners.items() if router != name)
    bound = compute_load_bound(len({*owners, name}), len(servers))
    for one in order_servers(name, servers):
        if loads[one.owner] < bound:
            return one
    return None


def list_moves(
    me: ServerRow, mine: Iterable[str], servers: Sequence[ServerRow], owners: Mapping[str, str]
) -> list[str]:
    """The routers of this server that should move to another one, no more than are too many."""
    planned, moves = dict(owners), list[str]()
    for name in mine:
        chosen = choose_server(name, servers, planned)
        if chosen is not None and chosen.owner != me.owner:
            planned[name] = chosen.owner
            moves.append(name)
    return moves
