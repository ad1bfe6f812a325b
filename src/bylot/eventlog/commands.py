"""What a keeper of routers can be asked, and what it answers."""

import re
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from bylot.eventlog.events import ReceiptName
from bylot.router.config import RouterConfig

DecisionState = Literal["deferred", "waiting", "rewarded", "cancelled", "closed"]


class CreateRouter(Struct, frozen=True):
    """-> RouterView"""

    name: str
    terms: RouterConfig
    by: str | None = None


class DeleteRouter(Struct, frozen=True):
    """-> None"""

    name: str
    by: str | None = None


class EditRouter(Struct, frozen=True):
    """Other terms; `version`, if given, must be that of the terms in force. -> RouterView"""

    name: str
    terms: RouterConfig  # its version is ignored: it will be the next
    version: int | None = None
    by: str | None = None


class MakeDecision(Struct, frozen=True):
    """-> Decision"""

    name: str
    context: str | None = None
    available: tuple[str, ...] | None = None
    key: str | None = None
    defer: bool = False
    by: str | None = None


class GiveReward(Struct, frozen=True):
    """-> Credited"""

    id: str
    value: float
    spend: dict[str, float] | None = None
    key: str | None = None
    by: str | None = None


class ActivateDecision(Struct, frozen=True):
    """-> Decision"""

    id: str
    by: str | None = None


class CancelDecision(Struct, frozen=True):
    """-> Decision"""

    id: str
    by: str | None = None


class RecallDecision(Struct, frozen=True):
    """-> Recalled"""

    id: str


class ShowRouter(Struct, frozen=True):
    """-> RouterView"""

    name: str


Command = (
    CreateRouter
    | DeleteRouter
    | EditRouter
    | MakeDecision
    | GiveReward
    | ActivateDecision
    | CancelDecision
    | RecallDecision
    | ShowRouter
)


class StoredDecision(Struct, frozen=True, kw_only=True):
    """A decision as its caller gets it: a function of the log alone, so the same at any time.

    odds:      as `bylot.Decision.odds`: of each draw, or to be in the set; empty where not told
    inclusion: the chance that each member of the subset had to be in the panel, before it was
               drawn; null where the policy tells no chances
    chance:    of the whole panel, likewise
    """

    id: str
    router: str
    version: int  # of the router's terms
    t: int
    at: str  # RFC 3339, UTC
    context: str | None
    draws: tuple[str, ...]
    subset: tuple[str, ...]
    odds: tuple[float, ...]
    inclusion: dict[str, float] | None
    chance: float | None
    spend: dict[str, float]
    expected: dict[str, float]
    feasible: bool
    replaced: bool
    deferred: bool
    key: str | None = None


class RewardRecord(Struct, frozen=True, kw_only=True):
    """One reward that was told of a decision."""

    at: str
    value: float
    receipt: ReceiptName
    spend: dict[str, float] | None
    key: str | None
    by: str | None


class DecisionRecord(Struct, frozen=True, kw_only=True):
    """A decision, and what became of it.

    learned: the value that counted in the end, if it is over and one did: a reward, what several
             came to, or the default
    """

    decision: StoredDecision
    state: DecisionState
    rewards: tuple[RewardRecord, ...]
    learned: float | None = None


class RewardReceipt(Struct, frozen=True, kw_only=True):
    """What became of a reward."""

    decision: str
    receipt: ReceiptName
    value: float


class RouterView(Struct, frozen=True, kw_only=True):
    """A router at one moment: its terms, and how it stands."""

    name: str
    number: int
    created: str
    seq: int  # of the last line of its log
    terms: RouterConfig
    status: dict[str, Any]  # plain data of `durable.standing`


ROUTER_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
DECISION_ID_PATTERN = re.compile(
    rf"({ROUTER_NAME_PATTERN.pattern})\.(0|[1-9][0-9]{{0,17}})\.([1-9][0-9]{{0,17}})", re.ASCII
)


class DecisionId(NamedTuple):
    """Which decision: of which router, by name and by number, and its line in that one's log.

    A name can be used again for another router, a number never.
    """

    name: str
    number: int
    seq: int

    def __str__(self) -> str:
        return f"{self.name}.{self.number}.{self.seq}"


def decision_id_from_text(text: str) -> DecisionId | None:
    """The id that this is, None if no decision can have it.

    >>> (
    ...     decision_id_from_text("triage.7.12"),
    ...     decision_id_from_text("triage.7.012"),
    ...     decision_id_from_text("d12"),
    ... )
    (DecisionId(name='triage', number=7, seq=12), None, None)
    """
    found = DECISION_ID_PATTERN.fullmatch(text)
    return DecisionId(found[1], int(found[2]), int(found[3])) if found else None


def is_router_name(text: str) -> bool:
    """Can a router be called so?

    >>> is_router_name("triage-2"), is_router_name("Triage"), is_router_name("")
    (True, False, False)
    """
    return ROUTER_NAME_PATTERN.fullmatch(text) is not None
