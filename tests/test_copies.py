"""A router that has learned continues under another name, in another store, or from a file."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from bylot import Problem, Router, at_most
from bylot.cli import main
from bylot.errors import RouterExists, RouterNotFound, StoreCorrupted
from bylot.eventlog.audit import audit_router
from bylot.eventlog.command_handler import CommandHandler
from bylot.eventlog.commands import CreateRouter, GetRouter, MakeDecision, RecordReward
from bylot.eventlog.copies import copy_router
from bylot.eventlog.loading import load_aggregate
from bylot.eventlog.repository import RouterRepository
from bylot.store import Store, open_store
from handlers import perform_now
from logged_aggregate import make_config
from sample_problem import make_five_expert_problem
from stores import Opener, execute_statements, read_log


def make_handler(store: Store, owner: str = "me") -> CommandHandler:
    return CommandHandler(RouterRepository(store, owner, every=50))


def play(handler: CommandHandler, name: str, decisions: int = 60, seed: int = 0) -> list[str]:
    """Make decisions, three of four of which are rewarded; returns their panels."""
    rng, panels = random.Random(seed), []
    for n in range(decisions):
        made = perform_now(handler, MakeDecision(name, "ab"[n % 2]))
        panels.append(made.subset)
        if n % 4:
            spend = {"usd": rng.random()}
            perform_now(handler, RecordReward(made.id, rng.random(), spend))
    return panels


def test_a_copy_continues_as_the_original_does(store: Store, open_store_again: Opener) -> None:
    handler = make_handler(store)
    perform_now(handler, CreateRouter("one", make_config(make_five_expert_problem())))
    play(handler, "one")
    other = open_store_again()
    row = copy_router(other, "one", store, "two")
    assert (row.name, len(read_log(store, row.number))) == ("two", 1)
    before, after = (perform_now(handler, GetRouter(name)).status for name in ("one", "two"))
    assert (after.decisions, after.rewards) == (before.decisions, before.rewards) == (60, 45)
    assert (after.limits, after.costs, after.q) == (before.limits, before.costs, before.q)
    assert (before.waiting, after.waiting) == (15, 0)
    assert after.counters.missing == before.counters.missing + 15
    # the same requests and rewards: the same panels; beyond a snapshot of the copy
    assert play(handler, "two", 80, seed=1) == play(handler, "one", 80, seed=1)
    for name in ("one", "two"):
        assert audit_router(store, name).fault is None
    state = handler.repository.opened["two"].aggregate.fingerprint()
    handler.close()
    again = make_handler(other)
    perform_now(again, GetRouter("two"))
    assert again.repository.opened["two"].aggregate.fingerprint() == state
    again.close()


def test_a_copy_in_another_store_proves_itself(store: Store, address: str, tmp_path: Path) -> None:
    handler = make_handler(store)
    perform_now(handler, CreateRouter("one", make_config(make_five_expert_problem())))
    play(handler, "one")
    handler.close()
    url = f"sqlite:///{tmp_path}/other.db"
    open_store(url).close()
    assert main(["router", "copy", "one", "one", "--store", address, "--to", url]) == 0
    with closing(open_store(url)) as other:
        target = make_handler(other)
        play(target, "one")
        target.close()
        assert audit_router(other, "one").fault is None
        row = other.find("one")
        assert row is not None
        execute_statements(url, "UPDATE snapshots SET seal = x'00' WHERE seq = -1")
        assert "changed" in (audit_router(other, "one").fault or "")
        execute_statements(url, "DELETE FROM snapshots")
        with pytest.raises(StoreCorrupted, match="no snapshot to continue from is left"):
            load_aggregate(other, row)


def test_names_that_are_used_or_unknown_are_refused(store: Store) -> None:
    handler = make_handler(store)
    perform_now(handler, CreateRouter("one", make_config(make_five_expert_problem())))
    with pytest.raises(RouterExists):
        copy_router(store, "one", store, "one")
    with pytest.raises(RouterNotFound):
        copy_router(store, "none", store, "two")
    assert [row.name for row in store.routers()] == ["one"]
    handler.close()


@pytest.mark.parametrize("decisions", [0, 1, 255, 256, 700])
def test_a_router_in_memory_is_imported(
    store: Store, address: str, tmp_path: Path, decisions: int
) -> None:
    problem = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 3.0]}, [at_most("usd", 3.5)], draws=2)
    router = Router(problem, seed=3)
    rng = random.Random(1)
    for _ in range(decisions):
        router.reward(router.decide().id, rng.random())
    router.save(tmp_path / "router.bylot")
    file = str(tmp_path / "router.bylot")
    assert main(["router", "import", "served", file, "--store", address]) == 0
    handler = make_handler(store)
    view = perform_now(handler, GetRouter("served"))
    assert (view.status.decisions, view.status.rewards) == (decisions, decisions)
    assert view.status.costs["usd"].settled == router.status().costs["usd"].settled
    for _ in range(300):
        here, there = router.decide(), perform_now(handler, MakeDecision("served"))
        assert here.subset == there.subset
        reward = rng.random()
        router.reward(here.id, reward)
        perform_now(handler, RecordReward(there.id, reward))
    points = perform_now(handler, GetRouter("served")).status.timeline
    assert sum(points.decisions) == sum(points.rewards) == 300
    handler.close()
    assert audit_router(store, "served").fault is None
