"""All that the page of a router shows, and its twin in JSON says."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from bylot.durable.commands import Recalled, RouterView
from bylot.service.pages.amendments import Amendment, amendments, brief
from bylot.service.pages.course import Span, course
from bylot.service.pages.gauges import Promise, kept, promises, worst
from bylot.service.pages.laws import Law, label, law
from bylot.service.pages.source import Amended

LATEST = 25
"""Decisions that the page shows."""


class Period(Struct, frozen=True):
    """Where a policy that guards its limits stands in time."""

    length: int
    played: int
    part: float


class Tally(Struct, frozen=True, kw_only=True):
    """Decisions and rewards, counted."""

    decisions: int
    rewards: int
    mean_reward: float | None
    waiting: int  # for their reward
    deferred: int  # not in use yet
    cancelled: int
    missing: int  # their time ran out without a reward, and nothing was learned
    defaulted: int  # the default was learned instead
    late: int  # rewards that came after that
    noted: int  # rewards that were not the one to learn from
    contexts: int
    infeasible: int  # decisions at which some limit was out of reach
    replaced: int  # panels, by the guard


class Member(Struct, frozen=True):
    """An expert of a panel, and the odds it was drawn with."""

    expert: str
    odds: float | None


class Item(Struct, frozen=True):
    """What a panel cost, under one name."""

    cost: str
    value: float


class Latest(Struct, frozen=True, kw_only=True):
    """A decision, in a line."""

    id: str
    at: str
    context: str
    panel: list[Member]
    chance: float | None  # of the whole panel; None: not told
    spend: list[Item]  # as settled, where that was told
    state: str
    reward: float | None
    notes: str


class Sample(Struct, frozen=True):
    """What the latest decisions are worth if each is weighed by 1 / its chance."""

    decisions: int  # whose chance is told
    effective: float | None  # evenly drawn ones that would tell as much of all panels


class Setting(Struct, frozen=True):
    """One of the terms."""

    name: str
    value: str


class RouterPage(Struct, frozen=True, kw_only=True):
    """A router at one moment, as people look at it."""

    name: str
    created: str
    policy: str
    version: int
    position: int  # of the last line of its log
    state: str  # the worst of its limits'
    kept: int  # limits
    of: int
    tally: Tally
    range: tuple[float, float]
    period: Period | None
    limits: list[Promise]
    course: list[Span]
    law: Law
    sample: Sample
    latest: list[Latest]
    settings: list[Setting]
    amendments: list[Amendment]


def router_page(
    view: RouterView, latest: Sequence[Recalled], edits: Sequence[Amended]
) -> RouterPage:
    """The page of a router."""
    status, terms = view.status, view.terms
    limits = promises(status)
    return RouterPage(
        name=view.name,
        created=view.created,
        policy=terms.policy["name"],
        version=terms.version,
        position=view.seq,
        state=worst(limits),
        kept=kept(limits),
        of=len(limits),
        tally=tally(status),
        range=terms.rewards,
        period=period(status["period"]),
        limits=limits,
        course=course(status["course"], [one.cost for one in limits]),
        law=law(status, terms),
        sample=sample([one.decision.chance for one in latest]),
        latest=[line(one) for one in latest],
        settings=[Setting(*one) for one in settings(view)],
        amendments=amendments(edits),
    )


def tally(status: dict[str, Any]) -> Tally:
    """The counts."""
    counts = status["counts"]
    return Tally(
        decisions=status["decisions"],
        rewards=status["rewards"],
        mean_reward=status["mean_reward"],
        waiting=status["waiting"],
        deferred=status["deferred"],
        cancelled=counts["cancelled"],
        missing=counts["missing"],
        defaulted=counts["defaulted"],
        late=counts["late"],
        noted=counts["noted"],
        contexts=status["contexts"],
        infeasible=counts["infeasible"],
        replaced=counts["replaced"],
    )


def period(data: dict[str, Any] | None) -> Period | None:
    """Where the period stands; None where limits are not guarded."""
    if data is None:
        return None
    return Period(data["length"], data["played"], data["played"] / data["length"])


def line(past: Recalled) -> Latest:
    """A decision and what became of it."""
    one, spend = past.decision, dict(past.decision.spend)
    for told in past.rewards:
        spend |= told.spend or {}
    learned = [told.value for told in past.rewards if told.receipt != "late"]
    odds = one.odds or (None,) * len(one.draws)
    notes = {"replaced by the guard": one.replaced, "a limit out of reach": not one.feasible}
    return Latest(
        id=one.id,
        at=one.at,
        context=label(one.context),
        panel=[Member(name, chance) for name, chance in zip(one.draws, odds, strict=True)],
        chance=one.chance,
        spend=[Item(cost, value) for cost, value in spend.items()],
        state=past.state,
        reward=learned[-1] if learned else None,
        notes=", ".join(note for note, true in notes.items() if true),
    )


def sample(chances: Sequence[float | None]) -> Sample:
    """Kish's effective number, n = (sum w)^2 / sum w^2 with w = 1 / chance.

    >>> sample([0.5, 0.5, None]), sample([])
    (Sample(decisions=2, effective=2.0), Sample(decisions=0, effective=None))
    """
    weights = [1 / chance for chance in chances if chance is not None]
    squares = sum(one * one for one in weights)
    return Sample(len(weights), sum(weights) ** 2 / squares if weights else None)


def settings(view: RouterView) -> list[tuple[str, str]]:
    """The terms in force, a line each."""
    terms, problem = view.terms, view.terms.problem
    kept = {key: value for key, value in terms.policy.items() if key != "name"}
    return [
        ("experts", f"{len(problem['experts'])}, of whom {problem['draws']} are drawn"),
        ("policy", f"{terms.policy['name']} ({brief(kept)})" if kept else terms.policy["name"]),
        ("rewards", brief(terms.rewards)),
        ("wait for a reward", brief(terms.wait) + (" s" if terms.wait is not None else "")),
        ("reward if none came", brief(terms.default)),
        ("of several rewards", terms.aggregate),
        ("paused", ", ".join(terms.paused) or "nobody"),
        ("horizon", brief(terms.horizon)),
        ("seed", str(terms.seed)),
        ("contexts at most", brief(view.status["max_contexts"])),
        ("decisions held", brief(terms.memory)),
    ]
