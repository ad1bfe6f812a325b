"""Servers in network namespaces, whose links can be cut: packets are lost without an error.

Each server has three links, so that each can be cut on its own: to callers, to the database and
to the other servers. Names contain the id of the test process: what processes that have ended left
behind is removed at the next start.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

Link = Literal["callers", "database", "servers"]
LINKS: tuple[Link, ...] = ("callers", "database", "servers")
OUR_NAMES = re.compile(r"bl(\d+)(?:[cdsn]\d*)?")
SUBNETS = "198.18"  # reserved for tests of networks
PORT_STATES = {"cut": "0", "open": "3"}  # of a port of a bridge: disabled, forwarding


def run_ip(*words: str) -> str:
    return subprocess.run(
        ["ip", *words], check=True, capture_output=True, text=True, timeout=30
    ).stdout


def find_network_fault() -> str | None:
    """Why there can be no namespaces here; None if there can."""
    if shutil.which("ip") is None or shutil.which("bridge") is None:
        return "iproute2 is not installed"
    name = f"bl{os.getpid()}"
    try:
        run_ip("netns", "add", name)
        run_ip("netns", "delete", name)
    except (OSError, subprocess.SubprocessError) as error:
        return f"network namespaces are not allowed: {getattr(error, 'stderr', '') or error}"
    return None


def remove_leftovers() -> None:
    """Remove namespaces and links of this process, and of test processes that have ended."""
    spaces = [line.split()[0] for line in run_ip("netns", "list").splitlines() if line]
    links = [str(one["ifname"]) for one in json.loads(run_ip("-j", "link"))]
    for names, command in ((spaces, ("netns", "delete")), (links, ("link", "delete"))):
        for name in names:
            found = OUR_NAMES.fullmatch(name)
            if found and (int(found[1]) == os.getpid() or not Path("/proc", found[1]).exists()):
                with suppress(subprocess.SubprocessError):  # the other end may be deleted already
                    run_ip(*command, name)


class Network:
    """Three bridges of this machine, and namespaces with a link to each of them."""

    def __init__(self, count: int) -> None:
        self.prefix, self.first = f"bl{os.getpid()}", find_free_subnets(len(LINKS))
        for link in LINKS:
            bridge = self.name_link(link)
            run_ip("link", "add", bridge, "type", "bridge")
            run_ip("addr", "add", f"{self.find_address(link)}/24", "dev", bridge)
            run_ip("link", "set", bridge, "up")
        for n in range(count):
            self.add_namespace(n)

    def add_namespace(self, n: int) -> None:
        space = self.name_namespace(n)
        run_ip("netns", "add", space)
        run_ip("-n", space, "link", "set", "lo", "up")
        for link in LINKS:
            outside, inside = self.name_link(link, n), link
            peer = ("peer", "name", inside, "netns", space)
            run_ip("link", "add", outside, "type", "veth", *peer)
            run_ip("link", "set", outside, "master", self.name_link(link), "up")
            address = f"{self.find_address(link, n)}/24"
            run_ip("-n", space, "addr", "add", address, "dev", inside)
            run_ip("-n", space, "link", "set", inside, "up")

    def name_namespace(self, n: int) -> str:
        return f"{self.prefix}n{n}"

    def name_link(self, link: Link, n: int | None = None) -> str:
        """The bridge of a kind of links, or the end outside of a namespace."""
        return f"{self.prefix}{link[0]}{'' if n is None else n}"

    def find_address(self, link: Link, n: int | None = None) -> str:
        """The address of a namespace on a kind of link; None: of this machine."""
        return f"{SUBNETS}.{self.first + LINKS.index(link)}.{1 if n is None else 10 + n}"

    def find_subnet(self, link: Link) -> str:
        return f"{SUBNETS}.{self.first + LINKS.index(link)}.0/24"

    @contextmanager
    def cut(self, n: int, links: Sequence[Link]) -> Iterator[None]:
        """Lose all packets on some links of a server."""
        try:
            for link in links:
                self.set_state(n, link, "cut")
            yield
        finally:
            for link in links:
                self.set_state(n, link, "open")

    def set_state(self, n: int, link: Link, state: str) -> None:
        command = ["bridge", "link", "set", "dev", self.name_link(link, n)]
        subprocess.run([*command, "state", PORT_STATES[state]], check=True, timeout=30)


def find_free_subnets(count: int) -> int:
    """The first of so many subnets that no link of this machine uses."""
    shown: list[dict[str, Any]] = json.loads(run_ip("-j", "addr"))
    used = {one["local"] for link in shown for one in link["addr_info"]}
    numbers = {int(one.split(".")[2]) for one in used if one.startswith(f"{SUBNETS}.")}
    starts = range(count * (os.getpid() % 80), 256 - count, count)
    return int(next(n for n in (*starts, *range(0, 256 - count, count)) if n not in numbers))


@contextmanager
def run_network(count: int) -> Iterator[Network]:
    """So many namespaces; they are removed at the end, however it ends."""
    fault = find_network_fault()
    if fault is not None:
        pytest.skip(fault)
    remove_leftovers()
    try:
        yield Network(count)
    finally:
        remove_leftovers()
