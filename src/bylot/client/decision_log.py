"""The log of a served router as a log of decisions that can be evaluated (docs/log.md)."""

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
from msgspec import Struct

from bylot import evaluate, policies
from bylot.client import requests
from bylot.client.client import Client
from bylot.client.responses import ConfigResponse, LogLine, OptionalNumbers, nan_for_missing
from bylot.evaluate import LogEntry
from bylot.router.decision import Decision


class ConfigLine(Struct):
    """Terms, from here on."""

    terms: ConfigResponse


class DecidedLine(Struct):
    """A decision."""

    t: int
    context: str | None
    draws: tuple[str, ...]
    draw_probabilities: bytes  # float64, little endian
    available_mask: bytes  # one byte an expert; empty: all
    feasible: bool
    propensity: float | None
    spend: OptionalNumbers
    defer: bool = False
    replaced: bool = False


class RewardedLine(Struct):
    """A reward."""

    value: float
    receipt: str
    spend: dict[str, float] | None = None


class ClosedLine(Struct):
    """The time of a decision is up."""

    learned: float | None


class LogReader:
    """What the lines of a log come to, decision by decision.

    name: of a decision, from the number of its line
    """

    def __init__(self, name: Callable[[int], str]) -> None:
        self.name = name
        self.entries: dict[int, LogEntry] = {}
        self.idle: set[int] = set()  # deferred, and never activated
        self.pools: dict[int, list[str]] = {}  # the experts that there were

    def read(self, lines: Iterable[LogLine]) -> list[LogEntry]:
        """The decisions that were used, in order."""
        does = {
            "created": self.agreed,
            "edited": self.agreed,
            "decided": self.decided,
            "rewarded": self.rewarded,
            "activated": lambda line: self.idle.discard(decision_seq(line)),
            "cancelled": lambda line: self.idle.add(decision_seq(line)),
            "closed": self.closed,
        }
        for line in lines:
            does[line.kind](line)
        return [self.placed(seq) for seq in self.entries if seq not in self.idle]

    def placed(self, seq: int) -> LogEntry:
        """A decision; one of another pool than the present says who there was, as those that have
        joined since were not up, and those that have left were.
        """
        entry, pool = self.entries[seq], self.pools[seq]
        if entry.available is not None or set(pool) == set(self.experts):
            return entry
        return entry._replace(available=tuple(pool))

    def agreed(self, line: LogLine) -> None:
        """Other terms: who the experts are, and which policy plays."""
        terms = msgspec.json.decode(line.body, type=ConfigLine).terms
        self.experts: list[str] = terms.problem["experts"]
        policy = policies.policy_from_data(terms.policy)
        assert not isinstance(policy, policies.Auto), "a log has the policy that was chosen"
        self.policy = policy

    def decided(self, line: LogLine) -> None:
        """One decision more."""
        drawn = msgspec.json.decode(line.body, type=DecidedLine)
        probabilities = np.frombuffer(drawn.draw_probabilities, "<f8").tolist()
        decision = Decision(
            id=self.name(line.seq),
            t=drawn.t,
            context=drawn.context,
            draws=drawn.draws,
            draw_probabilities=tuple(probabilities) or None,
            subset=tuple(dict.fromkeys(drawn.draws)),
            spend=nan_for_missing(drawn.spend),
            expected={},
            feasible=drawn.feasible,
            propensity=drawn.propensity,
            replaced=drawn.replaced,
        )
        up = [
            name for name, there in zip(self.experts, drawn.available_mask, strict=False) if there
        ]
        entry = evaluate.entry_from_decision(decision, None, self.policy, up or None)
        self.entries[line.seq], self.pools[line.seq] = entry, self.experts
        if drawn.defer:
            self.idle.add(line.seq)

    def rewarded(self, line: LogLine) -> None:
        """A reward that was learned, or may be when the time is up; and what the panel cost."""
        told, seq = msgspec.json.decode(line.body, type=RewardedLine), decision_seq(line)
        entry = self.entries[seq]
        if told.receipt == "learned":
            entry = entry._replace(reward=told.value)
        self.entries[seq] = entry._replace(spend={**entry.spend, **(told.spend or {})})

    def closed(self, line: LogLine) -> None:
        """The time of a decision is up."""
        seq, ended = decision_seq(line), msgspec.json.decode(line.body, type=ClosedLine)
        if ended.learned is not None:
            self.entries[seq] = self.entries[seq]._replace(reward=ended.learned)


def read_entries(client: Client, router: str) -> list[LogEntry]:
    """The decisions of a served router that were used, in order."""
    number = client.send(requests.view_call(router))["number"]
    logged = LogReader(lambda seq: f"{router}.{number}.{seq}")
    return logged.read(client.router(router).events())


def decision_seq(line: LogLine) -> int:
    """The decision that a line speaks of."""
    assert line.of is not None, f"line {line.seq} speaks of no decision"
    return line.of
