"""A router whose log has short segments."""

import random

import pytest

from bylot.eventlog import repository
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, MakeDecision, RecordReward
from bylot.eventlog.repository import RouterRepository
from bylot.store import Store
from handlers import SECOND, perform_all
from logged_aggregate import make_config
from sample_problem import make_five_expert_problem

KEEP_US = 1_000 * SECOND


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "SEGMENT_EVENTS", 40)
    monkeypatch.setattr(repository, "SEGMENT_SNAPSHOT_BYTES_PER_EVENT", 10_000)
    monkeypatch.setattr(repository, "SNAPSHOT_BYTES_PER_EVENT", 111)  # about 80 events apart


def make_handler(store: Store, keep_us: int | None = KEEP_US) -> CommandHandler:
    return CommandHandler(RouterRepository(store, "me", every=10), keep_us)


def play(handler: CommandHandler, start: int, decisions: int, seed: int = 0) -> list[str]:
    """Make decisions ten seconds apart from a time on, most of them rewarded, some of them late;
    returns their ids.
    """
    rng, ids, unrewarded = random.Random(seed), [], list[str]()
    for n in range(decisions):
        at = start + 10 * n * SECOND
        key = f"{start}-{n}" if n % 3 == 0 else None
        (made,) = perform_all(handler, MakeDecision("ward", rng.choice("ab"), key=key), at=at)
        ids.append(made.id)
        unrewarded.append(made.id)
        if rng.random() < 0.8:
            id = unrewarded.pop(rng.randrange(max(0, len(unrewarded) - 3), len(unrewarded)))
            perform_all(handler, RecordReward(id, rng.random(), {"usd": rng.random()}), at=at)
    return ids


def start_router(store: Store, keep_us: int | None = KEEP_US, at: int = SECOND) -> CommandHandler:
    """A handler with a new router."""
    handler, config = (
        make_handler(store, keep_us),
        make_config(make_five_expert_problem(), memory=20),
    )
    perform_all(handler, CreateRouter("ward", config), at=at)
    return handler


def maintain(handler: CommandHandler, at: int) -> None:
    handler.sweep(at)
    while handler.maintain(at):
        pass
