"""The section "Members" of a router that has a gateway: how its models have done so far."""

import math
from collections.abc import Iterable

from msgspec import Struct

from bylot.eventlog.events import format_timestamp
from bylot.gateway.asking import Pause
from bylot.gateway.chat import MODEL_PREFIX
from bylot.gateway.gateway import RouterGateway

MAX_MEMBER_ROWS = 200


class FailureCount(Struct, frozen=True):
    """How many calls failed for one reason."""

    reason: str
    count: int


class MemberRow(Struct, frozen=True, kw_only=True):
    """A member of the table.

    state:    available, paused, being tried, or no model
    sentence: the state in words, such as `paused for 12 s`
    answered_share: of the calls; None: it was not asked
    median_s, p99_s: of its latest answers; None: it has none
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
    stats = gateway.stats
    asked = [name for name, one in stats.members.items() if one.asked]
    known = dict.fromkeys((*experts, *asked))
    names = sorted(known, key=lambda name: -stats.members[name].asked)
    return MembersTable(
        model=model_name(gateway.router),
        since=format_timestamp(int(1_000_000 * gateway.gateway.since)),
        panels=stats.requests,
        quorum_misses=stats.quorum_misses,
        unanswered=stats.unanswered,
        unscored=stats.unscored,
        unsettled=stats.settlement_failures,
        paused=sum(gateway.health.find_pause(name) is not None for name in names),
        members_left=max(0, len(names) - MAX_MEMBER_ROWS),
        rows=[make_row(gateway, name) for name in names[:MAX_MEMBER_ROWS]],
    )


def model_name(router: str) -> str:
    """The model that callers ask for to reach a router."""
    return MODEL_PREFIX + router


def make_row(gateway: RouterGateway, name: str) -> MemberRow:
    """The row of a member: its counters since the server started, and its state now."""
    stats = gateway.stats.members[name]
    state, sentence = describe_pause(gateway.health.find_pause(name))
    if name not in gateway.gateway.client.models:
        state, sentence = "no model", "not in model_list"
    times = sorted(stats.seconds)
    last = len(times) - 1
    return MemberRow(
        name=name,
        state=state,
        sentence=sentence,
        asked=stats.asked,
        answered=stats.answered,
        answered_share=stats.answered / stats.asked if stats.asked else None,
        won=stats.won,
        mean_score=stats.score_sum / stats.scored if stats.scored else None,
        median_s=times[last // 2] if times else None,
        p99_s=times[round(0.99 * last)] if times else None,
        cost_per_1000_wins=1_000 * (stats.cost / stats.won) if stats.won else None,
        failures=[
            FailureCount(word.replace("_", " "), n) for word, n in stats.failed.most_common()
        ],
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
