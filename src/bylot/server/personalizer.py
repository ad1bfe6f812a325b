"""Rank and reward as clients of Azure AI Personalizer send them, served by a router."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from bylot import api
from bylot.api import ExpertNames, IdempotencyKey, LabelText, StoredDecision
from bylot.errors import DecisionError, DecisionNotFound, RouterNotFound
from bylot.eventlog.commands import ActivateDecision, GiveReward, MakeDecision
from bylot.server import request_parsing
from bylot.server.auth import Scope
from bylot.server.decision_endpoints import count_decision, count_reward
from bylot.server.endpoint import ApiRequest, HttpResponse, json_response
from bylot.server.http_errors import ApiError
from bylot.store import Store


class RankAction(Struct, frozen=True):
    """An expert; its features are not looked at."""

    id: LabelText
    features: list[Any] = []


class RankRequest(Struct, frozen=True, rename="camel"):
    """Actions must be experts of the router; features of the context become its name."""

    actions: Annotated[tuple[RankAction, ...], Meta(min_length=1, max_length=api.MAX_EXPERTS)]
    context_features: Annotated[list[dict[str, Any]], Meta(max_length=50)] = []
    excluded_actions: ExpertNames = ()
    event_id: IdempotencyKey | None = None
    defer_activation: bool = False


class RankedAction(Struct, frozen=True):
    """A member of the panel, and the chance that it had to be in it; null: not told."""

    id: str
    probability: float | None


class RankResponse(Struct, frozen=True, rename="camel"):
    """The panel; all of it is to be asked, of which `rewardActionId` is the first."""

    ranking: tuple[RankedAction, ...]
    event_id: str
    reward_action_id: str


class RewardValue(Struct, frozen=True):
    """How well an event went."""

    value: float


class RouterQuery(Struct, frozen=True):
    """The router, if there are several; a header Bylot-Router says the same."""

    router: Annotated[str, Meta(max_length=63)] | None = None


async def personalizer_rank(call: ApiRequest[RankRequest, RouterQuery]) -> HttpResponse:
    """Draw a panel from the actions that are not excluded."""
    form, name = call.form, await choose_router(call, "decide")
    if "/" in (form.event_id or ""):
        message = (
            f"eventId {form.event_id!r} has a slash, and is to be part of a path; leave it out"
        )
        raise ApiError(422, "invalid", message, field="eventId")
    excluded = set(form.excluded_actions)
    available = tuple(one.id for one in form.actions if one.id not in excluded)
    if not available:
        raise DecisionError("all actions are excluded, so there is nobody to draw")
    command = MakeDecision(
        name,
        context_from_features(form.context_features),
        available,
        form.event_id,
        form.defer_activation,
        call.who.id,
    )
    decision: StoredDecision = await call.service.desk.ask(command)
    count_decision(call.service, name)
    told_of = decision.inclusion or {}
    panel = tuple(RankedAction(one, told_of.get(one)) for one in decision.subset)
    return json_response(201, RankResponse(panel, form.event_id or decision.id, panel[0].id))


def context_from_features(features: list[dict[str, Any]]) -> str | None:
    """The name of a context: its features, written out in order of their names.

    >>> context_from_features([{"device": "phone", "user": {"plan": "free"}}, {"hour": 9}])
    'device=phone,hour=9,user.plan=free'
    """
    flat = sorted(pair for one in features for pair in flatten_features(one, ""))
    name = ",".join(f"{feature}={value}" for feature, value in flat)
    if len(name) > api.MAX_TEXT_CHARS or not request_parsing.PRINTABLE_REGEX.search(name):
        message = (
            f"contextFeatures written out are {len(name)} characters; a context is a name of at "
            f"most {api.MAX_TEXT_CHARS} printable ones: send fewer, coarser features"
        )
        raise ApiError(422, "invalid", message, field="contextFeatures")
    return name or None


def flatten_features(features: dict[str, Any], above: str) -> list[tuple[str, str]]:
    """Features by their full names."""
    flat: list[tuple[str, str]] = []
    for name, value in features.items():
        if isinstance(value, dict):
            flat += flatten_features(value, f"{above}{name}.")
        else:
            flat.append((above + name, str(value)))
    return flat


async def personalizer_reward(call: ApiRequest[RewardValue, RouterQuery]) -> HttpResponse:
    """Tell how well an event went."""
    command = GiveReward(await find_event(call, "reward"), call.form.value, by=call.who.id)
    count_reward(call.service, await call.service.desk.ask(command))
    return HttpResponse(204, headers=())


async def personalizer_activate(call: ApiRequest[None, RouterQuery]) -> HttpResponse:
    """A deferred event is being used after all."""
    await call.service.desk.ask(ActivateDecision(await find_event(call, "decide"), call.who.id))
    return HttpResponse(204, headers=())


async def choose_router(call: ApiRequest[Any, RouterQuery], scope: Scope) -> str:
    """The router that is meant: as the parameter or the header says, or the only one there is."""
    named = call.headers.get(b"bylot-router", b"").decode("latin-1")
    name = call.query.router or named
    if not name:
        name = await call.service.reader.read(only_router)
    call.who.check(scope, request_parsing.check_router_name(name))
    return name


def only_router(store: Store) -> str:
    """The one router of a store."""
    rows = store.routers(limit=2)
    if len(rows) != 1:
        raise RouterNotFound(
            f"there are {'several routers' if rows else 'no routers'}; "
            "name the one that is meant with ?router=NAME or a header Bylot-Router"
        )
    return rows[0].name


async def find_event(call: ApiRequest[Any, RouterQuery], scope: Scope) -> str:
    """The id of the decision that an event is: by the caller's own name for it, or by ours."""
    name, key = await choose_router(call, scope), call.about
    found = await call.service.reader.read(lambda store: decision_for_key(store, name, key))
    if found is not None:
        return found
    if request_parsing.check_decision_id(key).partition(".")[0] != name:
        raise DecisionNotFound(f"router {name!r} has no event {key!r}")
    return key


def decision_for_key(store: Store, name: str, key: str) -> str | None:
    """The decision that was made under a key."""
    row = store.find(name)
    if row is None or len(key) > api.MAX_TEXT_CHARS or not request_parsing.KEY_REGEX.search(key):
        return None
    decided = store.decision_by_key(row.number, key)
    return None if decided is None else f"{name}.{row.number}.{decided.seq}"
