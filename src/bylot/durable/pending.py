"""Lines that are made but not yet in the store: what one commit will write."""

from collections import defaultdict

from bylot.durable import lookup
from bylot.store import Event, Past, Store


class Pending:
    """The lines of one batch, looked up together with those that the store has."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lines: dict[int, list[Event]] = defaultdict(list)  # by router
        self.keyed: dict[tuple[int, str], Event] = {}
        self.decided: dict[tuple[int, int], Event] = {}

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, event: Event) -> None:
        """One more line, the next of its router's log."""
        self.lines[event.router].append(event)
        if event.kind == "decided":
            self.decided[event.router, event.seq] = event
            if event.key is not None:
                self.keyed[event.router, event.key] = event

    def forget(self, router: int) -> None:
        """Lines that will not be written."""
        self.lines.pop(router, None)
        self.keyed = {at: event for at, event in self.keyed.items() if at[0] != router}
        self.decided = {at: event for at, event in self.decided.items() if at[0] != router}

    def clear(self) -> None:
        """All of it is written, or none of it will be."""
        self.lines.clear()
        self.keyed.clear()
        self.decided.clear()

    def events(self) -> list[Event]:
        """All lines, those of a router in their order."""
        return [event for lines in self.lines.values() for event in lines]

    def find(self, router: int, key: str) -> Event | None:
        """The decision made under a key."""
        return self.keyed.get((router, key)) or lookup.keyed(self.store, router, key)

    def past(self, router: int, seq: int) -> Past | None:
        """A decision and what was said of it since."""
        here = [event for event in self.lines.get(router, ()) if event.of == seq]
        made = self.decided.get((router, seq))
        if made is not None:
            return Past(made, here)
        before = lookup.past(self.store, router, seq)
        return None if before is None else Past(before.decided, [*before.since, *here])
