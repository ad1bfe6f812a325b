"""Commands to stored routers, router names and decision ids (NAME.NUMBER.SEQ)."""

import re
from typing import NamedTuple

from msgspec import Struct

from bylot.router.config import RouterConfig


class CreateRouter(Struct, frozen=True):
    """-> RouterView"""

    name: str
    config: RouterConfig
    by: str | None = None


class DeleteRouter(Struct, frozen=True):
    """-> None"""

    name: str
    by: str | None = None


class EditRouter(Struct, frozen=True):
    """Change the configuration; `version`, if given, must be the one in force. -> RouterView"""

    name: str
    config: RouterConfig  # its version is ignored: it will be the next
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
    """-> RewardReceipt"""

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
    """-> DecisionRecord"""

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


ROUTER_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
DECISION_ID_PATTERN = re.compile(
    rf"({ROUTER_NAME_PATTERN.pattern})\.(0|[1-9][0-9]{{0,17}})\.([1-9][0-9]{{0,17}})", re.ASCII
)


class DecisionId(NamedTuple):
    """A decision: the name and number of its router, and its event in that router's log.

    A name can be reused for another router, a number never.
    """

    name: str
    number: int
    seq: int

    def __str__(self) -> str:
        return f"{self.name}.{self.number}.{self.seq}"


def decision_id_from_text(text: str) -> DecisionId | None:
    """Parse an id; None if no decision can have it.

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
    """Whether a router can have this name.

    >>> is_router_name("triage-2"), is_router_name("Triage"), is_router_name("")
    (True, False, False)
    """
    return ROUTER_NAME_PATTERN.fullmatch(text) is not None
