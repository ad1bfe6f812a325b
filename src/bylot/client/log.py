"""The log of a served router as a log of decisions that can be evaluated (docs/log.md)."""

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
from msgspec import Struct

from bylot import evaluation, policies
from bylot.client import calls
from bylot.client.answers import Line, Numbers, Written, known
from bylot.client.client import Client
from bylot.decision import Decision
from bylot.evaluation import Entry


class Agreed(Struct):
    """Terms, from here on."""

    terms: Written


class Drawn(Struct):
    """A decision."""

    t: int
    context: str | None
    draws: tuple[str, ...]
    odds: bytes  # float64, little endian
    up: bytes  # one byte an expert; empty: all
    feasible: bool
    chance: float | None
    spend: Numbers
    defer: bool = False
    replaced: bool = False


class Told(Struct):
    """A reward."""

    value: float
    receipt: str
    spend: dict[str, float] | None = None


class Ended(Struct):
    """The time of a decision is up."""

    learned: float | None


class Logged:
    """What the lines of a log come to, decision by decision.

    name: of a decision, from the number of its line
    """

    def __init__(self, name: Callable[[int], str]) -> None:
        self.name = name
        self.entries: dict[int, Entry] = {}
        self.idle: set[int] = set()  # deferred, and never activated
        self.pools: dict[int, list[str]] = {}  # the experts that there were

    def read(self, lines: Iterable[Line]) -> list[Entry]:
        """The decisions that were used, in order."""
        does = {
            "created": self.agreed,
            "edited": self.agreed,
            "decided": self.decided,
            "rewarded": self.rewarded,
            "activated": lambda line: self.idle.discard(part(line)),
            "cancelled": lambda line: self.idle.add(part(line)),
            "closed": self.closed,
        }
        for line in lines:
            does[line.kind](line)
        return [self.placed(seq) for seq in self.entries if seq not in self.idle]

    def placed(self, seq: int) -> Entry:
        """A decision; one of another pool than the present says who there was, as those that have
        joined since were not up, and those that have left were.
        """
        entry, pool = self.entries[seq], self.pools[seq]
        if entry.available is not None or set(pool) == set(self.experts):
            return entry
        return entry._replace(available=tuple(pool))

    def agreed(self, line: Line) -> None:
        """Other terms: who the experts are, and what the odds are of."""
        terms = msgspec.json.decode(line.body, type=Agreed).terms
        self.experts: list[str] = terms.problem["experts"]
        policy = policies.read(terms.policy)
        assert not isinstance(policy, policies.Auto), "a log has the policy that was chosen"
        self.policy = policy

    def decided(self, line: Line) -> None:
        """One decision more."""
        drawn = msgspec.json.decode(line.body, type=Drawn)
        odds = np.frombuffer(drawn.odds, "<f8").tolist()
        decision = Decision(
            id=self.name(line.seq),
            t=drawn.t,
            context=drawn.context,
            draws=drawn.draws,
            odds=tuple(odds),
            subset=tuple(dict.fromkeys(drawn.draws)),
            spend=known(drawn.spend),
            expected={},
            feasible=drawn.feasible,
            chance=drawn.chance,
            replaced=drawn.replaced,
        )
        up = [name for name, there in zip(self.experts, drawn.up, strict=False) if there]
        entry = evaluation.entry(decision, None, self.policy, up or None)
        self.entries[line.seq], self.pools[line.seq] = entry, self.experts
        if drawn.defer:
            self.idle.add(line.seq)

    def rewarded(self, line: Line) -> None:
        """A reward that was learned, or may be when the time is up; and what the panel cost."""
        told, seq = msgspec.json.decode(line.body, type=Told), part(line)
        entry = self.entries[seq]
        if told.receipt == "learned":
            entry = entry._replace(reward=told.value)
        self.entries[seq] = entry._replace(spend={**entry.spend, **(told.spend or {})})

    def closed(self, line: Line) -> None:
        """The time of a decision is up."""
        seq, ended = part(line), msgspec.json.decode(line.body, type=Ended)
        if ended.learned is not None:
            self.entries[seq] = self.entries[seq]._replace(reward=ended.learned)


def entries(client: Client, router: str) -> list[Entry]:
    """The decisions of a served router that were used, in order."""
    number = client.send(calls.view(router))["number"]
    logged = Logged(lambda seq: f"{router}.{number}.{seq}")
    return logged.read(client.router(router).events())


def part(line: Line) -> int:
    """The decision that a line speaks of."""
    assert line.of is not None, f"line {line.seq} speaks of no decision"
    return line.of
