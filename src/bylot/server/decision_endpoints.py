"""Endpoints of decisions and rewards."""

from collections.abc import Sequence
from typing import Any

from bylot import api
from bylot.eventlog.commands import (
    ActivateDecision,
    CancelDecision,
    GiveReward,
    MakeDecision,
    RecallDecision,
)
from bylot.server.endpoint import ApiRequest, HttpResponse, json_response
from bylot.server.http_errors import ApiError, to_api_error
from bylot.server.request_parsing import (
    check_decision_id,
    check_router_name,
    parse_idempotency_key,
)
from bylot.server.state import ServerState


async def create_decision(request: ApiRequest[api.DecisionRequest, None]) -> HttpResponse:
    """Draw a panel for one request; the decision is on disk before the response is sent."""
    body, name = request.body, check_router_name(request.target)
    key = parse_idempotency_key(request.headers.get(b"idempotency-key"), body.key)
    command = MakeDecision(name, body.context, body.available, key, body.defer, request.caller.id)
    decision = await request.state.writer.execute(command)
    count_decision(request.state, name)
    return json_response(201, decision)


async def create_decisions(request: ApiRequest[api.DecisionBatchRequest, None]) -> HttpResponse:
    """Draw panels for several requests; each of them succeeds or fails on its own."""
    state, name, items = request.state, check_router_name(request.target), request.body.decisions
    state.rate_limiter.take(request.caller.id, len(items) - 1)
    if b"idempotency-key" in request.headers:
        message = "unexpected header Idempotency-Key: each item of a batch has its own key"
        raise ApiError(422, "invalid", message, field="Idempotency-Key")
    by = request.caller.id
    commands = [
        MakeDecision(name, one.context, one.available, one.key, one.defer, by) for one in items
    ]
    outcomes = convert_errors(await state.writer.execute_all(commands))
    results = []
    for one in outcomes:
        if isinstance(one, ApiError):
            results.append(api.DecisionResult(one.status, error=one.body.error))
        else:
            count_decision(state, name)
            results.append(api.DecisionResult(201, one))
    return batch_response(api.DecisionBatchResponse(tuple(results)), outcomes)


async def create_reward(request: ApiRequest[api.RewardRequest, None]) -> HttpResponse:
    """Report the reward of a decision: at any time, in any order; it is learned once."""
    body, id = request.body, check_decision_id(request.target)
    command = GiveReward(id, body.value, body.spend, body.key, request.caller.id)
    receipt = await request.state.writer.execute(command)
    count_reward(request.state, receipt)
    return json_response(200, receipt)


async def create_rewards(request: ApiRequest[api.RewardBatchRequest, None]) -> HttpResponse:
    """Report the rewards of several decisions; each of them succeeds or fails on its own."""
    state, items, caller = request.state, request.body.rewards, request.caller
    state.rate_limiter.take(caller.id, len(items) - 1)
    outcomes: list[Any] = [None] * len(items)
    commands: dict[int, GiveReward] = {}
    for number, item in enumerate(items):
        try:
            id = check_decision_id(item.decision)
            caller.check("reward", id.partition(".")[0])
            commands[number] = GiveReward(id, item.value, item.spend, item.key, caller.id)
        except Exception as error:
            outcomes[number] = error
    answers = await state.writer.execute_all(list(commands.values()))
    for number, answer in zip(commands, answers, strict=True):
        outcomes[number] = answer
    outcomes = convert_errors(outcomes)
    results = []
    for one in outcomes:
        if isinstance(one, ApiError):
            results.append(api.RewardResult(one.status, error=one.body.error))
        else:
            count_reward(state, one)
            results.append(api.RewardResult(200, one))
    return batch_response(api.RewardBatchResponse(tuple(results)), outcomes)


def convert_errors(outcomes: Sequence[Any]) -> list[Any]:
    """Replace every exception by its ApiError."""
    return [to_api_error(one) if isinstance(one, Exception) else one for one in outcomes]


def batch_response(body: Any, outcomes: Sequence[Any]) -> HttpResponse:
    """The response to a batch, with the longest Retry-After of its items."""
    waiting = [one for one in outcomes if isinstance(one, ApiError) and one.retry_after is not None]
    response = json_response(200, body)
    if not waiting:
        return response
    longest = max(waiting, key=lambda one: one.retry_after or 0.0)
    return response._replace(headers=(*response.headers, longest.headers[-1]))


def count_decision(state: ServerState, name: str) -> None:
    """Count a decision in the metrics."""
    state.metrics.decisions.inc()
    state.metrics.touch(name)


def count_reward(state: ServerState, receipt: api.RewardReceipt) -> None:
    """Count a reward in the metrics."""
    state.metrics.rewards[receipt.receipt].inc()
    state.metrics.touch(receipt.decision.partition(".")[0])


async def get_decision(request: ApiRequest[None, None]) -> HttpResponse:
    """A decision, its state and its rewards."""
    command = RecallDecision(check_decision_id(request.target))
    return json_response(200, await request.state.writer.execute(command))


async def activate_decision(request: ApiRequest[None, None]) -> HttpResponse:
    """Activate a deferred decision: the wait for its reward begins."""
    command = ActivateDecision(check_decision_id(request.target), request.caller.id)
    return json_response(200, await request.state.writer.execute(command))


async def cancel_decision(request: ApiRequest[None, None]) -> HttpResponse:
    """Cancel a decision that was never used: it costs nothing and has no reward."""
    command = CancelDecision(check_decision_id(request.target), request.caller.id)
    return json_response(200, await request.state.writer.execute(command))
