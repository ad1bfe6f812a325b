"""What a keeper of routers can be asked, and what it answers."""

from typing import Any, Literal

from msgspec import Struct

from bylot.durable.bodies import Receipt
from bylot.durable.terms import Terms

State = Literal["deferred", "waiting", "rewarded", "cancelled", "closed"]


class Create(Struct, frozen=True):
    """-> RouterView"""

    name: str
    terms: Terms
    by: str | None = None


class Delete(Struct, frozen=True):
    """-> None"""

    name: str
    by: str | None = None


class Edit(Struct, frozen=True):
    """Other terms; `version`, if given, must be that of the terms in force. -> RouterView"""

    name: str
    terms: Terms  # its version is ignored: it will be the next
    version: int | None = None
    by: str | None = None


class Decide(Struct, frozen=True):
    """-> Decision"""

    name: str
    context: str | None = None
    available: tuple[str, ...] | None = None
    key: str | None = None
    defer: bool = False
    by: str | None = None


class Reward(Struct, frozen=True):
    """-> Credited"""

    id: str
    value: float
    spend: dict[str, float] | None = None
    key: str | None = None
    by: str | None = None


class Activate(Struct, frozen=True):
    """-> Decision"""

    id: str
    by: str | None = None


class Cancel(Struct, frozen=True):
    """-> Decision"""

    id: str
    by: str | None = None


class Recall(Struct, frozen=True):
    """-> Recalled"""

    id: str


class Show(Struct, frozen=True):
    """-> RouterView"""

    name: str


Command = Create | Delete | Edit | Decide | Reward | Activate | Cancel | Recall | Show


class Decision(Struct, frozen=True, kw_only=True):
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


class Told(Struct, frozen=True, kw_only=True):
    """One reward that was told of a decision."""

    at: str
    value: float
    receipt: Receipt
    spend: dict[str, float] | None
    key: str | None
    by: str | None


class Recalled(Struct, frozen=True, kw_only=True):
    """A decision, and what became of it.

    learned: the value that counted in the end, if it is over and one did: a reward, what several
             came to, or the default
    """

    decision: Decision
    state: State
    rewards: tuple[Told, ...]
    learned: float | None = None


class Credited(Struct, frozen=True, kw_only=True):
    """What became of a reward."""

    decision: str
    receipt: Receipt
    value: float


class RouterView(Struct, frozen=True, kw_only=True):
    """A router at one moment: its terms, and how it stands."""

    name: str
    number: int
    created: str
    seq: int  # of the last line of its log
    terms: Terms
    status: dict[str, Any]  # plain data of `durable.standing`
