"""AsyncRouter: a router behind a server, whose methods are awaited."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import UNSET, UnsetType

from bylot.client import calls, forms
from bylot.client.answers import Line, Terms
from bylot.client.call import Call
from bylot.client.forms import Aggregate, Ask, Scored
from bylot.decision import Decision, Receipt
from bylot.errors import BylotError
from bylot.problem import Limit
from bylot.status import Status

Answer = TypeVar("Answer")


class Send(Protocol):
    """How calls are sent."""

    async def __call__(self, call: Call[Answer]) -> Answer:
        """Send a call until it is answered, or there is no hope."""
        ...


class AsyncRouter:
    """`RemoteRouter` with methods to be awaited; `AsyncClient.router` makes one."""

    def __init__(self, send: Send, name: str) -> None:
        self.send, self.name = send, name

    def __repr__(self) -> str:
        return f"<AsyncRouter {self.name}>"

    async def decide(
        self,
        context: str | None = None,
        available: Iterable[str] | None = None,
        *,
        key: str | None = None,
        defer: bool = False,
    ) -> Decision:
        """Draw a panel for one request."""
        return await self.send(calls.decide(self.name, Ask(context, available, key, defer)))

    async def reward(
        self,
        id: str,  # noqa: A002 - the public word
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Tell how well a decision went."""
        return await self.send(calls.reward(Scored(id, value, spend, key)))

    async def decide_many(self, asks: Iterable[Ask]) -> list[Decision | BylotError]:
        """Several decisions at once: for each of them the decision, or why there is none."""
        return await self.send(calls.decide_many(self.name, asks))

    async def reward_many(self, rewards: Iterable[Scored]) -> list[Receipt | BylotError]:
        """Several rewards at once: for each of them the receipt, or why there is none."""
        return await self.send(calls.reward_many(rewards))

    async def activate(self, id: str) -> Decision:  # noqa: A002
        """A deferred decision is being used: its time begins."""
        return await self.send(calls.activate(id))

    async def cancel(self, id: str) -> Decision:  # noqa: A002
        """A decision was never used: it costs nothing and has no reward."""
        return await self.send(calls.cancel(id))

    async def status(self) -> Status:
        """Averages so far, the slack and price of every limit, and the distribution in use."""
        return await self.send(calls.standing(self.name))

    async def terms(self) -> Terms:
        """What it is declared with at present."""
        return await self.send(calls.show(self.name))

    async def change(
        self,
        *,
        limits: Sequence[Limit] | UnsetType = UNSET,
        add: Sequence[Mapping[str, Any]] = (),
        remove: Sequence[str] = (),
        pause: Sequence[str] = (),
        resume: Sequence[str] = (),
        wait: float | UnsetType | None = UNSET,
        default: float | UnsetType | None = UNSET,
        aggregate: Aggregate | UnsetType = UNSET,
        version: int | UnsetType = UNSET,
    ) -> Terms:
        """Other terms from the next decision on, as `RemoteRouter.change` makes them."""
        others = {
            "add": list(add),
            "remove": list(remove),
            "pause": list(pause),
            "resume": list(resume),
            "wait": wait,
            "default": default,
            "aggregate": aggregate,
            "version": version,
        }
        return await self.send(calls.change(self.name, forms.edit(limits, others)))

    async def delete(self) -> None:
        """Forget the router and all its decisions."""
        await self.send(calls.delete(self.name))

    async def events(self, after: int = -1) -> AsyncIterator[Line]:
        """The lines of its log after one, up to the last there is now."""
        following: int | None = after
        while following is not None:
            page = await self.send(calls.events(self.name, following))
            for line in page.events:
                yield line
            following = page.next
