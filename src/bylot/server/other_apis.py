"""Endpoints in the shape of other APIs: feedback of other routers as rewards of decisions, and the
rank and reward API of Azure AI Personalizer, served by a router.

TensorZero, `POST /feedback`:

| field | becomes |
|---|---|
| `inference_id` | the id of the decision |
| `metric_name` | the key of the reward; `comment` and `demonstration` are no rewards: refused |
| `value` | the reward, in the range of the router; true is 1 and false is 0 |
| `dryrun` | decision and value are checked, nothing is stored |
| `episode_id` | refused: decisions have no episodes |
| `tags` | ignored |

vLLM semantic router, `POST /v1/router/outcomes`:

| field | becomes |
|---|---|
| `replay_id` | the id of the decision |
| `target` | `model` or `route`; others are refused, they say nothing about the panel |
| `target_ref` | with `model`, the member that is judged; without it, the panel is |
| `verdict` | the score: 1 for good_fit and overprovisioned, 0 for underpowered and failed |
| `score` | the score, in place of that of the verdict |
| header `Idempotency-Key` | the key of the reward |
| `source` | without that header, part of the key, with `target` and `target_ref` |
| `target_revision`, `reason`, `metadata` | ignored |

A score is scaled to the range of the router's rewards. It is the score of the member if the router
was created for scores of members, and otherwise the reward of the panel, which names the member as
its winner if the router was created for winners and the score is above 0. An overprovisioned model
has answered well: what it costs is the business of the limits.
"""

import math
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import Meta, Struct

from bylot import api
from bylot.errors import DecisionError, DecisionNotFound, RouterNotFound
from bylot.eventlog.commands import (
    ActivateDecision,
    GetDecision,
    MakeDecision,
    RecordReward,
    format_decision_id,
)
from bylot.gateway.gateway import read_facts
from bylot.gateway.settlement import RouterFacts
from bylot.server.endpoint import (
    ApiRequest,
    HttpResponse,
    find_target_router,
    json_response,
    route,
)
from bylot.server.http_errors import ApiError, invalid
from bylot.server.request_parsing import (
    KEY_REGEX,
    check_decision_id,
    check_router_name,
    normalize_label,
    parse_idempotency_key,
)
from bylot.server.router_port import execute_counted
from bylot.server.settings import Scope

FEEDBACK_NAMESPACE = uuid.UUID("6f0a1d5e-7c1b-5f0e-9a55-0b7c5c1d2e3f")
VERDICT_SCORES = {"good_fit": 1.0, "overprovisioned": 1.0, "underpowered": 0.0, "failed": 0.0}


class FeedbackRequest(Struct, frozen=True):
    """Feedback of TensorZero: one metric of one decision."""

    metric_name: api.IdempotencyKey
    value: Any
    inference_id: api.SettingText | None = None
    episode_id: Any = None
    dryrun: bool | None = None
    tags: dict[str, Any] | None = None


class FeedbackReceipt(Struct, frozen=True):
    """The id of the feedback: the same for the same decision and metric."""

    feedback_id: str


class OutcomeRequest(Struct, frozen=True):
    """An outcome of vLLM's semantic router: what a model, or the panel, was worth."""

    replay_id: api.SettingText
    target: Literal["model", "route", "policy", "stability", "provider", "router"]
    verdict: Literal["good_fit", "overprovisioned", "underpowered", "failed"]
    target_ref: api.LabelText | None = None
    score: Annotated[float, Meta(ge=0, le=1)] | None = None
    source: api.LabelText | None = None
    target_revision: int | None = None
    reason: str | None = None
    metadata: dict[str, Any] | None = None


class OutcomeReceipt(Struct, frozen=True):
    """The id of the outcome; duplicate: it was known already."""

    id: str
    replay_id: str
    duplicate: bool


@route("POST /feedback", "reward", 200, FeedbackReceipt, 404, 409)
async def create_feedback(request: ApiRequest[FeedbackRequest, None]) -> HttpResponse:
    """Report a metric of a decision as its reward, in the shape of TensorZero."""
    body = request.body
    if body.episode_id is not None:
        raise invalid("episode_id", "episode_id is not supported: give an inference_id")
    if body.inference_id is None:
        raise invalid("inference_id", "inference_id is missing: give the id of the decision")
    if body.metric_name in ("comment", "demonstration"):
        raise invalid(
            "metric_name",
            f"metric_name {body.metric_name!r} is not supported: only rewards are stored",
        )
    if not isinstance(body.value, bool | int | float) or not is_finite(body.value):
        raise invalid("value", "value must be a number, true or false")
    request.caller.check("reward", find_target_router(body.inference_id))
    command = RecordReward(
        check_decision_id(body.inference_id),
        float(body.value),
        key=body.metric_name,
        by=request.caller.id,
    )
    if body.dryrun:
        await check_reward(request, command)
    else:
        await execute_counted(request.state.commands, request.state.metrics, command)
    return json_response(200, FeedbackReceipt(make_feedback_id(command)))


@route("POST /v1/router/outcomes", "reward", 201, OutcomeReceipt, 404, 409, has_key_header=True)
async def create_outcome(request: ApiRequest[OutcomeRequest, None]) -> HttpResponse:
    """Report the outcome of a decision as its reward, in the shape of vLLM's semantic router."""
    body = request.body
    if body.target not in ("model", "route"):
        raise invalid(
            "target", f"target {body.target!r} is not supported: give model, or route for the panel"
        )
    router = find_target_router(body.replay_id)
    request.caller.check("reward", router)
    id = check_decision_id(body.replay_id)
    found: api.DecisionRecord = await request.state.commands.execute(GetDecision(id))
    member, panel = body.target_ref if body.target == "model" else None, found.decision.subset
    if member is not None and member not in panel:
        raise invalid(
            "target_ref", f"target_ref {member!r} is no member of the panel: {', '.join(panel)}"
        )
    facts = await request.state.reader.read(lambda store: read_facts(store, router))
    key = parse_idempotency_key(request.headers.get(b"idempotency-key"), None)
    score = VERDICT_SCORES[body.verdict] if body.score is None else body.score
    report = make_outcome_report(score, member, facts)
    command = RecordReward(id, key=key or make_outcome_key(body), by=request.caller.id, **report)
    receipt = await execute_counted(request.state.commands, request.state.metrics, command)
    made = OutcomeReceipt(make_feedback_id(command), id, receipt.receipt == "duplicate")
    return json_response(201, made)


def make_outcome_report(score: float, member: str | None, facts: RouterFacts) -> dict[str, Any]:
    """A score in the range of the router, in the kind of feedback that it was created for.

    >>> facts = RouterFacts(1, ("a", "b"), {}, "members", (0.0, 10.0))
    >>> make_outcome_report(0.5, "a", facts)
    {'value': None, 'members': {'a': 5.0}}
    >>> make_outcome_report(0.5, "a", facts._replace(feedback="winner"))
    {'value': 5.0, 'winner': 'a'}
    """
    low, high = facts.rewards
    value = low + score * (high - low)
    if member is not None and facts.feedback == "members":
        return {"value": None, "members": {member: value}}
    if member is not None and facts.feedback == "winner" and score > 0:
        return {"value": value, "winner": member}
    return {"value": value}


def make_outcome_key(body: OutcomeRequest) -> str:
    """The key of an outcome that has none: one for each source and target.

    >>> make_outcome_key(OutcomeRequest("id", "model", "failed", "a b", source="user"))
    'outcome:user:model:a%20b'
    """
    parts = body.source or "", body.target, body.target_ref or ""
    return ":".join(["outcome", *(quote(one)[: api.MAX_TEXT_CHARS // 4] for one in parts)])


async def check_reward(request: ApiRequest[Any, None], command: RecordReward) -> None:
    """Check a reward that is not to be stored."""
    await request.state.commands.execute(GetDecision(command.id))
    facts = await request.state.reader.read(lambda store: read_facts(store, command.name))
    low, high = facts.rewards
    if command.value is not None and not low <= command.value <= high:
        raise invalid("value", f"value must be a number in [{low:g}, {high:g}]")


def make_feedback_id(command: RecordReward) -> str:
    """The same id for the same decision and key."""
    return str(uuid.uuid5(FEEDBACK_NAMESPACE, f"{command.id} {command.key}"))


def is_finite(value: float) -> bool:
    """Whether a number can be a reward; integers may be too large for a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


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
    name = ",".join(f"{feature}={value}" for feature, value in sorted(flatten_features(features)))
    if len(name) > api.MAX_TEXT_CHARS or not name.isprintable():
        raise features_error()
    return normalize_label(name, "contextFeatures") or None


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
    name = request.query.router or request.headers.get(b"bylot-router", b"").decode("latin-1")
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
    request.caller.check(scope, check_router_name(name))
    return name


async def find_event(request: ApiRequest[Any, RouterQuery], scope: Scope) -> str:
    """The id of a decision, from the caller's event id (its key) or from our own id."""
    name, key = await choose_router(request, scope), request.target
    if len(key) <= api.MAX_TEXT_CHARS and KEY_REGEX.search(key):
        event = await request.state.reader.read_router(
            name, lambda store, number: store.decision_by_key(number, key)
        )
        if event is not None:
            return format_decision_id(name, event)
    if check_decision_id(key).partition(".")[0] != name:
        raise DecisionNotFound(f"router {name!r} has no event {key!r}")
    return key
