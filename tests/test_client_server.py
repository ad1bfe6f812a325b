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
from sample_problem import make_five_expert_problem, make_recorded_environment
from scripted_server import Forward, scripted_server
from server_process import serve_store
from traces import traces_are_equal


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
    environment = make_recorded_environment(80)
    router = client.create(
        f"trace-{policy}", make_five_expert_problem(), policy, seed=9, horizon=80
    )
    trace = play(router, environment, 80)
    assert traces_are_equal(
        trace,
        simulate(make_five_expert_problem(), environment, policy, rounds=80, seed=9, horizon=80),
    )


@pytest.mark.parametrize("feedback", ["members", "winner"])
def test_a_served_router_takes_scores_and_winners(client: Client, feedback: Any) -> None:
    environment, given = make_recorded_environment(60), {"seed": 9, "feedback": feedback}
    router = client.create(f"judged-{feedback}", make_five_expert_problem(), "ts", **given)
    trace = play(router, environment, 60)
    expected = simulate(make_five_expert_problem(), environment, "ts", rounds=60, **given)
    assert traces_are_equal(trace, expected)
    plain = simulate(make_five_expert_problem(), environment, "ts", rounds=60, seed=9)
    assert (trace.draws != plain.draws).any(), "the scores make a difference"
    assert router.feedback == router.status().feedback == feedback


def test_the_async_client_sends_scores_of_members(server: ServerProcess) -> None:
    async def report() -> None:
        async with AsyncClient(server.url) as client:
            pool = make_five_expert_problem()
            router = await client.create("judged-async", pool, "ts", feedback="members")
            decision = await router.decide()
            scores = dict.fromkeys(decision.subset, True)
            spend = {"usd": dict.fromkeys(decision.subset, 0.5)}
            given: Any = {"members": scores, "spend": spend}
            paid: Any = {"spend": spend, "key": "gateway"}
            assert await router.reward(decision.id, **paid) is Receipt.SETTLED
            assert await router.reward(decision.id, **paid) is Receipt.DUPLICATE
            assert await router.reward(decision.id, **given) is Receipt.LEARNED
            assert await router.reward(decision.id, 1, **given) is Receipt.DUPLICATE
            with pytest.raises(errors.RewardConflict, match="already has spend"):
                await router.reward(decision.id, 1, members=scores)
            with pytest.raises(errors.RewardError, match="has no member 'zoe'"):
                await router.reward(decision.id, members={"zoe": 1}, key="other")

    asyncio.run(report())


def without_log_fields(status: RouterStatus) -> RouterStatus:
    """A status without the fields that only a log has."""
    return structs.replace(status, counters=None, distributions=(), timeline=None)


def test_the_status_equals_that_of_a_router_in_memory(client: Client) -> None:
    environment, local = (
        make_recorded_environment(40),
        Router(make_five_expert_problem(), "omd", seed=3, max_contexts=1_000),
    )
    remote = client.create("status", make_five_expert_problem(), "omd", seed=3)
    assert without_log_fields(remote.status()) == local.status()
    play(local, environment, 40)
    play(remote, environment, 40)
    assert without_log_fields(remote.status()) == local.status()
    assert str(remote.status()) == str(local.status())


def test_answers_lost_after_the_commit_change_nothing(
    monkeypatch: pytest.MonkeyPatch, server: ServerProcess, client: Client
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)
    client.create("lossy", make_five_expert_problem(), "omd", seed=5)
    forward_and_drop, forward = Forward(server.url, deliver=False), Forward(server.url)
    environment = make_recorded_environment(40)
    with scripted_server(
        forward,
        forward_and_drop,
        forward,
        forward_and_drop,
        forward_and_drop,
        forward,
        forward,
        repeat_script=True,
    ) as proxy:
        router = proxy.client().router("lossy")
        trace = play(router, environment, 40)
    assert len(proxy.requests) > 120  # of which 80 would have been enough
    assert traces_are_equal(
        trace, simulate(make_five_expert_problem(), environment, "omd", rounds=40, seed=5)
    )
    status = client.router("lossy").status()
    assert (status.decisions, status.rewards) == (40, 40)


def test_decisions_without_a_key_are_different(server: ServerProcess, client: Client) -> None:
    client.create("keyless", make_five_expert_problem(), "omd")
    router = client.router("keyless")
    assert router.decide(key="a") == router.decide(key="a")
    assert router.decide() != router.decide()
    assert router.status().decisions == 3


def test_a_restart_of_the_server_does_not_affect_the_client(tmp_path: Path) -> None:
    environment = make_recorded_environment(60)
    with serve_store(f"sqlite:///{tmp_path}/bylot.db") as server, Client(server.url) as client:
        client.retries = 12
        router = client.create("restarted", make_five_expert_problem(), "omd", seed=6)
        first = play(router, environment, 30)

        def restart_server() -> None:
            server.kill()
            server.start()

        killer = threading.Thread(target=restart_server)
        killer.start()
        rest = play(router, environment, 30, start=30)
        killer.join()
        assert router.status().decisions == 60
    expected = simulate(make_five_expert_problem(), environment, "omd", rounds=60, seed=6)
    assert [*first.draws.tolist(), *rest.draws.tolist()] == expected.draws.tolist()


def answer_or_error_type(action: Callable[[Any], Any], router: Any) -> Any:
    """The answer of a router, or the type of the error that it raises."""
    try:
        return action(router)
    except errors.BylotError as error:
        return type(error)


def make_rewarded_decision(router: Any) -> str:
    """The id of a decision that has the reward 0.5."""
    decision = router.decide()
    router.reward(decision.id, 0.5)
    return str(decision.id)


@pytest.mark.parametrize(
    ("number", "action"),
    list(
        enumerate(
            [
                lambda router: router.reward(make_rewarded_decision(router), 0.5),
                lambda router: router.reward(make_rewarded_decision(router), 0.6),
                lambda router: router.reward(router.decide().id, 1.5),
                lambda router: router.reward(router.decide().id, float("nan")),
                lambda router: router.reward(router.decide().id, float("inf")),
                lambda router: router.reward(router.decide().id, "high"),
                lambda router: router.reward(router.decide().id, True),
                lambda router: router.reward(7, 0.5),
                lambda router: router.decide(available=[]),
                lambda router: router.decide(available=["zoe"]),
                lambda router: router.decide(available="ann"),
                lambda router: router.decide(context=7),
            ]
        )
    ),
)
def test_invalid_calls_are_refused_as_in_memory(
    client: Client, number: int, action: Callable[[Any], Any]
) -> None:
    remote = client.create(f"wrong-{number}", make_five_expert_problem(), "omd")
    local = Router(make_five_expert_problem(), "omd", max_contexts=1_000)
    expected = answer_or_error_type(action, local)
    assert answer_or_error_type(action, remote) == expected
    assert expected is not None
    assert without_log_fields(remote.status()) == local.status()


def test_the_config_is_returned_as_given(client: Client) -> None:
    policy = Omd(eta_mult=0.1)
    router = client.create(
        "config",
        make_five_expert_problem(),
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
    assert (router.problem, router.policy, config.seed) == (make_five_expert_problem(), policy, 4)
    assert config.horizon == 1_000
    assert (config.rewards, config.wait, config.default) == ((-1.0, 2.0), 60.0, 0.0)
    assert (config.aggregate, config.max_contexts, config.memory) == ("last", 7, 50)
    assert router.reward(router.decide().id, 1.5) is Receipt.PENDING
    with pytest.raises(errors.RouterExists):
        client.create("config", make_five_expert_problem(), "omd")
    with pytest.raises(errors.PolicyError):
        client.create("other", make_five_expert_problem(), "omg")
    with pytest.raises(errors.ProblemError):
        client.create("Not A Name", make_five_expert_problem(), "omd")


def test_a_member_that_failed_can_be_replaced(client: Client, server: ServerProcess) -> None:
    router = client.create("substitutes", make_five_expert_problem(), "distinct")
    decision = router.decide(available=["ann", "dan"])
    changed = router.replace(decision.id, "dan", {"cat", "eve"})
    assert (set(changed.subset), changed.failed) == ({"ann", "cat"}, ("dan",))
    with pytest.raises(errors.NoSubstitute, match="nobody can take the place of 'ann'"):
        router.replace(decision.id, "ann")
    with pytest.raises(errors.DecisionError, match="has no member 'zoe'"):
        router.replace(decision.id, "zoe")

    async def repeat() -> None:
        async with AsyncClient(server.url) as other:
            again = other.router("substitutes")
            assert await again.replace(decision.id, "dan") == changed
            assert await again.reward(decision.id, spend={"usd": 4.0}, key="gateway") == "settled"
            with pytest.raises(errors.DecisionStateError, match="is settled; its panel"):
                await again.replace(decision.id, "cat")

    asyncio.run(repeat())


def test_a_deferred_decision_can_be_activated_or_cancelled(client: Client) -> None:
    router = client.create("later", make_five_expert_problem(), "omd", wait=60.0)
    one, other = router.decide(defer=True), router.decide(defer=True)
    with pytest.raises(errors.DecisionStateError):
        router.reward(one.id, 0.5)
    assert router.activate(one.id) == one
    assert router.reward(one.id, 0.5) is Receipt.LEARNED
    assert router.cancel(other.id) == other
    with pytest.raises(errors.DecisionStateError):
        router.reward(other.id, 0.5)
    assert router.status().rewards == 1


def test_batches_return_results_and_errors(client: Client) -> None:
    router = client.create("several", make_five_expert_problem(), "omd")
    one, wrong, two = router.decide_many(
        [DecisionRequest("a"), DecisionRequest(available=("zoe",)), DecisionRequest("b")]
    )
    assert isinstance(wrong, errors.DecisionError)
    assert not isinstance(one, errors.BylotError)
    assert not isinstance(two, errors.BylotError)
    assert (one.context, two.context, two.t) == ("a", "b", 1)
    receipts = router.reward_many(
        [
            RewardItem(one.id, 0.5),
            RewardItem(one.id, 0.5),
            RewardItem(two.id, 9.0),
            RewardItem("several.1.99.9f3ab01c", 0.0),
        ]
    )
    assert receipts[:2] == [Receipt.LEARNED, Receipt.DUPLICATE]
    assert isinstance(receipts[2], errors.RewardError)
    assert isinstance(receipts[3], errors.DecisionNotFound)
    with pytest.raises(errors.DecisionNotFound, match="use the id that `decide` returned"):
        router.reward("several.1.99.9f3ab01c", 0.0)


def test_reported_costs_count_for_the_limits(client: Client) -> None:
    router = client.create("costs", make_five_expert_problem(), "omd")
    decision = router.decide()
    router.reward(decision.id, 0.5, spend={"usd": 9.0})
    status = router.status()
    assert status.mean_cost["usd"] == 9.0
    assert not status.kept
    with pytest.raises(errors.RewardError, match="uds"):
        router.reward(router.decide().id, 0.5, spend={"uds": 9.0})


def test_the_config_can_be_edited_while_the_router_runs(client: Client) -> None:
    router = client.create("edited", make_five_expert_problem(), "omd")
    router.decide()
    config = router.edit(
        limits=[at_most("usd", 2.5)],
        pause=["bob"],
        add=[{"name": "zoe", "usd": 1.0, "junior": 1.0}],
        remove=["dan"],
        wait=30.0,
        version=1,
    )
    assert config.version == 2
    assert router.problem.experts == ("ann", "bob", "cat", "eve", "zoe")
    assert [limit.bound for limit in router.problem.limits] == [2.5]
    assert (config.paused, config.wait) == (("bob",), 30.0)
    assert all("bob" not in router.decide().subset for _ in range(20))
    assert router.edit(resume=["bob"], wait=None).wait is None
    with pytest.raises(errors.DecisionStateError):
        router.edit(pause=["ann"], version=1)
    with pytest.raises(errors.InfeasibleLimits, match="usd"):
        router.edit(limits=[at_most("usd", 0.1)])
    assert router.config().version == 3


def test_events_and_routers_can_be_listed(client: Client) -> None:
    router = client.create("a-log", make_five_expert_problem(), "omd")
    decision = router.decide("here")
    router.reward(decision.id, 0.5)
    assert [event.kind for event in router.events()] == ["created", "decided", "rewarded"]
    assert [event.seq for event in router.events(after=1)] == [2]
    assert "a-log" in [one.name for one in client.routers()]
    router.delete()
    assert "a-log" not in [one.name for one in client.routers()]
    with pytest.raises(errors.RouterNotFound):
        router.decide()
    with pytest.raises(errors.RouterNotFound):
        router.status()


def test_many_coroutines_share_a_router(server: ServerProcess) -> None:
    async def use_async_client() -> int:
        async with AsyncClient(server.url) as client:
            router = await client.create("crowded", make_five_expert_problem(), "omd")
            decisions = await asyncio.gather(*(router.decide() for _ in range(50)))
            ids = {decision.id for decision in decisions}
            receipts = await asyncio.gather(*(router.reward(one, 0.5) for one in ids))
            assert {*receipts} == {Receipt.LEARNED}
            assert [event.seq async for event in router.events(after=99)] == [100]
            assert "crowded" in [one.name async for one in client.routers()]
            return (await router.status()).rewards

    assert asyncio.run(use_async_client()) == 50


def test_the_client_returns_a_remote_router(client: Client) -> None:
    assert isinstance(client.router("whatever"), RemoteRouter)
    assert repr(client.router("whatever")) == "<RemoteRouter whatever>"
