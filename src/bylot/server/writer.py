"""The one writer: a thread that owns the keeper, and commits what queued up meanwhile together."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from bylot.errors import StoreUnavailable
from bylot.eventlog import events
from bylot.eventlog.commands import Command, MakeDecision
from bylot.server.http_errors import ApiError
from bylot.store import Store

log = logging.getLogger("bylot.server")

MAX_BATCH_COMMANDS = 1_000  # commands of one commit: an answer waits for all that share it
GROUP_COMMIT_WINDOW_S = (
    0.001  # seconds for which a commit waits for company, if the one before had some
)
IDLE_TICK_S = 0.25  # seconds between looks at the clock while nothing is asked


class BatchHandler(Protocol):
    """What the desk needs of one; used by its thread alone."""

    def perform(self, batch: Sequence[Command], at: int) -> list[Any]:
        """Do all of these in one transaction: an answer or an exception for each."""
        ...

    def sweep(self, at: int) -> bool:
        """Close decisions whose wait is over; are there more?"""
        ...

    def renew(self) -> object:
        """Keep the leases."""
        ...

    def close(self) -> None:
        """Snapshots, and leases given back."""
        ...


class Batch(NamedTuple):
    """Commands that were asked together, and who waits for their answers."""

    commands: Sequence[Command]
    answers: "asyncio.Future[list[Any]]"


class Writer:
    """Ask it from the event loop; it answers after the commit.

    hire:    makes the keeper, in the thread that will use it
    measure: told the size and the seconds of every commit
    group:   False: one commit for every errand
    size:    commands that may wait
    """

    def __init__(
        self,
        hire: Callable[[], BatchHandler],
        *,
        measure: Callable[[int, float], None] = lambda size, seconds: None,
        group: bool = True,
        size: int = 10_000,
        sweep_every: float = 1.0,
        renew_every: float = 3.0,
    ) -> None:
        self.hire, self.measure, self.group, self.size = hire, measure, group, size
        self.sweep_every, self.renew_every = sweep_every, renew_every
        self.queue: SimpleQueue[Batch | None] = SimpleQueue()
        self.waiting = 0  # commands without an answer yet; only the event loop changes it
        self.flying: set[tuple[str, str]] = set()  # keys of decisions without an answer yet
        self.company = False  # did the last commit have any? Only the thread changes it
        self.behind = False  # did the last sweep leave something? Likewise
        self.draining = False
        self.down: StoreUnavailable | None = (
            None  # why the last visit to the store failed, if it did
        )

    async def start(self) -> None:
        """Begin to work; what keeps a keeper from being hired is raised here."""
        self.loop = asyncio.get_running_loop()
        hired: asyncio.Future[None] = self.loop.create_future()
        self.gone: asyncio.Future[None] = self.loop.create_future()
        self.thread = threading.Thread(target=self.work, args=(hired,), name="bylot-desk")
        self.thread.start()
        try:
            await hired
        except BaseException:
            self.thread.join()
            raise

    async def ask(self, command: Command) -> Any:
        """The answer to one command, once it is on disk."""
        self.admit(1)
        key = idempotency_slot(command)
        if key is not None:
            if key in self.flying:
                raise in_flight_error(key)
            self.flying.add(key)
        (answer,) = await self.send((command,))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """An answer or an exception for each of some commands, which share a commit."""
        self.admit(len(commands))
        going, answers, ours = [], dict[int, Any](), set[tuple[str, str]]()
        for number, command in enumerate(commands):
            key = idempotency_slot(command)
            if key is not None and key in self.flying and key not in ours:
                answers[number] = in_flight_error(key)
                continue
            if key is not None:  # a second one of this batch is the keeper's to compare
                self.flying.add(key)
                ours.add(key)
            going.append(number)
        if going:
            told = await self.send([commands[number] for number in going])
            answers.update(zip(going, told, strict=True))
        return [answers[number] for number in range(len(commands))]

    def admit(self, count: int) -> None:
        """Turn away what would only wait."""
        if self.draining:
            raise ApiError(503, "draining", "the server is stopping; ask another one", retry=1.0)
        if self.waiting and self.waiting + count > self.size:
            message = f"{self.waiting} commands are waiting already; try again in a moment"
            raise ApiError(503, "overloaded", message, retry=1.0)

    def send(self, commands: Sequence[Command]) -> "asyncio.Future[list[Any]]":
        """Queue up."""
        answers: asyncio.Future[list[Any]] = self.loop.create_future()
        self.waiting += len(commands)
        self.queue.put(Batch(commands, answers))
        return answers

    async def close(self) -> None:
        """Answer all that was asked, take snapshots, go home."""
        self.draining = True
        self.queue.put(None)
        await self.gone
        self.thread.join()

    # What follows runs in the thread, but for `deliver`.

    def work(self, hired: "asyncio.Future[None]") -> None:
        """Perform errands until told to go."""
        try:
            keeper = self.hire()
        except Exception as error:
            self.loop.call_soon_threadsafe(hired.set_exception, error)
            return
        self.loop.call_soon_threadsafe(hired.set_result, None)
        swept = renewed = time.monotonic()
        staying = True
        while staying:
            errands, staying = self.take()
            self.company = len(errands) > 1
            if errands:
                self.perform(keeper, errands)
            now = time.monotonic()
            if self.behind or now - swept >= self.sweep_every:
                swept = now
                self.sweep(keeper)
            if now - renewed >= self.renew_every:
                renewed = now
                self.renew(keeper)
        self.chore("close", keeper.close)
        self.loop.call_soon_threadsafe(self.gone.set_result, None)

    def take(self) -> tuple[list[Batch], bool]:
        """All that queued up, or nothing for a tick; and whether to stay.

        Who asks alone is served at once. Of many, most ask again when the last commit was answered,
        all within a moment: one commit for all of them takes less than two for a half each.
        """
        errands: list[Batch] = []
        try:
            errand = self.queue.get(timeout=0 if self.behind else IDLE_TICK_S)
            if self.company:
                time.sleep(GROUP_COMMIT_WINDOW_S)
            while errand is not None:
                errands.append(errand)
                if not self.group or len(errands) >= MAX_BATCH_COMMANDS:
                    return errands, True
                errand = self.queue.get_nowait()
        except Empty:
            return errands, True
        return errands, False

    def perform(self, keeper: BatchHandler, errands: list[Batch]) -> None:
        """One commit, and its answers."""
        commands = [command for errand in errands for command in errand.commands]
        start = time.perf_counter()
        try:
            answers = keeper.perform(commands, events.now_us())
        except Exception as error:
            answers = [error] * len(commands)
        down = next((one for one in answers if isinstance(one, StoreUnavailable)), None)
        if down is not None:
            self.note(down)
        elif self.down is not None:  # not all answers need the store: ask it itself
            self.renew(keeper)
        self.measure(len(commands), time.perf_counter() - start)
        self.loop.call_soon_threadsafe(self.deliver, errands, answers)

    def chore(self, name: str, do: Callable[[], object]) -> bool:
        """What nobody waits for, and did it go well? If not: logged, and tried again next turn."""
        try:
            do()
        except StoreUnavailable as error:
            self.note(error)
        except Exception:
            log.exception("%s failed", name)
        else:
            return True
        return False

    def sweep(self, keeper: BatchHandler) -> None:
        """Close what is due, in slices between which whoever asks is answered."""

        def do() -> None:
            self.behind = keeper.sweep(events.now_us())

        self.behind = False
        self.chore("sweep", do)

    def renew(self, keeper: BatchHandler) -> None:
        """Keep the leases: the one chore that is always a visit to the store, so it tells of it."""
        if self.chore("renew", keeper.renew):
            self.note(None)

    def note(self, down: StoreUnavailable | None) -> None:
        """Is the store there? One line in the log for every change."""
        if (down is None) != (self.down is None):
            log.warning("store is back" if down is None else f"store is down: {down}")
        self.down = down

    def deliver(self, errands: list[Batch], answers: list[Any]) -> None:
        """Hand out answers, in the event loop: one call of it per commit, not per errand."""
        first = 0
        self.waiting -= len(answers)
        for commands, future in errands:
            if self.flying:
                self.flying.difference_update(map(idempotency_slot, commands))
            if not future.done():  # its request may have been given up
                future.set_result(answers[first : first + len(commands)])
            first += len(commands)


def idempotency_slot(command: Command) -> tuple[str, str] | None:
    """What must not be asked a second time before it is answered."""
    if type(command) is MakeDecision and command.key is not None:
        return command.name, command.key
    return None


def in_flight_error(key: tuple[str, str]) -> ApiError:
    """The first request with a key has not been answered yet."""
    message = f"a decision of {key[0]} with key {key[1]!r} is being made; try again in a moment"
    return ApiError(409, "in_flight", message, retry=1.0)


QueryResult = TypeVar("QueryResult")

MAX_WAITING_QUERIES = 1_000  # questions that may wait


class Reader:
    """Ask it from the event loop."""

    def __init__(self, connect: Callable[[], Store]) -> None:
        self.connect = connect
        self.store: Store | None = None
        self.waiting = 0
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="bylot-reader")

    async def read(self, question: Callable[[Store], QueryResult]) -> QueryResult:
        """What a question to the store gives."""
        if self.waiting >= MAX_WAITING_QUERIES:
            message = f"{self.waiting} questions are waiting already; try again in a moment"
            raise ApiError(503, "overloaded", message, retry=1.0)
        self.waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.thread, self.put, question)
        finally:
            self.waiting -= 1

    def put(self, question: Callable[[Store], QueryResult]) -> QueryResult:
        """Put a question, in the thread whose connection it is."""
        if self.store is None:
            self.store = self.connect()
        return question(self.store)

    async def close(self) -> None:
        """Let go of the connection."""
        loop = asyncio.get_running_loop()
        if self.store is not None:
            await loop.run_in_executor(self.thread, self.store.close)
        self.thread.shutdown()
