"""The client before any server of ours: what it sends, when it sends it again, what it raises."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bylot
from bylot import AsyncClient, Client, Receipt, errors
from bylot.client import DecisionRequest, RemoteRouter, RewardItem, retry
from bylot.client.requests import HttpCall, decode_error, make_error
from scripted_server import Act, Drops, Says, Scripted, Waits, refuses, scripted
from small import five

MADE = {
    "id": "triage.1.7",
    "router": "triage",
    "version": 1,
    "t": 6,
    "at": "2026-01-01T00:00:00.000000Z",
    "context": None,
    "draws": ["ann", "eve"],
    "subset": ["ann", "eve"],
    "draw_probabilities": [0.1, 0.30000000000000004],
    "inclusion": {"ann": 0.1, "eve": 0.3},
    "propensity": 0.07,
    "spend": {"usd": 4.5},
    "expected": {"usd": 4.25},
    "feasible": True,
    "replaced": False,
    "deferred": False,
    "key": "k",
    "something of a newer server": [1, 2],
}
LEARNED = {"decision": "triage.1.7", "receipt": "learned", "value": 0.5}


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)


def asked(server: Scripted, **options: Any) -> RemoteRouter:
    """The router `triage` of a server."""
    return server.client(**options).router("triage")


def test_a_decision_is_what_a_router_in_memory_would_hand_out() -> None:
    with scripted(Says(201, MADE)) as server:
        decision = asked(server).decide("chest pain", ["ann", "eve"], key="k")
    assert decision.draw_probabilities == (0.1, 0.30000000000000004)
    assert decision.subset == ("ann", "eve")
    assert decision.expected == {"usd": 4.25}
    assert isinstance(decision, bylot.Decision)
    (heard,) = server.heard
    assert (heard.method, heard.path) == ("POST", "/v1/routers/triage/decisions")
    told = {"context": "chest pain", "available": ["ann", "eve"], "key": "k", "defer": False}
    assert heard.body == told


@pytest.mark.parametrize(
    "trouble",
    [
        Drops(),
        Waits(0.2),
        refuses(409, "in_flight", after=0),
        refuses(429, "too_many_requests", after=0),
        refuses(502, "bad_gateway"),
        refuses(503, "store_down", after=0),
        Says(504, b"<html>gateway timeout</html>"),
    ],
    ids=str,
)
def test_a_decision_is_asked_for_again_under_the_same_key(trouble: Act) -> None:
    with scripted(trouble, trouble, Says(201, MADE)) as server:
        assert asked(server, timeout=0.1).decide().id == "triage.1.7"
    keys = {heard.body["key"] for heard in server.heard}
    assert len(server.heard) == 3
    assert len(keys) == 1
    assert len(keys.pop()) == 32


def test_two_decisions_have_different_keys() -> None:
    with scripted(Says(201, MADE)) as server:
        router = asked(server)
        router.decide()
        router.decide()
    assert server.heard[0].body["key"] != server.heard[1].body["key"]


def test_attempts_come_to_an_end_and_the_error_says_how_many_there_were() -> None:
    with scripted(Drops()) as server:
        with pytest.raises(errors.ServerUnreachable, match="no response after 4 attempts"):
            asked(server, retries=3).decide()
        assert len(server.heard) == 4
    with scripted(refuses(503, "store_down", "the disk is full", after=0)) as server:
        with pytest.raises(errors.StoreUnavailable, match="the disk is full"):
            asked(server, retries=2).decide()
        assert len(server.heard) == 3


def test_a_server_is_given_the_time_that_it_asks_for() -> None:
    with scripted(refuses(503, "draining", after=1), Says(201, MADE)) as server:
        start = time.monotonic()
        asked(server).decide()
        assert time.monotonic() - start >= 1.0
    with scripted(refuses(503, "draining", after=3600)) as server:
        with pytest.raises(errors.ServiceError):
            asked(server).decide()  # an hour is not waited for
        assert len(server.heard) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
def test_what_will_not_change_is_not_asked_again(status: int) -> None:
    with scripted(refuses(status, "whatever")) as server:
        with pytest.raises(errors.BylotError):
            asked(server).decide()
        assert len(server.heard) == 1


def test_what_must_not_happen_twice_is_not_sent_again_once_it_may_have_arrived() -> None:
    for act in (Drops(), refuses(503, "store_down", after=0)):
        with scripted(act) as server:
            client = server.client()
            with pytest.raises((errors.ServerUnreachable, errors.StoreUnavailable)):
                client.create("a", five())
            with pytest.raises((errors.ServerUnreachable, errors.StoreUnavailable)):
                client.router("a").delete()
            assert len(server.heard) == 2
    with scripted(Drops()) as server, pytest.raises(errors.ServerUnreachable, match="may have"):
        asked(server).delete()


def test_what_never_arrived_is_sent_again_whatever_it_is() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with (
            Client(url, retries=2) as client,
            pytest.raises(errors.ServerUnreachable, match="3 attempts"),
        ):
            client.router("a").delete()


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("reward_conflict", 409, errors.RewardConflict),
        ("bad_reward", 422, errors.RewardError),
        ("invalid", 422, errors.RewardError),
        ("malformed", 400, errors.RewardError),
        ("store_damaged", 500, errors.StoreCorrupted),
        ("unauthorized", 401, errors.AccessDenied),
        ("forbidden", 403, errors.AccessDenied),
        ("internal_error", 500, errors.ServiceError),
    ],
)
def test_refusals_are_the_errors_of_a_router_in_memory(
    code: str, status: int, kind: type[Exception]
) -> None:
    with (
        scripted(refuses(status, code, "because", field="value")) as server,
        pytest.raises(kind, match="because") as caught,
    ):
        asked(server, retries=0).reward("triage.1.7", 0.5)
    assert type(caught.value) is kind


def test_an_unknown_decision_is_an_answer_and_no_error() -> None:
    with scripted(refuses(404, "no_such_decision")) as server:
        assert asked(server).reward("triage.1.9", 0.5) is Receipt.UNKNOWN
    with scripted(refuses(404, "no_such_router")) as server, pytest.raises(errors.RouterNotFound):
        asked(server).decide()


@pytest.mark.parametrize(("value", "sent"), [(np.float64(0.5), 0.5), (np.int64(1), 1), (1, 1)])
def test_numbers_of_numpy_are_numbers(value: Any, sent: float) -> None:
    with scripted(Says(200, LEARNED)) as server:
        assert asked(server).reward("triage.1.7", value) is Receipt.LEARNED
    assert server.heard[0].body == {"value": sent, "spend": None, "key": None}


def test_what_cannot_be_sent_is_refused_here() -> None:
    router = Client("http://127.0.0.1:9").router("triage")
    with pytest.raises(errors.RewardError, match="neither a number nor text"):
        router.reward("triage.1.7", object())  # type: ignore[arg-type]
    with pytest.raises(errors.RewardError, match="invalid id 7"):
        router.reward(7, 0.5)  # type: ignore[arg-type]
    with pytest.raises(errors.DecisionError, match="cannot encode"):
        router.decide(b"\xff".decode("utf-8", "surrogateescape"))
    for wrong in ("127.0.0.1:8000", "ftp://here", "http://"):
        with pytest.raises(errors.ServiceError, match="invalid server address"):
            Client(wrong)


def test_a_path_cannot_be_left_by_the_name_of_a_router_or_a_decision() -> None:
    with scripted(Says(201, MADE)) as server:
        server.client().router("../keys?x=1").decide()
        server.client().router("a").activate("../../b")
    assert server.heard[0].path == "/v1/routers/..%2Fkeys%3Fx%3D1/decisions"
    assert server.heard[1].path == "/v1/decisions/..%2F..%2Fb/activate"


def test_the_key_goes_with_every_request() -> None:
    with scripted(Says(201, MADE)) as server:
        asked(server, key="bylot_a_b").decide()
    assert server.heard[0].headers["authorization"] == "Bearer bylot_a_b"


def test_a_batch_tells_of_each_what_became_of_it() -> None:
    error = {"code": "bad_decision", "message": "nobody is up"}
    results = [{"status": 201, "decision": MADE}, {"status": 422, "error": error}]
    with scripted(Says(200, {"results": results})) as server:
        one, other = asked(server).decide_many(
            [DecisionRequest("a"), DecisionRequest(available=())]
        )
    assert isinstance(one, bylot.Decision)
    assert isinstance(other, errors.DecisionError)
    assert server.heard[0].path == "/v1/routers/triage/decisions:batch"
    gone = {"code": "no_such_decision", "message": "no"}
    clash = {"code": "reward_conflict", "message": "no"}
    results = [
        {"status": 200, "credited": LEARNED},
        {"status": 404, "error": gone},
        {"status": 409, "error": clash},
    ]
    with scripted(Says(200, {"results": results})) as server:
        told = asked(server).reward_many(
            [RewardItem("a", 1.0, {"usd": 2.0}, "k"), RewardItem("b", 0.0)]
        )
    assert told[:2] == [Receipt.LEARNED, Receipt.UNKNOWN]
    assert isinstance(told[2], errors.RewardConflict)
    sent = {"decision": "a", "value": 1.0, "spend": {"usd": 2.0}, "key": "k"}
    assert server.heard[0].body["rewards"][0] == sent


def test_pages_follow_one_another() -> None:
    def page(names: str, following: str | None) -> Says:
        rows = [{"name": name, "number": 1, "created": "now"} for name in names]
        return Says(200, {"routers": rows, "next": following})

    with scripted(page("ab", "b"), page("c", None)) as server:
        assert [one.name for one in server.client().routers()] == ["a", "b", "c"]
    assert [heard.path.split("&")[0][-7:] for heard in server.heard] == ["?after=", "after=b"]


def test_an_answer_of_something_else_is_named() -> None:
    for act in (Says(200, b"<html>hello</html>"), Says(200, {"id": 7}), Says(302, b"")):
        with scripted(act) as server, pytest.raises(errors.ServiceError, match="bylot"):
            asked(server).decide()


def test_a_client_can_be_shared_by_threads() -> None:
    with (
        scripted(Says(201, MADE)) as server,
        Client(server.url) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        router = client.router("triage")
        made = list(threads.map(lambda n: router.decide(key=f"k{n}"), range(40)))
    assert {decision.id for decision in made} == {"triage.1.7"}
    assert {heard.body["key"] for heard in server.heard} == {f"k{n}" for n in range(40)}


def test_the_same_can_be_awaited() -> None:
    async def talk(url: str) -> list[Any]:
        async with AsyncClient(url) as client:
            router = client.router("triage")
            decisions = await asyncio.gather(*(router.decide() for _ in range(3)))
            return [*decisions, await router.reward("triage.1.7", 0.5)]

    made = Says(201, MADE)
    with scripted(Drops(), made, made, made, Says(200, LEARNED)) as server:
        *decisions, receipt = asyncio.run(talk(server.url))
    assert [one.id for one in decisions] == ["triage.1.7"] * 3
    assert receipt is Receipt.LEARNED
    assert len(server.heard) == 5
    assert len({heard.body["key"] for heard in server.heard[:4]}) == 3


def test_both_kinds_of_routers_have_the_same_methods() -> None:
    def names(kind: type) -> set[str]:
        return {name for name, one in vars(kind).items() if isinstance(one, Callable)}  # type: ignore[arg-type]

    from bylot.client import AsyncRouter

    assert names(RemoteRouter) == names(AsyncRouter)
    public = {"decide", "reward", "status"}
    assert public <= names(RemoteRouter) & names(bylot.Router)


@given(body=st.binary(max_size=60), status=st.integers(300, 599))
@settings(max_examples=500)
def test_whatever_a_server_says_is_an_error_of_ours(body: bytes, status: int) -> None:
    assert isinstance(make_error(status, decode_error(body), errors.RewardError), errors.BylotError)


def reply(status: int, body: bytes, after: bytes) -> httpx.Response:
    """A response with Retry-After."""
    return httpx.Response(status, content=body, headers=[(b"retry-after", after)])


replies = st.builds(reply, st.integers(300, 599), st.binary(max_size=5), st.binary(max_size=4))
losses = st.builds(
    lambda kind, text: kind(text),
    st.sampled_from([httpx.ConnectError, httpx.PoolTimeout, httpx.ReadError, httpx.ReadTimeout]),
    st.text(max_size=3),
)


def waited(outcome: retry.Outcome, retries: int = retry.DEFAULT_RETRIES) -> list[float]:
    """The pauses of a call that always ends in the same way."""
    steps = retry.retry_until_answered(HttpCall("GET", "/", bytes.decode), retries)
    pauses = [next(steps)]
    with contextlib.suppress(errors.BylotError):
        while True:
            pauses.append(steps.send(outcome))
    return pauses


def test_an_outage_of_twenty_seconds_is_sat_out_and_one_of_a_minute_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.1)
    down = reply(503, b'{"error": {"code": "store_down", "message": "no disk"}}', b"1")
    for outcome in (down, httpx.ConnectError("refused")):
        assert all(20 < sum(waited(outcome)) < 45 for _ in range(200))


def test_a_router_of_another_server_is_asked_for_once_more_and_no_longer() -> None:
    busy = reply(503, b'{"error": {"code": "router_busy", "message": "theirs"}}', b"8")
    assert waited(busy) == [0.0, 8.0]


@given(outcome=st.one_of(replies, losses), again=st.booleans(), retries=st.integers(0, 6))
@settings(max_examples=500)
def test_patience_is_bounded_whatever_happens(
    outcome: retry.Outcome, again: bool, retries: int
) -> None:
    steps = retry.retry_until_answered(
        HttpCall("GET", "/", bytes.decode, idempotent=again), retries
    )
    pauses = [next(steps)]
    try:
        while len(pauses) <= retries + 1:
            pauses.append(steps.send(outcome))
    except errors.BylotError:
        pass
    assert len(pauses) <= retries + 1
    assert all(0 <= pause <= retry.MAX_RETRY_AFTER_S for pause in pauses)
