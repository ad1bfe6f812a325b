"""Several servers share a store: any of them answers for any router, and one owns it."""

import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from bylot.eventlog.audit import audit_router
from bylot.server.cluster import (
    Membership,
    choose_server,
    compute_load_bound,
    list_moves,
    order_servers,
)
from bylot.server.peers import FORMAT_HEADER, MESSAGE_FORMAT
from bylot.store import ServerRow, open_store
from cluster_servers import CLUSTER_KEY, LEAVE_S, ClusterServer, post, run_servers
from live_server import FIVE_EXPERTS

ROUTERS = [f"r{n}" for n in range(12)]


def create_routers(servers: list[ClusterServer]) -> None:
    """Create the routers, each on the next server."""
    for n, name in enumerate(ROUTERS):
        body = {"name": name, "problem": FIVE_EXPERTS, "policy": "random"}
        assert post(servers[n % len(servers)], "/v1/routers", body).status_code == 201


def test_any_server_answers_for_any_router(postgres_address: str, tmp_path: Path) -> None:
    with run_servers(postgres_address, tmp_path, 3) as servers:
        create_routers(servers)
        owners: dict[str, set[str]] = {name: set() for name in ROUTERS}
        decided: dict[str, list[str]] = {name: [] for name in ROUTERS}
        for _ in range(3):
            for name in ROUTERS:
                for server in servers:
                    made = post(server, f"/v1/routers/{name}/decisions", {})
                    assert made.status_code == 201, made.text
                    decided[name].append(made.json()["id"])
                    path = f"/v1/decisions/{made.json()['id']}/reward"
                    other = servers[(servers.index(server) + 1) % 3]
                    rewarded = post(other, path, {"value": 0.5})
                    assert rewarded.status_code == 200, rewarded.text
                    owners[name].add(made.headers["x-bylot-owner"])
            time.sleep(1.0)
        statuses = {
            server.url: httpx.get(f"{server.url}/v1/routers/{ROUTERS[0]}/status").json()
            for server in servers
        }
        assert {one["decisions"] for one in statuses.values()} == {9}
        batch = {
            "rewards": [{"decision": ids[0], "value": 0.5, "key": "x"} for ids in decided.values()]
        }
        found = post(servers[0], "/v1/rewards:batch", batch).json()["results"]
        assert [one["status"] for one in found] == [200] * len(ROUTERS)
        edited = httpx.patch(
            f"{servers[0].url}/v1/routers/r5", json={"pause": [FIVE_EXPERTS["experts"][0]]}
        )
        assert edited.status_code == 200, edited.text
        assert httpx.get(f"{servers[1].url}/routers/r5").status_code == 200
        missing = post(servers[2], "/v1/routers/none/decisions", {})
        assert missing.status_code == 404
        with closing(open_store(postgres_address, read_only=True)) as store:
            loads = list(store.owners().values())
            assert len(loads) == len(ROUTERS)
            assert max(map(loads.count, loads)) <= compute_load_bound(len(ROUTERS), 3) + 1
    with closing(open_store(postgres_address, read_only=True)) as store:
        for name in ROUTERS:
            assert audit_router(store, name).fault is None


def test_routers_of_a_killed_server_are_taken_over(postgres_address: str, tmp_path: Path) -> None:
    with run_servers(postgres_address, tmp_path, 2) as servers:
        create_routers(servers)
        first, second = servers
        mine = [
            name
            for name in ROUTERS
            if post(second, f"/v1/routers/{name}/decisions", {}).headers["x-bylot-owner"]
            == first.url
        ]
        assert mine
        first.kill()
        start, seconds = time.monotonic(), []
        for name in mine:
            made = post(second, f"/v1/routers/{name}/decisions", {"key": "k"})
            assert made.status_code == 201, made.text
            seconds.append(time.monotonic() - start)
        print(f"\ntaken over after {seconds[0]:.1f} s, all after {seconds[-1]:.1f} s")
        assert seconds[0] < 8
        first.start()
    with closing(open_store(postgres_address, read_only=True)) as store:
        for name in ROUTERS:
            assert audit_router(store, name).fault is None


def test_a_planned_stop_fails_no_request(postgres_address: str, tmp_path: Path) -> None:
    """A balancer notices after a while that a server is not ready, and uses the other one."""
    with run_servers(postgres_address, tmp_path, 2) as servers:
        create_routers(servers)
        first, second = servers
        first.process.terminate()
        statuses: list[tuple[int, str]] = []
        start, ready = time.monotonic(), set[int]()
        while time.monotonic() < start + LEAVE_S + 1.0:
            for n, name in enumerate(ROUTERS[:4]):
                noticed = time.monotonic() > start + 0.7 * LEAVE_S
                if not noticed:
                    ready.add(httpx.get(f"{first.url}/readyz").status_code)
                target = second if noticed or n % 2 else first
                made = post(target, f"/v1/routers/{name}/decisions", {})
                statuses.append((made.status_code, "" if made.status_code == 201 else made.text))
        assert set(statuses) == {(201, "")}
        assert 503 in ready
        assert first.process.wait(30) == 0
        first.start()


def test_a_request_with_another_key_is_refused(postgres_address: str, tmp_path: Path) -> None:
    with run_servers(postgres_address, tmp_path, 1) as (server,):
        url = f"{server.url}/cluster/commands"
        assert httpx.post(url, content=b"\x90").status_code == 401
        right = {"authorization": f"Bearer {CLUSTER_KEY}", FORMAT_HEADER: MESSAGE_FORMAT}
        assert httpx.post(url, content=b"\x90", headers=right).status_code == 200
        assert httpx.post(url, content=b"junk", headers=right).status_code == 400


def make_rows(count: int) -> list[ServerRow]:
    return [ServerRow(f"owner-{n}", f"http://s{n}:8000", "1") for n in range(count)]


def test_few_routers_move_when_a_server_comes_or_goes() -> None:
    servers, names = make_rows(5), [f"router-{n}" for n in range(1_000)]
    before = {name: order_servers(name, servers)[0] for name in names}
    after = {name: order_servers(name, servers[:-1])[0] for name in names}
    moved = [name for name in names if before[name] != after[name]]
    assert all(before[name] == servers[-1] for name in moved)
    assert 150 < len(moved) < 250
    counts = [sum(one == server for one in before.values()) for server in servers]
    assert 150 < min(counts) < max(counts) < 250


def list_routers(owners: dict[str, str], server: ServerRow) -> list[str]:
    return [name for name, owner in owners.items() if owner == server.owner]


@pytest.mark.parametrize("servers", [1, 2, 4, 7])
def test_no_server_has_more_than_its_bound_and_routers_stay_where_they_are(servers: int) -> None:
    rows, owners = make_rows(servers), dict[str, str]()
    for n in range(100):
        chosen = choose_server(f"r{n}", rows, owners)
        assert chosen is not None
        owners[f"r{n}"] = chosen.owner
    for _ in range(20):  # moves come to an end
        moves = {
            name: one
            for one in rows
            for name in list_moves(one, list_routers(owners, one), rows, owners)
        }
        for name in moves:
            chosen = choose_server(name, rows, owners)
            assert chosen is not None
            owners[name] = chosen.owner
    assert not moves
    counts = [list(owners.values()).count(one.owner) for one in rows]
    assert max(counts) <= compute_load_bound(100, servers)


def test_a_server_hands_over_no_more_routers_than_are_too_many() -> None:
    """Else they would come back: a server that has handed over too many is preferred again."""
    first, second = rows = make_rows(2)
    names = [f"r{n}" for n in range(100) if order_servers(f"r{n}", rows)[0] == second][:8]
    owners = {name: (first if n == 0 else second).owner for n, name in enumerate(names)}
    assert compute_load_bound(8, 2) == 5
    moves = list_moves(second, names[1:], rows, owners)
    assert len(moves) == 2
    owners = {name: owner for name, owner in owners.items() if name not in moves}
    for name in moves:
        chosen = choose_server(name, rows, owners)
        assert chosen == first
        owners[name] = chosen.owner
    assert not list_moves(first, list_routers(owners, first), rows, owners)
    assert not list_moves(second, list_routers(owners, second), rows, owners)


def test_a_server_that_stops_prefers_others() -> None:
    me, other = make_rows(2)
    members = Membership(me)
    assert members.find("r") is me
    members.update([me, other], {"mine": me.owner, "theirs": other.owner, "lost": "gone"})
    assert members.find("mine") == me
    assert members.find("theirs") == other
    members.leaving = True
    assert {members.find(name) for name in ("lost", "new", "r7")} == {other}
