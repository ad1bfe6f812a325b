"""A server is ready when it can decide; while it compiles a policy it refuses requests at once."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from numba.core import event

import bylot
from bylot.errors import PolicyCompiling, PolicyError
from bylot.eventlog.command_handler import IDLE_ROUTER_CHECK_US, CommandHandler
from bylot.eventlog.commands import CreateRouter, MakeDecision
from bylot.eventlog.repository import RouterRepository
from bylot.policies import Policy
from bylot.server import policy_compiler
from bylot.server.policy_compiler import PolicyCompiler, load_from_cache
from bylot.store import RouterRow, Store
from bylot_paper.policies.random_panels import Random
from live_server import (
    FIVE_EXPERTS,
    ServerClient,
    assert_error,
    is_compiling,
    live_server,
    wait_until,
)
from sample_problem import make_five_expert_problem
from server_process import SOURCES, serve_store
from stored_router import make_stored_config
from stores import Opener, execute_statements

RANK = {"actions": [{"id": name} for name in FIVE_EXPERTS["experts"]]}


@contextmanager
def hold_compilation(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[threading.Event]:
    """Let the compilation of a policy last until the event is set."""
    compiled = threading.Event()

    def load_later(policy: Policy) -> bool:
        return (policy.name != name or compiled.wait(60)) and load_from_cache(policy)

    monkeypatch.setattr(policy_compiler, "load_from_cache", load_later)
    try:
        yield compiled
    finally:
        compiled.set()


@contextmanager
def restart_with_held_compilation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ServerClient, httpx.Client, str, str, threading.Event]]:
    """A server with one router each of `greedy`, which is not compiled, and of `random`: with a
    client that repeats requests and one that does not.
    """
    with live_server(folder) as server:
        held, free = (server.create_router(policy=policy) for policy in ("greedy", "random"))
        server.decide(held)
    with (
        hold_compilation(monkeypatch, "greedy") as compiled,
        live_server(folder) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as client,
    ):
        server.decide(free)
        yield server, client, held, free, compiled


def test_requests_for_a_router_are_refused_at_once_while_its_policy_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restart_with_held_compilation(tmp_path, monkeypatch) as (server, client, held, free, go):
        name = held.rpartition("/")[2]
        requests: list[tuple[str, str, Any]] = [
            ("POST", f"{held}/decisions", {"key": "k"}),
            ("POST", f"{held}/decisions:batch", {"decisions": [{"key": "k"}, {}]}),
            ("POST", f"/personalizer/v1.1/rank?router={name}", RANK),
            ("POST", f"/v1/decisions/{name}.1.1.00000000/reward", {"value": 0.5}),
            ("GET", held, None),
            ("GET", f"{held}/status", None),
            ("PATCH", held, {"pause": [FIVE_EXPERTS["experts"][0]]}),
            ("POST", "/v1/routers", {"name": "new", "problem": FIVE_EXPERTS, "policy": "greedy"}),
        ]
        for method, path, body in requests:
            response = client.request(method, path, json=body)
            error = assert_error(response, 503)
            assert error["code"] == "compiling", path
            assert "policy 'greedy' is being compiled" in error["message"]
            assert response.headers["retry-after"] == "1"
        assert client.get(f"/routers/{name}").status_code == 503
        assert name in client.get("/").text
        assert client.get("/metrics").status_code == 200
        assert client.post(f"{free}/decisions", json={}).status_code == 201
        go.set()
        assert server.decide(held, key="k")["t"] == 1
        assert server.post("/v1/routers", json=requests[-1][2]).status_code == 201


def test_the_server_is_ready_when_the_policies_of_stored_routers_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restart_with_held_compilation(tmp_path, monkeypatch) as (server, client, _, _, compiled):
        assert client.get("/healthz").status_code == 200
        while "1 of 2" not in (message := assert_error(client.get("/readyz"), 503)["message"]):
            time.sleep(0.01)
        assert "waiting for greedy (" in message
        compiled.set()
        assert server.get("/readyz").json() == {"status": "ready"}


def test_a_policy_that_is_compiled_later_leaves_the_server_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hold_compilation(monkeypatch, "greedy"), live_server(tmp_path) as server:
        assert server.get("/readyz").status_code == 200
        body = {"name": "new", "problem": FIVE_EXPERTS, "policy": "greedy"}
        assert is_compiling(httpx.post(f"{server.base_url}/v1/routers", json=body))
        assert httpx.get(f"{server.base_url}/readyz").status_code == 200
        assert server.get("/v1/routers/new").status_code == 404, "nothing was created"


def test_the_client_waits_for_a_compilation_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        restart_with_held_compilation(tmp_path, monkeypatch) as (server, _, held, _, compiled),
        bylot.Client(str(server.base_url)) as client,
        bylot.Client(str(server.base_url), retries=0) as hasty,
    ):
        router = client.router(held.rpartition("/")[2])
        with pytest.raises(PolicyCompiling, match="is being compiled"):
            hasty.router(router.name).decide()
        threading.Timer(0.2, compiled.set).start()
        assert router.decide(key="once").t == 1
        assert router.decide(key="once").t == 1
        assert client.create("new", make_five_expert_problem(), "greedy").decide().t == 0
    assert "waiting for the server: policy 'greedy' is being compiled" in caplog.text


def test_a_policy_that_cannot_be_compiled_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(policy: Policy) -> bool:
        if policy.name == "greedy":
            raise PolicyError("broken")
        return load_from_cache(policy)

    with live_server(tmp_path) as server:
        router = server.create_router(policy="greedy")
    monkeypatch.setattr(policy_compiler, "load_from_cache", fail)
    with live_server(tmp_path) as server:
        assert server.get("/readyz").status_code == 200
        assert server.decide(router)["t"] == 0
    assert "policy greedy cannot be compiled: broken" in caplog.text


def test_a_damaged_router_does_not_keep_the_server_from_being_ready(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        routers = [server.create_router(policy=policy) for policy in ("random", "greedy")]
    address = f"sqlite:///{tmp_path}/bylot.db"
    execute_statements(
        address,
        "UPDATE events SET body = 'no event' WHERE router = 1",
        "UPDATE events SET body = replace(body, 'greedy', 'greedx') WHERE router = 2",
    )
    with live_server(tmp_path) as server:
        assert server.get("/readyz").status_code == 200
        for router in routers:
            assert server.get(router).status_code == 500


def test_a_router_is_neither_leased_nor_loaded_before_its_policy_is_compiled(
    store: Store, open_store_again: Opener
) -> None:
    def refuse(store: Store, row: RouterRow) -> None:
        raise PolicyCompiling(row.name)

    first = CommandHandler(RouterRepository(store, "me"))
    config = make_stored_config(make_five_expert_problem(), "random", wait=1.0, default=0.0)
    first.perform([CreateRouter("r", config), MakeDecision("r")], 0)
    first.repository.close()
    other = open_store_again()
    later = CommandHandler(RouterRepository(other, "you", check_router=refuse))
    (refused,) = later.perform([MakeDecision("r")], 0)
    assert isinstance(refused, PolicyCompiling)
    while later.maintain(2_000_000):  # finds that its decision is due
        pass
    assert later.idle["r"] == 2_000_000 + IDLE_ROUTER_CHECK_US
    assert other.lease_owners() == []
    later.repository.check_router = lambda store, row: None
    later.maintain(3 * IDLE_ROUTER_CHECK_US)
    assert "r" not in later.idle


def test_a_compiler_that_was_closed_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = PolicyCompiler("sqlite:///none.db")
    compiler.close()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("it would be left over"))
    compiler.run_child(Random())


USE_ALL = """
import sys, threading, time
from pathlib import Path
from bylot.numerics import compile_cache
from bylot.server.policy_compiler import COMPILE_THREAD_PREFIX
from live_server import FIVE_EXPERTS, live_server

needed = []
load = compile_cache.SharedCache.load_overload

def load_and_note(self, *given):
    if not threading.current_thread().name.startswith(COMPILE_THREAD_PREFIX):
        needed.append(self._name)
    return load(self, *given)

compile_cache.SharedCache.load_overload = load_and_note
average, budget = FIVE_EXPERTS["limits"], {"cost": "usd", "at_most": 900.0, "per": "day"}
largest = {"max_costs": {"usd": [8.0, 6.0, 2.0, 2.0, 1.0]}}
cases = [(policy, average, {}, "panel") for policy in sys.argv[2:]]
cases += [
    ("noisy-or", average, largest, "members"),
    ("noisy-or", average, {}, "winner"),
    ("distinct", [budget], {}, "panel"),
    ("tangent", [budget], {}, "panel"),
    ("noisy-or", [budget], largest, "panel"),
    ("noisy-or", [{**budget, "scope": "tenant"}], {}, "panel"),
    ("noisy-or", [{**average[0], "where": {"context": ["1"]}}], {}, "panel"),
]
with live_server(Path(sys.argv[1])) as server:
    while server.get("/readyz").status_code != 200:
        time.sleep(0.01)
    for policy, limits, more, feedback in cases:
        problem = {**FIVE_EXPERTS, "limits": limits, **more}
        path = server.create_router(policy=policy, problem=problem, feedback=feedback)
        whom = {"tenant": "acme"} if "scope" in limits[0] else {}
        assert server.get(f"{path}/status").status_code == 200
        body = {"decisions": [{"context": str(n % 3), **whom} for n in range(150)]}
        made = server.post(f"{path}/decisions:batch", json=body).json()["results"]
        rewards = [{"decision": one["decision"]["id"], "value": 0.5} for one in made]
        if feedback == "winner":
            rewards[1]["winner"] = made[1]["decision"]["subset"][0]
        rewards[0]["spend"] = {name: 1.0 for name in FIVE_EXPERTS["costs"]}
        results = server.post("/v1/rewards:batch", json={"rewards": rewards}).json()["results"]
        assert {one["status"] for one in results} == {200}, results
        names = FIVE_EXPERTS["experts"]
        server.decide(path, available=names[1:], **whom)
        server.post(f"/v1/decisions/{server.decide(path, defer=True, **whom)['id']}/cancel")
        costs = {name: 1.0 for name in FIVE_EXPERTS["costs"]}
        if more:
            costs["max_costs"] = {"usd": 2.0}
        for change in ({"pause": names[:1]}, {"add": [{"name": "new", **costs}]}):
            assert server.patch(path, json=change).status_code == 200
            server.decide(path, **whom)
        assert server.get(f"{path}/status").status_code == 200
        page = path.removeprefix("/v1")
        while not server.get(f"{page}.json").json()["recent"]["decisions"]:
            time.sleep(0.05)
        assert server.get(page).status_code == 200
    for path in ("/", "/metrics"):
        assert server.get(path).status_code == 200
print(needed)
"""


def test_nothing_is_left_to_load_when_a_policy_is_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE_ALL, str(tmp_path), "distinct", "omd"]
    paths = os.pathsep.join([SOURCES, str(Path(__file__).parent)])
    said = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout == "[]\n", said.stderr


class Load:
    """Threads that decide and reward through clients until `stop`; no call may fail."""

    def __init__(self, url: str, routers: list[str]) -> None:
        self.decisions, self.failures, self.stopped = 0, list[Exception](), threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(url, name)) for name in routers * 2]
        for thread in self.threads:
            thread.start()

    def run(self, url: str, name: str) -> None:
        with bylot.Client(url) as client:
            router = client.router(name)
            try:
                while not self.stopped.wait(0.02):
                    router.reward(router.decide("a context").id, 0.5)
                    self.decisions += 1
            except Exception as error:
                self.failures.append(error)

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def restart_under_load(folder: Path, command: str, policies: list[str]) -> dict[str, float]:
    """Kill a server under load and start it with an empty cache; no call of a client fails.

    Returns the seconds until it was ready, and those of the first requests of each kind after that.
    """
    log = folder / "server.log"
    server = serve_store(f"sqlite:///{folder}/bylot.db", log, command)
    seconds: dict[str, float] = {}
    try:
        with bylot.Client(server.url, timeout=60) as client:
            for policy in policies:
                client.create(policy, make_five_expert_problem(), policy)
        load = Load(server.url, policies)
        wait_until(lambda: load.decisions > 20 * len(policies), 60)
        server.kill()
        assert server.environment is not None
        server.environment = {**server.environment, "NUMBA_CACHE_DIR": str(folder / "cache")}
        server.start_timeout_s = 600.0
        start = time.monotonic()
        server.start()
        seconds["ready"] = time.monotonic() - start
        paths = ["/", "/metrics", *(f"/v1/routers/{name}/status" for name in policies)]
        decisions = [f"/v1/routers/{name}/decisions" for name in policies]
        paths += [f"/routers/{name}" for name in policies]
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for path in [*decisions, *paths]:
                begun = time.monotonic()
                answer = client.post(path, json={}) if path in decisions else client.get(path)
                seconds[path] = time.monotonic() - begun
                assert answer.status_code in (200, 201), (path, answer.text)
        before = load.decisions
        wait_until(lambda: load.decisions > before + 20 * len(policies) or load.failures, 60)
        load.stop()
        assert load.failures == []
        with bylot.Client(server.url) as client:
            decided = sum(client.router(name).status().decisions for name in policies)
            assert decided == load.decisions + len(policies), "none was lost or made twice"
    finally:
        server.kill()
    text = log.read_text()
    for policy in policies:
        assert f"compiling policy {policy}" in text
        assert re.search(rf"policy {policy}\S* is ready, compiled in", text)
    assert "... compiling" not in text, "a child process has compiled all"
    return seconds


def test_no_call_fails_when_a_server_restarts_with_an_empty_cache(tmp_path: Path) -> None:
    restart_under_load(tmp_path, "serve_random", ["random"])


@pytest.mark.slow
def test_no_request_waits_for_a_compilation_after_the_server_is_ready(tmp_path: Path) -> None:
    seconds = restart_under_load(tmp_path, "bylot", ["distinct", "noisy-or", "omd"])
    print(seconds)
    assert max(one for path, one in seconds.items() if path != "ready") < 5  # to compile takes 10


def test_a_thread_that_loads_compiles_nothing_while_others_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    def compile_something() -> None:
        with event.trigger_event("numba:compile"):
            begun.append(threading.current_thread().name)

    def compile_in_two_threads(policy: Policy) -> None:
        other = threading.Thread(target=compile_something, name="other")
        other.start()
        other.join()
        compile_something()

    monkeypatch.setattr(policy_compiler, "exercise_policy", compile_in_two_threads)
    assert not load_from_cache(Random())
    assert begun == ["other"]


def test_a_child_process_that_fails_is_logged_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policy_compiler, "load_from_cache", lambda policy: False)
    monkeypatch.setattr(policy_compiler, "CHILD_CODE", "raise SystemExit('no memory')")
    compiler = PolicyCompiler("sqlite:///unused.db")
    with caplog.at_level("INFO"):
        compiler.require(Random(), 60)
    compiler.close()
    assert "the process that compiles random has failed: no memory" in caplog.text
    assert "policy random is ready" in caplog.text
