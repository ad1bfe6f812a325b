"""Processes that use a store while tests kill them: python store_processes.py COMMAND ..."""

import random
import sys

from bylot.errors import LeaseLost
from bylot.store import Event, Store, open_store, sqlite


def make_event_batch(router: int, seq: int, name: str, size: int) -> list[Event]:
    """Events with the name of their writer and the first and last seq of their batch."""
    body = f"{name} {seq} {seq + size}".encode()
    return [
        Event(router, one, "decided", None, f"{name} {one}", one, body, b"")
        for one in range(seq, seq + size)
    ]


def find_next_seq(store: Store, router: int) -> int:
    """The seq of the next event."""
    last = store.latest(router, "decided", 1)
    return last[0].seq + 1 if last else 1


def write_until_killed(address: str, router: str, seed: str) -> None:
    """Write batches until killed; prints the seq up to which all was acknowledged."""
    store, rng = open_store(address), random.Random(int(seed))
    start = find_next_seq(store, int(router))
    print(start, flush=True)
    while True:
        size = rng.randint(1, 20)
        store.append(make_event_batch(int(router), start, seed, size))
        start += size
        print(start, flush=True)


def race_to_append(address: str, router: str, name: str) -> None:
    """Write a hundred batches in competition with other processes; prints the lost races."""
    store, lost_races = open_store(address), 0
    print("ready", flush=True)
    sys.stdin.readline()
    for size in [1, 2, 3, 4] * 25:
        while True:
            try:
                store.append(
                    make_event_batch(int(router), find_next_seq(store, int(router)), name, size)
                )
                break
            except LeaseLost:
                lost_races += 1
    print(lost_races, flush=True)
    store.close()


def try_lease(address: str, router: str, name: str) -> None:
    """Ask for a lease once, at the same time as others."""
    store = open_store(address)
    print("ready", flush=True)
    sys.stdin.readline()
    print(store.lease(int(router), name, 60) is None, flush=True)
    store.close()


def open_and_create(address: str, _router: str, name: str) -> None:
    """Open a store that others open at the same time, and create a router in it."""
    print("ready", flush=True)
    sys.stdin.readline()
    store = open_store(address)
    print(store.create(name, 0, make_event_batch(0, 0, name, 1)[0]).number, flush=True)
    store.close()


if __name__ == "__main__":
    sqlite.SQLITE_BUSY_TIMEOUT_S = 30.0  # a slow disk is not a failure
    {
        "write": write_until_killed,
        "race": race_to_append,
        "lease": try_lease,
        "create": open_and_create,
    }[sys.argv[1]](*sys.argv[2:])
