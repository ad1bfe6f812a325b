"""The writer thread: group commits, back-pressure, shutdown and recovery (G9)."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from bylot.errors import RouterNotFound, StoreUnavailable, UnsupportedStore
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import MakeDecision
from bylot.eventlog.repository import RouterRepository
from bylot.server.http_errors import ApiError
from bylot.server.settings import ServerSettings
from bylot.server.writer import Writer
from bylot.store import Store, open_store
from live_server import assert_error, live_server, wait_until


class SlowHandler:
    """A handler that answers with the name of the router when its gate is open."""

    pause_s = 0.0

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[int] = []
        self.tasks: list[str] = []
        self.error: Exception | None = None  # raised by every call
        self.store_error: Exception | None = None  # raised only by calls that need the store

    def perform(self, batch: Sequence[Any], at: int) -> list[Any]:
        self.gate.wait()
        self.batches.append(len(batch))
        if self.error:
            raise self.error
        return [RouterNotFound("?") if one.name == "bad" else one.name for one in batch]

    def sweep(self, at: int) -> bool:
        self.tasks.append("sweep")
        return False

    def maintain(self, at: int) -> bool:
        return False

    def renew(self) -> None:
        self.tasks.append("renew")
        error = self.error or self.store_error
        if error:
            raise error

    def close(self) -> None:
        self.tasks.append("close")


def run_with_writer(
    use: Callable[[Writer, SlowHandler], Awaitable[None]],
    sweep_interval_s: float = 1.0,
    **options: Any,
) -> SlowHandler:
    """Run a coroutine with a writer and a slow handler."""
    handler = SlowHandler()

    async def run() -> None:
        settings = ServerSettings(**options)
        writer = Writer(settings, lambda: cast(CommandHandler, handler))
        writer.sweep_interval_s = sweep_interval_s
        await writer.start()
        try:
            await use(writer, handler)
        finally:
            handler.gate.set()
            await writer.close()

    asyncio.run(run())
    return handler


async def queue_behind_commit(
    writer: Writer, handler: SlowHandler, *names: str
) -> list["asyncio.Task[Any]"]:
    """Queue one command that the handler executes, and others behind it."""
    handler.gate.clear()
    tasks = [asyncio.create_task(writer.execute(MakeDecision("first")))]
    await asyncio.sleep(0.05)
    tasks += [asyncio.create_task(writer.execute(MakeDecision(name))) for name in names]
    await asyncio.sleep(0.05)
    return tasks


def test_commands_queued_during_a_commit_share_the_next() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        tasks = await queue_behind_commit(writer, handler, *"abcde")
        handler.gate.set()
        assert await asyncio.gather(*tasks) == ["first", *"abcde"]

    assert run_with_writer(use).batches == [1, 5]
    assert run_with_writer(use, commit="each").batches == [1] * 6


def test_only_a_shared_commit_opens_the_group_commit_window() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        await writer.execute(MakeDecision("alone"))
        assert not writer.shared_commit
        tasks = await queue_behind_commit(writer, handler, *"abc")
        handler.gate.set()
        await asyncio.gather(*tasks)
        assert writer.shared_commit
        await writer.execute(MakeDecision("alone"))
        assert not writer.shared_commit

    run_with_writer(use)


def test_an_error_is_raised_for_its_own_command_only() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        tasks = await queue_behind_commit(writer, handler, "a", "bad", "c")
        handler.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, RouterNotFound) for one in answers] == [False, False, True, False]

    run_with_writer(use)


def test_a_full_queue_rejects_commands() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        tasks = await queue_behind_commit(writer, handler, "a")
        with pytest.raises(ApiError) as caught:
            await writer.execute(MakeDecision("b"))
        assert (caught.value.status, caught.value.code) == (503, "overloaded")
        assert caught.value.retry_after
        handler.gate.set()
        await asyncio.gather(*tasks)
        assert await writer.execute(MakeDecision("b")) == "b"
        assert writer.pending == 0

    run_with_writer(use, max_queued=2)


def test_other_requests_are_served_between_the_slices_of_a_large_batch() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        batch = [MakeDecision(f"{n}") for n in range(25)]
        handler.gate.clear()
        large = asyncio.create_task(writer.execute_in_slices(batch, 10))
        await asyncio.sleep(0.05)
        other = asyncio.create_task(writer.execute(MakeDecision("other")))
        await asyncio.sleep(0.05)
        handler.gate.set()
        assert await other == "other"
        assert not large.done()
        assert await large == [one.name for one in batch]

    assert run_with_writer(use, commit="each").batches == [10, 1, 10, 5]


def test_a_large_batch_keeps_the_results_from_before_a_shutdown() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        handler.gate.clear()
        batch = [MakeDecision(f"{n}") for n in range(5)]
        large = asyncio.create_task(writer.execute_in_slices(batch, 2))
        await asyncio.sleep(0.05)
        writer.draining = True
        handler.gate.set()
        answers = await large
        assert answers[:2] == ["0", "1"]
        assert [getattr(one, "code", None) for one in answers[2:]] == ["draining"] * 3

    assert run_with_writer(use).batches == [2]


def test_closing_answers_queued_commands_and_refuses_new_ones() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        tasks = await queue_behind_commit(writer, handler, "a", "b")
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as caught:
            await writer.execute(MakeDecision("late"))
        assert caught.value.code == "draining"
        handler.gate.set()
        assert await asyncio.gather(*tasks) == ["first", "a", "b"]
        await closing
        assert handler.tasks[-1] == "close"
        writer.close = lambda: asyncio.sleep(0)  # type: ignore[assignment, misc]

    run_with_writer(use)


def test_a_request_that_waits_too_long_is_answered_503_and_not_begun_later() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        tasks = await queue_behind_commit(writer, handler, "a")
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, ApiError)
            assert (error.status, error.code, error.retry_after) == (503, "timeout", 1.0)
        assert writer.age_s > 0.05  # nothing has moved: a server is not ready
        handler.gate.set()
        assert await writer.execute(MakeDecision("b")) == "b"
        assert (writer.age_s, writer.pending) == (0.0, 0)

    assert run_with_writer(use, request_timeout_s=0.05).batches == [1, 1]


def test_closing_does_not_wait_for_a_store_that_hangs() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        tasks = await queue_behind_commit(writer, handler)
        await writer.close(timeout_s=0.05)
        assert not tasks[0].done()
        handler.gate.set()
        assert await tasks[0] == "first"
        writer.thread.join()
        writer.close = lambda: asyncio.sleep(0)  # type: ignore[assignment, misc]

    run_with_writer(use)


@pytest.mark.parametrize("body", [{"json": {}}, {"content": iter([b"{}"])}], ids=["direct", "ASGI"])
def test_a_request_that_outlasts_the_shutdown_may_have_been_executed(
    body: dict[str, Any], tmp_path: Path
) -> None:
    handler = SlowHandler()
    answers: list[httpx.Response] = []
    open_store(f"sqlite:///{tmp_path}/bylot.db").close()
    with live_server(
        tmp_path, lambda _: lambda: cast(CommandHandler, handler), drain_timeout_s=1.0
    ) as server:
        handler.gate.clear()
        headers = {"content-type": "application/json"}
        writer, path = server.app.state.writer, "/v1/routers/a/decisions"
        thread = threading.Thread(
            target=lambda: answers.append(server.post(path, headers=headers, **body))
        )
        thread.start()
        wait_until(lambda: writer.pending and writer.queue.empty())  # it has begun
        server.server.handle_exit(15, None)
        thread.join()
    assert not handler.batches
    handler.gate.set()
    writer.thread.join()
    assert handler.batches == [1]
    assert assert_error(answers[0], 503)["code"] == "timeout"  # "draining": nothing was done
    assert int(answers[0].headers["retry-after"]) >= 1


def test_background_tasks_run_while_the_queue_is_empty() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        await asyncio.to_thread(wait_until, lambda: {"sweep", "renew"} <= set(handler.tasks))

    run_with_writer(use, sweep_interval_s=0.01, lease_s=0.03)


def test_failure_and_recovery_of_the_store_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "bylot.server")

    async def use(writer: Writer, handler: SlowHandler) -> None:
        handler.error = StoreUnavailable("no disk")
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await writer.execute(MakeDecision("a"))
        assert writer.store_error is not None
        handler.error = None
        await asyncio.to_thread(wait_until, lambda: writer.store_error is None)

    run_with_writer(use, lease_s=0.03)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["store is down: no disk", "store is back"]


def test_a_result_from_memory_does_not_mean_that_the_store_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "bylot.server")

    async def use(writer: Writer, handler: SlowHandler) -> None:
        handler.store_error = StoreUnavailable("no disk")
        await asyncio.to_thread(wait_until, lambda: writer.store_error is not None)
        task_count = len(handler.tasks)
        await asyncio.to_thread(wait_until, lambda: len(handler.tasks) > task_count + 6)
        assert await writer.execute(MakeDecision("a")) == "a"  # such a result needs no store
        assert writer.store_error is not None
        handler.store_error = None
        assert await writer.execute(MakeDecision("a")) == "a"
        assert writer.store_error is None

    run_with_writer(use, sweep_interval_s=0.01, lease_s=1.5)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["store is down: no disk", "store is back"]


def test_an_unexpected_error_does_not_stop_the_writer() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        handler.error = ZeroDivisionError("?")
        with pytest.raises(ZeroDivisionError):
            await writer.execute(MakeDecision("a"))
        handler.error = None
        assert await writer.execute(MakeDecision("a")) == "a"

    run_with_writer(use)


def test_a_key_can_be_reused_after_its_answer() -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        command = MakeDecision("a", key="k")
        assert await writer.execute(command) == await writer.execute(command) == "a"
        assert await writer.execute_all([command, command, MakeDecision("b", key="k")]) == [
            "a",
            "a",
            "b",
        ]
        first = asyncio.create_task(writer.execute(command))
        await asyncio.sleep(0)
        (second,) = await writer.execute_all([command])
        assert isinstance(second, ApiError)
        assert await first == "a"
        assert not writer.keys_in_flight
        assert await writer.execute_all([]) == []

    run_with_writer(use)


class BrokenResults:
    """Receives results, and fails."""

    def done(self) -> bool:
        return False

    def set_result(self, result: list[Any], /) -> None:
        raise RuntimeError("the connection is gone")

    set_exception: Any = set_result


def test_a_response_that_cannot_be_sent_does_not_affect_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def use(writer: Writer, handler: SlowHandler) -> None:
        writer.settings = ServerSettings(request_timeout_s=0.01)
        handler.gate.clear()
        writer.submit(MakeDecision("a"), BrokenResults())
        await asyncio.to_thread(wait_until, lambda: "was not sent" in caplog.text)  # a timeout
        handler.gate.set()
        writer.settings = ServerSettings()
        writer.submit(MakeDecision("a"), BrokenResults())
        assert await writer.execute(MakeDecision("b")) == "b"
        assert caplog.text.count("was not sent") >= 2
        assert not writer.expiring.done()

    run_with_writer(use)


def test_a_handler_that_cannot_be_created_fails_at_start() -> None:
    async def run() -> None:
        def make_handler() -> Any:
            raise UnsupportedStore("no such place")

        with pytest.raises(UnsupportedStore):
            await Writer(ServerSettings(), make_handler).start()

    asyncio.run(run())


class FailingStore:
    """A store whose disk is full for a while."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.is_full = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def append(self, *given: Any) -> None:
        if self.is_full:
            raise StoreUnavailable("the disk is full; make room")
        self.inner.append(*given)

    def renew(self, *given: Any) -> Any:
        if self.is_full:
            raise StoreUnavailable("the disk is full; make room")
        return self.inner.renew(*given)


def test_a_server_recovers_from_a_full_disk_without_a_restart(tmp_path: Path) -> None:
    stores: list[FailingStore] = []

    def make_handler(settings: ServerSettings) -> Callable[[], CommandHandler]:
        def make() -> CommandHandler:
            stores.append(FailingStore(open_store(settings.store)))
            return CommandHandler(RouterRepository(cast(Store, stores[0]), "failing"))

        return make

    with live_server(tmp_path, make_handler, lease_s=3.0) as server:
        path = f"{server.create_router()}/decisions"
        before = server.post(path, json={"key": "before"})
        assert before.status_code == 201
        stores[0].is_full = True
        refused = server.post(path, json={"key": "during"})
        assert assert_error(refused, 503)["code"] == "store_down"
        assert int(refused.headers["retry-after"]) >= 1
        assert "disk" not in refused.text
        many = server.post(f"{path}:batch", json={"decisions": [{}, {}]})
        assert [one["status"] for one in many.json()["results"]] == [503, 503]
        assert int(many.headers["retry-after"]) >= 1
        assert assert_error(server.get("/readyz"), 503)["code"] == "store_down"
        assert server.get("/healthz").status_code == 200
        stores[0].is_full = False
        after = server.post(path, json={"key": "during"})
        assert after.status_code == 201
        assert after.json()["t"] == 1  # the refused request had no effect
        assert server.post(path, json={"key": "before"}).content == before.content
        assert server.get("/readyz").status_code == 200
