"""Ask the members of a panel: together, in turn or staggered, with a quorum and substitutes; and
know which can be asked now: those that fail are paused, and one call tries them again.

One `PanelRun` asks for one request. It knows neither routers nor HTTP: it is given a function that
replaces a member, and it returns answers and failures of all members that were asked.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from bylot.gateway.answers import Answer, Failure
from bylot.gateway.config import GatewayEntry
from bylot.gateway.upstream import CALLER_STATUSES, ChatBody, ModelCall, UpstreamClient

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
        now = self.clock()
        paused = {
            name
            for name, one in self.members.items()
            if one.paused_until and (one.trying or now < one.paused_until)
        }
        if not paused:
            return None
        return [name for name in experts if name not in paused] or None

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


Outcome = Answer | Failure
Replace = Callable[[str], Awaitable[str | None]]
"""Replaces a member that failed; returns the name of its substitute, None if there is none."""


class PanelResult(NamedTuple):
    """What became of a panel.

    answers:  in the order in which they came
    failures: of members that were asked; replaced ones and cancelled ones among them
    stands_for: names of members that were replaced, by their substitute
    """

    answers: list[Answer]
    failures: list[Failure]
    stands_for: dict[str, str]

    @property
    def calls(self) -> list[Outcome]:
        """All calls that have ended, answers last."""
        return [*self.failures, *self.answers]

    def add(self, outcome: Outcome) -> None:
        """Add a call that has ended."""
        if isinstance(outcome, Answer):
            self.answers.append(outcome)
        else:
            self.failures.append(outcome)


class PanelRun:
    """Asks the members of one panel."""

    def __init__(
        self,
        entry: GatewayEntry,
        client: UpstreamClient,
        health: HealthTable,
        body: ChatBody,
        members: Sequence[str],
        replace: Replace,
        is_good: Callable[[Answer], Awaitable[bool]] | None = None,
    ) -> None:
        self.entry, self.client, self.health, self.body = entry, client, health, body
        self.waiting = list(members)  # not asked yet
        self.replace, self.is_good = replace, is_good
        self.calls: dict[asyncio.Task[Outcome], ModelCall] = {}
        self.result = PanelResult([], [], {})
        self.refills = entry.refill
        self.quorum_missed = False
        # without a scorer, nothing is learned from answers that come after the first
        self.grace_s = 0.0 if entry.answer == "first" and not entry.scorer else entry.grace_s
        single = entry.ask != "together" or entry.answer == "first"
        self.quorum = min(entry.quorum or (1 if single else len(members)), len(members))
        self.deadline = asyncio.get_running_loop().time() + entry.timeout_s

    async def run(self) -> PanelResult:
        """Ask until there are enough answers, then cancel the other calls."""
        try:
            while self.entry.ask == "together" and self.begin_next():
                pass
            await self.collect()
        finally:
            await self.cancel_rest()
        self.quorum_missed = len(self.result.answers) < self.quorum
        return self.result

    async def collect(self) -> None:
        """Wait for calls, and begin others as the mode of asking says."""
        loop, done_at = asyncio.get_running_loop(), self.deadline
        while True:
            if not self.calls and not self.begin_next():
                return
            turn_at = loop.time() + self.entry.hedge_s if self.is_hedging else done_at
            left = min(done_at, turn_at) - loop.time()
            finished, _ = await asyncio.wait(
                self.calls, timeout=max(left, 0.0), return_when=asyncio.FIRST_COMPLETED
            )
            for task in finished:
                del self.calls[task]
            outcomes = [task.result() for task in finished]
            failed = any(isinstance(one, Failure) for one in outcomes)
            for outcome in sorted(outcomes, key=lambda one: isinstance(one, Failure)):
                if await self.take(outcome):
                    return
            if len(self.result.answers) >= self.quorum and self.entry.ask != "in_turn":
                done_at = min(done_at, loop.time() + self.grace_s)
                self.waiting.clear()
            if loop.time() >= done_at:
                return
            if self.is_hedging and (failed or not finished or loop.time() >= turn_at):
                self.begin_next()

    @property
    def is_hedging(self) -> bool:
        """Whether a further member is asked after a while."""
        return self.entry.ask == "hedged" and bool(self.waiting)

    def begin_next(self) -> bool:
        """Ask the next member that waits, if there is one."""
        if not self.waiting:
            return False
        self.begin(self.waiting.pop(0))
        return True

    def begin(self, name: str) -> None:
        """Ask a member."""
        left = self.deadline - asyncio.get_running_loop().time()
        timeout_s = max(min(self.entry.member_timeout_s, left), 0.001)
        call = self.client.call(name, self.body, timeout_s, self.entry.retries)
        self.health.begin(name)
        self.calls[asyncio.create_task(call.run())] = call

    async def take(self, outcome: Outcome) -> bool:
        """Note an outcome, and ask a substitute of a member that failed. Return whether the answer
        makes all others unnecessary.
        """
        self.health.end(outcome)
        self.result.add(outcome)
        if isinstance(outcome, Answer):
            return self.is_good is not None and await self.is_good(outcome)
        coming = 0 if self.entry.ask == "together" else len(self.calls) + len(self.waiting)
        wanted = len(self.result.answers) + coming < self.quorum
        if self.refills > 0 and wanted:
            self.refills -= 1
            substitute = await self.replace(outcome.member)
            if substitute is not None:
                self.result.stands_for[substitute] = outcome.member
                self.begin(substitute)
        return False

    async def cancel_rest(self) -> None:
        """Cancel the calls that are still open, and wait until they have ended."""
        calls, self.calls, gone = self.calls, {}, None
        late = asyncio.get_running_loop().time() >= self.deadline
        for task in calls:
            task.cancel()
        for task, call in calls.items():
            while not task.done():
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError as error:  # the caller leaves just now
                    gone = error
            cancelled = task.cancelled()  # else it has ended just before
            outcome = call.fail("timeout" if late else "cancelled") if cancelled else task.result()
            self.health.end(outcome)
            self.result.add(outcome)
        if gone is not None:
            raise gone
