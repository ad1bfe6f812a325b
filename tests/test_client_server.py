"""The client and a real server over SQLite: the same answers, errors and traces as in memory."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bylot import AsyncClient, Client, Receipt, Router, at_most, errors, play, simulate
from bylot.client import DecisionRequest, RemoteRouter, RewardItem, retry
from bylot.policies import Omd
from bylot.router.status import RouterStatus
from bylot_bench.http_load import ServerProcess
from scripted_server import Passes, scripted
from server_process import serve_store
from small import five, recorded
from traces import same


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of this file."""
    folder = tmp_path_factory.mktemp("served")
    with serve_store(f"sqlite:///{folder}/bylot.db") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.mark.parametrize("policy", ["omd", "distinct"])
def test_a_served_router_gives_the_trace_of_the_compiled_loop(client: Client, policy: str) -> None:
    world = recorded(80)
    router = client.create(f"trace-{policy}", five(), policy, seed=9, horizon=80)
    trace = play(router, world, 80)
    assert same(trace, simulate(five(), world, policy, rounds=80, seed=9, horizon=80))


def in_memory(status: RouterStatus) -> RouterStatus:
    """A status without what only a log knows."""
    return structs.replace(status, counters=None, distributions=(), timeline=None)


def test_its_status_is_that_of_a_router_in_memory(client: Client) -> None:
    world, here = recorded(40), Router(five(), "omd", seed=3, max_contexts=1_000)
    there = client.create("status", five(), "omd", seed=3)
    assert in_memory(there.status()) == here.status()
    play(here, world, 40)
    play(there, world, 40)
    assert in_memory(there.status()) == here.status()
    assert str(there.status()) == str(here.status())


def test_answers_lost_after_the_commit_change_nothing(
    monkeypatch: pytest.MonkeyPatch, server: ServerProcess, client: Client
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)
    client.create("forgetful", five(), "omd", seed=5)
    lost, told = Passes(server.url, told=False), Passes(server.url)
    world = recorded(40)
    with scripted(told, lost, told, lost, lost, told, told, again=True) as middle:
        router = middle.client().router("forgetful")
        trace = play(router, world, 40)
    assert len(middle.heard) > 120  # of which 80 would have done
    assert same(trace, simulate(five(), world, "omd", rounds=40, seed=5))
    status = client.router("forgetful").status()
    assert (status.decisions, status.rewards) == (40, 40)


def test_without_a_key_the_same_would_be_two_decisions(
    server: ServerProcess, client: Client
) -> None:
    client.create("keyless", five(), "omd")
    router = client.router("keyless")
    assert router.decide(key="a") == router.decide(key="a")
    assert router.decide() != router.decide()
    assert router.status().decisions == 3


def test_a_server_that_is_killed_and_comes_back_goes_unnoticed(tmp_path: Path) -> None:
    world = recorded(60)
    with serve_store(f"sqlite:///{tmp_path}/bylot.db") as server, Client(server.url) as client:
        client.retries = 12
        router = client.create("lazarus", five(), "omd", seed=6)
        first = play(router, world, 30)

        def murder() -> None:
            server.kill()
            server.start()

        killer = threading.Thread(target=murder)
        killer.start()
        rest = play(router, world, 30, start=30)
        killer.join()
        assert router.status().decisions == 60
    whole = simulate(five(), world, "omd", rounds=60, seed=6)
    assert [*first.draws.tolist(), *rest.draws.tolist()] == whole.draws.tolist()


def refused(do: Callable[[Any], Any], router: Any) -> Any:
    """What a router answers, or the kind of error that it raises."""
    try:
        return do(router)
    except errors.BylotError as error:
        return type(error)


def first(router: Any) -> str:
    """The id of a decision that has the reward 0.5."""
    decision = router.decide()
    router.reward(decision.id, 0.5)
    return str(decision.id)


@pytest.mark.parametrize(
    ("number", "do"),
    list(
        enumerate(
            [
                lambda router: router.reward(first(router), 0.5),
                lambda router: router.reward(first(router), 0.6),
                lambda router: router.reward(router.decide().id, 1.5),
                lambda router: router.reward(router.decide().id, float("nan")),
                lambda router: router.reward(router.decide().id, float("inf")),
                lambda router: router.reward(router.decide().id, "high"),
                lambda router: router.reward(router.decide().id, True),
                lambda router: router.reward("nobody.1.2", 0.5),
                lambda router: router.reward(7, 0.5),
                lambda router: router.decide(available=[]),
                lambda router: router.decide(available=["zoe"]),
                lambda router: router.decide(available="ann"),
                lambda router: router.decide(context=7),
            ]
        )
    ),
)
def test_wrong_things_are_refused_as_in_memory(
    client: Client, number: int, do: Callable[[Any], Any]
) -> None:
    there = client.create(f"wrong-{number}", five(), "omd")
    here = Router(five(), "omd", max_contexts=1_000)
    told = refused(do, here)
    assert refused(do, there) == told
    assert told is not None
    assert in_memory(there.status()) == here.status()


def test_terms_come_back_as_they_were_given(client: Client) -> None:
    policy = Omd(eta_mult=0.1)
    router = client.create(
        "terms",
        five(),
        policy,
        seed=4,
        horizon=1_000,
        rewards=(-1.0, 2.0),
        wait=60.0,
        default=0.0,
        aggregate="last",
        max_contexts=7,
        memory=50,
    )
    config = router.config()
    assert (router.problem, router.policy, config.seed) == (five(), policy, 4)
    assert config.horizon == 1_000
    assert (config.rewards, config.wait, config.default) == ((-1.0, 2.0), 60.0, 0.0)
    assert (config.aggregate, config.max_contexts, config.memory) == ("last", 7, 50)
    assert router.reward(router.decide().id, 1.5) is Receipt.PENDING
    with pytest.raises(errors.RouterExists):
        client.create("terms", five(), "omd")
    with pytest.raises(errors.PolicyError):
        client.create("other", five(), "omg")
    with pytest.raises(errors.ProblemError):
        client.create("Not A Name", five(), "omd")


def test_a_deferred_decision_can_be_used_or_taken_back(client: Client) -> None:
    router = client.create("later", five(), "omd", wait=60.0)
    one, other = router.decide(defer=True), router.decide(defer=True)
    with pytest.raises(errors.DecisionStateError):
        router.reward(one.id, 0.5)
    assert router.activate(one.id) == one
    assert router.reward(one.id, 0.5) is Receipt.LEARNED
    assert router.cancel(other.id) == other
    with pytest.raises(errors.DecisionStateError):
        router.reward(other.id, 0.5)
    assert router.status().rewards == 1


def test_several_at_once(client: Client) -> None:
    router = client.create("several", five(), "omd")
    one, wrong, two = router.decide_many(
        [DecisionRequest("a"), DecisionRequest(available=("zoe",)), DecisionRequest("b")]
    )
    assert isinstance(wrong, errors.DecisionError)
    assert not isinstance(one, errors.BylotError)
    assert not isinstance(two, errors.BylotError)
    assert (one.context, two.context, two.t) == ("a", "b", 1)
    told = router.reward_many(
        [
            RewardItem(one.id, 0.5),
            RewardItem(one.id, 0.5),
            RewardItem(two.id, 9.0),
            RewardItem("several.1.99", 0.0),
        ]
    )
    assert told[:2] == [Receipt.LEARNED, Receipt.DUPLICATE]
    assert isinstance(told[2], errors.RewardError)
    assert told[3] is Receipt.UNKNOWN


def test_real_costs_are_what_limits_are_judged_by(client: Client) -> None:
    router = client.create("costs", five(), "omd")
    decision = router.decide()
    router.reward(decision.id, 0.5, spend={"usd": 9.0})
    status = router.status()
    assert status.mean_cost["usd"] == 9.0
    assert not status.kept
    with pytest.raises(errors.RewardError, match="uds"):
        router.reward(router.decide().id, 0.5, spend={"uds": 9.0})


def test_terms_can_be_changed_while_it_runs(client: Client) -> None:
    router = client.create("edited", five(), "omd")
    router.decide()
    made = router.edit(
        limits=[at_most("usd", 2.5)],
        pause=["bob"],
        add=[{"name": "zoe", "costs": {"usd": 1.0, "junior": 1.0}}],
        remove=["dan"],
        wait=30.0,
        version=1,
    )
    assert made.version == 2
    assert router.problem.experts == ("ann", "bob", "cat", "eve", "zoe")
    assert [limit.bound for limit in router.problem.limits] == [2.5]
    assert (made.paused, made.wait) == (("bob",), 30.0)
    assert all("bob" not in router.decide().subset for _ in range(20))
    assert router.edit(resume=["bob"], wait=None).wait is None
    with pytest.raises(errors.DecisionStateError):
        router.edit(pause=["ann"], version=1)
    with pytest.raises(errors.InfeasibleLimits, match="usd"):
        router.edit(limits=[at_most("usd", 0.1)])
    assert router.config().version == 3


def test_the_log_and_the_list(client: Client) -> None:
    router = client.create("a-log", five(), "omd")
    decision = router.decide("here")
    router.reward(decision.id, 0.5)
    assert [line.kind for line in router.events()] == ["created", "decided", "rewarded"]
    assert [line.seq for line in router.events(after=1)] == [2]
    assert "a-log" in [one.name for one in client.routers()]
    router.delete()
    assert "a-log" not in [one.name for one in client.routers()]
    with pytest.raises(errors.RouterNotFound):
        router.decide()
    with pytest.raises(errors.RouterNotFound):
        router.status()


def test_many_coroutines_share_a_router(server: ServerProcess) -> None:
    async def talk() -> int:
        async with AsyncClient(server.url) as client:
            router = await client.create("crowded", five(), "omd")
            decisions = await asyncio.gather(*(router.decide() for _ in range(50)))
            ids = {decision.id for decision in decisions}
            receipts = await asyncio.gather(*(router.reward(one, 0.5) for one in ids))
            assert {*receipts} == {Receipt.LEARNED}
            assert [line.seq async for line in router.events(after=99)] == [100]
            assert "crowded" in [one.name async for one in client.routers()]
            return (await router.status()).rewards

    assert asyncio.run(talk()) == 50


def test_a_remote_router_is_one_to_play(client: Client) -> None:
    assert isinstance(client.router("whatever"), RemoteRouter)
    assert repr(client.router("whatever")) == "<RemoteRouter whatever>"
