"""Where the pages get what they show: the service's routers, or whatever can tell the same."""

from typing import Protocol

from msgspec import Struct

from bylot.durable.commands import Recalled, RouterView
from bylot.durable.terms import Terms


class Listed(Struct, frozen=True, kw_only=True):
    """A router of the list; `view` is None while nothing is known of it but its name.

    trouble: why it cannot be shown, such as that its log is damaged
    place:   where it is served: 'here', 'elsewhere', or 'asleep' until it is asked for
    """

    name: str
    view: RouterView | None = None
    place: str = "here"
    trouble: str | None = None


class Amended(Struct, frozen=True, kw_only=True):
    """From some moment on, these terms."""

    at: str  # RFC 3339, UTC
    by: str | None  # the credential
    terms: Terms


class Source(Protocol):
    """What pages ask for."""

    async def routers(self) -> list[Listed]:
        """All routers, by name."""
        ...

    async def router(self, name: str) -> RouterView | None:
        """A router as it stands, None if there is none of this name."""
        ...

    async def latest(self, name: str, limit: int) -> list[Recalled]:
        """Its last decisions, newest first, and what became of them."""
        ...

    async def edits(self, name: str) -> list[Amended]:
        """Its terms, those of its creation first."""
        ...
