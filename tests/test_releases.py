"""Servers of two releases share a store: they forward if they understand each other, else they say
what to do.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from bylot import __version__
from bylot.eventlog.commands import GetRouter
from bylot.server import peers
from bylot.server.endpoint import error_response
from bylot.server.http_errors import ApiError
from bylot.store import open_store
from cluster_servers import (
    CLUSTER_KEY,
    ClusterServer,
    post,
    run_servers,
    stop_if_running,
    wait_for_members,
)
from live_server import FIVE_EXPERTS

NEXT_RELEASE = "99.0.0"
ROUTERS = [f"r{n}" for n in range(8)]
MAX_MOVES = 10


@contextmanager
def run_two_releases(store: str, folder: Path, **more: str) -> Iterator[Sequence[ClusterServer]]:
    """A server of this release, and one of another."""
    with ExitStack() as stack:
        ours = ClusterServer(store, folder / "ours")
        stack.callback(stop_if_running, ours)
        settings = {"OTHER_RELEASE": NEXT_RELEASE, **more}
        theirs = ClusterServer(store, folder / "theirs", "other_release", **settings)
        stack.callback(stop_if_running, theirs)
        wait_for_members([ours, theirs])
        yield ours, theirs


def decide_everywhere(servers: Sequence[ClusterServer]) -> list[tuple[bool, httpx.Response]]:
    """A decision of each router by each server, and whether that server owns the router."""
    for name in ROUTERS:
        body = {"name": name, "problem": FIVE_EXPERTS, "policy": "random"}
        assert post(servers[0], "/v1/routers", body).status_code == 201
    return [ask(server, name) for name in ROUTERS for server in servers]


def ask(server: ClusterServer, name: str) -> tuple[bool, httpx.Response]:
    """Ask a server, again if it has answered and then given the router to another one."""
    for _ in range(MAX_MOVES):
        found = post(server, f"/v1/routers/{name}/decisions", {})
        is_owner = found.headers["x-bylot-owner"] == server.url
        if is_owner or found.status_code != 201:
            break
    return is_owner, found


def test_releases_of_one_format_forward_to_each_other(
    postgres_address: str, tmp_path: Path
) -> None:
    with run_two_releases(postgres_address, tmp_path) as servers:
        with closing(open_store(postgres_address, read_only=True)) as store:
            assert {one.release for one in store.servers()} == {__version__, NEXT_RELEASE}
        found = decide_everywhere(servers)
        assert {response.status_code for _, response in found} == {201}
        assert {is_owner for is_owner, _ in found} == {True, False}


def test_releases_of_two_formats_say_what_to_do(postgres_address: str, tmp_path: Path) -> None:
    with run_two_releases(postgres_address, tmp_path, OTHER_FORMAT="other") as servers:
        found = decide_everywhere(servers)
        refused = [response for is_owner, response in found if not is_owner]
        assert {response.status_code for is_owner, response in found if is_owner} == {201}
        assert refused
        for response in refused:
            assert response.status_code == 503
            error = response.json()["error"]
            assert error["code"] == "version_skew"
            for part in (__version__, NEXT_RELEASE, "install the same release on all servers"):
                assert part in error["message"]
            assert "retry-after" in response.headers


def test_commands_that_cannot_be_read_are_refused_with_both_releases(
    postgres_address: str, tmp_path: Path
) -> None:
    known = peers.encode_command(GetRouter("r"))
    unknown = msgspec.structs.replace(known, kind="SplitRouter")
    other_body = msgspec.structs.replace(known, body=msgspec.Raw(b"\x90"))
    right = {
        "authorization": f"Bearer {CLUSTER_KEY}",
        "user-agent": f"bylot/{NEXT_RELEASE}",
        peers.FORMAT_HEADER: peers.MESSAGE_FORMAT,
    }
    with run_servers(postgres_address, tmp_path, 1) as (server,):
        url = f"{server.url}{peers.COMMANDS_PATH}"
        for commands, headers in (
            ([known], {**right, peers.FORMAT_HEADER: "0"}),
            ([unknown], right),
            ([other_body], right),
        ):
            found = httpx.post(url, content=peers.encode(commands), headers=headers)
            assert found.status_code == 400
            expected = f"bylot {NEXT_RELEASE} and bylot {__version__} cannot exchange commands; "
            message = found.json()["error"]["message"]
            assert message == f"{expected}install the same release on all servers of the store"
        found = httpx.post(url, content=peers.encode([known]), headers=right)
        assert found.status_code == 200
        (result,) = peers.decode_results(found.content)
        assert result.code == "no_such_router"


def test_a_server_with_another_key_does_not_start(postgres_address: str, tmp_path: Path) -> None:
    another = {"BYLOT_CLUSTER_KEY": "secret-of-another-cluster"}
    with run_servers(postgres_address, tmp_path, 1) as (server,):
        with pytest.raises(RuntimeError, match="did not start"):
            ClusterServer(postgres_address, tmp_path / "other", **another)
        text = (tmp_path / "other").read_text()
        assert f"the server at {server.url} has another cluster key; use its key" in text
        assert "Traceback" not in text
        with closing(open_store(postgres_address, read_only=True)) as store:
            assert [one.address for one in store.servers()] == [server.url]
        server.kill()  # it is still announced, and does not answer: the key can be changed
        stop_if_running(ClusterServer(postgres_address, tmp_path / "other", **another))


def test_servers_that_got_two_keys_say_what_to_do() -> None:
    error = ApiError(401, peers.KEY_CODE, "two servers have different cluster keys")
    found = peers.explain_refusal("http://a:1", 401, error_response(error).body)
    assert isinstance(found, ApiError)
    assert (found.status, found.code, str(found)) == (503, "cluster_key", str(error))
