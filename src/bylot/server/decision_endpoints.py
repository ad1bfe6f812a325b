"""Decisions and their rewards over HTTP."""

from collections.abc import Sequence
from typing import Any

from bylot.api import (
    DecisionBatchRequest,
    DecisionBatchResponse,
    DecisionRequest,
    DecisionResult,
    RewardBatchRequest,
    RewardBatchResponse,
    RewardItem,
    RewardReceipt,
    RewardRequest,
    RewardResult,
)
from bylot.errors import LeaseLost, RouterBusy, StoreUnavailable
from bylot.eventlog.commands import (
    ActivateDecision,
    CancelDecision,
    GiveReward,
    MakeDecision,
    RecallDecision,
)
from bylot.server import request_parsing
from bylot.server.auth import Caller
from bylot.server.endpoint import ApiRequest, HttpResponse, json_response
from bylot.server.http_errors import ApiError, classify_error, retry_after_value
from bylot.server.state import ServerState


async def post_decision(call: ApiRequest[DecisionRequest, None]) -> HttpResponse:
    """Draw a panel for one request; it is on disk before the answer leaves."""
    ask, name = call.form, request_parsing.check_router_name(call.about)
    key = request_parsing.parse_idempotency_key(call.headers.get(b"idempotency-key"), ask.key)
    command = MakeDecision(name, ask.context, ask.available, key, ask.defer, call.who.id)
    decision = await call.service.desk.ask(command)
    count_decision(call.service, name)
    return json_response(201, decision)


async def post_decision_batch(call: ApiRequest[DecisionBatchRequest, None]) -> HttpResponse:
    """Draw panels for several requests; each succeeds or fails alone."""
    service, name, asks = (
        call.service,
        request_parsing.check_router_name(call.about),
        call.form.decisions,
    )
    service.rates.take(call.who.id, len(asks) - 1)
    if b"idempotency-key" in call.headers:
        message = "in a batch every item has its own key; leave the header out"
        raise ApiError(422, "invalid", message, field="Idempotency-Key")
    answers = await service.desk.ask_all(
        [
            MakeDecision(name, ask.context, ask.available, ask.key, ask.defer, call.who.id)
            for ask in asks
        ]
    )
    results = DecisionBatchResponse(tuple(decision_result(service, name, one) for one in answers))
    return batch_response(results, answers)


def batch_response(
    results: DecisionBatchResponse | RewardBatchResponse, answers: Sequence[Any]
) -> HttpResponse:
    """A batch, and after how many seconds those of its items may succeed that failed for now."""
    done = json_response(200, results)
    passing = [
        one
        for one in answers
        if isinstance(one, StoreUnavailable | RouterBusy | LeaseLost | ApiError)
    ]
    waits = [verdict.retry for verdict in map(classify_error, passing) if verdict.retry is not None]
    if not waits:
        return done
    return done._replace(headers=(*done.headers, (b"retry-after", retry_after_value(max(waits)))))


def decision_result(service: ServerState, name: str, answer: Any) -> DecisionResult:
    """One item of a batch."""
    if isinstance(answer, Exception):
        verdict = classify_error(answer)
        return DecisionResult(verdict.status, error=verdict.failure.error)
    count_decision(service, name)
    return DecisionResult(201, answer)


def count_decision(service: ServerState, name: str) -> None:
    """One decision more."""
    service.meters.decisions.inc()
    service.meters.touch(name)


async def post_reward(call: ApiRequest[RewardRequest, None]) -> HttpResponse:
    """Tell how well a decision went: once, at any time, in any order."""
    form, id = call.form, request_parsing.check_decision_id(call.about)
    command = GiveReward(id, form.value, form.spend, form.key, call.who.id)
    credited = await call.service.desk.ask(command)
    count_reward(call.service, credited)
    return json_response(200, credited)


async def post_reward_batch(call: ApiRequest[RewardBatchRequest, None]) -> HttpResponse:
    """Tell how well several decisions went; each succeeds or fails alone."""
    service, items = call.service, call.form.rewards
    service.rates.take(call.who.id, len(items) - 1)
    commands = [reward_command(item, call.who) for item in items]
    answers = iter(await service.desk.ask_all([c for c in commands if isinstance(c, GiveReward)]))
    results = [next(answers) if isinstance(c, GiveReward) else c for c in commands]
    return batch_response(
        RewardBatchResponse(tuple(reward_result(service, one) for one in results)), results
    )


def reward_command(item: RewardItem, who: Caller) -> GiveReward | Exception:
    """One item of a batch, or why it cannot be taken up."""
    try:
        id = request_parsing.check_decision_id(item.decision)
        who.check("reward", id.partition(".")[0])
    except Exception as error:
        return error
    return GiveReward(id, item.value, item.spend, item.key, who.id)


def reward_result(service: ServerState, answer: Any) -> RewardResult:
    """One item of a batch."""
    if isinstance(answer, Exception):
        verdict = classify_error(answer)
        return RewardResult(verdict.status, error=verdict.failure.error)
    count_reward(service, answer)
    return RewardResult(200, answer)


def count_reward(service: ServerState, credited: RewardReceipt) -> None:
    """One reward more."""
    service.meters.rewards[credited.receipt].inc()
    service.meters.touch(credited.decision.partition(".")[0])


async def get_decision(call: ApiRequest[None, None]) -> HttpResponse:
    """A decision, and what became of it."""
    return json_response(
        200,
        await call.service.desk.ask(RecallDecision(request_parsing.check_decision_id(call.about))),
    )


async def activate_decision(call: ApiRequest[None, None]) -> HttpResponse:
    """A deferred decision is being used after all: the time for its reward begins."""
    command = ActivateDecision(request_parsing.check_decision_id(call.about), call.who.id)
    return json_response(200, await call.service.desk.ask(command))


async def cancel_decision(call: ApiRequest[None, None]) -> HttpResponse:
    """A decision was never used: it costs nothing and has no reward."""
    command = CancelDecision(request_parsing.check_decision_id(call.about), call.who.id)
    return json_response(200, await call.service.desk.ask(command))
