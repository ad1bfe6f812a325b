"""The section "Members" of a router that has a gateway: how its models have done so far."""

import math
from collections.abc import Iterable

from msgspec import Struct

from bylot.eventlog.events import format_timestamp
from bylot.gateway.chat import MODEL_PREFIX
from bylot.gateway.gateway import RouterGateway
from bylot.gateway.health import Pause
from bylot.gateway.member_stats import MemberView

MAX_MEMBER_ROWS = 200


class FailureCount(Struct, frozen=True):
    """How many calls failed for one reason."""

    reason: str
    count: int


class MemberRow(Struct, frozen=True, kw_only=True):
    """A member of the table.

    state:    available, paused, being tried, or no model
    sentence: the state in words, such as `paused for 12 s`
    failures: the most frequent reasons first
    """

    name: str
    state: str
    sentence: str
    asked: int
    answered: int
    answered_share: float | None
    won: int
    mean_score: float | None
    median_s: float | None
    p99_s: float | None
    cost_per_1000_wins: float | None
    failures: list[FailureCount]


class MembersTable(Struct, frozen=True, kw_only=True):
    """The members of a gateway, the most asked first, since the server started.

    model:     what callers ask for
    paused:    how many members are paused or being tried
    unanswered: panels of which no member has answered
    unscored:  those that the scorer did not score
    unsettled: those whose scores and costs were not stored
    members_left: without a row
    """

    model: str
    since: str
    panels: int
    quorum_misses: int
    unanswered: int
    unscored: int
    unsettled: int
    paused: int
    members_left: int
    rows: list[MemberRow]


def build_members(gateway: RouterGateway, experts: Iterable[str]) -> MembersTable:
    """The table of a router; experts: of its present configuration."""
    views = sorted(gateway.list_members(experts), key=lambda one: -one.asked)
    return MembersTable(
        model=model_name(gateway.router),
        since=format_timestamp(int(1_000_000 * gateway.gateway.since)),
        panels=gateway.stats.requests,
        quorum_misses=gateway.stats.quorum_misses,
        unanswered=gateway.stats.unanswered,
        unscored=gateway.stats.unscored,
        unsettled=gateway.stats.settlement_failures,
        paused=sum(one.pause is not None for one in views),
        members_left=max(0, len(views) - MAX_MEMBER_ROWS),
        rows=[member_row(one) for one in views[:MAX_MEMBER_ROWS]],
    )


def model_name(router: str) -> str:
    """The model that callers ask for to reach a router."""
    return MODEL_PREFIX + router


def member_row(view: MemberView) -> MemberRow:
    state, sentence = describe_pause(view.pause)
    if not view.has_model:
        state, sentence = "no model", "not in model_list"
    failures = [FailureCount(word.replace("_", " "), n) for word, n in view.failed.items()]
    return MemberRow(
        name=view.name,
        state=state,
        sentence=sentence,
        asked=view.asked,
        answered=view.answered,
        answered_share=view.answered_share,
        won=view.won,
        mean_score=view.mean_score,
        median_s=view.median_s,
        p99_s=view.p99_s,
        cost_per_1000_wins=None if view.cost_per_win is None else 1_000 * view.cost_per_win,
        failures=failures,
    )


def describe_pause(pause: Pause | None) -> tuple[str, str]:
    """The state of a member, and a sentence.

    >>> describe_pause(Pause(left_s=11.2, trying=False)), describe_pause(None)
    (('paused', 'paused for 12 s'), ('available', 'available'))
    """
    if pause is None:
        return "available", "available"
    if pause.trying:
        return "being tried", "being tried"
    if pause.left_s > 0:
        return "paused", f"paused for {math.ceil(pause.left_s)} s"
    return "paused", "tried with the next panel"
