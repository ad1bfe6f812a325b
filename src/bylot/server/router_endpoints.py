"""Endpoints of routers: create, list, show, edit and delete them, and read their event logs; of
their tenants: what one has spent under limits for each tenant, and its own bounds; of decisions and
rewards.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw, convert, structs

from bylot import api
from bylot._scopes import SCOPE_NAMES
from bylot.errors import RouterNotFound
from bylot.eventlog.commands import (
    ActivateDecision,
    CancelDecision,
    Command,
    CreateRouter,
    DeleteRouter,
    EditRouter,
    GetDecision,
    GetRouter,
    GetTenant,
    LearnRounds,
    ListTenants,
    MakeDecision,
    RecordReward,
    ReplaceMember,
    SetTenant,
)
from bylot.eventlog.events import BODY_DECODERS, format_timestamp
from bylot.limits.keys import list_given_keys
from bylot.policies.registry import describe_smaller_panels
from bylot.problem_files.written_limit import read_tenant_limits
from bylot.router.decision import Decision
from bylot.router.past_rounds import PastRound
from bylot.router.status import RouterStatus
from bylot.server.config_requests import (
    policy_from_body,
    prepare_create,
    prepare_edit,
    request_from_file,
)
from bylot.server.endpoint import (
    ApiRequest,
    HttpResponse,
    encode_json,
    find_target_router,
    json_response,
    route,
)
from bylot.server.http_errors import invalid, to_api_error
from bylot.server.request_parsing import (
    ROUTERS_REMEDY,
    check_decision_id,
    check_router_name,
    normalize_label,
    parse_idempotency_key,
)
from bylot.server.router_port import count_failure, explain_missing_key
from bylot.server.state import ServerState

log = logging.getLogger("bylot.server")


@route("POST /v1/routers", "admin", 201, api.RouterView, 409, read_file=request_from_file)
async def create_router(
    request: ApiRequest[api.CreateRouterRequest, api.CreateRouterQuery],
) -> HttpResponse:
    """Create a router; infeasible limits are rejected with a remedy."""
    body, by, loop = request.body, request.caller.id, asyncio.get_running_loop()
    request.caller.check("admin", body.name)
    pool, compiler = request.state.prepare_pool, request.state.compiler
    prepared = await loop.run_in_executor(pool, prepare_create, body, compiler.require)
    command = CreateRouter(body.name, prepared.config, prepared, by=by)
    view = await request.state.commands.execute(command)
    log.info("router created", extra={"router": body.name, "by": by})
    smaller = describe_smaller_panels(policy_from_body(body.policy), prepared.core.problem)
    warnings = () if smaller is None else (str(smaller),)
    return json_response(201, structs.replace(view, warnings=warnings))


@route("GET /v1/routers", "read", 200, api.RouterList)
async def list_routers(request: ApiRequest[None, api.RouterListQuery]) -> HttpResponse:
    """List routers by name, page by page."""
    after, limit, allowed = request.query.after, request.query.limit, request.caller.routers
    reader = request.state.reader
    if allowed:
        names = sorted(name for name in allowed if name > after)
        found = await reader.read(lambda store: [store.find(name) for name in names])
        rows = [row for row in found if row is not None]
    else:
        rows = await reader.read(lambda store: store.routers(after, limit + 1))
    routers = tuple(
        api.RouterSummary(row.name, row.number, format_timestamp(row.created))
        for row in rows[:limit]
    )
    next_after = routers[-1].name if len(rows) > limit else None
    return json_response(200, api.RouterList(routers, next_after))


@route("GET /v1/routers/{name}", "read", 200, api.RouterView)
async def get_router(request: ApiRequest[None, None]) -> HttpResponse:
    """A router: its configuration and its status."""
    return json_response(200, await view_router(request.state, request.target))


@route("GET /v1/routers/{name}/status", "read", 200, RouterStatus)
async def get_router_status(request: ApiRequest[None, None]) -> HttpResponse:
    """Status of a router: its state and why, averages, slack and price of every limit."""
    return json_response(200, (await view_router(request.state, request.target)).status)


async def view_router(state: ServerState, name: str) -> api.RouterView:
    view: api.RouterView = await state.commands.execute(GetRouter(check_router_name(name)))
    return state.gateway.judge(view)


@route("PATCH /v1/routers/{name}", "admin", 200, api.RouterView, 409)
async def edit_router(request: ApiRequest[api.EditRouterRequest, None]) -> HttpResponse:
    """Edit limits, experts and reward rules of a running router: a new version, in its log."""
    state, name, body, by = request.state, request.target, request.body, request.caller.id
    loop = asyncio.get_running_loop()
    async with state.edit_lock:  # no edit may undo another one that it has not seen
        old = (await view_router(state, name)).config
        new = await loop.run_in_executor(state.prepare_pool, prepare_edit, old, body)
        version = old.version if body.version is UNSET else body.version
        view = await state.commands.execute(EditRouter(name, new.config, version, new, by=by))
    log.info("router edited", extra={"router": name, "by": by})
    return json_response(200, state.gateway.judge(view))


@route("POST /v1/routers/{name}/rounds", "admin", 200, api.RouterView, 409)
def learn_rounds(request: ApiRequest[api.LearnRequest, None]) -> Command:
    """Let a new router learn rounds of a log, before its first decision."""
    name, given = check_router_name(request.target), request.body
    rounds = tuple(
        structs.replace(
            convert(item, PastRound, from_attributes=True),
            context=normalize_label(item.context, "context", f"rounds[{n}]."),
        )
        for n, item in enumerate(given.rounds)
    )
    return LearnRounds(name, rounds, given.after, by=request.caller.id)


@route("DELETE /v1/routers/{name}", "admin", 204, None)
async def delete_router(request: ApiRequest[None, None]) -> HttpResponse:
    """Delete a router and its event log."""
    name, by = check_router_name(request.target), request.caller.id
    await request.state.commands.execute(DeleteRouter(name, by=by))
    log.info("router deleted", extra={"router": name, "by": by})
    return HttpResponse(204, headers=())


@route("GET /v1/routers/{name}/events", "read", 200, api.EventList)
async def list_events(request: ApiRequest[None, api.EventListQuery]) -> HttpResponse:
    """The event log of a router, page by page."""
    name, query = check_router_name(request.target), request.query
    found = await request.state.reader.read_router(
        name, lambda store, number: store.events(number, query.after, query.limit + 1)
    )
    if found is None:
        raise RouterNotFound(f"no router named {name!r}", remedy=ROUTERS_REMEDY)
    events = tuple(
        api.EventRecord(
            seq=event.seq,
            kind=event.kind,
            of=event.of,
            key=event.key,
            at=format_timestamp(event.at),
            body=Raw(encode_json(BODY_DECODERS[event.kind](event.body))),
            seal=event.seal.hex(),
        )
        for event in found[: query.limit]
    )
    next_after = events[-1].seq if len(found) > query.limit else None
    return json_response(200, api.EventList(events, next_after))


@route("GET /v1/routers/{name}/tenants", "read", 200, api.TenantList)
async def list_tenants(request: ApiRequest[None, api.TenantListQuery]) -> HttpResponse:
    """List tenants by name, page by page: those with own bounds, or that are not archived."""
    after, limit = normalize_label(request.query.after, "tenant") or "", request.query.limit
    command = ListTenants(check_router_name(request.target), after, limit, by=request.caller.id)
    return json_response(200, await request.state.commands.execute(command))


@route("GET /v1/routers/{name}/tenants/{tenant}", "read", 200, api.TenantView, 422)
async def get_tenant(request: ApiRequest[None, None]) -> HttpResponse:
    """What a tenant has spent in the current windows; one that is not known has spent nothing."""
    command = GetTenant(*read_tenant_target(request.target), by=request.caller.id)
    return json_response(200, await request.state.commands.execute(command))


@route("PUT /v1/routers/{name}/tenants/{tenant}", "admin", 200, api.TenantView)
async def set_tenant(request: ApiRequest[api.SetTenantRequest, None]) -> HttpResponse:
    """Give a tenant bounds of its own, in place of those that it had; none: those of all apply."""
    name, tenant = read_tenant_target(request.target)
    limits = read_tenant_limits(request.body.limits)
    by = request.caller.id
    view = await request.state.commands.execute(SetTenant(name, tenant, limits, by=by))
    log.info("tenant changed", extra={"router": name, "tenant": tenant, "by": by})
    return json_response(200, view)


def read_tenant_target(target: str) -> tuple[str, str]:
    """Return the router and the tenant of a path."""
    name, _, tenant = target.partition("/")
    text = normalize_label(tenant, "tenant") or ""
    if not 0 < len(text) <= api.MAX_TEXT_CHARS or not text.isprintable():
        raise invalid(
            "tenant", f"invalid tenant: expected 1 to {api.MAX_TEXT_CHARS} printable characters"
        )
    return check_router_name(name), text


BATCH_SLICE = 100  # commands of a batch that share a commit


@route("POST /v1/routers/{name}/decisions", "decide", 201, Decision, 409, has_key_header=True)
def create_decision(request: ApiRequest[api.DecisionRequest, None]) -> Command:
    """Draw a panel for one request; the decision is on disk before the response is sent."""
    body, name = request.body, check_router_name(request.target)
    key = parse_idempotency_key(request.headers.get(b"idempotency-key"), body.key)
    return make_decision_command(name, body, key, request.caller.id)


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
def get_decision(request: ApiRequest[None, None]) -> Command:
    """A decision, its state and its rewards."""
    return GetDecision(check_decision_id(request.target))


@route("POST /v1/decisions/{id}/reward", "reward", 200, api.RewardReceipt, 409)
def create_reward(request: ApiRequest[api.RewardRequest, None]) -> Command:
    """Report the reward of a decision, or only its costs: at any time, in any order, once."""
    return make_reward_command(request.target, request.body, request.caller.id)


@route("POST /v1/decisions/{id}/replace", "decide", 200, Decision, 409)
def replace_member(request: ApiRequest[api.ReplaceRequest, None]) -> Command:
    """Draw another expert in place of a member that failed, at no cost to any limit; once."""
    id, body = check_decision_id(request.target), request.body
    return ReplaceMember(id, body.failed, body.available, by=request.caller.id)


@route("POST /v1/decisions/{id}/activate", "decide", 200, Decision, 409)
def activate_decision(request: ApiRequest[None, None]) -> Command:
    """Activate a deferred decision: the wait for its reward begins."""
    return ActivateDecision(check_decision_id(request.target), by=request.caller.id)


@route("POST /v1/decisions/{id}/cancel", "decide", 200, Decision, 409)
def cancel_decision(request: ApiRequest[None, None]) -> Command:
    """Cancel a decision that was never used: it costs nothing and has no reward."""
    return CancelDecision(check_decision_id(request.target), by=request.caller.id)


@route("POST /v1/rewards:batch", "reward", 200, api.RewardBatchResponse)
async def create_rewards(request: ApiRequest[api.RewardBatchRequest, None]) -> HttpResponse:
    """Report the rewards of several decisions; each of them succeeds or fails on its own."""
    items, caller = request.body.rewards, request.caller
    request.state.rate_limiter.charge(caller.id, len(items) - 1)
    batch: list[Command | Exception] = []
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
) -> MakeDecision:
    """Return the command of a decision, single or of a batch; its context and keys are in NFC."""
    context = normalize_label(body.context, "context", place)
    given = {scope: normalize_label(getattr(body, scope), scope, place) for scope in SCOPE_NAMES}
    keys = list_given_keys(given)
    return MakeDecision(name, context, body.available, key, body.defer, keys, by=by)


def make_reward_command(
    id: str, body: api.RewardRequest | api.RewardItem, by: str | None
) -> RecordReward:
    """The command of a reward, single or of a batch."""
    value = None if body.value is None else float(body.value)
    given = value, body.spend, body.key, body.members, body.winner
    return RecordReward(check_decision_id(id), *given, by=by)


async def execute_batch(
    request: ApiRequest[Any, None],
    batch: Sequence[Command | Exception],
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
