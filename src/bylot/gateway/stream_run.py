"""The answer `first` as a stream: the first member that starts to stream is passed through."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from bylot.gateway.answers import Answer, Failure
from bylot.gateway.chat_run import ChatRun, explain_failures
from bylot.gateway.gateway import log
from bylot.gateway.upstream import CallFailed, ModelCall

MAX_QUEUED_CHUNKS = 64  # of a member whose caller reads slowly


class StreamPump:
    """Reads the stream of one member in a task of its own.

    begun:  done when the member has started to answer, or has failed before
    chunks: what it sent; None at its end
    """

    def __init__(self, call: ModelCall) -> None:
        self.call = call
        self.chunks: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(MAX_QUEUED_CHUNKS)
        self.begun: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        self.failure: Failure | None = None
        self.finish_reason: str | None = None
        self.is_stopped = False
        self.task = asyncio.create_task(self.read())

    async def read(self) -> None:
        """Read to the end."""
        try:
            early: deque[dict[str, Any]] = deque(maxlen=MAX_QUEUED_CHUNKS)  # without content
            async with contextlib.aclosing(self.call.stream()) as stream:
                async for chunk in stream:
                    if not self.begun.done() and not has_content(chunk):
                        early.append(chunk)
                        continue
                    if not self.begun.done():
                        self.begun.set_result(None)
                    while early:
                        await self.chunks.put(early.popleft())
                    await self.chunks.put(chunk)
            if not self.begun.done():
                self.failure = self.call.fail("garbage")
        except CallFailed as error:
            self.failure = error.failure
        except asyncio.CancelledError:
            if self.is_stopped:
                raise
            self.failure = self.call.fail("cancelled")  # it waited for a caller who reads slowly
        except Exception as error:  # a fault of ours
            log.error("the stream of %s failed", self.call.member, exc_info=error)
            self.failure = self.call.fail("interrupted")
        finally:
            if not self.begun.done():
                self.begun.set_result(self.failure or self.call.fail("cancelled"))
        await self.chunks.put(None)

    async def stop(self) -> None:
        """Stop reading, and close the connection if the stream has not ended."""
        self.is_stopped = True
        self.task.cancel()
        await asyncio.wait([self.task])

    @property
    def outcome(self) -> Answer | Failure:
        """What became of the call, after its end."""
        if self.failure is not None:
            return self.failure
        if not self.task.done() or self.task.cancelled():
            return self.call.fail("cancelled")
        message = self.call.join_message()
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        return self.call.succeed(choice, self.call.deployment.model)


def has_content(chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk has a part of an answer, not only a role."""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and any(delta.get(name) for name in delta if name != "role"):
            return True
        if isinstance(choice, dict) and choice.get("finish_reason"):
            return True
    return False


class StreamRun(ChatRun):
    """One request whose first member to answer is passed through.

    Whoever calls `begin` calls `finish` at the end, whatever happens in between.
    """

    source: StreamPump
    knows_cost = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.pumps: list[StreamPump] = []
        self.ending: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Decide, ask all members, and wait until one starts to answer; the others are stopped."""
        await self.decide()
        self.source = await self.choose_source()
        self.winner = self.source.call.member

    def ask(self, member: str) -> None:
        """Ask a member for a stream."""
        client, timeout_s = self.route.gateway.client, self.entry.member_timeout_s
        self.route.health.begin(member)
        self.pumps.append(StreamPump(client.call(member, self.body, timeout_s, self.entry.retries)))

    async def choose_source(self) -> StreamPump:
        """Ask the panel, and return the first member that starts to answer; failed ones are
        replaced meanwhile.
        """
        for member in self.decision.subset:
            self.ask(member)
        refills, deadline = self.entry.refill, asyncio.get_running_loop().time()
        deadline += self.entry.timeout_s
        open_pumps = {pump.begun: pump for pump in self.pumps if not pump.begun.done()}
        while open_pumps:
            left = max(deadline - asyncio.get_running_loop().time(), 0.0)
            done, _ = await asyncio.wait(
                open_pumps, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                for pump in open_pumps.values():
                    pump.failure = pump.call.fail("timeout")
                break
            for begun in sorted(done, key=lambda one: one.result() is not None):
                pump = open_pumps.pop(begun)
                failure = begun.result()
                if failure is None:
                    await self.stop_others(pump)
                    return pump
                substitute = None
                if refills > 0:
                    refills -= 1
                    substitute = await self.replace(failure.member)
                if substitute is not None:
                    self.ask(substitute)
                    open_pumps[self.pumps[-1].begun] = self.pumps[-1]
        failures = [one for pump in self.pumps if isinstance(one := pump.outcome, Failure)]
        if await self.draw_again(failures):
            return await self.choose_source()
        raise explain_failures(failures)

    async def stop_others(self, chosen: StreamPump) -> None:
        for pump in self.pumps:
            if pump is not chosen:
                await pump.stop()

    async def iterate(self) -> AsyncGenerator[list[dict[str, Any]]]:
        """The choices of each chunk; without a scorer the panel is settled before it ends."""
        while (chunk := await self.source.chunks.get()) is not None:
            choices = [one for one in chunk.get("choices") or () if isinstance(one, dict)]
            for choice in choices:
                self.source.finish_reason = choice.get("finish_reason") or self.source.finish_reason
            if choices:
                yield choices
        if self.source.failure is not None:
            raise explain_failures([self.source.failure])
        await self.finish()

    async def finish(self) -> None:
        """Stop all members and settle the panel, once, if there is a decision; this goes on even if
        the caller leaves meanwhile.
        """
        if self.ending is None and hasattr(self, "decision"):
            self.ending = self.route.gateway.spawn(self.end())
        if self.ending is not None:
            await asyncio.shield(self.ending)

    async def end(self) -> None:
        """Stop all members, and settle the panel."""
        for pump in self.pumps:
            await pump.stop()
            self.route.health.end(pump.outcome)
            self.result.add(pump.outcome)
        if not self.result.answers:
            self.winner = None
        await self.settle()
