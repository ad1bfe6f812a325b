"""Entry: one decision as a log tells it, by names, so that it can be read without the router.

Owns what an entry of a pool can be; how one is read from a file is left to `fields` and `log`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.iid_sets import log_iid_set_probability
from bylot.numerics.jit import Floats
from bylot.policies import Policy
from bylot.problem.limits import float_from_real
from bylot.problem.validation import suggest_known_name
from bylot.router.decision import Decision
from bylot.simulation import Trace

PROPENSITY_RTOL = 1e-6  # relative: how well odds and chance of one panel must agree
PROBABILITY_ROUNDING = 1e-9  # of a chance above 1 that is rounding
NO_SPEND: Mapping[str, float] = MappingProxyType({})


class InvalidLogEntry(Exception):
    """What is wrong with an entry and what to do; where it is, the reader of the log knows."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")


class LogEntry(NamedTuple):
    """A panel, the chance it had, and what came of it.

    Odds say that the draws were independent; a chance without odds, that the panel was drawn as
    one set. Neither: nothing is known of how it was chosen.
    """

    id: str
    t: int  # entries are in the order of their t
    draws: tuple[str, ...]  # with multiplicity if they were independent, else each member once
    reward: float | None  # None: missing
    context: str | None = None
    odds: tuple[float, ...] = ()  # the probability of each independent draw
    chance: float = 0.0  # of the panel as a set; 0: not told
    replaced: bool = False  # by the guard: not left to chance
    spend: Mapping[str, float] = NO_SPEND
    available: tuple[str, ...] | None = None  # who was up; None: everybody
    never: tuple[str, ...] = ()  # who was up but had no chance at all, as far as that is known

    @property
    def subset(self) -> tuple[str, ...]:
        """The different experts of the panel, in the order in which they came."""
        return tuple(dict.fromkeys(self.draws))

    @property
    def log_probability(self) -> float:
        """log of the chance of the panel as a set, by its odds where it is not told."""
        return math.log(self.chance) if self.chance else self.by_odds()

    def by_odds(self) -> float:
        """log of the chance that independent draws of these odds make just this set."""
        masses: Floats = np.array(list(dict(zip(self.draws, self.odds, strict=True)).values()))
        return float(log_iid_set_probability(masses, len(self.draws)))

    def fields(self) -> dict[str, Any]:
        """As plain data; what is not known is null."""
        members = "draws" if self.odds else "subset"
        return {
            "id": self.id,
            "t": self.t,
            "context": self.context,
            members: list(self.draws),
            "odds": list(self.odds) or None,
            "chance": self.chance or None,
            "replaced": self.replaced,
            "spend": dict(self.spend),
            "reward": self.reward,
            "available": None if self.available is None else list(self.available),
            "never": list(self.never),
        }

    def line(self) -> str:
        """One line of a log, without its end."""
        return json.dumps(self.fields(), allow_nan=False)


def entry_from_decision(
    decision: Decision,
    reward: float | None,
    policy: Policy,
    available: Iterable[str] | None = None,
) -> LogEntry:
    """A router's decision, with the reward it got (None: none) and who was up, if not all.

    The policy, `router.policy`, says what the odds are of: draws, or members of one set. A panel
    that was in no law's place is nobody's draw that was replaced: how it was chosen is not known.
    """
    iid = policy.multinomial and not decision.replaced
    return LogEntry(
        id=decision.id,
        t=decision.t,
        draws=decision.draws if iid else decision.subset,
        reward=reward,
        context=decision.context,
        odds=decision.odds if iid else (),
        chance=0.0 if decision.replaced else min(1.0, decision.chance or 0.0),
        replaced=decision.replaced and decision.chance is not None,
        spend=dict(decision.spend),
        available=None if available is None else tuple(available),
    )


def entries_from_trace(trace: Trace) -> list[LogEntry]:
    """The rounds of a simulated play; contexts are called by their numbers, where there are any.

    A law that was kept tells exactly who had no chance, if panels were drawn from it.
    """
    record, names = trace.record, np.array(trace.problem.experts, dtype=object)
    lawful = len(record.law) > 0 and (trace.policy.multinomial or trace.policy.whole)
    several = bool(record.contexts.any())
    return [
        entry_from_decision(
            Decision(
                id=f"d{t}",
                t=t,
                context=str(record.contexts[t]) if several else None,
                draws=tuple(names[record.draws[t]]),
                odds=tuple(record.odds[t].tolist()),
                subset=tuple(dict.fromkeys(names[record.draws[t]])),
                spend={
                    limit.name: float(cost)
                    for limit, cost in zip(trace.problem.limits, record.spend[t], strict=True)
                },
                expected={},
                feasible=bool(record.feasible[t]),
                chance=float(record.chance[t]) or None,  # as traces have it, 0: not told
                replaced=bool(record.replaced[t]),
            ),
            float(record.rewards[t]),
            trace.policy,
        )._replace(never=tuple(names[record.law[t] == 0.0]) if lawful else ())
        for t in range(len(record.rewards))
    ]


def check_entry(one: LogEntry, index: Mapping[str, int]) -> LogEntry:
    """The entry, if it can be one of the experts in this index, with chances that can be."""
    for field in ("draws", "available", "never"):
        for name in getattr(one, field) or ():
            if name not in index:
                remedy = suggest_known_name(name, tuple(index), "experts")
                raise InvalidLogEntry(
                    f"{field} names {shorten_repr(name)}, and no expert is called that",
                    f"{remedy}; an expert that has left the pool since: --gone NAME (gone=)",
                )
    if not one.odds and len(set(one.draws)) < len(one.draws):
        raise InvalidLogEntry(
            "a subset names somebody twice", "name each member once, or give odds"
        )
    if one.available is not None and not set(one.draws) <= set(one.available):
        absent = next(name for name in one.draws if name not in one.available)
        raise InvalidLogEntry(
            f"{shorten_repr(absent)} was drawn but is not available", "correct one of the two"
        )
    if set(one.draws) & set(one.never):
        raise InvalidLogEntry(
            "a member of the panel is among never", "never are those without any chance"
        )
    if one.odds and len(one.odds) != len(one.draws):
        raise InvalidLogEntry(
            f"{len(one.odds)} odds of {len(one.draws)} draws", "give one for each draw"
        )
    if not all(0 < odds <= 1 + PROBABILITY_ROUNDING for odds in one.odds):
        raise InvalidLogEntry(
            f"odds={list(one.odds)}", "what was drawn had a probability in (0, 1]"
        )
    if not 0 <= one.chance <= 1 + PROBABILITY_ROUNDING:
        raise InvalidLogEntry(
            f"chance={one.chance}", "give a probability in (0, 1], or null if not known"
        )
    return check_entry_probabilities(one)


def check_entry_probabilities(one: LogEntry) -> LogEntry:
    """The entry, if its odds and its chance, where both are told, are of the same law."""
    if one.odds:
        same = dict(zip(one.draws, one.odds, strict=True))
        if any(same[name] != odds for name, odds in zip(one.draws, one.odds, strict=True)):
            raise InvalidLogEntry(
                "an expert has two different odds", "independent draws are all from one q"
            )
        if sum(same.values()) > 1 + PROBABILITY_ROUNDING:
            raise InvalidLogEntry(
                f"the odds of the members add up to {sum(same.values()):.6g}",
                "leave out odds that are not of independent draws, and give chance",
            )
        if one.chance and abs(math.log(one.chance) - one.by_odds()) > PROPENSITY_RTOL:
            raise InvalidLogEntry(
                f"chance={one.chance:.6g}, but independent draws of these odds make this set with "
                f"{math.exp(one.by_odds()):.6g}",
                "leave out odds that are not of independent draws",
            )
    return one


def shorten_repr(given: Any) -> str:
    """Something for a message, not too long."""
    shown = repr(given)
    return shown if len(shown) <= 60 else shown[:57] + "..."


REQUIRED_LOG_FIELDS = ("id", "t", "reward")
OPTIONAL_LOG_FIELDS = (
    "context",
    "draws",
    "subset",
    "odds",
    "chance",
    "replaced",
    "spend",
    "available",
)
LOG_FIELDS = (*REQUIRED_LOG_FIELDS, *OPTIONAL_LOG_FIELDS, "never", "note")


def parse_entry(fields: Any) -> LogEntry:
    """An entry from plain data."""
    if not isinstance(fields, Mapping):
        raise InvalidLogEntry(
            f"{shorten_repr(fields)} is no JSON object", 'write {"id": "d0", "t": 0, ...}'
        )
    for name in fields:
        if name not in LOG_FIELDS:
            remedy = suggest_known_name(name, LOG_FIELDS, "fields", can_add=False)
            raise InvalidLogEntry(
                f"there is no field {shorten_repr(name)}", f"{remedy}; what is yours goes in note"
            )
    for name in REQUIRED_LOG_FIELDS:
        if name not in fields:
            raise InvalidLogEntry(
                f"{name!r} is missing", "a reward that never came is null, not left out"
            )
    if ("draws" in fields and fields["draws"] is not None) == (fields.get("subset") is not None):
        raise InvalidLogEntry(
            "wanted either draws or subset",
            "draws: independent ones, in order; else the panel as subset",
        )
    iid = fields.get("subset") is None
    panel = parse_names_field(fields, "draws" if iid else "subset")
    odds = parse_numbers_field(fields, "odds")
    if odds and not iid:
        raise InvalidLogEntry(
            "odds are of independent draws, and a subset is given",
            "give draws, with those that came twice twice, or leave out the odds",
        )
    replaced = fields.get("replaced", False)
    if not isinstance(replaced, bool):
        raise InvalidLogEntry(
            f"replaced={shorten_repr(replaced)} is neither true nor false", "give one of these"
        )
    return LogEntry(
        id=parse_text_field(fields, "id"),
        t=parse_round_field(fields["t"]),
        draws=panel if (odds and not replaced) or not iid else tuple(dict.fromkeys(panel)),
        reward=parse_number_field(fields, "reward"),
        context=None
        if fields.get("context") is None
        else parse_text_field(fields, "context", least=0),
        odds=() if replaced else odds,
        chance=0.0 if replaced else parse_number_field(fields, "chance") or 0.0,
        replaced=replaced,
        spend=parse_spend_field(fields.get("spend")),
        available=None
        if fields.get("available") is None
        else parse_names_field(fields, "available"),
        never=() if fields.get("never") is None else parse_names_field(fields, "never", least=0),
    )


def parse_names_field(fields: Mapping[str, Any], name: str, least: int = 1) -> tuple[str, ...]:
    """A list of names."""
    given = fields[name]
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidLogEntry(
            f"{name}={shorten_repr(given)} is no list of names", 'write ["ann", "bob"]'
        )
    if len(given) < least:
        raise InvalidLogEntry(f"{name} is empty", "name at least one expert")
    return tuple(given)


def parse_numbers_field(fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """A list of finite numbers; none if it is null or left out."""
    given = fields.get(name)
    if given is None:
        return ()
    values = [float_from_real(one) for one in given] if isinstance(given, list) else [None]
    if not all(value is not None and math.isfinite(value) for value in values):
        raise InvalidLogEntry(
            f"{name}={shorten_repr(given)} is no list of numbers", "write [0.5, 0.25], or null"
        )
    return tuple(value for value in values if value is not None)


def parse_number_field(fields: Mapping[str, Any], name: str) -> float | None:
    """A finite number, or None."""
    given = fields.get(name)
    value = float_from_real(given)
    if given is not None and (value is None or not math.isfinite(value)):
        raise InvalidLogEntry(
            f"{name}={shorten_repr(given)} is no finite number", "give one, or null if not known"
        )
    return value


def parse_text_field(fields: Mapping[str, Any], name: str, least: int = 1) -> str:
    """A string, of at least so many characters."""
    given = fields[name]
    if not isinstance(given, str) or len(given) < least:
        raise InvalidLogEntry(
            f"{name}={shorten_repr(given)} is no string", 'write it in quotes: "d17"'
        )
    return given


def parse_round_field(given: Any) -> int:
    """The number of a decision."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**62:
        raise InvalidLogEntry(
            f"t={shorten_repr(given)} is no whole number of 0 or more", "number decisions from 0"
        )
    return given


def parse_spend_field(given: Any) -> dict[str, float]:
    """Costs by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidLogEntry(f"spend={shorten_repr(given)} is no object", 'write {"usd": 2.5}')
    values = {str(name): float_from_real(cost) for name, cost in given.items() if cost is not None}
    if not all(cost is not None and math.isfinite(cost) for cost in values.values()):
        raise InvalidLogEntry(
            f"spend={shorten_repr(given)} has a cost that is no number", 'write {"usd": 2.5}'
        )
    return {name: cost for name, cost in values.items() if cost is not None}
