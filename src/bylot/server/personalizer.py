"""The rank and reward API of Azure AI Personalizer, served by a router."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from bylot import api
from bylot.errors import DecisionError, DecisionNotFound, RouterNotFound
from bylot.eventlog.commands import (
    ActivateDecision,
    MakeDecision,
    RecordReward,
    format_decision_id,
)
from bylot.server import request_parsing
from bylot.server.endpoint import ApiRequest, HttpResponse, json_response, route
from bylot.server.http_errors import ApiError, invalid
from bylot.server.router_port import execute_counted
from bylot.server.settings import Scope

MAX_FEATURES = 50  # of a context, nested ones and the groups around them included


class RankAction(Struct, frozen=True):
    """An expert; its features are ignored."""

    id: api.LabelText
    features: list[Any] = []


class RankRequest(Struct, frozen=True, rename="camel"):
    """Actions must be experts of the router; the context features become the context's name."""

    actions: Annotated[tuple[RankAction, ...], Meta(min_length=1, max_length=api.MAX_EXPERTS)]
    context_features: Annotated[list[dict[str, Any]], Meta(max_length=50)] = []
    excluded_actions: api.ExpertNames = ()
    event_id: api.IdempotencyKey | None = None
    defer_activation: bool = False


class RankedAction(Struct, frozen=True):
    """A member of the panel and its inclusion probability; null: not recorded."""

    id: str
    probability: float | None


class RankResponse(Struct, frozen=True, rename="camel"):
    """The panel, all of which is to be asked; `rewardActionId` is its first member."""

    ranking: tuple[RankedAction, ...]
    event_id: str
    reward_action_id: str


class RewardValue(Struct, frozen=True):
    """The reward of an event."""

    value: float | bool


class RouterQuery(Struct, frozen=True):
    """The router, if there are several; the header Bylot-Router is an alternative."""

    router: Annotated[str, Meta(max_length=63)] | None = None


@route("POST /personalizer/v1.1/rank", "decide", 201, RankResponse, 404, 409)
async def personalizer_rank(request: ApiRequest[RankRequest, RouterQuery]) -> HttpResponse:
    """Draw a panel from the actions that are not excluded."""
    body, name = request.body, await choose_router(request, "decide")
    event_id = body.event_id
    if "/" in (event_id or ""):
        raise invalid(
            "eventId",
            f"invalid eventId {event_id!r}: expected no slash, since it is part of a path",
        )
    excluded = set(body.excluded_actions)
    available = tuple(one.id for one in body.actions if one.id not in excluded)
    if not available:
        raise DecisionError("all actions are excluded", remedy="leave at least one")
    context = context_from_features(body.context_features)
    command = MakeDecision(
        name, context, available, event_id, body.defer_activation, by=request.caller.id
    )
    remedy = f"this API has no {{scope}}s: use POST /v1/routers/{name}/decisions"
    state = request.state
    decision = await execute_counted(state.commands, state.metrics, command, remedy)
    inclusion = decision.inclusion or {}
    panel = tuple(RankedAction(one, inclusion.get(one)) for one in decision.subset)
    return json_response(201, RankResponse(panel, event_id or decision.id, panel[0].id))


@route("POST /personalizer/v1.1/events/{id}/reward", "reward", 204, None, 409)
async def personalizer_reward(request: ApiRequest[RewardValue, RouterQuery]) -> HttpResponse:
    """Report the reward of an event."""
    id = await find_event(request, "reward")
    command = RecordReward(id, float(request.body.value), by=request.caller.id)
    await execute_counted(request.state.commands, request.state.metrics, command)
    return HttpResponse(204, headers=())


@route("POST /personalizer/v1.1/events/{id}/activate", "decide", 204, None, 409)
async def personalizer_activate(request: ApiRequest[None, RouterQuery]) -> HttpResponse:
    """Activate a deferred event."""
    id = await find_event(request, "decide")
    await request.state.commands.execute(ActivateDecision(id, by=request.caller.id))
    return HttpResponse(204, headers=())


def context_from_features(features: list[dict[str, Any]]) -> str | None:
    """The name of a context: its features, ordered by name.

    >>> context_from_features([{"device": "phone", "user": {"plan": "free"}}, {"hour": 9}])
    'device=phone,hour=9,user.plan=free'
    """
    flat = sorted(flatten_features(features))
    name = ",".join(f"{feature}={value}" for feature, value in flat)
    if len(name) > api.MAX_TEXT_CHARS or not name.isprintable():
        raise features_error()
    return request_parsing.normalize_label(name, "contextFeatures") or None


def flatten_features(features: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Nested features as pairs of dotted name and value.

    Their number and the length of each name are checked before names are joined: a name is repeated
    in all features below it.
    """
    groups, count = [("", one) for one in features], 0
    while groups:
        prefix, group = groups.pop()
        count += len(group)
        if count > MAX_FEATURES:
            raise features_error()
        for name, value in group.items():
            if len(prefix) + len(name) > api.MAX_TEXT_CHARS:
                raise features_error()
            if isinstance(value, dict):
                groups.append((f"{prefix}{name}.", value))
            else:
                yield prefix + name, str(value)


def features_error() -> ApiError:
    return invalid(
        "contextFeatures",
        f"invalid contextFeatures: expected at most {MAX_FEATURES} features, and with their names "
        f"{api.MAX_TEXT_CHARS} printable characters; send fewer, coarser features",
    )


async def choose_router(request: ApiRequest[Any, RouterQuery], scope: Scope) -> str:
    """The router named by the parameter or the header, or the only one that the key is for."""
    header = request.headers.get(b"bylot-router", b"").decode("latin-1")
    name = request.query.router or header
    if not name:
        names = sorted(request.caller.routers)
        if not names:  # the key is for all
            rows = await request.state.reader.read(lambda store: store.routers(limit=2))
            names = [row.name for row in rows]
        if len(names) != 1:
            raise RouterNotFound(
                f"there are {'several routers' if names else 'no routers'}",
                remedy="name one with ?router=NAME or a header Bylot-Router",
            )
        name = names[0]
    request.caller.check(scope, request_parsing.check_router_name(name))
    return name


async def find_event(request: ApiRequest[Any, RouterQuery], scope: Scope) -> str:
    """The id of a decision, from the caller's event id (its key) or from our own id."""
    name, key = await choose_router(request, scope), request.target
    if len(key) <= api.MAX_TEXT_CHARS and request_parsing.KEY_REGEX.search(key):
        event = await request.state.reader.read_router(
            name, lambda store, number: store.decision_by_key(number, key)
        )
        if event is not None:
            return format_decision_id(name, event)
    if request_parsing.check_decision_id(key).partition(".")[0] != name:
        raise DecisionNotFound(f"router {name!r} has no event {key!r}")
    return key
