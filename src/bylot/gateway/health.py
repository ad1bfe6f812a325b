"""Which members can be asked now: pauses of those that fail, and one call that tries them again."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import Struct

from bylot.gateway.answers import Answer, Failure
from bylot.gateway.upstream import CALLER_STATUSES

log = logging.getLogger("bylot.gateway")

MAX_PAUSE_S = 600.0  # however long a model asks to be left alone


class Pause(NamedTuple):
    """A member that failed, until a call to it succeeds.

    left_s: seconds until it may be tried again
    trying: a call tries it now
    """

    left_s: float
    trying: bool


class MemberHealth(Struct):
    """The state of one member.

    failures:     in a row
    paused_until: by the clock; 0: not paused
    trying:       a call tries whether the member has recovered; no other request asks it
    """

    failures: int = 0
    paused_until: float = 0.0
    trying: bool = False


class HealthTable:
    """The members of one gateway.

    A member that fails `after` times in a row is paused for `pause_s` seconds; one that asks for a
    pause with Retry-After is paused at once, for at least as long as it asks for. Then it is tried
    by the next request. If its call succeeds, it is available to all; if not, it is paused again.
    """

    def __init__(
        self, after: int, pause_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.after, self.pause_s, self.clock = after, pause_s, clock
        self.members: dict[str, MemberHealth] = {}

    def list_available(self, experts: Iterable[str]) -> list[str] | None:
        """The experts that can be asked; None: all of them, also if none can."""
        now, members = self.clock(), self.members
        paused = {
            name
            for name, one in members.items()
            if one.paused_until and (one.trying or now < one.paused_until)
        }
        if not paused:
            return None
        found = [name for name in experts if name not in paused]
        return found or None

    def begin(self, name: str) -> None:
        """A call to a member begins."""
        one = self.members.get(name)
        if one is not None and one.paused_until and self.clock() >= one.paused_until:
            one.trying = True

    def end(self, outcome: Answer | Failure) -> None:
        """A call has ended. One that the gateway cancelled says nothing about its member, and one
        that was refused says nothing before it is known whether others answer the same request.
        """
        one = self.members.setdefault(outcome.member, MemberHealth())
        one.trying = False
        if isinstance(outcome, Answer):
            if one.paused_until:
                log.warning("%s answers again", outcome.member)
            one.failures, one.paused_until = 0, 0.0
        elif outcome.reason != "cancelled" and outcome.status not in CALLER_STATUSES:
            self.add_failure(outcome)

    def blame_refusals(self, failures: Iterable[Failure]) -> None:
        """Count refusals of a request that another member has answered: it was not at fault."""
        for outcome in failures:
            if outcome.status in CALLER_STATUSES:
                self.add_failure(outcome)

    def add_failure(self, outcome: Failure) -> None:
        """Count a failure, and pause the member after too many."""
        member = self.members[outcome.member]
        member.failures += 1
        usual = self.pause_s if member.failures >= self.after or member.paused_until else 0.0
        pause = min(max(usual, outcome.retry_after_s or 0.0), MAX_PAUSE_S)
        if pause > 0.0:
            if not member.paused_until:
                log.warning("%s is paused for %g s: %s", outcome.member, pause, outcome.reason)
            member.paused_until = self.clock() + pause

    def find_pause(self, name: str) -> Pause | None:
        """The pause of a member, also while it waits to be tried again; None: it has none."""
        one = self.members.get(name)
        if one is None or not one.paused_until:
            return None
        return Pause(max(one.paused_until - self.clock(), 0.0), one.trying)
