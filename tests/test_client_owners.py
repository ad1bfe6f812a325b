"""A client that follows owners: it goes directly to the server of a router, and never needs to."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from bylot import AsyncClient, Client
from bylot.client import RemoteRouter
from bylot.client.calls import HttpCall, RouterCalls
from bylot.client.retry import (
    AVOID_S,
    Attempt,
    Outcome,
    OwnerHints,
    can_follow,
    retry_until_answered,
)
from bylot_bench.cluster import wait_for_owners
from cluster_servers import ClusterServer, post, run_servers
from live_server import FIVE_EXPERTS

OWNER, BALANCER = "http://10.0.0.5:8000", "http://balancer"
ROUTERS = [f"r{n}" for n in range(8)]
DECIDE: HttpCall[bytes] = HttpCall("POST", "/v1/routers/r/decisions", bytes)


def make_answer(status: int = 201, owner: str | None = OWNER) -> httpx.Response:
    return httpx.Response(status, headers={} if owner is None else {"x-bylot-owner": owner})


def send_once(
    hints: OwnerHints, answer: httpx.Response, call: HttpCall[bytes] = DECIDE
) -> str | None:
    """Where a request goes that is answered at once."""
    steps = retry_until_answered(call, 5, hints)
    owner = next(steps).owner
    with pytest.raises(StopIteration):
        steps.send(answer)
    return owner


@pytest.mark.parametrize(
    "refusal",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("hangs"),
        make_answer(503),
        make_answer(401),
        make_answer(200, owner=None),  # somebody else has the address now
    ],
    ids=str,
)
def test_a_request_goes_to_the_owner_and_at_once_to_the_url_if_that_fails(refusal: Outcome) -> None:
    time = [0.0]
    hints = OwnerHints(BALANCER, True, lambda: time[0])
    assert send_once(hints, make_answer()) is None
    assert send_once(hints, make_answer()) == OWNER
    steps = retry_until_answered(DECIDE, 5, hints)
    assert next(steps) == Attempt(0.0, OWNER)
    assert steps.send(refusal) == Attempt(0.0, None)
    with pytest.raises(StopIteration):
        steps.send(make_answer())  # it still names the owner that did not answer
    assert send_once(hints, make_answer()) is None
    time[0] = AVOID_S
    assert send_once(hints, make_answer()) is None
    assert send_once(hints, make_answer(owner="http://10.0.0.6:8000")) == OWNER
    assert send_once(hints, make_answer()) == "http://10.0.0.6:8000"  # it has moved


def test_hints_are_followed_only_if_asked_and_only_by_requests_that_may_be_repeated() -> None:
    off, on = OwnerHints(BALANCER, False), OwnerHints(BALANCER, True)
    for hints in (off, on):
        send_once(hints, make_answer())
    assert send_once(off, make_answer()) is None
    edit: HttpCall[bytes] = HttpCall("PATCH", "/v1/routers/r", bytes, idempotent=False)
    assert send_once(on, make_answer(), edit) is None
    other: HttpCall[bytes] = HttpCall("GET", "/v1/routers/other", bytes)
    assert send_once(on, make_answer(), other) is None
    reward = RouterCalls("r").reward("r.1.1.9f3ab01c", 0.5)
    assert on.find(reward) == OWNER


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ftp://10.0.0.5",
        "10.0.0.5:8000",
        "http://",
        "http://me:pw@host",
        "http://h/?a",
        "http://[",
    ],
)
def test_an_address_that_is_no_server_is_not_followed(address: str) -> None:
    assert not can_follow(httpx.URL(BALANCER), address)
    hints = OwnerHints(BALANCER, True)
    send_once(hints, make_answer(owner=address))
    assert send_once(hints, make_answer()) is None


def create_routers(servers: Sequence[ClusterServer], owner: ClusterServer) -> list[str]:
    """Create routers, let them move to where they stay, and name those of one server."""
    for n, name in enumerate(ROUTERS):
        body = {"name": name, "problem": FIVE_EXPERTS, "policy": "random"}
        assert post(servers[n % len(servers)], "/v1/routers", body).status_code == 201
    owners = wait_for_owners(servers[0], servers[0].store, ROUTERS)
    return [name for name in ROUTERS if owners[name] == owner.url]


def test_a_client_reaches_the_owner_without_the_server_that_it_was_given(
    postgres_address: str, tmp_path: Path
) -> None:
    with run_servers(postgres_address, tmp_path, 2) as servers:
        first, second = servers
        name = create_routers(servers, second)[0]
        with Client(first.url, retries=0, follow_owner=True) as client:
            router = client.router(name)
            before = router.decide()
            first.kill()
            router.reward(router.decide().id, 0.5)
            router.reward(before.id, 0.5)
            assert (router.status().decisions, router.status().rewards) == (2, 2)

        async def decide_later() -> int:
            async with AsyncClient(second.url, retries=0, follow_owner=True) as client:
                await client.router(name).decide()
                return (await client.router(name).status()).decisions

        assert asyncio.run(decide_later()) == 3


def test_a_client_goes_on_when_the_owner_is_killed_and_makes_each_decision_once(
    postgres_address: str, tmp_path: Path
) -> None:
    with run_servers(postgres_address, tmp_path, 2) as servers:
        first, second = servers
        names = create_routers(servers, second)
        with Client(first.url, follow_owner=True) as client:
            routers: list[RemoteRouter] = [client.router(name) for name in names]
            ids = [router.decide().id for router in routers]
            second.kill()
            for router in routers * 2:
                ids.append(router.decide(key=f"{router.name}-{len(ids)}").id)
            assert len(set(ids)) == len(ids) == 3 * len(names)
            assert {router.status().decisions for router in routers} == {3}
