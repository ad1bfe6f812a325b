"""The event log of a router on a server as a log of decisions for evaluation (docs/log.md)."""

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
from msgspec import Struct

from bylot import evaluate, policies
from bylot.api import EventRecord
from bylot.client import requests
from bylot.client.client import Client
from bylot.evaluate import LogEntry
from bylot.router.config import RouterConfig
from bylot.router.decision import Decision


class ConfigLine(Struct):
    """Body of `created` and `edited`: the configuration from here on."""

    config: RouterConfig


class DecidedLine(Struct):
    """Body of `decided`."""

    t: int
    context: str | None
    draws: tuple[str, ...]
    draw_probabilities: bytes  # float64, little endian
    available_mask: bytes  # one byte per expert; empty: all
    feasible: bool
    propensity: float | None
    spend: dict[str, float]
    defer: bool = False
    replaced: bool = False


class RewardedLine(Struct):
    """Body of `rewarded`."""

    value: float
    receipt: str
    spend: dict[str, float] | None = None


class ClosedLine(Struct):
    """Body of `closed`: the wait for a reward is over."""

    learned: float | None


class LogReader:
    """Collects the entries of an event log, one per decision.

    make_id: the id of a decision, from the sequence number of its event
    """

    def __init__(self, make_id: Callable[[int], str]) -> None:
        self.make_id = make_id
        self.entries: dict[int, LogEntry] = {}
        self.unused: set[int] = set()  # cancelled, or deferred and never activated
        self.pools: dict[int, list[str]] = {}  # the experts at the time of a decision

    def read(self, events: Iterable[EventRecord]) -> list[LogEntry]:
        """The decisions that were used, in order."""
        handlers = {
            "created": self.on_config,
            "edited": self.on_config,
            "decided": self.on_decision,
            "rewarded": self.on_reward,
            "activated": lambda event: self.unused.discard(decision_seq(event)),
            "cancelled": lambda event: self.unused.add(decision_seq(event)),
            "closed": self.on_close,
        }
        for event in events:
            if event.kind in handlers:  # others do not concern decisions
                handlers[event.kind](event)
        return [self.finish_entry(seq) for seq in self.entries if seq not in self.unused]

    def finish_entry(self, seq: int) -> LogEntry:
        """An entry; if the pool has changed since, the pool of then was what was available."""
        entry, pool = self.entries[seq], self.pools[seq]
        if entry.available is not None or set(pool) == set(self.experts):
            return entry
        return entry._replace(available=tuple(pool))

    def on_config(self, event: EventRecord) -> None:
        """Remember the experts and the policy."""
        config = msgspec.json.decode(event.body, type=ConfigLine).config
        self.experts: list[str] = config.problem["experts"]
        policy = policies.policy_from_data(config.policy)
        assert not isinstance(policy, policies.Auto), "a log contains the policy that was chosen"
        self.policy = policy

    def on_decision(self, event: EventRecord) -> None:
        """Add an entry."""
        made = msgspec.json.decode(event.body, type=DecidedLine)
        probabilities = np.frombuffer(made.draw_probabilities, "<f8").tolist()
        decision = Decision(
            id=self.make_id(event.seq),
            t=made.t,
            context=made.context,
            draws=made.draws,
            draw_probabilities=tuple(probabilities) or None,
            subset=tuple(dict.fromkeys(made.draws)),
            spend=made.spend,
            expected={},
            feasible=made.feasible,
            propensity=made.propensity,
            replaced=made.replaced,
        )
        mask = zip(self.experts, made.available_mask, strict=False)
        available = [name for name, is_available in mask if is_available]
        entry = evaluate.entry_from_decision(decision, None, self.policy, available or None)
        self.entries[event.seq], self.pools[event.seq] = entry, self.experts
        if made.defer:
            self.unused.add(event.seq)

    def on_reward(self, event: EventRecord) -> None:
        """Record a reward that was learned, and the settled costs."""
        reward, seq = msgspec.json.decode(event.body, type=RewardedLine), decision_seq(event)
        entry = self.entries[seq]
        if reward.receipt == "learned":
            entry = entry._replace(reward=reward.value)
        self.entries[seq] = entry._replace(spend={**entry.spend, **(reward.spend or {})})

    def on_close(self, event: EventRecord) -> None:
        """Record the reward that was learned at the end of the wait."""
        seq, closed = decision_seq(event), msgspec.json.decode(event.body, type=ClosedLine)
        if closed.learned is not None:
            self.entries[seq] = self.entries[seq]._replace(reward=closed.learned)


def read_entries(client: Client, router: str) -> list[LogEntry]:
    """The decisions of a router on a server that were used, in order."""
    number = client.send(requests.get_view(router)).number
    reader = LogReader(lambda seq: f"{router}.{number}.{seq}")
    return reader.read(client.router(router).events())


def decision_seq(event: EventRecord) -> int:
    """The sequence number of the decision that an event is about."""
    assert event.of is not None, f"event {event.seq} is about no decision"
    return event.of
