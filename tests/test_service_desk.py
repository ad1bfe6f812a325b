"""The one writer: what it commits together, whom it turns away, how it stops and recovers (G9)."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from bylot.errors import RouterNotFound, StoreUnavailable, UnsupportedStore
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import MakeDecision
from bylot.server.http_errors import ApiError
from bylot.server.state import ServerSettings
from bylot.server.writer import Writer
from bylot.store import Event, Snapshot, Store, open_store
from serving import problem_of, serving, until


class Slow:
    """A keeper that answers with the name of the router, when it is let."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[int] = []
        self.chores: list[str] = []
        self.fails: Exception | None = None  # whatever is asked of it
        self.away: Exception | None = None  # only what needs the store

    def perform(self, batch: Sequence[Any], at: int) -> list[Any]:
        self.gate.wait()
        self.batches.append(len(batch))
        if self.fails:
            raise self.fails
        return [RouterNotFound("?") if one.name == "bad" else one.name for one in batch]

    def sweep(self, at: int) -> bool:
        self.chores.append("sweep")
        return False

    def renew(self) -> None:
        self.chores.append("renew")
        error = self.fails or self.away
        if error:
            raise error

    def close(self) -> None:
        self.chores.append("close")


def at_desk(use: Callable[[Writer, Slow], Awaitable[None]], **options: Any) -> Slow:
    """A desk with a slow keeper, for one use."""
    keeper = Slow()

    async def run() -> None:
        desk = Writer(lambda: keeper, **options)
        await desk.start()
        try:
            await use(desk, keeper)
        finally:
            keeper.gate.set()
            await desk.close()

    asyncio.run(run())
    return keeper


async def queued(desk: Writer, keeper: Slow, *names: str) -> list["asyncio.Task[Any]"]:
    """One command in the keeper's hands, and others behind it."""
    keeper.gate.clear()
    tasks = [asyncio.create_task(desk.ask(MakeDecision("first")))]
    await asyncio.sleep(0.05)
    tasks += [asyncio.create_task(desk.ask(MakeDecision(name))) for name in names]
    await asyncio.sleep(0.05)
    return tasks


def test_what_queues_up_during_a_commit_shares_the_next() -> None:
    async def use(desk: Writer, keeper: Slow) -> None:
        tasks = await queued(desk, keeper, *"abcde")
        keeper.gate.set()
        assert await asyncio.gather(*tasks) == ["first", *"abcde"]

    assert at_desk(use).batches == [1, 5]
    assert at_desk(use, group=False).batches == [1] * 6


def test_only_who_has_company_waits_for_more_of_it() -> None:
    async def use(desk: Writer, keeper: Slow) -> None:
        await desk.ask(MakeDecision("alone"))
        assert not desk.company
        tasks = await queued(desk, keeper, *"abc")
        keeper.gate.set()
        await asyncio.gather(*tasks)
        assert desk.company
        await desk.ask(MakeDecision("alone"))
        assert not desk.company

    at_desk(use)


def test_an_error_is_raised_for_its_own_command_only() -> None:
    async def use(desk: Writer, keeper: Slow) -> None:
        tasks = await queued(desk, keeper, "a", "bad", "c")
        keeper.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, RouterNotFound) for one in answers] == [False, False, True, False]

    at_desk(use)


def test_a_full_desk_turns_others_away() -> None:
    async def use(desk: Writer, keeper: Slow) -> None:
        tasks = await queued(desk, keeper, "a")
        with pytest.raises(ApiError) as refusal:
            await desk.ask(MakeDecision("b"))
        assert (refusal.value.status, refusal.value.code) == (503, "overloaded")
        assert refusal.value.retry
        keeper.gate.set()
        await asyncio.gather(*tasks)
        assert await desk.ask(MakeDecision("b")) == "b"
        assert desk.waiting == 0

    at_desk(use, size=2)


def test_a_stop_answers_what_was_asked_and_takes_no_more() -> None:
    async def use(desk: Writer, keeper: Slow) -> None:
        tasks = await queued(desk, keeper, "a", "b")
        closing = asyncio.create_task(desk.close())
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refusal:
            await desk.ask(MakeDecision("late"))
        assert refusal.value.code == "draining"
        keeper.gate.set()
        assert await asyncio.gather(*tasks) == ["first", "a", "b"]
        await closing
        assert keeper.chores[-1] == "close"
        desk.close = lambda: asyncio.sleep(0)  # type: ignore[method-assign]

    at_desk(use)


def test_chores_are_done_while_nobody_asks() -> None:
    async def use(desk: Writer, keeper: Slow) -> None:
        await asyncio.to_thread(until, lambda: {"sweep", "renew"} <= set(keeper.chores))

    at_desk(use, sweep_every=0.01, renew_every=0.01)


def test_a_store_that_is_down_is_noticed_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "bylot.server")

    async def use(desk: Writer, keeper: Slow) -> None:
        keeper.fails = StoreUnavailable("no disk")
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await desk.ask(MakeDecision("a"))
        assert desk.down is not None
        keeper.fails = None
        await asyncio.to_thread(until, lambda: desk.down is None)

    at_desk(use, renew_every=0.01)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["store is down: no disk", "store is back"]


def test_what_needs_no_store_does_not_say_that_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "bylot.server")

    async def use(desk: Writer, keeper: Slow) -> None:
        keeper.away = StoreUnavailable("no disk")
        await asyncio.to_thread(until, lambda: desk.down is not None)
        swept = len(keeper.chores)
        await asyncio.to_thread(until, lambda: len(keeper.chores) > swept + 6)
        assert await desk.ask(MakeDecision("a")) == "a"  # as one that is told from memory
        assert desk.down is not None
        keeper.away = None
        assert await desk.ask(MakeDecision("a")) == "a"
        assert desk.down is None

    at_desk(use, sweep_every=0.01, renew_every=0.5)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["store is down: no disk", "store is back"]


def test_what_nobody_foresaw_does_not_end_the_writer() -> None:
    async def use(desk: Writer, keeper: Slow) -> None:
        keeper.fails = ZeroDivisionError("?")
        with pytest.raises(ZeroDivisionError):
            await desk.ask(MakeDecision("a"))
        keeper.fails = None
        assert await desk.ask(MakeDecision("a")) == "a"

    at_desk(use)


def test_a_key_is_free_again_once_it_is_answered() -> None:
    async def use(desk: Writer, keeper: Slow) -> None:
        keyed = MakeDecision("a", key="k")
        assert await desk.ask(keyed) == await desk.ask(keyed) == "a"
        assert await desk.ask_all([keyed, keyed, MakeDecision("b", key="k")]) == ["a", "a", "b"]
        first = asyncio.create_task(desk.ask(keyed))
        await asyncio.sleep(0)
        (second,) = await desk.ask_all([keyed])
        assert isinstance(second, ApiError)
        assert await first == "a"
        assert not desk.flying
        assert await desk.ask_all([]) == []

    at_desk(use)


def test_a_keeper_that_cannot_be_hired_is_an_error_at_the_start() -> None:
    async def run() -> None:
        def hire() -> Any:
            raise UnsupportedStore("no such place")

        with pytest.raises(UnsupportedStore):
            await Writer(hire).start()

    asyncio.run(run())


class Failing:
    """A store whose disk is full for a while."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.full = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def append(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = ()) -> None:
        if self.full:
            raise StoreUnavailable("the disk is full; make room")
        self.inner.append(events, snapshots)

    def renew(self, *given: Any) -> Any:
        if self.full:
            raise StoreUnavailable("the disk is full; make room")
        return self.inner.renew(*given)


def test_a_server_recovers_from_a_full_disk_without_a_restart(tmp_path: Path) -> None:
    stores: list[Failing] = []

    def hire(settings: ServerSettings) -> Callable[[], CommandHandler]:
        def make() -> CommandHandler:
            stores.append(Failing(open_store(settings.store)))
            return CommandHandler(cast(Store, stores[0]), "failing")

        return make

    with serving(tmp_path, hire, lease=3.0) as server:
        path = f"{server.router()}/decisions"
        before = server.post(path, json={"key": "before"})
        assert before.status_code == 201
        stores[0].full = True
        refused = server.post(path, json={"key": "during"})
        assert problem_of(refused, 503)["code"] == "store_down"
        assert int(refused.headers["retry-after"]) >= 1
        many = server.post(f"{path}:batch", json={"decisions": [{}, {}]})
        assert [one["status"] for one in many.json()["results"]] == [503, 503]
        assert int(many.headers["retry-after"]) >= 1
        assert problem_of(server.get("/readyz"), 503)["code"] == "store_down"
        assert server.get("/healthz").status_code == 200
        stores[0].full = False
        after = server.post(path, json={"key": "during"})
        assert after.status_code == 201
        assert after.json()["t"] == 1  # what was refused left no trace
        assert server.post(path, json={"key": "before"}).content == before.content
        assert server.get("/readyz").status_code == 200
