"""What other processes do to a store while tests kill them: python store_errands.py ERRAND …"""

import random
import sys

from bylot.errors import LeaseLost
from bylot.store import Event, Store, open_store, sqlite


def batch(router: int, seq: int, who: str, size: int) -> list[Event]:
    """Lines that say whose they are, and where the batch that they came in begins and ends."""
    body = f"{who} {seq} {seq + size}".encode()
    return [
        Event(router, one, "decided", None, f"{who} {one}", one, body, b"")
        for one in range(seq, seq + size)
    ]


def end(store: Store, router: int) -> int:
    """The number of the next line."""
    last = store.latest(router, "decided", 1)
    return last[0].seq + 1 if last else 1


def write(address: str, router: str, seed: str) -> None:
    """Batch after batch until killed; says up to which line all was acknowledged."""
    store, chance = open_store(address), random.Random(int(seed))
    start = end(store, int(router))
    print(start, flush=True)
    while True:
        size = chance.randint(1, 20)
        store.append(batch(int(router), start, seed, size))
        start += size
        print(start, flush=True)


def race(address: str, router: str, who: str) -> None:
    """A hundred batches against other processes that want the same; says how often it lost."""
    store, lost = open_store(address), 0
    print("ready", flush=True)
    sys.stdin.readline()
    for size in [1, 2, 3, 4] * 25:
        while True:
            try:
                store.append(batch(int(router), end(store, int(router)), who, size))
                break
            except LeaseLost:
                lost += 1
    print(lost, flush=True)
    store.close()


def lease(address: str, router: str, who: str) -> None:
    """Asks once, at the same time as others."""
    store = open_store(address)
    print("ready", flush=True)
    sys.stdin.readline()
    print(store.lease(int(router), who, 60) is None, flush=True)
    store.close()


def make(address: str, _router: str, who: str) -> None:
    """Opens a store that others open at the same time, and makes a router in it."""
    print("ready", flush=True)
    sys.stdin.readline()
    store = open_store(address)
    print(store.create(who, 0, batch(0, 0, who, 1)[0]).number, flush=True)
    store.close()


if __name__ == "__main__":
    sqlite.SQLITE_BUSY_TIMEOUT_S = 30.0  # a slow disk is no failure
    {"write": write, "race": race, "lease": lease, "make": make}[sys.argv[1]](*sys.argv[2:])
