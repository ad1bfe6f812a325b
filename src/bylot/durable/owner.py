"""Whose leases are whose: a server that was killed must not keep its routers from its successor.

A lease runs out by itself after some seconds. But an owner's name tells the machine and the
process, so that whoever starts on the same machine sees that nobody will renew it, and need not
wait.
"""

import os
import secrets
import socket
from pathlib import Path

from bylot.store import Store

BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/pid")  # what a number of a process means, in a container


def owner_here() -> str:
    """A name that no other server has, now or later: machine/process/chance."""
    pid = os.getpid()
    return f"{machine()}/{pid}@{began(pid)}/{secrets.token_hex(4)}"


def machine() -> str:
    """The machine we are on, since it was booted, as seen from this process."""
    try:
        seen = f"{BOOT.read_text().strip()}:{os.readlink(NAMESPACE)}"
    except OSError:  # where the system does not tell, no two are taken to be the same
        seen = secrets.token_hex(8)
    return f"{socket.gethostname()}:{seen}"


def began(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def gone(owner: str) -> bool:
    """Was this the name of a process of this machine that is no more?"""
    where, _, rest = owner.partition("/")
    pid, _, since = rest.partition("/")[0].partition("@")
    return where == machine() and pid.isdigit() and began(int(pid)) != since


def known_as(owner: str) -> str:
    """An owner as people know it.

    >>> known_as("ward-3:5f0c:pid:[4026531836]/4711@90125/a1b2c3d4")
    'process 4711 on ward-3'
    """
    where, _, rest = owner.partition("/")
    pid, at, _ = rest.partition("@")
    return f"process {pid} on {where.partition(':')[0]}" if at else repr(owner)


def succeed(store: Store) -> None:
    """Give back the leases of servers that ran on this machine and are gone."""
    for owner in store.owners():
        if gone(owner):
            store.release(owner)
