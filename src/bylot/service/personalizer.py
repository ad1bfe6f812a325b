"""Rank and reward as clients of Azure AI Personalizer send them, served by a router."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from bylot.durable.commands import Activate, Decide, Decision, Reward
from bylot.errors import DecisionError, NoSuchDecision, NoSuchRouter
from bylot.service import limits
from bylot.service.credentials import Scope
from bylot.service.decisions import count_decision, count_reward
from bylot.service.endpoint import Answer, Call, told
from bylot.service.errors import Refusal
from bylot.service.types import Experts, Key, Label
from bylot.store import Store


class Action(Struct, frozen=True):
    """An expert; its features are not looked at."""

    id: Label
    features: list[Any] = []


class RankForm(Struct, frozen=True, rename="camel"):
    """Actions must be experts of the router; features of the context become its name."""

    actions: Annotated[tuple[Action, ...], Meta(min_length=1, max_length=limits.EXPERTS)]
    context_features: Annotated[list[dict[str, Any]], Meta(max_length=50)] = []
    excluded_actions: Experts = ()
    event_id: Key | None = None
    defer_activation: bool = False


class Ranked(Struct, frozen=True):
    """A member of the panel, and the chance that it had to be in it; null: not told."""

    id: str
    probability: float | None


class Ranking(Struct, frozen=True, rename="camel"):
    """The panel; all of it is to be asked, of which `rewardActionId` is the first."""

    ranking: tuple[Ranked, ...]
    event_id: str
    reward_action_id: str


class ValueForm(Struct, frozen=True):
    """How well an event went."""

    value: float


class Which(Struct, frozen=True):
    """The router, if there are several; a header Bylot-Router says the same."""

    router: Annotated[str, Meta(max_length=63)] | None = None


async def rank(call: Call[RankForm, Which]) -> Answer:
    """Draw a panel from the actions that are not excluded."""
    form, name = call.form, await chosen(call, "decide")
    if "/" in (form.event_id or ""):
        message = (
            f"eventId {form.event_id!r} has a slash, and is to be part of a path; leave it out"
        )
        raise Refusal(422, "invalid", message, field="eventId")
    excluded = set(form.excluded_actions)
    available = tuple(one.id for one in form.actions if one.id not in excluded)
    if not available:
        raise DecisionError("all actions are excluded, so there is nobody to draw")
    command = Decide(
        name,
        context(form.context_features),
        available,
        form.event_id,
        form.defer_activation,
        call.who.id,
    )
    decision: Decision = await call.service.desk.ask(command)
    count_decision(call.service, name)
    told_of = decision.inclusion or {}
    panel = tuple(Ranked(one, told_of.get(one)) for one in decision.subset)
    return told(201, Ranking(panel, form.event_id or decision.id, panel[0].id))


def context(features: list[dict[str, Any]]) -> str | None:
    """The name of a context: its features, written out in order of their names.

    >>> context([{"device": "phone", "user": {"plan": "free"}}, {"hour": 9}])
    'device=phone,hour=9,user.plan=free'
    """
    flat = sorted(pair for one in features for pair in flattened(one, ""))
    name = ",".join(f"{feature}={value}" for feature, value in flat)
    if len(name) > limits.TEXT or not limits.LINE.search(name):
        message = (
            f"contextFeatures written out are {len(name)} characters; a context is a name of at "
            f"most {limits.TEXT} printable ones: send fewer, coarser features"
        )
        raise Refusal(422, "invalid", message, field="contextFeatures")
    return name or None


def flattened(features: dict[str, Any], above: str) -> list[tuple[str, str]]:
    """Features by their full names."""
    flat: list[tuple[str, str]] = []
    for name, value in features.items():
        if isinstance(value, dict):
            flat += flattened(value, f"{above}{name}.")
        else:
            flat.append((above + name, str(value)))
    return flat


async def reward(call: Call[ValueForm, Which]) -> Answer:
    """Tell how well an event went."""
    command = Reward(await event(call, "reward"), call.form.value, by=call.who.id)
    count_reward(call.service, await call.service.desk.ask(command))
    return Answer(204, headers=())


async def activate(call: Call[None, Which]) -> Answer:
    """A deferred event is being used after all."""
    await call.service.desk.ask(Activate(await event(call, "decide"), call.who.id))
    return Answer(204, headers=())


async def chosen(call: Call[Any, Which], scope: Scope) -> str:
    """The router that is meant: as the parameter or the header says, or the only one there is."""
    named = call.headers.get(b"bylot-router", b"").decode("latin-1")
    name = call.query.router or named
    if not name:
        name = await call.service.reader.read(only)
    call.who.check(scope, limits.router(name))
    return name


def only(store: Store) -> str:
    """The one router of a store."""
    rows = store.routers(limit=2)
    if len(rows) != 1:
        raise NoSuchRouter(
            f"there are {'several routers' if rows else 'no routers'}; "
            "name the one that is meant with ?router=NAME or a header Bylot-Router"
        )
    return rows[0].name


async def event(call: Call[Any, Which], scope: Scope) -> str:
    """The id of the decision that an event is: by the caller's own name for it, or by ours."""
    name, key = await chosen(call, scope), call.about
    found = await call.service.reader.read(lambda store: keyed(store, name, key))
    if found is not None:
        return found
    if limits.decision(key).partition(".")[0] != name:
        raise NoSuchDecision(f"router {name!r} has no event {key!r}")
    return key


def keyed(store: Store, name: str, key: str) -> str | None:
    """The decision that was made under a key."""
    row = store.find(name)
    if row is None or len(key) > limits.TEXT or not limits.KEYED.search(key):
        return None
    decided = store.keyed(row.number, key)
    return None if decided is None else f"{name}.{row.number}.{decided.seq}"
