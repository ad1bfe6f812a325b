"""Commands to stored routers, router names and decision ids (NAME.NUMBER.SEQ.TAG)."""

import re
from typing import NamedTuple

from msgspec import Struct

from bylot.api import NAME_CHARS, NAME_PATTERN
from bylot.errors import DecisionError, StoreError
from bylot.eventlog.config_validation import PreparedConfig
from bylot.limits.keys import NO_KEYS, KeyNames
from bylot.problem import Limit
from bylot.router.config import RouterConfig
from bylot.router.feedback import SpendReport
from bylot.router.past_rounds import PastRound
from bylot.store import Event


class CommandBase(Struct, frozen=True, kw_only=True):
    """What all commands have.

    by:     the API key of the caller
    holder: the part of the server that sends the command, such as "gateway"; None: a caller. No
            request of a caller has it. A decision is held by the part that made it
    """

    by: str | None = None
    holder: str | None = None


class RouterCommand(CommandBase, frozen=True):
    """A command to the router of this name."""

    name: str


class DecisionCommand(CommandBase, frozen=True):
    """A command about one decision."""

    id: str

    @property
    def name(self) -> str:
        """The name of its router."""
        return self.id.partition(".")[0]


Command = RouterCommand | DecisionCommand


class CreateRouter(RouterCommand, frozen=True):
    """-> RouterView

    prepared: the same configuration, validated before, so that other commands need not wait
    """

    config: RouterConfig
    prepared: PreparedConfig | None = None


class DeleteRouter(RouterCommand, frozen=True):
    """-> None"""


class EditRouter(RouterCommand, frozen=True):
    """Change the configuration; `version`, if given, must be the one in force. -> RouterView

    prepared: as in `CreateRouter`
    """

    config: RouterConfig  # its version is ignored: it will be the next
    version: int | None = None
    prepared: PreparedConfig | None = None


class GetRouter(RouterCommand, frozen=True):
    """-> RouterView"""


class MakeDecision(RouterCommand, frozen=True):
    """-> Decision"""

    context: str | None = None
    available: tuple[str, ...] | None = None
    key: str | None = None
    defer: bool = False
    keys: KeyNames = NO_KEYS


class LearnRounds(RouterCommand, frozen=True):
    """Learn rounds of a log, of which `after` were learned before. -> RouterView"""

    rounds: tuple[PastRound, ...]
    after: int


class SetTenant(RouterCommand, frozen=True):
    """Give a tenant bounds of its own; without limits, those of all apply again. -> TenantView"""

    tenant: str
    limits: tuple[Limit, ...] = ()


class GetTenant(RouterCommand, frozen=True):
    """-> TenantView"""

    tenant: str


class ListTenants(RouterCommand, frozen=True):
    """-> TenantList"""

    after: str = ""
    limit: int = 100


class RecordReward(DecisionCommand, frozen=True):
    """-> RewardReceipt"""

    value: float | None
    spend: SpendReport | None = None
    key: str | None = None
    members: dict[str, float] | None = None
    winner: str | None = None


class ReplaceMember(DecisionCommand, frozen=True):
    """Let another expert take the place of a member that failed. -> Decision"""

    failed: str
    available: tuple[str, ...] | None = None


class ActivateDecision(DecisionCommand, frozen=True):
    """-> Decision"""


class CancelDecision(DecisionCommand, frozen=True):
    """-> Decision"""


class GetDecision(DecisionCommand, frozen=True):
    """-> DecisionRecord"""


DECISION_TAG_CHARS = 8
ROUTER_NAME_REGEX = re.compile(NAME_PATTERN)
DECISION_ID_REGEX = re.compile(
    rf"({NAME_CHARS})\.(0|[1-9][0-9]{{0,17}})\.([1-9][0-9]{{0,17}})\.([0-9a-f]{{{DECISION_TAG_CHARS}}})"
)


class DecisionId(NamedTuple):
    """A decision: the name and number of its router, its event in that router's log, and the
    first hexadecimal digits of the event's seal.

    A name can be reused for another router. After a store was restored from a backup, numbers are
    used again too; the tags of other decisions differ.
    """

    name: str
    number: int
    seq: int
    tag: str


def format_decision_id(name: str, event: Event) -> str:
    """The id of the decision that an event of the router of this name made."""
    return f"{name}.{event.router}.{event.seq}.{event.seal.hex()[:DECISION_TAG_CHARS]}"


def decision_id_from_text(text: str) -> DecisionId | None:
    """Parse an id; None if no decision can have it.

    >>> decision_id_from_text("triage.7.12.9f3ab01c")
    DecisionId(name='triage', number=7, seq=12, tag='9f3ab01c')
    >>> decision_id_from_text("triage.7.012.9f3ab01c"), decision_id_from_text("d12")
    (None, None)
    """
    found = DECISION_ID_REGEX.fullmatch(text)
    if found is None:
        return None
    name, number, seq, tag = found.groups()
    return DecisionId(name, int(number), int(seq), tag)


def is_router_name(text: str) -> bool:
    """Whether a router can have this name.

    >>> is_router_name("triage-2"), is_router_name("Triage"), is_router_name("")
    (True, False, False)
    """
    return ROUTER_NAME_REGEX.search(text) is not None


def check_router_name(name: str) -> None:
    """Refuse a name that no router can have."""
    if not is_router_name(name):
        raise StoreError(
            "router name",
            got=name,
            expected="lower-case letters, digits, - and _, at most 63, a letter or digit first",
        )


def check_storable_text(what: str, text: str | None) -> None:
    """Refuse a value that is not a text, or cannot be encoded, such as a lone surrogate."""
    if text is None or (isinstance(text, str) and text.isascii()):
        return
    try:
        text.encode()
    except (AttributeError, UnicodeError):
        raise DecisionError(what, got=text, expected="a text that can be stored") from None
