"""The two threads that use the store: the single writer, with group commit, and the reader."""

import asyncio
import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from bylot.api import RouterView
from bylot.errors import PolicyCompiling, StoreUnavailable
from bylot.eventlog.clock import SteadyClock
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import Command, GetRouter, MakeDecision
from bylot.eventlog.repository import RouterRepository, make_owner_name
from bylot.server.group_commit import (
    MAX_BATCHES_PER_HAND_OVER,
    MIN_BATCHES_TO_GATHER,
    Batch,
    BatchGatherer,
    Results,
)
from bylot.server.http_errors import ApiError, unavailable
from bylot.server.settings import ServerSettings
from bylot.store import RouterRow, Store, open_store

log = logging.getLogger("bylot.server")
QueryResult = TypeVar("QueryResult")
MakeHandler = Callable[[], CommandHandler]
CheckRouter = Callable[[Store, RouterRow], None]
ThreadWork = Callable[[CommandHandler], None]
"""Other work for the thread, after the commands before it."""

SHORT_WAIT_S = 0.0003  # for others, before a commit, if the one before was shared
IDLE_TICK_S = 0.25  # between two checks of the clock while the queue is empty
SWEEP_INTERVAL_S = 1.0  # between two looks for decisions whose wait is over
EXPIRY_TICK_S = 0.5  # between two looks for batches that have waited too long
MAX_WAITING_QUERIES = 1_000
READER_CLOSE_S = 2.0  # for the query that runs at the end
WRITER_THREAD, READER_THREAD = "bylot-writer", "bylot-reader"
SHOW_BATCH_ROUTERS = 10


def make_command_handler(
    store_url: str,
    lease_s: float,
    check_router: CheckRouter = lambda store, row: None,
    owner: str | None = None,
    keep_us: int | None = None,
) -> CommandHandler:
    """The command handler of a store; by default under an owner name of its own."""
    store, owner = open_store(store_url), owner or make_owner_name()
    repository = RouterRepository(store, owner, lease_s, check_router=check_router)
    return CommandHandler(repository, keep_us)


class CommandRunner(ABC):
    """Executes commands: here, or on the server that owns their router."""

    @abstractmethod
    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        """A result or an exception for each of several commands."""

    async def execute(self, command: Command) -> Any:
        """The result of one command, once it is on disk."""
        (result,) = await self.execute_all((command,))
        if isinstance(result, Exception):
            raise result
        return result

    async def execute_in_slices(self, commands: Sequence[Command], size: int) -> list[Any]:
        """A result or an exception for each command; others are served between the slices.

        If the policies of all routers of the first slice are being compiled, that is raised.
        """
        results: list[Any] = []
        while len(results) < len(commands):
            some = commands[len(results) : len(results) + size]
            try:
                found = await self.execute_all(some)
                if not results and all(isinstance(one, PolicyCompiling) for one in found):
                    raise found[0]
                results += found
            except ApiError as error:
                if not results:
                    raise
                results += [error] * (len(commands) - len(results))
        return results

    async def show_routers(self, names: Sequence[str]) -> dict[str, RouterView | Exception]:
        views = await self.execute_in_slices(list(map(GetRouter, names)), SHOW_BATCH_ROUTERS)
        return dict(zip(names, views, strict=True))


class Writer(CommandRunner):
    """Executes commands in its own thread and returns their results after the commit.

    A request that waits for its results for too long is answered 503, since the store may hang. Its
    commands are not executed any more if they were not begun.

    make_handler: creates the command handler, in the thread that uses it
    on_commit:    receives the size and the seconds of every commit
    on_renew:     called in the thread after leases were renewed
    """

    on_renew: Callable[[CommandHandler], None] | None = None

    def __init__(
        self,
        settings: ServerSettings,
        make_handler: MakeHandler,
        on_commit: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self.settings, self.make_handler, self.on_commit = settings, make_handler, on_commit
        self.sweep_interval_s, self.renew_interval_s = SWEEP_INTERVAL_S, settings.lease_s / 3
        self.queue: SimpleQueue[list[Batch] | ThreadWork | None] = SimpleQueue()
        self.waiting: deque[Batch] = deque()  # oldest first; changed by the event loop only
        self.pending = 0  # commands without a result; likewise
        self.keys_in_flight: set[tuple[str, str]] = set()  # likewise
        self.shared_commit = False  # the last commit had several batches; changed by the thread
        self.next_sweep_s = 0.0  # by the monotonic clock; likewise
        self.draining = False
        self.work: ThreadWork | None = None  # to do after the next commit
        self.clock = SteadyClock()  # read by the thread only
        self.store_error: StoreUnavailable | None = None  # of the last access to the store

    async def start(self) -> None:
        """Start the thread; raises what `make_handler` raises."""
        self.loop = asyncio.get_running_loop()
        may_share = self.settings.commit == "group"
        self.gatherer = BatchGatherer(self.loop, self.queue.put, may_share=may_share)
        started: asyncio.Future[None] = self.loop.create_future()
        self.stopped: asyncio.Future[None] = self.loop.create_future()
        self.thread = threading.Thread(
            target=self.run, args=(started,), name=WRITER_THREAD, daemon=True
        )
        self.thread.start()
        try:
            await started
        except BaseException:
            self.thread.join()
            raise
        self.expiring = asyncio.create_task(self.expire_forever())

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        """A result or an exception for each of several commands, which share a commit."""
        self.check_room(len(commands))
        slots = [idempotency_slot(command) for command in commands]
        busy = self.keys_in_flight.intersection(slots)  # the handler compares those of one batch
        accepted = [one for one, slot in zip(commands, slots, strict=True) if slot not in busy]
        results: asyncio.Future[list[Any]] = self.loop.create_future()
        if accepted:
            self.keys_in_flight.update(filter(None, slots))
            self.enqueue(accepted, results)
        else:
            results.set_result([])
        answers = iter(await results)
        return [in_flight_error(slot) if slot in busy else next(answers) for slot in slots]

    def submit(self, command: Command, results: Results) -> None:
        """Execute one command; `results` receives a list of its result, or of its error."""
        self.check_room(1)
        slot = idempotency_slot(command)
        if slot is not None:
            if slot in self.keys_in_flight:
                raise in_flight_error(slot)
            self.keys_in_flight.add(slot)
        self.enqueue((command,), results)

    def check_room(self, count: int) -> None:
        """Refuse more commands than can wait."""
        if self.draining:
            raise unavailable("draining", "the server is shutting down")
        if self.pending and self.pending + count > self.settings.max_queued:
            raise unavailable("overloaded", f"overloaded: {self.pending} commands are queued")

    def enqueue(self, commands: Sequence[Command], results: Results) -> None:
        """Give commands to the thread, at once or with others."""
        self.pending += len(commands)
        batch = Batch(commands, results, self.loop.time())
        self.waiting.append(batch)
        self.gatherer.add(batch)

    @property
    def age_s(self) -> float:
        """How long the oldest batch has waited for its results."""
        return self.loop.time() - self.waiting[0].since if self.waiting else 0.0

    async def expire_forever(self) -> None:
        """Answer requests that have waited too long."""
        while True:
            await asyncio.sleep(EXPIRY_TICK_S)
            timeout_s = self.settings.request_timeout_s
            too_old = self.loop.time() - timeout_s
            for batch in self.waiting:
                if batch.since > too_old:
                    break
                if not batch.results.done():
                    try:
                        batch.results.set_exception(timeout_error(timeout_s))
                    except Exception:  # of one request, which must not end the timeouts
                        log.exception("a response was not sent")

    async def close(self, timeout_s: float = 30.0) -> None:
        """Drain the queue, write snapshots and stop the thread, or give up after a while."""
        self.draining = True
        self.gatherer.hand_over()
        self.queue.put(None)
        try:
            await asyncio.wait_for(self.stopped, timeout_s)
            self.thread.join()
        except TimeoutError:
            log.error("the store hangs: stopped without the last snapshots")
        self.expiring.cancel()

    async def run_in_thread(self, work: ThreadWork) -> None:
        """Run other work in the thread, between two commits."""
        done: asyncio.Future[None] = self.loop.create_future()

        def run_and_tell(handler: CommandHandler) -> None:
            self.run_task("task", partial(work, handler))
            self.post(end_wait, done)

        self.gatherer.hand_over()
        self.queue.put(run_and_tell)
        await done

    # The methods below run in the thread, except those that the event loop calls.

    def run(self, started: "asyncio.Future[None]") -> None:
        """Commit batches until the queue contains None."""
        try:
            handler = self.make_handler()
        except Exception as error:
            self.loop.call_soon_threadsafe(started.set_exception, error)
            return
        self.loop.call_soon_threadsafe(started.set_result, None)
        renewed = time.monotonic()
        self.next_sweep_s = renewed + self.sweep_interval_s
        running = True
        while running:
            batches, running = self.collect()
            self.shared_commit = len(batches) > 1
            if batches:
                self.commit(handler, batches)
            if self.work is not None:
                work, self.work = self.work, None
                work(handler)
            now = time.monotonic()
            if now >= self.next_sweep_s:
                self.sweep(handler)
            if now - renewed >= self.renew_interval_s:
                renewed = now
                self.renew(handler)
        self.run_task("close", handler.close)
        self.post(end_wait, self.stopped)

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the event loop, unless that has ended: it waits for a while only."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def collect(self) -> tuple[list[Batch], bool]:
        """The batches of the next commit, none after an idle tick; and whether to continue.

        A single client is served at once. If the last commit was shared, and the event loop has not
        gathered these, wait a moment for others: less than a timer of the loop can.
        """
        batches: list[Batch] = []
        try:
            pause_s = min(IDLE_TICK_S, max(0.0, self.next_sweep_s - time.monotonic()))
            work = self.queue.get(timeout=pause_s)
            if self.shared_commit and isinstance(work, list) and len(work) < MIN_BATCHES_TO_GATHER:
                time.sleep(SHORT_WAIT_S)
            while work is not None:
                if not isinstance(work, list):
                    self.work = work
                    return batches, True
                batches += work
                if self.settings.commit == "each" or len(batches) >= MAX_BATCHES_PER_HAND_OVER:
                    return batches, True
                work = self.queue.get_nowait()
        except Empty:
            return batches, True
        return batches, False

    def commit(self, handler: CommandHandler, batches: list[Batch]) -> None:
        """Execute batches in one commit and deliver their results; some may be answered by now."""
        wanted = [batch for batch in batches if not batch.results.done()]
        if not wanted:
            self.post(self.deliver, batches, [], [])
            return
        commands = [command for batch in wanted for command in batch.commands]
        start = time.perf_counter()
        try:
            results = handler.perform(commands, self.clock())
        except Exception as error:
            results = [error] * len(commands)
        failure = next((one for one in results if isinstance(one, StoreUnavailable)), None)
        if failure is not None:
            self.set_store_error(failure)
        elif self.store_error is not None:  # some results need no store: check it directly
            self.renew(handler)
        self.on_commit(len(commands), time.perf_counter() - start)
        self.post(self.deliver, batches, wanted, results)

    def run_task(self, name: str, task: Callable[[], object]) -> bool:
        """Run a background task; log failures and return whether it succeeded."""
        try:
            task()
            return True
        except StoreUnavailable as error:
            self.set_store_error(error)
        except Exception:
            log.exception("%s failed", name)
        return False

    def sweep(self, handler: CommandHandler) -> None:
        """Close decisions that are due, in slices, so that requests are served in between."""
        pause_s = self.sweep_interval_s

        def task() -> None:
            nonlocal pause_s
            at = self.clock()
            more = handler.sweep(at)
            if handler.maintain(at) or more:
                pause_s = handler.pause_s

        self.run_task("sweep", task)
        self.next_sweep_s = time.monotonic() + pause_s

    def renew(self, handler: CommandHandler) -> None:
        """Renew the leases; success means that the store is available."""
        if self.run_task("renew", handler.renew):
            self.set_store_error(None)
            if self.on_renew is not None:
                self.run_task("announce", partial(self.on_renew, handler))

    def set_store_error(self, error: StoreUnavailable | None) -> None:
        """Record whether the store is available, and log every change."""
        if (error is None) != (self.store_error is None):
            log.warning("store is back" if error is None else f"store is down: {error}")
        self.store_error = error

    def deliver(self, batches: list[Batch], wanted: list[Batch], results: list[Any]) -> None:
        """Set the results in the event loop: one call per commit, not per batch."""
        first = 0
        for commands, _, _ in batches:
            self.waiting.popleft()
            self.pending -= len(commands)
            if self.keys_in_flight:
                self.keys_in_flight.difference_update(map(idempotency_slot, commands))
        for commands, receiver, _ in wanted:
            if not receiver.done():  # its request may have been cancelled, or answered
                try:
                    receiver.set_result(results[first : first + len(commands)])
                except Exception:  # of one request, which must not affect the others
                    log.exception("a response was not sent")
            first += len(commands)
        self.gatherer.note_done(len(batches))


def end_wait(future: "asyncio.Future[None]") -> None:
    """Let go on whoever waits for the thread; called by the event loop."""
    if not future.done():
        future.set_result(None)


def idempotency_slot(command: Command) -> tuple[str, str] | None:
    """Router and key of a decision, which must not be in flight twice."""
    if type(command) is MakeDecision and command.key is not None:
        return command.name, command.key
    return None


def in_flight_error(slot: tuple[str, str]) -> ApiError:
    """The first request with this key has no result yet."""
    message = f"a decision of router {slot[0]!r} with key {slot[1]!r} is in flight; retry"
    return ApiError(409, "in_flight", message, retry_after=1.0)


def timeout_error(timeout_s: float) -> ApiError:
    """The store or the queue did not move for too long; the request may have been executed."""
    return unavailable(
        "timeout", f"no result within {timeout_s:g} s; repeat the request with the same key"
    )


class Reader:
    """Executes queries in its own thread, with its own connection to the store."""

    def __init__(self, store_url: str, timeout_s: float = 25.0) -> None:
        self.store_url, self.timeout_s = store_url, timeout_s
        self.store: Store | None = None
        self.pending = 0
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=READER_THREAD)

    async def read(
        self, query: Callable[[Store], QueryResult], timeout_s: float | None = None
    ) -> QueryResult:
        """The result of a query, or the error 503 after a while."""
        if self.pending >= MAX_WAITING_QUERIES:
            raise unavailable("overloaded", f"overloaded: {self.pending} queries are queued")
        self.pending += 1
        timeout_s = timeout_s or self.timeout_s
        try:
            result = asyncio.get_running_loop().run_in_executor(self.thread, self.execute, query)
            return await asyncio.wait_for(result, timeout_s)
        except TimeoutError:
            raise timeout_error(timeout_s) from None
        finally:
            self.pending -= 1

    async def read_router(
        self, name: str, query: Callable[[Store, int], QueryResult]
    ) -> QueryResult | None:
        """The result of a query about a router, by its number; None if there is no such router."""

        def find_and_query(store: Store) -> QueryResult | None:
            row = store.find(name)
            return None if row is None else query(store, row.number)

        return await self.read(find_and_query)

    def execute(self, query: Callable[[Store], QueryResult]) -> QueryResult:
        """Execute a query, in the thread that owns the connection."""
        if self.store is None:
            self.store = open_store(self.store_url, read_only=True)
        return query(self.store)

    async def close(self) -> None:
        """Close the connection and stop the thread, or give up after a while."""
        if self.store is not None:
            closed = asyncio.get_running_loop().run_in_executor(self.thread, self.store.close)
            await asyncio.wait([closed], timeout=min(self.timeout_s, READER_CLOSE_S))
        self.thread.shutdown(wait=False, cancel_futures=True)
