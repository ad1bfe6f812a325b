"""Servers of one store, in processes of their own, that forward requests to each other."""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from bylot.store import open_store
from bylot_bench.http_load import ServerProcess
from live_server import is_compiling
from server_process import SOURCES

CLUSTER_KEY = "secret-of-a-cluster"
LEAVE_S = 2.0
HEARTBEAT_S = 1.2  # after which all servers have read what one has written


class ClusterServer(ServerProcess):
    """A server that announces itself under its own URL.

    command: what to run instead of bylot; config: the path of its configuration file
    """

    def __init__(
        self,
        store: str,
        log: Path,
        command: str = "bylot",
        config: str | None = None,
        **more: str,
    ) -> None:
        paths = os.pathsep.join([SOURCES, str(Path(__file__).parent)])
        settings = {"BYLOT_CLUSTER_KEY": CLUSTER_KEY, "BYLOT_LEAVE_S": str(LEAVE_S), **more}
        self.store, environment = store, {**os.environ, "PYTHONPATH": paths, **settings}
        words = ["serve", "--store", store]
        if config is not None:
            words += ["--config", config]
        super().__init__(command, *words, log=log, environment=environment)

    def start(self) -> None:
        if "--advertise" not in self.command:
            self.command += ["--advertise", self.url]
        super().start()


@contextmanager
def run_servers(
    store: str, folder: Path, count: int, config: str | None = None
) -> Iterator[list[ClusterServer]]:
    """So many servers on a store, which know each other; those that run are stopped at the end."""
    with ExitStack() as stack:
        servers = []
        for n in range(count):
            servers.append(ClusterServer(store, folder / f"log-{n}", config=config))
            stack.callback(stop_if_running, servers[-1])
        wait_for_members(servers)
        yield servers


def stop_if_running(server: ServerProcess) -> None:
    if server.process.poll() is None:
        server.stop()


def wait_for_members(servers: Sequence[Any]) -> None:
    """Wait until all servers know each other."""
    with closing(open_store(servers[0].store, read_only=True)) as store:
        end = time.monotonic() + 30
        while len(store.servers()) < len(servers):
            assert time.monotonic() < end
            time.sleep(0.05)
    time.sleep(HEARTBEAT_S)


def post(server: ServerProcess, path: str, body: Any) -> httpx.Response:
    """Send a request, again while a policy is compiled."""
    while is_compiling(found := httpx.post(server.url + path, json=body, timeout=60)):
        time.sleep(0.1)
    return found


class AnyServerClient(httpx.AsyncClient):
    """Sends each request to one of several servers at random, as a balancer does."""

    def __init__(self, servers: Sequence[ServerProcess], seed: int) -> None:
        super().__init__()
        self.urls, self.rng = [one.url for one in servers], random.Random(seed)

    async def post(self, url: Any, **options: Any) -> httpx.Response:
        return await super().post(self.rng.choice(self.urls) + url, **options)
