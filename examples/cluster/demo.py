"""Three servers, a balancer and a database on this machine; one server is killed under load.

`make cluster-demo` runs it. It ends by itself, and leaves nothing behind.
"""

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import bylot
from bylot._text import format_table
from bylot.errors import BylotError
from bylot_bench.cluster import wait_for_owners
from bylot_bench.http_load import AnnouncedServer
from bylot_bench.postgres_process import PostgresServer, run_postgres

NAMES = ("server-a", "server-b", "server-c")
ROUTERS = tuple(f"team-{n}" for n in range(1, 10))
LIMIT_CENTS = 400.0
PROBLEM = bylot.Problem(
    experts=["ann", "bob", "cyd", "dee", "eve", "fay"],
    costs={"cents": [100, 200, 300, 150, 50, 400]},
    limits=[bylot.at_most("cents", LIMIT_CENTS)],
    draws=2,
    period=50,
)
SKILLS = dict(zip(PROBLEM.experts, (0.3, 0.5, 0.7, 0.4, 0.2, 0.9), strict=True))
BALANCER = """
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  retries 2
  option redispatch

frontend applications
  bind 127.0.0.1:{port}
  default_backend bylot

backend bylot
  balance roundrobin
  option httpchk GET /readyz
  default-server check inter 500ms fall 1 rise 1
{servers}
"""
SLOW_S = 0.5  # a request that took longer has waited for another owner
STOP_TIMEOUT_S = 5.0
START = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - START:5.1f} s  {text}", flush=True)


class Application(threading.Thread):
    """Asks one router for panels, one after the other, and reports what each has earned and cost.

    spent:    cents, as the answers say
    requests: when each began and ended
    failure:  what a request has raised after all retries
    """

    def __init__(self, url: str, router: str) -> None:
        super().__init__(name=router, daemon=True)
        self.url, self.router = url, router
        self.spent, self.failure = 0, None
        self.requests: list[tuple[float, float]] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        try:
            with bylot.Client(self.url) as client:
                router = client.router(self.router)
                while not self.is_over.wait(0.01):
                    self.serve_request(router)
        except BylotError as error:
            self.failure = error

    def serve_request(self, router: Any) -> None:
        """One decision, and its reward."""
        began = time.monotonic()
        decision = router.decide()
        self.requests.append((began, time.monotonic()))
        value = max(SKILLS[name] for name in decision.subset)
        began = time.monotonic()
        receipt = router.reward(decision.id, value)
        self.requests.append((began, time.monotonic()))
        if receipt not in ("learned", "duplicate"):  # a repeated report, whose answer was lost
            raise BylotError(f"the reward of {decision.id} was {receipt}")
        self.spent += int(decision.spend["cents"])


def find_haproxy() -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which("haproxy", path=path)
    if found is None:
        raise SystemExit(
            "haproxy is not installed, which the demo needs as a balancer: "
            "`apt install haproxy`, `dnf install haproxy` or `brew install haproxy`"
        )
    return found


@contextmanager
def run_haproxy(program: str, servers: dict[str, AnnouncedServer]) -> Iterator[str]:
    """Run a balancer that sends requests to all servers that are ready; its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = [f"  server {name} 127.0.0.1:{one.port}" for name, one in servers.items()]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "haproxy.cfg")
        config.write_text(BALANCER.format(port=port, servers="\n".join(lines)))
        command = [program, "-db", "-f", str(config)]
        with (
            Path(folder, "log").open("wb") as output,
            subprocess.Popen(command, stdout=output, stderr=output) as process,
        ):
            try:
                url = f"http://127.0.0.1:{port}"
                wait_for_answer(f"{url}/readyz")
                yield url
            finally:
                process.terminate()


def wait_for_answer(url: str) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{url} does not answer")


def describe_owners(owners: dict[str, str], servers: dict[str, AnnouncedServer]) -> str:
    """The routers of each server that runs."""
    parts = []
    for name, server in servers.items():
        if server.process.poll() is not None:
            parts.append(f"{name} is dead")
            continue
        mine = [router for router, url in owners.items() if url == server.url]
        parts.append(f"{name} owns {', '.join(mine) or 'none'}")
    return "; ".join(parts)


def run_demo(before_s: float, after_s: float) -> bool:
    """Run everything; whether all went well."""
    program = find_haproxy()
    with ExitStack() as stack:
        postgres = stack.enter_context(run_postgres(PostgresServer))
        say("PostgreSQL runs, in a temporary folder")
        say("servers start; the first time on a machine, they compile their policy (a minute)")
        environment = {
            **os.environ,
            "BYLOT_CLUSTER_KEY": secrets.token_hex(16),
            "BYLOT_LEAVE_S": "0.2",
        }
        servers: dict[str, AnnouncedServer] = {}
        for name in NAMES:
            command = ("bylot", "serve", "--store", postgres.address)
            servers[name] = stack.enter_context(AnnouncedServer(*command, environment=environment))
            say(f"{name} runs at {servers[name].url}")
        url = stack.enter_context(run_haproxy(program, servers))
        say("haproxy sends each request to the next server that is ready")
        say(f"the dashboard, while this runs: {url}/")
        with bylot.Client(url) as client:
            for seed, router in enumerate(ROUTERS):
                client.create(router, PROBLEM, "distinct", seed=seed)
            owners = wait_for_owners(servers[NAMES[0]], postgres.address, ROUTERS)
            say(describe_owners(owners, servers))
            applications = [Application(url, router) for router in ROUTERS]
            stack.callback(stop_all, applications)
            for one in applications:
                one.start()
            say(f"{len(ROUTERS)} applications ask for panels and report rewards, through haproxy")
            time.sleep(before_s)
            killed = kill_busiest(servers, owners)
            lost = [one for one in applications if owners[one.router] == servers[killed].url]
            watch_takeover(lost, after_s)
            stop_all(applications)
            describe_others([one for one in applications if one not in lost])
            survivor = next(one for name, one in servers.items() if name != killed)
            owners = wait_for_owners(survivor, postgres.address, ROUTERS)
            say(describe_owners(owners, servers))
            return compare_ledgers(client, applications)


def kill_busiest(servers: dict[str, AnnouncedServer], owners: dict[str, str]) -> str:
    """Kill the server that owns most routers; its name."""
    urls = list(owners.values())
    killed = max(servers, key=lambda name: urls.count(servers[name].url))
    servers[killed].kill()
    say(f"{killed} is killed (kill -9); its leases expire within 3 s")
    return killed


def watch_takeover(affected: list[Application], seconds: float) -> None:
    """Say when each router of a killed server is answered again."""
    since, waiting = time.monotonic(), list(affected)
    while time.monotonic() < since + seconds:
        time.sleep(0.05)
        for application in list(waiting):
            recent = [one for one in application.requests[-20:] if one[1] > since]
            slow = [end for began, end in recent if end - began > SLOW_S]
            if slow:
                seconds_lost = slow[0] - since
                say(f"{application.router} is answered again, {seconds_lost:.1f} s after the kill")
                waiting.remove(application)
    for one in waiting:
        say(f"{one.router} has not waited")


def describe_others(applications: list[Application]) -> None:
    """Say how long the routers of the other servers have let somebody wait."""
    times = [end - began for one in applications for began, end in one.requests]
    slowest_s = max(times, default=0.0)
    say(f"routers of the other servers: the slowest request took {1e3 * slowest_s:.0f} ms")


def stop_all(applications: list[Application]) -> None:
    for one in applications:
        one.is_over.set()
    for one in applications:
        if one.is_alive():
            one.join(STOP_TIMEOUT_S)


def compare_ledgers(client: bylot.Client, applications: list[Application]) -> bool:
    """Print what the answers and the ledgers say; whether nothing failed and both agree."""
    rows = [("router", "decisions", "cents per request", "at most", "by the answers", "ledger")]
    is_exact = True
    for one in applications:
        status = client.router(one.router).status()
        ledger = status.costs["cents"].settled
        is_exact &= ledger == one.spent and 2 * status.decisions == len(one.requests)
        mean = f"{ledger / status.decisions:.1f}"
        cells = (one.router, f"{status.decisions}", mean, f"{LIMIT_CENTS:g}")
        rows.append((*cells, f"{one.spent:,}", f"{ledger:,.0f}"))
    print("", *format_table(rows), "", sep="\n", flush=True)
    failed = [one for one in applications if one.failure is not None]
    for one in failed:
        say(f"{one.router} failed: {one.failure}")
    say(f"{sum(len(one.requests) for one in applications):,} requests, {len(failed)} failed")
    say("every cent is in the ledger once" if is_exact else "THE LEDGER DIFFERS FROM THE ANSWERS")
    return is_exact and not failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    text = "seconds of load before a server is killed, and after (default: 6 and 10)"
    parser.add_argument("--seconds", type=float, nargs=2, default=(6.0, 10.0), help=text)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        is_good = run_demo(*given.seconds)
    except KeyboardInterrupt:
        say("interrupted; all processes are stopped")
        return 130
    except BylotError as error:
        raise SystemExit(str(error)) from None
    say("all processes are stopped")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
