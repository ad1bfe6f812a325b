"""Commands given to a handler by tests that expect success."""

from typing import Any

from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.events import now_us

SECOND = 1_000_000
DAY = 86_400 * SECOND


def perform_all(handler: CommandHandler, *commands: Any, at: int = SECOND) -> list[Any]:
    """Answers, none of them an error."""
    answers = handler.perform(commands, at)
    assert not [one for one in answers if isinstance(one, Exception)], answers
    return answers


def perform_now(handler: CommandHandler, command: Any) -> Any:
    """The answer to a command; errors are raised."""
    (answer,) = handler.perform([command], now_us())
    if isinstance(answer, Exception):
        raise answer
    return answer
