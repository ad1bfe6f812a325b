"""Group commit: when the thread of the writer gets the requests of the next commit."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from bylot.eventlog.commands import Command

MAX_BATCHES_PER_HAND_OVER = 1_000  # a response waits for all that share its commit
MIN_BATCHES_TO_GATHER = 12  # fewer are gathered faster by the thread than by a timer of the loop
MIN_WAIT_S, WAIT_PER_BATCH_S = 0.002, 50e-6  # for the others; a client takes some 30 us
MAX_NEW_SHARE = 1 / 8  # of a commit that clients have waited for: see `BatchGatherer`
MAX_BACKOFF_COMMITS = 64


class Results(Protocol):
    """What receives the results of commands: a future, or a `CommandExchange`. The thread of the
    writer calls `done`, the event loop calls the others.
    """

    def done(self) -> bool: ...
    def set_result(self, result: list[Any], /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Batch(NamedTuple):
    """Commands of one request, what receives their results, and since when they wait."""

    commands: Sequence[Command]
    results: Results
    since: float  # by the clock of the event loop


class BatchGatherer:
    """Gathers batches in the event loop, and hands them over to the thread.

    Clients that wait for their answers send the next requests just after a commit. If they are
    many, the gatherer waits until all of them are there, and then wakes the thread once. One commit
    for all takes less time than two for half of them each. Besides, a thread that runs while the
    loop reads requests competes with it for the interpreter's lock: each wakes up whenever the
    other releases the lock, mostly in vain.

    A wait fails if it times out, or if many new requests come during the commit that follows:
    clients then do not wait for answers, and others would always come. After a failure one commit
    does not wait, after further ones 2, 4 and so on. Whenever the gatherer does not wait, it hands
    every batch over at once, also while the thread is busy.

    put:       gives batches to the thread
    may_share: whether several batches may share a commit
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        put: Callable[[list[Batch]], None],
        *,
        may_share: bool = True,
    ) -> None:
        self.loop, self.put, self.may_share = loop, put, may_share
        self.gathered: list[Batch] = []
        self.in_thread = 0  # batches that were handed over and are not done
        self.expected = 1  # batches to gather before a hand-over; 1: do not wait
        self.has_waited = False  # for the last hand-over, and all came
        self.backoff = 0  # commits to skip after the last failure; 0 after a success
        self.commits_to_skip = 0  # that do not wait
        self.timer: asyncio.TimerHandle | None = None

    def add(self, batch: Batch) -> None:
        """Add a batch, which the thread gets now or later."""
        self.gathered.append(batch)
        self.hand_over_or_wait()

    def hand_over_or_wait(self) -> None:
        """Hand over what was gathered if that is enough; else the thread or a timer ends the wait.

        What was gathered while the thread is busy is looked at again when that is done.
        """
        if self.expected == 1:
            self.hand_over()
        elif not self.in_thread and len(self.gathered) >= self.expected:
            self.has_waited = True
            self.hand_over()
        elif not self.in_thread and self.gathered and self.timer is None:
            wait_s = max(MIN_WAIT_S, WAIT_PER_BATCH_S * self.expected)
            self.timer = self.loop.call_later(wait_s, self.on_timeout)

    def on_timeout(self) -> None:
        """Some clients did not come in time."""
        self.back_off()
        self.hand_over()

    def back_off(self) -> None:
        """Do not wait for a while, twice as long as after the last failure."""
        self.backoff = min(max(1, 2 * self.backoff), MAX_BACKOFF_COMMITS)
        self.commits_to_skip = self.backoff

    def hand_over(self) -> None:
        """Give the thread all that was gathered."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        batches, self.gathered = self.gathered, []
        self.in_thread += len(batches)
        for first in range(0, len(batches), MAX_BATCHES_PER_HAND_OVER):
            self.put(batches[first : first + MAX_BATCHES_PER_HAND_OVER])

    def note_done(self, batches: int) -> None:
        """The thread is done with so many batches; others may have been gathered meanwhile."""
        outstanding = self.in_thread + len(self.gathered)
        self.in_thread -= batches
        if self.has_waited:
            self.has_waited = False
            if len(self.gathered) > MAX_NEW_SHARE * batches:
                self.back_off()
            else:
                self.backoff = 0
        gathers = self.may_share and outstanding >= MIN_BATCHES_TO_GATHER
        self.expected = outstanding if gathers and not self.commits_to_skip else 1
        self.commits_to_skip = max(0, self.commits_to_skip - 1)
        self.hand_over_or_wait()
