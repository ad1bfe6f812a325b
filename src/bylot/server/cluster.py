"""Cluster: any server answers for any router. Commands go to the owner of their router.

A router has one owner at a time, by its lease. A router without a lease goes to the first server in
an order by a hash of its name and the address of the server. Servers with more than 1.25 times
their share are left out. So few routers move when a server joins or leaves.

The writer of each server announces it in the store and reads who owns what, a few times in the
duration of a lease. A command for a router of another server is sent there. If that server has
just lost the router or stopped, the command goes to the next owner, until its time is over.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from bylot.errors import BylotError, PolicyCompiling
from bylot.eventlog import commands
from bylot.eventlog.command_handler import CommandHandler
from bylot.server.http_errors import ApiError, unavailable
from bylot.server.peers import MOVED_ERRORS, Peer, PeerLost
from bylot.server.writer import CommandRunner, Reader, Writer
from bylot.store import ServerRow, Store

log = logging.getLogger("bylot.server")

LOAD_FACTOR = 1.25  # a server owns at most so many times its fair share of routers
FIRST_PAUSE_S, MAX_PAUSE_S = 0.02, 0.25  # between two tries of a command
MAX_MOVES = 4  # routers that are handed over at a time
MAX_PREPARED_ROUTERS = 20  # at a time, whose policies are compiled before they are needed here
WAITING_ERRORS = (*MOVED_ERRORS, PolicyCompiling)
"""Nothing was done, and the command may succeed a little later."""
REPEATABLE = (
    commands.GetRouter,
    commands.GetDecision,
    commands.GetTenant,
    commands.ListTenants,
    commands.RecordReward,
    commands.ReplaceMember,
)
"""Commands that may be sent again although they may have been executed."""


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


class Cluster(CommandRunner):
    """The servers of a store, as one of them sees them.

    is_ready: whether this server can open routers without compiling
    prepare:  begins to compile the policy of a router that another server may hand over
    """

    def __init__(
        self,
        me: ServerRow,
        key: str,
        writer: Writer,
        reader: Reader,
        is_ready: Callable[[], bool],
        prepare: Callable[[Store, str], None] = lambda store, name: None,
    ) -> None:
        self.membership, self.key = Membership(me), key
        self.writer, self.reader = writer, reader
        self.is_ready, self.prepare = is_ready, prepare
        self.prepared: set[str] = set()  # routers; changed by the thread of the writer
        self.timeout_s = writer.settings.request_timeout_s
        self.peers: dict[str, Peer] = {}  # by address
        self.refreshing: asyncio.Task[None] | None = None
        writer.on_renew = self.announce

    # In the thread of the writer

    def announce(self, handler: CommandHandler) -> None:
        """Announce this server, hand over routers that others should have, and read who has what.

        A server that is not ready, or stops, is not announced: nobody sends it commands. It is
        announced for as long as its leases: nobody hands over a router to one that has lost them.
        """
        store, me = handler.store, self.membership.me
        if self.membership.leaving or not self.is_ready():
            servers = store.servers()
        else:
            servers = store.register(me, self.writer.settings.lease_s)
        owners = store.owners()
        self.prepared &= owners.keys()
        for name in sorted(owners.keys() - self.prepared)[:MAX_PREPARED_ROUTERS]:
            self.prepare(store, name)
            self.prepared.add(name)
        if not self.membership.leaving:
            moves = list_moves(me, list(handler.repository.opened), servers, owners)
            for name in moves[:MAX_MOVES]:
                log.info("router %s is handed over, as another server should own it", name)
                handler.repository.release(name)
                owners.pop(name, None)
        self.writer.post(self.update_members, servers, owners)

    def leave(self, handler: CommandHandler) -> None:
        """Stop being announced, and hand over all routers."""
        handler.repository.is_leaving = True
        handler.store.unregister(self.membership.me.owner)
        handler.repository.release_all()

    # In the event loop

    async def stop(self) -> None:
        """Hand over all routers; from here on, every command is sent to another server."""
        self.membership.leaving = True
        log.info("routers are handed over, as this server stops")
        await self.writer.run_in_thread(self.leave)
        await self.refresh()

    async def close(self) -> None:
        for peer in self.peers.values():
            await peer.close()

    def update_members(self, servers: Sequence[ServerRow], owners: Mapping[str, str]) -> None:
        """Take over what the store says; wait no longer for servers that have lost their leases.

        Such a server was suspended, or cannot reach the store: it could not execute a command.
        """
        self.log_changes(servers)
        self.membership.update(servers, owners)
        leased = set(owners.values())
        alive = {one.address for one in servers if one.owner in leased}
        for address, peer in self.peers.items():
            if address not in alive:
                peer.give_up(self.writer.settings.lease_s)

    def log_changes(self, servers: Sequence[ServerRow]) -> None:
        """Log which other servers have come or gone."""
        before = {one.address for one in self.membership.servers.values()}
        now, me = {one.address for one in servers}, {self.membership.me.address}
        for address in sorted(now - before - me):
            log.info("%s is in the cluster, which has %d servers", address, len(now))
        for address in sorted(before - now - me):
            log.info("%s has left the cluster, which has %d servers", address, len(now))

    async def execute_all(self, batch: Sequence[commands.Command]) -> list[Any]:
        """A result or an exception for each command, by the owners of their routers."""
        groups: dict[str, list[int]] = {}
        for n, command in enumerate(batch):
            groups.setdefault(command.name, []).append(n)
        if len(groups) == 1:
            return await self.execute_group(batch[0].name, batch)
        parts = await asyncio.gather(
            *(self.execute_group(name, [batch[n] for n in ns]) for name, ns in groups.items())
        )
        results: list[Any] = [None] * len(batch)
        for ns, part in zip(groups.values(), parts, strict=True):
            for n, result in zip(ns, part, strict=True):
                results[n] = result
        return results

    async def execute_group(self, name: str, batch: Sequence[commands.Command]) -> list[Any]:
        """The results of commands for one router; those that were not executed are tried again."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + self.timeout_s, FIRST_PAUSE_S
        results: list[Any] = [None] * len(batch)
        waiting = list(range(len(batch)))
        while True:
            found = await self.execute_once(name, [batch[n] for n in waiting])
            for n, result in zip(waiting, found, strict=True):
                results[n] = result
            waiting = [n for n in waiting if isinstance(results[n], WAITING_ERRORS)]
            if not waiting or loop.time() + pause_s > deadline:
                return results
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            await self.refresh()

    async def execute_once(self, name: str, batch: Sequence[commands.Command]) -> list[Any]:
        """The results of one try, here or by the owner; RouterBusy for what was not executed."""
        owner = self.membership.find(name)
        if owner.owner == self.membership.me.owner or isinstance(batch[0], commands.CreateRouter):
            return await self.writer.execute_all(batch)
        peer = self.peers.get(owner.address)
        if peer is None:
            peer = self.peers[owner.address] = Peer(owner.address, self.key, self.timeout_s)
        try:
            return await peer.execute(batch)
        except ApiError as error:  # the two servers do not understand each other
            return [error] * len(batch)
        except PeerLost as error:
            if error.sent and not all(map(is_repeatable, batch)):
                message = "the server of this router did not answer; repeat the request with a key"
                return [unavailable("owner_lost", message)] * len(batch)
        # Its lease may be over: whoever opens the router finds out.
        return await self.writer.execute_all(batch)

    async def refresh(self) -> None:
        """Read who owns what; requests that wait for the same share the work."""
        if self.refreshing is None or self.refreshing.done():
            self.refreshing = asyncio.create_task(self.read_members())
        await asyncio.shield(self.refreshing)

    async def read_members(self) -> None:
        try:
            found = await self.reader.read(lambda store: (store.servers(), store.owners()))
            self.update_members(*found)
        except BylotError as error:  # what was known before is still likely
            log.debug("the servers of the cluster cannot be read: %s", error)


def is_repeatable(command: commands.Command) -> bool:
    """Whether a command has no further effect if it was executed before."""
    return isinstance(command, REPEATABLE) or (
        isinstance(command, commands.MakeDecision) and command.key is not None
    )
