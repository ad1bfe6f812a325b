"""RemoteRouter: a router behind a server, with the methods of `bylot.Router`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import UNSET, UnsetType

from bylot.client import calls, forms
from bylot.client.answers import Line, Terms
from bylot.client.call import Call
from bylot.client.forms import Aggregate, Ask, Scored
from bylot.decision import Decision, Receipt
from bylot.errors import BylotError
from bylot.policies import Policy
from bylot.problem import Limit, Problem
from bylot.status import Status

Answer = TypeVar("Answer")


class Send(Protocol):
    """How calls are sent."""

    def __call__(self, call: Call[Answer]) -> Answer:
        """Send a call until it is answered, or there is no hope."""
        ...


class RemoteRouter:
    """Draws panels and learns from their rewards, elsewhere; `Client.router` makes one."""

    def __init__(self, send: Send, name: str) -> None:
        self.send, self.name = send, name

    def __repr__(self) -> str:
        return f"<RemoteRouter {self.name}>"

    def decide(
        self,
        context: str | None = None,
        available: Iterable[str] | None = None,
        *,
        key: str | None = None,
        defer: bool = False,
    ) -> Decision:
        """Draw a panel for one request, from the experts that are up now if that is said.

        key:   your own name for it: asked again under the same key, the answer is the same decision
        defer: it may yet come to nothing: its time begins when it is activated
        """
        return self.send(calls.decide(self.name, Ask(context, available, key, defer)))

    def reward(
        self,
        id: str,  # noqa: A002 - the public word
        value: float,
        *,
        spend: Mapping[str, float] | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Tell how well a decision went: once, at any time, in any order.

        If an answer was lost on the way, what is sent again finds itself a DUPLICATE.

        spend: what the panel really cost, by name of the cost; those left out: as stated
        key:   which of several rewards this is
        """
        return self.send(calls.reward(Scored(id, value, spend, key)))

    def decide_many(self, asks: Iterable[Ask]) -> list[Decision | BylotError]:
        """Several decisions at once: for each of them the decision, or why there is none."""
        return self.send(calls.decide_many(self.name, asks))

    def reward_many(self, rewards: Iterable[Scored]) -> list[Receipt | BylotError]:
        """Several rewards at once: for each of them the receipt, or why there is none."""
        return self.send(calls.reward_many(rewards))

    def activate(self, id: str) -> Decision:  # noqa: A002
        """A deferred decision is being used: its time begins."""
        return self.send(calls.activate(id))

    def cancel(self, id: str) -> Decision:  # noqa: A002
        """A decision was never used: it costs nothing and has no reward."""
        return self.send(calls.cancel(id))

    def status(self) -> Status:
        """Averages so far, the slack and price of every limit, and the distribution in use."""
        return self.send(calls.standing(self.name))

    def terms(self) -> Terms:
        """What it is declared with at present."""
        return self.send(calls.show(self.name))

    def change(
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
        """Other terms from the next decision on; what is left out stays.

        limits:        all of them, in place of those there are
        add:           experts: {"name": ..., "costs": {...}, "shares": [...]}
        pause, resume: experts that are not to be asked for now, or again
        version:       of the terms that you have seen; NotNow if they are others by now
        """
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
        return self.send(calls.change(self.name, forms.edit(limits, others)))

    def delete(self) -> None:
        """Forget the router and all its decisions."""
        self.send(calls.delete(self.name))

    def events(self, after: int = -1) -> Iterator[Line]:
        """The lines of its log after one, up to the last there is now."""
        following: int | None = after
        while following is not None:
            page = self.send(calls.events(self.name, following))
            yield from page.events
            following = page.next

    @property
    def problem(self) -> Problem:
        """Experts, costs and limits at present."""
        return self.terms().problem

    @property
    def policy(self) -> Policy:
        """The policy and its settings."""
        return self.terms().policy

    @property
    def seed(self) -> int:
        """Of everything random."""
        return self.terms().seed

    @property
    def horizon(self) -> int | None:
        """Decisions to come, as far as it was told."""
        return self.terms().horizon

    @property
    def rewards(self) -> tuple[float, float]:
        """The range that rewards are given in."""
        return self.terms().rewards
