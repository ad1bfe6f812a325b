"""Leases of servers that were killed: their successors on the same machine need not wait."""

import subprocess
import sys

from bylot.eventlog.repository import (
    identify_machine,
    is_dead_owner,
    make_owner_name,
    release_dead_leases,
)
from bylot.store import Store
from stores import made


def test_a_process_that_runs_is_not_gone_and_one_that_ended_is() -> None:
    line = (
        "from bylot.eventlog.repository import make_owner_name as name;"
        " print(name(), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert not is_dead_owner(owner)
        process.kill()
        process.wait()
        assert is_dead_owner(owner)


def test_of_other_machines_and_of_other_programs_nothing_is_known() -> None:
    ours = make_owner_name()
    assert not is_dead_owner(ours)
    assert not is_dead_owner(ours.replace(identify_machine(), "elsewhere:1:2"))
    assert not is_dead_owner("process 17")
    assert not is_dead_owner("")
    pid, since = ours.split("/")[1].split("@")
    assert is_dead_owner(
        f"{identify_machine()}/{pid}@{int(since) - 1}/ff"
    )  # the number was given to us since


def test_a_successor_takes_the_leases_of_the_dead_and_no_others(store: Store) -> None:
    first, second = made(store, "a"), made(store, "b")
    dead = f"{identify_machine()}/{2**22 + 1}@1/ff"
    store.lease(first, dead, 60)
    store.lease(second, "elsewhere", 60)
    release_dead_leases(store)
    assert store.lease_owners() == ["elsewhere"]
    assert store.lease(first, "me", 60) is None
    assert store.lease(second, "me", 60) is not None
