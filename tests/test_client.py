"""The client against scripted servers: requests, retries and errors."""

import asyncio
import contextlib
import inspect
import socket
import time
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
from bylot.client.calls import HttpCall, decode_error, make_error
from bylot.client.retry import Outcome, OwnerHints
from sample_problem import make_five_expert_problem
from scripted_server import (
    Action,
    Answer,
    DelayAnswer,
    DropConnection,
    ScriptedServer,
    make_error_answer,
    scripted_server,
)

DECISION = {
    "id": "triage.1.7.9f3ab01c",
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
LEARNED = {"decision": "triage.1.7.9f3ab01c", "receipt": "learned", "value": 0.5}


@pytest.fixture(autouse=True)
def _shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)


def get_router(server: ScriptedServer, **options: Any) -> RemoteRouter:
    """The remote router `triage` of a server."""
    return server.client(**options).router("triage")


def test_a_decision_equals_that_of_a_router_in_memory() -> None:
    with scripted_server(Answer(201, DECISION)) as server:
        decision = get_router(server).decide("chest pain", ["ann", "eve"], key="k")
    assert decision.draw_probabilities == (0.1, 0.30000000000000004)
    assert decision.subset == ("ann", "eve")
    assert decision.expected == {"usd": 4.25}
    assert isinstance(decision, bylot.Decision)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/routers/triage/decisions")
    expected = {"context": "chest pain", "available": ["ann", "eve"], "key": "k"}
    assert request.body == expected


@pytest.mark.parametrize(
    "failure",
    [
        DropConnection(),
        DelayAnswer(0.2),
        make_error_answer(409, "in_flight", after=0),
        make_error_answer(429, "too_many_requests", after=0),
        make_error_answer(502, "bad_gateway"),
        make_error_answer(503, "store_down", after=0),
        Answer(504, b"<html>gateway timeout</html>"),
    ],
    ids=str,
)
def test_a_failed_decision_is_retried_with_the_same_key(failure: Action) -> None:
    timeout = 0.1 if isinstance(failure, DelayAnswer) else 5.0
    with scripted_server(failure, failure, Answer(201, DECISION)) as server:
        assert get_router(server, timeout=timeout).decide().id == "triage.1.7.9f3ab01c"
    keys = {request.body["key"] for request in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1
    assert len(keys.pop()) == 32


def test_two_decisions_have_different_keys() -> None:
    with scripted_server(Answer(201, DECISION)) as server:
        router = get_router(server)
        router.decide()
        router.decide()
    assert server.requests[0].body["key"] != server.requests[1].body["key"]


def test_retries_are_limited_and_the_error_counts_the_attempts() -> None:
    with scripted_server(DropConnection()) as server:
        with pytest.raises(errors.ServerUnreachable, match="no response after 4 attempts"):
            get_router(server, retries=3).decide()
        assert len(server.requests) == 4
    with scripted_server(
        make_error_answer(503, "store_down", "the disk is full", after=0)
    ) as server:
        with pytest.raises(errors.StoreUnavailable, match="the disk is full"):
            get_router(server, retries=2).decide()
        assert len(server.requests) == 3


def test_retry_after_is_respected_up_to_a_limit() -> None:
    with scripted_server(
        make_error_answer(503, "draining", after=1), Answer(201, DECISION)
    ) as server:
        start = time.monotonic()
        get_router(server).decide()
        assert time.monotonic() - start >= 1.0
    with scripted_server(make_error_answer(503, "draining", after=3600)) as server:
        with pytest.raises(errors.ServiceError):
            get_router(server).decide()  # it does not wait for an hour
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
def test_permanent_errors_are_not_retried(status: int) -> None:
    with scripted_server(make_error_answer(status, "any_code")) as server:
        with pytest.raises(errors.BylotError):
            get_router(server).decide()
        assert len(server.requests) == 1


def test_calls_that_are_not_idempotent_are_not_retried_after_they_may_have_arrived() -> None:
    for action in (DropConnection(), make_error_answer(503, "store_down", after=0)):
        with scripted_server(action) as server:
            client = server.client()
            with pytest.raises((errors.ServerUnreachable, errors.StoreUnavailable)):
                client.create("a", make_five_expert_problem())
            with pytest.raises((errors.ServerUnreachable, errors.StoreUnavailable)):
                client.router("a").delete()
            assert len(server.requests) == 2
    with (
        scripted_server(DropConnection()) as server,
        pytest.raises(errors.ServerUnreachable, match="may have"),
    ):
        get_router(server).delete()


def test_every_call_is_retried_if_the_connection_was_refused() -> None:
    with socket.socket() as unbound:
        unbound.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{unbound.getsockname()[1]}"
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
def test_error_answers_raise_the_errors_of_a_router_in_memory(
    code: str, status: int, kind: type[Exception]
) -> None:
    with (
        scripted_server(make_error_answer(status, code, "because", field="value")) as server,
        pytest.raises(kind, match="because") as caught,
    ):
        get_router(server, retries=0).reward("triage.1.7.9f3ab01c", 0.5)
    assert type(caught.value) is kind


def test_an_unknown_decision_or_router_is_an_error() -> None:
    with (
        scripted_server(make_error_answer(404, "no_such_decision")) as server,
        pytest.raises(errors.DecisionNotFound),
    ):
        get_router(server).reward("triage.1.9.9f3ab01c", 0.5)
    with (
        scripted_server(make_error_answer(404, "no_such_router")) as server,
        pytest.raises(errors.RouterNotFound),
    ):
        get_router(server).decide()


@pytest.mark.parametrize(("value", "sent"), [(np.float64(0.5), 0.5), (np.int64(1), 1), (1, 1)])
def test_numpy_numbers_are_sent_as_numbers(value: Any, sent: float) -> None:
    with scripted_server(Answer(200, LEARNED)) as server:
        assert get_router(server).reward("triage.1.7.9f3ab01c", value) is Receipt.LEARNED
    assert server.requests[0].body == {"value": sent}


def test_values_that_cannot_be_encoded_are_refused_by_the_client() -> None:
    router = Client("http://127.0.0.1:9").router("triage")
    with pytest.raises(errors.RewardError, match="neither a number nor text"):
        router.reward("triage.1.7.9f3ab01c", object())  # type: ignore[arg-type]
    with pytest.raises(errors.RewardError, match="invalid id 7"):
        router.reward(7, 0.5)  # type: ignore[arg-type]
    with pytest.raises(errors.DecisionError, match="cannot encode"):
        router.decide(b"\xff".decode("utf-8", "surrogateescape"))
    for wrong in ("127.0.0.1:8000", "ftp://here", "http://"):
        with pytest.raises(errors.ServiceError, match="invalid server address"):
            Client(wrong)


def test_names_are_quoted_in_paths() -> None:
    with scripted_server(Answer(201, DECISION)) as server:
        server.client().router("../keys?x=1").decide()
        server.client().router("a").activate("../../b")
    assert server.requests[0].path == "/v1/routers/..%2Fkeys%3Fx%3D1/decisions"
    assert server.requests[1].path == "/v1/decisions/..%2F..%2Fb/activate"


def test_the_api_key_is_sent_with_requests() -> None:
    with scripted_server(Answer(201, DECISION)) as server:
        for key in ("bylot_a_b", "bylot_a_b\n"):  # as written, and as read from a file
            get_router(server, key=key).decide()
    assert {one.headers["authorization"] for one in server.requests} == {"Bearer bylot_a_b"}
    assert len(server.requests) == 2


def test_a_batch_returns_a_result_or_an_error_for_each_item() -> None:
    error = {"code": "bad_decision", "message": "no expert is available"}
    results = [{"status": 201, "decision": DECISION}, {"status": 422, "error": error}]
    with scripted_server(Answer(200, {"results": results})) as server:
        one, other = get_router(server).decide_many(
            [DecisionRequest("a"), DecisionRequest(available=())]
        )
    assert isinstance(one, bylot.Decision)
    assert isinstance(other, errors.DecisionError)
    assert server.requests[0].path == "/v1/routers/triage/decisions:batch"
    not_found = {"code": "no_such_decision", "message": "no"}
    conflict = {"code": "reward_conflict", "message": "no"}
    results = [
        {"status": 200, "credited": LEARNED},
        {"status": 404, "error": not_found},
        {"status": 409, "error": conflict},
    ]
    with scripted_server(Answer(200, {"results": results})) as server:
        receipts = get_router(server).reward_many(
            [RewardItem("a", 1.0, {"usd": 2.0}, "k"), RewardItem("b", 0.0)]
        )
    assert receipts[0] is Receipt.LEARNED
    assert isinstance(receipts[1], errors.DecisionNotFound)
    assert isinstance(receipts[2], errors.RewardConflict)
    sent = {"decision": "a", "value": 1.0, "spend": {"usd": 2.0}, "key": "k"}
    assert server.requests[0].body["rewards"][0] == sent


def test_pages_are_fetched_until_the_last() -> None:
    def make_page(list_methods: str, following: str | None) -> Answer:
        rows = [{"name": name, "number": 1, "created": "now"} for name in list_methods]
        return Answer(200, {"routers": rows, "next": following})

    with scripted_server(make_page("ab", "b"), make_page("c", None)) as server:
        assert [one.name for one in server.client().routers()] == ["a", "b", "c"]
    assert [request.path.split("&")[0][-7:] for request in server.requests] == [
        "?after=",
        "after=b",
    ]


def test_an_answer_that_is_not_from_bylot_is_an_error() -> None:
    for action in (Answer(200, b"<html>hello</html>"), Answer(200, {"id": 7}), Answer(302, b"")):
        with scripted_server(action) as server, pytest.raises(errors.ServiceError, match="bylot"):
            get_router(server).decide()


def test_a_client_can_be_shared_by_threads() -> None:
    with (
        scripted_server(Answer(201, DECISION)) as server,
        Client(server.url) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        router = client.router("triage")
        decisions = list(threads.map(lambda n: router.decide(key=f"k{n}"), range(40)))
    assert {decision.id for decision in decisions} == {"triage.1.7.9f3ab01c"}
    assert {request.body["key"] for request in server.requests} == {f"k{n}" for n in range(40)}


def test_the_async_client_behaves_like_the_client() -> None:
    async def use_async_client(url: str) -> list[Any]:
        async with AsyncClient(url) as client:
            router = client.router("triage")
            decisions = await asyncio.gather(*(router.decide() for _ in range(3)))
            return [*decisions, await router.reward("triage.1.7.9f3ab01c", 0.5)]

    answer = Answer(201, DECISION)
    with scripted_server(DropConnection(), answer, answer, answer, Answer(200, LEARNED)) as server:
        *decisions, receipt = asyncio.run(use_async_client(server.url))
    assert [one.id for one in decisions] == ["triage.1.7.9f3ab01c"] * 3
    assert receipt is Receipt.LEARNED
    assert len(server.requests) == 5
    assert len({request.body["key"] for request in server.requests[:4]}) == 3


def test_remote_and_async_routers_have_the_same_methods() -> None:
    def list_methods(kind: type) -> set[str]:
        return {name for name, one in inspect.getmembers(kind) if inspect.isfunction(one)}

    from bylot.client import AsyncRouter

    assert list_methods(RemoteRouter) == list_methods(AsyncRouter)
    public = {"decide", "reward", "status"}
    assert public <= list_methods(RemoteRouter) & list_methods(bylot.Router)


@given(body=st.binary(max_size=60), status=st.integers(300, 599))
@settings(max_examples=500)
def test_any_error_answer_gives_a_bylot_error(body: bytes, status: int) -> None:
    assert isinstance(make_error(status, decode_error(body), errors.RewardError), errors.BylotError)


def make_response(status: int, body: bytes, after: bytes) -> httpx.Response:
    """A response with Retry-After."""
    return httpx.Response(status, content=body, headers=[(b"retry-after", after)])


replies = st.builds(
    make_response, st.integers(300, 599), st.binary(max_size=5), st.binary(max_size=4)
)
connection_errors = st.builds(
    lambda kind, text: kind(text),
    st.sampled_from([httpx.ConnectError, httpx.PoolTimeout, httpx.ReadError, httpx.ReadTimeout]),
    st.text(max_size=3),
)


NO_HINTS = OwnerHints("http://127.0.0.1:8000", enabled=False)


def list_pauses(outcome: Outcome, retries: int = retry.DEFAULT_RETRIES) -> list[float]:
    """The pauses of a call that always has the same outcome."""
    steps = retry.retry_until_answered(HttpCall("GET", "/", bytes.decode), retries, NO_HINTS)
    pauses = [next(steps).pause_s]
    with contextlib.suppress(errors.BylotError):
        while True:
            pauses.append(steps.send(outcome).pause_s)
    return pauses


def test_retries_span_twenty_seconds_but_less_than_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.1)
    store_down = make_response(
        503, b'{"error": {"code": "store_down", "message": "no disk"}}', b"1"
    )
    for outcome in (store_down, httpx.ConnectError("refused")):
        assert all(20 < sum(list_pauses(outcome)) < 45 for _ in range(200))


def test_a_busy_router_is_retried_for_as_long_as_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.1)
    busy = make_response(503, b'{"error": {"code": "router_busy", "message": "theirs"}}', b"1")
    for _ in range(200):
        pauses = list_pauses(busy)
        assert pauses[:3] == [0.0, 1.0, 1.0]  # the next server may own it
        assert 10 < sum(pauses) < 25


def test_a_compilation_is_waited_for_and_is_no_failed_attempt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.1)
    body = b'{"error": {"code": "compiling", "message": "distinct is being compiled"}}'
    compiling, refused = make_response(503, body, b"1"), httpx.ConnectError("refused")
    pauses = list_pauses(compiling)
    assert 600 < sum(pauses) < 660
    assert max(pauses) < 5
    notes = caplog.text.count("waiting for the server: distinct is being compiled")
    assert 600 / 20 < notes <= 660 / 15
    create: HttpCall[None] = HttpCall("POST", "/v1/routers", lambda body: None, idempotent=False)
    steps = retry.retry_until_answered(create, 2, NO_HINTS)
    next(steps)
    for outcome in (compiling, compiling, refused, compiling, refused):
        assert steps.send(outcome).pause_s < 2
    with pytest.raises(errors.ServerUnreachable, match="3 attempts"):
        steps.send(refused)


@given(
    outcome=st.one_of(replies, connection_errors),
    idempotent=st.booleans(),
    retries=st.integers(0, 6),
)
@settings(max_examples=500)
def test_retries_and_pauses_are_bounded_for_any_outcome(
    outcome: Outcome, idempotent: bool, retries: int
) -> None:
    steps = retry.retry_until_answered(
        HttpCall("GET", "/", bytes.decode, idempotent=idempotent), retries, NO_HINTS
    )
    pauses = [next(steps).pause_s]
    try:
        while len(pauses) <= retries + 1:
            pauses.append(steps.send(outcome).pause_s)
    except errors.BylotError:
        pass
    assert len(pauses) <= retries + 1
    assert all(0 <= pause <= retry.MAX_RETRY_AFTER_S for pause in pauses)
