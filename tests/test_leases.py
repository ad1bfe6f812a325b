"""Leases of killed servers: a successor on the same machine does not wait for them."""

import subprocess
import sys

from bylot.eventlog.repository import (
    identify_machine,
    is_dead_owner,
    make_owner_name,
    release_dead_leases,
)
from bylot.store import Store
from stores import create_router


def test_a_running_process_is_not_a_dead_owner_and_an_ended_one_is() -> None:
    code = (
        "from bylot.eventlog.repository import make_owner_name as name;"
        " print(name(), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert not is_dead_owner(owner)
        process.kill()
        process.wait()
        assert is_dead_owner(owner)


def test_owners_on_other_machines_are_not_considered_dead() -> None:
    own_name = make_owner_name()
    assert not is_dead_owner(own_name)
    assert not is_dead_owner(own_name.replace(identify_machine(), "elsewhere:1:2"))
    assert not is_dead_owner("process 17")
    assert not is_dead_owner("")
    pid, since = own_name.split("/")[1].split("@")
    # The process id was reused
    assert is_dead_owner(f"{identify_machine()}/{pid}@{int(since) - 1}/ff")


def test_only_leases_of_dead_owners_are_released(store: Store) -> None:
    first, second = create_router(store, "a"), create_router(store, "b")
    dead = f"{identify_machine()}/{2**22 + 1}@1/ff"
    store.lease(first, dead, 60)
    store.lease(second, "elsewhere", 60)
    release_dead_leases(store)
    assert store.lease_owners() == ["elsewhere"]
    assert store.lease(first, "me", 60) is None
    assert store.lease(second, "me", 60) is not None
