"""Ask the members of a panel: together, in turn or staggered, with a quorum and substitutes.

One `PanelRun` asks for one request. It knows neither routers nor HTTP: it is given a function that
replaces a member, and it returns answers and failures of all members that were asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from bylot.gateway.answers import Answer, Failure
from bylot.gateway.config import GatewayEntry
from bylot.gateway.health import HealthTable
from bylot.gateway.upstream import ChatBody, ModelCall, UpstreamClient

Outcome = Answer | Failure
Replace = Callable[[str], Awaitable[str | None]]
"""Replaces a member that failed; returns the name of its substitute, None if there is none."""
IsGood = Callable[[Answer], Awaitable[bool]]
"""Whether an answer makes further ones unnecessary."""


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
        is_good: IsGood | None = None,
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
