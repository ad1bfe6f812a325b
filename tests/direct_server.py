"""Writer and reader of a server without threads, for the source of the dashboard."""

from collections.abc import Callable, Sequence
from typing import Any

from bylot.eventlog.command_handler import CommandHandler
from bylot.server.writer import Reader, Writer
from bylot.store import Store


class DirectServer:
    """Writer and reader of a server, without threads."""

    def __init__(self, handler: CommandHandler, store: Store) -> None:
        self.handler, self.store, self.at, self.commands = handler, store, 1_000_000, list[Any]()

    def do(self, *commands: Any) -> list[Any]:
        self.at += 1_000
        return self.handler.perform(commands, self.at)

    async def execute(self, command: Any) -> Any:
        (answer,) = await self.execute_all([command])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def execute_all(self, commands: Sequence[Any]) -> list[Any]:
        self.commands += commands
        return self.do(*commands)

    show_routers, read_router = Writer.show_routers, Reader.read_router
    execute_in_slices = Writer.execute_in_slices

    async def read(self, question: Callable[[Store], Any]) -> Any:
        return question(self.store)
