"""Feedback in the shape of other routers' APIs, as rewards of decisions.

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
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import Meta, Struct

from bylot import api
from bylot.eventlog.commands import GetDecision, RecordReward
from bylot.gateway.gateway import read_facts
from bylot.gateway.settlement import RouterFacts
from bylot.server.endpoint import (
    ApiRequest,
    HttpResponse,
    find_target_router,
    json_response,
    route,
)
from bylot.server.http_errors import invalid
from bylot.server.request_parsing import check_decision_id, parse_idempotency_key
from bylot.server.router_port import execute_counted

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
