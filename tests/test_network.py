"""Links of namespaces can be cut one by one, and nothing is left behind."""

import socket
import subprocess
import sys
from pathlib import Path

from network import Link, Network, run_ip, run_network

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5)"


def connects(network: Network, link: Link, listener: socket.socket) -> bool:
    """Whether the first namespace can connect to a port of this machine."""
    inside = ["ip", "netns", "exec", network.name_namespace(0), sys.executable, "-c", CONNECT]
    target = [network.find_address(link), str(listener.getsockname()[1])]
    return subprocess.run([*inside, *target], stderr=subprocess.DEVNULL).returncode == 0


def test_a_link_that_is_cut_loses_packets_and_the_others_do_not() -> None:
    with run_network(1) as network, socket.create_server(("0.0.0.0", 0)) as listener:
        assert connects(network, "database", listener)
        with network.cut(0, ["database"]):
            assert not connects(network, "database", listener)
            assert connects(network, "callers", listener)
        assert connects(network, "database", listener)
        prefix = network.prefix
    assert prefix not in run_ip("link") + run_ip("netns", "list")
    assert not list(Path("/run/netns").glob(f"{prefix}*"))
