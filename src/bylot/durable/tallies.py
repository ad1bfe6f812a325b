"""The stated costs of a log, taken line by line: what the books of a router are held against."""

import math
from array import array
from bisect import bisect_left

from bylot.durable.history import READ
from bylot.store import Event


class Tallies:
    """A column for every cost that was ever stated, with a number for each decision."""

    def __init__(self) -> None:
        self.lines = array("q")  # of the decisions, in order
        self.columns: dict[str, array[float]] = {}

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, event: Event) -> None:
        """One more line; a decision that was taken back costs nothing."""
        if event.kind == "decided":
            for name, cost in READ["decided"](event.body).spend.items():
                column = self.columns.setdefault(name, array("d"))
                column.extend([0.0] * (len(self.lines) - len(column)))  # it was not stated before
                column.append(cost)
            self.lines.append(event.seq)
        elif event.kind == "cancelled" and event.of is not None:
            t = bisect_left(self.lines, event.of)
            for column in self.columns.values():
                if t < len(column):
                    column[t] = 0.0

    def total(self, cost: str, since: int) -> float:
        """The sum of a cost over the decisions from number `since` on."""
        return math.fsum(self.columns.get(cost, array("d"))[since:])
