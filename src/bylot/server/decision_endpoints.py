"""Endpoints of decisions and rewards."""

from collections.abc import Sequence
from typing import Any

from bylot import api
from bylot._scopes import SCOPE_NAMES
from bylot.eventlog import commands
from bylot.limits.keys import list_given_keys
from bylot.router.decision import Decision
from bylot.server.endpoint import (
    ApiRequest,
    HttpResponse,
    find_target_router,
    json_response,
    route,
)
from bylot.server.http_errors import invalid, to_api_error
from bylot.server.request_parsing import (
    check_decision_id,
    check_router_name,
    normalize_label,
    parse_idempotency_key,
)
from bylot.server.router_port import count_failure, explain_missing_key

BATCH_SLICE = 100  # commands of a batch that share a commit


@route("POST /v1/routers/{name}/decisions", "decide", 201, Decision, 409, has_key_header=True)
def create_decision(request: ApiRequest[api.DecisionRequest, None]) -> commands.Command:
    """Draw a panel for one request; the decision is on disk before the response is sent."""
    body, name, by = request.body, check_router_name(request.target), request.caller.id
    key = parse_idempotency_key(request.headers.get(b"idempotency-key"), body.key)
    return make_decision_command(name, body, key, by)


@route("POST /v1/routers/{name}/decisions:batch", "decide", 200, api.DecisionBatchResponse)
async def create_decisions(request: ApiRequest[api.DecisionBatchRequest, None]) -> HttpResponse:
    """Draw panels for several requests; each of them succeeds or fails on its own."""
    name, items, by = check_router_name(request.target), request.body.decisions, request.caller.id
    request.state.rate_limiter.charge(by, len(items) - 1)
    if b"idempotency-key" in request.headers:
        raise invalid(
            "Idempotency-Key",
            "unexpected header Idempotency-Key: each item of a batch has its own key",
        )
    batch = [
        make_decision_command(name, item, item.key, by, f"decisions[{n}].")
        for n, item in enumerate(items)
    ]
    return await execute_batch(request, batch, 201, api.DecisionResult)


@route("GET /v1/decisions/{id}", "read", 200, api.DecisionRecord)
def get_decision(request: ApiRequest[None, None]) -> commands.Command:
    """A decision, its state and its rewards."""
    return commands.GetDecision(check_decision_id(request.target))


@route("POST /v1/decisions/{id}/reward", "reward", 200, api.RewardReceipt, 409)
def create_reward(request: ApiRequest[api.RewardRequest, None]) -> commands.Command:
    """Report the reward of a decision, or only its costs: at any time, in any order, once."""
    return make_reward_command(request.target, request.body, request.caller.id)


@route("POST /v1/decisions/{id}/replace", "decide", 200, Decision, 409)
def replace_member(request: ApiRequest[api.ReplaceRequest, None]) -> commands.Command:
    """Draw another expert in place of a member that failed, at no cost to any limit; once."""
    id, body, by = check_decision_id(request.target), request.body, request.caller.id
    return commands.ReplaceMember(id, body.failed, body.available, by=by)


@route("POST /v1/decisions/{id}/activate", "decide", 200, Decision, 409)
def activate_decision(request: ApiRequest[None, None]) -> commands.Command:
    """Activate a deferred decision: the wait for its reward begins."""
    return commands.ActivateDecision(check_decision_id(request.target), by=request.caller.id)


@route("POST /v1/decisions/{id}/cancel", "decide", 200, Decision, 409)
def cancel_decision(request: ApiRequest[None, None]) -> commands.Command:
    """Cancel a decision that was never used: it costs nothing and has no reward."""
    return commands.CancelDecision(check_decision_id(request.target), by=request.caller.id)


@route("POST /v1/rewards:batch", "reward", 200, api.RewardBatchResponse)
async def create_rewards(request: ApiRequest[api.RewardBatchRequest, None]) -> HttpResponse:
    """Report the rewards of several decisions; each of them succeeds or fails on its own."""
    items, caller = request.body.rewards, request.caller
    request.state.rate_limiter.charge(caller.id, len(items) - 1)
    batch: list[commands.Command | Exception] = []
    for item in items:
        try:
            caller.check("reward", find_target_router(item.decision))
            batch.append(make_reward_command(item.decision, item, caller.id))
        except Exception as error:
            batch.append(error)
    return await execute_batch(request, batch, 200, api.RewardResult)


def make_decision_command(
    name: str,
    body: api.DecisionRequest,
    key: str | None,
    by: str | None,
    place: str = "",
) -> commands.MakeDecision:
    """Return the command of a decision, single or of a batch; its context and keys are in NFC."""
    context = normalize_label(body.context, "context", place)
    given = {scope: normalize_label(getattr(body, scope), scope, place) for scope in SCOPE_NAMES}
    keys = list_given_keys(given)
    return commands.MakeDecision(name, context, body.available, key, body.defer, keys, by=by)


def make_reward_command(
    id: str, body: api.RewardRequest | api.RewardItem, by: str | None
) -> commands.RecordReward:
    """The command of a reward, single or of a batch."""
    value = None if body.value is None else float(body.value)
    given = value, body.spend, body.key, body.members, body.winner
    return commands.RecordReward(check_decision_id(id), *given, by=by)


async def execute_batch(
    request: ApiRequest[Any, None],
    batch: Sequence[commands.Command | Exception],
    success: int,
    make_result: Any,
) -> HttpResponse:
    """Execute the valid commands of a batch; a result for each item, the longest Retry-After."""
    valid = [one for one in batch if not isinstance(one, Exception)]
    answers = iter(await request.state.commands.execute_in_slices(valid, BATCH_SLICE))
    results, retry_headers = [], {}
    for command in batch:
        outcome = command if isinstance(command, Exception) else next(answers)
        if isinstance(outcome, Exception):
            if not isinstance(command, Exception):
                count_failure(request.state.metrics, command, outcome)
                outcome = explain_missing_key(command, outcome)
            error = to_api_error(outcome)
            results.append(make_result(error.status, error=error.body.error))
            if error.retry_after is not None:
                retry_headers[error.retry_after] = error.headers[-1]
        else:
            request.state.metrics.count(outcome)
            results.append(make_result(success, outcome))
    response = json_response(200, {"results": results})
    if not retry_headers:
        return response
    return response._replace(headers=(*response.headers, retry_headers[max(retry_headers)]))
