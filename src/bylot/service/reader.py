"""Questions that need no writer: one thread with a connection of its own."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bylot.service.errors import Refusal
from bylot.store import Store

Answer = TypeVar("Answer")

MOST = 1_000  # questions that may wait


class Reader:
    """Ask it from the event loop."""

    def __init__(self, connect: Callable[[], Store]) -> None:
        self.connect = connect
        self.store: Store | None = None
        self.waiting = 0
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="bylot-reader")

    async def read(self, question: Callable[[Store], Answer]) -> Answer:
        """What a question to the store gives."""
        if self.waiting >= MOST:
            message = f"{self.waiting} questions are waiting already; try again in a moment"
            raise Refusal(503, "overloaded", message, retry=1.0)
        self.waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.thread, self.put, question)
        finally:
            self.waiting -= 1

    def put(self, question: Callable[[Store], Answer]) -> Answer:
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
