"""Members are asked over HTTP in every mode, and whatever they do, the panel ends in good order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from bylot.gateway.answers import Answer, Failure
from bylot.gateway.asking import HealthTable, PanelResult, PanelRun
from bylot.gateway.config import GatewayEntry
from bylot.gateway.stream_run import StreamPump
from bylot.gateway.upstream import ChatBody, UpstreamClient
from gateway_target import make_model_entry, run_with_client
from upstream_faults import Fault, FaultUpstream
from upstreams import ReplayUpstream

BODY = {"messages": [{"role": "user", "content": "Where is the Rhine?"}]}
REASONS = {
    Fault.HANG: "timeout",
    Fault.SLOW: "timeout",
    Fault.DRIP: "timeout",
    Fault.CLOSED: "unreachable",
    Fault.STATUS_500: "http_500",
    Fault.STATUS_503: "http_503",
    Fault.RATE_LIMITED: "rate_limited",
    Fault.RATE_LIMITED_DATE: "rate_limited",
    Fault.UNAUTHORIZED: "http_401",
    Fault.BAD_REQUEST: "http_400",
    Fault.REDIRECT: "http_307",
    Fault.RESET: "interrupted",
    Fault.CUT: "interrupted",
    Fault.GARBAGE: "garbage",
    Fault.EMPTY_BODY: "garbage",
    Fault.ERROR_IN_200: "error_inside",
    Fault.NO_CHOICES: "garbage",
    Fault.EMPTY_CHOICES: "garbage",
    Fault.NULL_MESSAGE: "garbage",
    Fault.NOT_UTF8: "garbage",
    Fault.DEEP_JSON: "garbage",
    Fault.WRONG_TYPE: "wrong_type",
    Fault.HUGE_BODY: "too_large",
    Fault.HUGE_CHUNKED: "too_large",
    Fault.GZIP_BOMB: "garbage",
}
ANSWERED = (Fault.NONE, Fault.ODD_USAGE)
FREE = ("unreachable", "error_inside", "rate_limited", "http_")  # nothing is booked for these


def run(work: Callable[[UpstreamClient], Awaitable[Any]], *upstreams: ReplayUpstream) -> Any:
    """Work with a client of upstreams; no task of it is left over."""
    entries = [make_model_entry(name, one) for one in upstreams for name in one.models]
    return run_with_client(entries, work)


@pytest.mark.parametrize(
    "fault", [one for one in Fault if not one.of_streams], ids=lambda f: f.name
)
def test_every_fault_of_a_model_is_an_answer_or_a_failure_with_its_reason(fault: Fault) -> None:
    with FaultUpstream(fault, models=("a",)) as upstream:

        async def ask(client: UpstreamClient) -> Answer | Failure:
            wait_s = 1.0 if REASONS.get(fault) == "timeout" else 30.0
            return await client.call("a", ChatBody(BODY), timeout_s=wait_s).run()

        outcome = run(ask, upstream)
        if fault in ANSWERED:
            assert isinstance(outcome, Answer)
            assert outcome.text
            assert outcome.usage.estimated == (fault is Fault.ODD_USAGE)
            return
        assert isinstance(outcome, Failure)
        assert outcome.reason == REASONS.get(fault, "unreachable")
        assert (outcome.cost == 0.0) == outcome.reason.startswith(FREE)
        assert outcome.cost in (0.0, None)
        assert not upstream.redirected, "a key must not be sent to another host"


STREAM_FAULTS = [one for one in Fault if one.of_streams]


@pytest.mark.parametrize("fault", [Fault.NONE, *STREAM_FAULTS], ids=lambda f: f.name)
def test_every_fault_of_a_stream_is_an_answer_or_a_failure(fault: Fault) -> None:
    with FaultUpstream(fault, models=("a",)) as upstream:

        async def read(client: UpstreamClient) -> tuple[int, Answer | Failure]:
            pump, count = StreamPump(client.call("a", ChatBody(BODY), timeout_s=1.5)), 0
            while await pump.chunks.get() is not None:
                count += 1
            await pump.stop()
            return count, pump.outcome

        count, outcome = run(read, upstream)
        if fault in (Fault.NONE, Fault.STREAM_ODD_FRAMES):
            assert isinstance(outcome, Answer)
            assert outcome.text
            return
        assert isinstance(outcome, Failure)
        assert outcome.sent
        if count > 2:
            assert outcome.cost, "what was streamed is booked at its price"


def read_stream(
    upstream: ReplayUpstream, body: dict[str, Any], timeout_s: float, pause_s: float = 0.0
) -> tuple[int, Answer | Failure]:
    """The number of chunks of a stream, read after a pause, and its outcome."""

    async def read(client: UpstreamClient) -> tuple[int, Answer | Failure]:
        pump, count = StreamPump(client.call("a", ChatBody(body), timeout_s)), 0
        await asyncio.sleep(pause_s)
        while await asyncio.wait_for(pump.chunks.get(), 20.0) is not None:
            count += 1
        await pump.stop()
        return count, pump.outcome

    found: tuple[int, Answer | Failure] = run(read, upstream)
    return found


def test_a_stream_that_never_begins_is_booked_as_sent() -> None:
    with FaultUpstream(Fault.HANG, models=("a",)) as upstream:
        _, outcome = read_stream(upstream, BODY, timeout_s=0.5)
        assert isinstance(outcome, Failure)
        assert (outcome.reason, outcome.sent, outcome.cost) == ("timeout", True, None)


def test_a_stream_ends_although_its_caller_reads_too_late() -> None:
    with ReplayUpstream(("a",), chunk_chars=1) as upstream:
        count, outcome = read_stream(upstream, BODY, timeout_s=1.0, pause_s=1.5)
        assert count >= 64
        assert isinstance(outcome, Failure)
        assert outcome.reason == "cancelled", "the member is not to blame"


def test_a_streamed_tool_call_is_known_to_scorers() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with ReplayUpstream(("a",)) as upstream:
        body = {**BODY, "tools": [tool], "tool_choice": "required"}
        _, outcome = read_stream(upstream, body, timeout_s=10.0)
        assert isinstance(outcome, Answer)
        (call, *_) = outcome.choice["message"]["tool_calls"]
        assert call["function"]["name"] == "f"
        assert call["function"]["arguments"]
        assert outcome.text == ""


def test_a_rate_limit_is_retried_after_the_time_that_the_model_names() -> None:
    with FaultUpstream(Fault.RATE_LIMITED, Fault.NONE, models=("a",), retry_after_s=1) as upstream:

        async def ask(client: UpstreamClient) -> Answer | Failure:
            return await client.call("a", ChatBody(BODY), timeout_s=5.0, retries=1).run()

        outcome = run(ask, upstream)
        assert isinstance(outcome, Answer)
        assert outcome.seconds > 1.0
        assert upstream.received == 2


def test_a_wait_that_does_not_fit_the_time_out_is_not_begun() -> None:
    with FaultUpstream(Fault.RATE_LIMITED, models=("a",), retry_after_s=60) as upstream:

        async def ask(client: UpstreamClient) -> Answer | Failure:
            return await client.call("a", ChatBody(BODY), timeout_s=5.0, retries=3).run()

        outcome = run(ask, upstream)
        assert isinstance(outcome, Failure)
        assert outcome.seconds < 2.0
        assert outcome.retry_after_s == 60.0
        assert upstream.received == 1


def ask_panel(
    upstreams: Sequence[ReplayUpstream],
    members: Sequence[str],
    substitutes: Sequence[str] = (),
    good: Sequence[str] = (),
    **entry: Any,
) -> tuple[PanelResult, float]:
    """Ask a panel; the substitutes are taken in their order, answers of `good` end it."""
    left = list(substitutes)

    async def replace(failed: str) -> str | None:
        return left.pop(0) if left else None

    async def is_good(answer: Answer) -> bool:
        return answer.member in good

    async def work(client: UpstreamClient) -> tuple[PanelResult, float]:
        settings = GatewayEntry(**{"answer": "all", "retries": 0, "member_timeout_s": 3.0, **entry})
        health, start = HealthTable(3, 30.0), time.perf_counter()
        check = is_good if settings.ask == "in_turn" else None
        panel = PanelRun(settings, client, health, ChatBody(BODY), members, replace, check)
        return await panel.run(), time.perf_counter() - start

    found: tuple[PanelResult, float] = run(work, *upstreams)
    return found


def names(outcomes: Sequence[Answer | Failure]) -> set[str]:
    return {one.member for one in outcomes}


def test_together_all_members_are_asked_at_once() -> None:
    with ReplayUpstream(("a", "b", "c"), latency=0.4) as upstream:
        result, seconds = ask_panel([upstream], "abc")
        assert names(result.answers) == set("abc")
        assert seconds < 1.1, "three calls of 0.4 s in a row take longer"
        assert upstream.peak_active == 3


def test_after_the_quorum_others_have_the_grace_and_are_cancelled() -> None:
    waits = {"a": 0.05, "b": 0.1, "c": 0.15, "d": 30.0}
    with ReplayUpstream(("a", "b", "c", "d"), latency=waits) as upstream:
        result, seconds = ask_panel([upstream], "abcd", quorum=2, grace_s=0.6)
        assert names(result.answers) == set("abc"), "c answers within the grace"
        assert [(one.member, one.reason) for one in result.failures] == [("d", "cancelled")]
        assert result.failures[0].cost is None, "it was sent: its declared cost is booked"
        assert seconds < 3.0


def test_in_turn_ends_with_the_first_good_answer() -> None:
    with ReplayUpstream(("a", "b", "c")) as upstream:
        result, _ = ask_panel([upstream], "abc", good="b", ask="in_turn")
        assert [one.member for one in result.answers] == ["a", "b"]
        assert result.failures == []
        assert upstream.received == 2


def test_in_turn_a_failed_member_is_followed_by_the_next() -> None:
    choose = {"a": Fault.STATUS_500, "b": Fault.NONE}
    with FaultUpstream(choose=lambda body: choose[body["model"]], models=("a", "b")) as upstream:
        result, _ = ask_panel([upstream], "ab", good="b", ask="in_turn", refill=0)
        assert [one.member for one in result.answers] == ["b"]
        assert [one.reason for one in result.failures] == ["http_500"]


def test_hedged_a_slow_member_is_joined_by_the_next_and_then_cancelled() -> None:
    with ReplayUpstream(("a", "b", "c"), latency={"a": 30.0, "b": 0.05, "c": 0.0}) as upstream:
        result, seconds = ask_panel([upstream], "abc", ask="hedged", hedge_s=0.3, grace_s=0.0)
        assert names(result.answers) == {"b"}
        assert names(result.failures) == {"a"}
        assert upstream.received == 2, "c was not needed"
        assert 0.3 < seconds < 3.0


def test_hedged_a_fast_member_is_the_only_one() -> None:
    with ReplayUpstream(("a", "b")) as upstream:
        result, _ = ask_panel([upstream], "ab", ask="hedged", hedge_s=5.0, grace_s=0.0)
        assert names(result.answers) == {"a"}
        assert upstream.received == 1


def test_a_failed_member_is_replaced_and_the_substitute_is_known() -> None:
    choose = {"a": Fault.STATUS_500, "b": Fault.NONE, "c": Fault.NONE}
    with FaultUpstream(choose=lambda body: choose[body["model"]], models=tuple(choose)) as upstream:
        result, _ = ask_panel([upstream], "ab", substitutes="c")
        assert names(result.answers) == {"b", "c"}
        assert names(result.failures) == {"a"}
        assert result.stands_for == {"c": "a"}


def test_a_request_that_is_refused_is_sent_to_a_substitute() -> None:
    with FaultUpstream(Fault.BAD_REQUEST, models=("a", "b", "c")) as upstream:
        result, _ = ask_panel([upstream], "ab", substitutes="c", refill=2)
        assert result.answers == []
        assert {one.status for one in result.failures} == {400}
        assert names(result.failures) == {"a", "b", "c"}


def test_the_whole_request_has_a_time_out() -> None:
    with FaultUpstream(Fault.HANG, models=("a", "b")) as upstream:
        result, seconds = ask_panel([upstream], "ab", timeout_s=0.5, member_timeout_s=60.0)
        assert {one.reason for one in result.failures} == {"timeout"}
        assert len(result.failures) == 2
        assert seconds < 3.0


def test_a_second_endpoint_of_the_same_name_is_asked_after_a_failure() -> None:
    with (
        FaultUpstream(Fault.STATUS_503, models=("a",)) as broken,
        ReplayUpstream(("a",)) as healthy,
    ):
        result, _ = ask_panel([broken, healthy], "a", retries=1)
        assert names(result.answers) == {"a"}
        assert healthy.received == 1
