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

PROPENSITY_RTOL = 1e-6  # relative: how well propensity and draw probabilities must agree
PROBABILITY_ROUNDING = 1e-9  # excess of a probability above 1 that counts as rounding
NO_SPEND: Mapping[str, float] = MappingProxyType({})


class InvalidLogEntry(Exception):
    """What is wrong with an entry and what to do; where it is, the reader of the log knows."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")


class LogEntry(NamedTuple):
    """A panel, its propensity, its reward and its cost.

    With draw_probabilities the draws were independent; with a propensity alone the panel was drawn
    as one set; with neither, nothing is known of how it was chosen.
    """

    id: str
    t: int  # entries are in the order of their t
    draws: tuple[str, ...]  # with multiplicity if they were independent, else each member once
    reward: float | None  # None: missing
    context: str | None = None
    draw_probabilities: tuple[float, ...] = ()  # of each independent draw
    propensity: float | None = None  # of the panel as a set; None: unknown
    replaced: bool = False  # by the guard: not left to chance
    spend: Mapping[str, float] = NO_SPEND
    available: tuple[str, ...] | None = None  # who was up; None: everybody
    never: tuple[str, ...] = ()  # who was up but had no chance at all, as far as that is known

    @property
    def subset(self) -> tuple[str, ...]:
        """The different experts of the panel, in the order in which they came."""
        return tuple(dict.fromkeys(self.draws))

    @property
    def log_propensity(self) -> float:
        """log of the propensity, from the draw probabilities where it is not given."""
        return self.log_iid_propensity() if self.propensity is None else math.log(self.propensity)

    def log_iid_propensity(self) -> float:
        """log of the probability that independent draws give just this set."""
        by_name = dict(zip(self.draws, self.draw_probabilities, strict=True))
        masses: Floats = np.array(list(by_name.values()))
        return float(log_iid_set_probability(masses, len(self.draws)))

    def fields(self) -> dict[str, Any]:
        """As plain data; what is not known is null."""
        members = "draws" if self.draw_probabilities else "subset"
        return {
            "id": self.id,
            "t": self.t,
            "context": self.context,
            members: list(self.draws),
            "draw_probabilities": list(self.draw_probabilities) or None,
            "propensity": self.propensity,
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

    A panel of unknown propensity that the guard replaced counts as unknown, not as replaced.
    """
    iid = policy.multinomial and not decision.replaced
    return LogEntry(
        id=decision.id,
        t=decision.t,
        draws=decision.draws if iid else decision.subset,
        reward=reward,
        context=decision.context,
        draw_probabilities=decision.draw_probabilities or () if iid else (),
        propensity=None if decision.replaced else decision.propensity,
        replaced=decision.replaced and decision.propensity is not None,
        spend=dict(decision.spend),
        available=None if available is None else tuple(available),
    )


def entries_from_trace(trace: Trace) -> list[LogEntry]:
    """The rounds of a simulated play; contexts are called by their numbers, where there are any.

    A distribution that was kept shows exactly who had probability 0, if panels were drawn from it.
    """
    record, names = trace.record, np.array(trace.problem.experts, dtype=object)
    drawn = len(record.distributions) > 0 and (trace.policy.multinomial or trace.policy.whole)
    several, unknown = bool(record.contexts.any()), np.isnan(record.propensities)
    return [
        entry_from_decision(
            Decision(
                id=f"d{t}",
                t=t,
                context=str(record.contexts[t]) if several else None,
                draws=tuple(names[record.draws[t]]),
                subset=tuple(dict.fromkeys(names[record.draws[t]])),
                spend={
                    limit.name: float(cost)
                    for limit, cost in zip(trace.problem.limits, record.spend[t], strict=True)
                },
                expected={},
                feasible=bool(record.feasible[t]),
                draw_probabilities=tuple(record.draw_probabilities[t].tolist()),
                propensity=None if unknown[t] else min(1.0, float(record.propensities[t])),
                replaced=bool(record.replaced[t]),
            ),
            float(record.rewards[t]),
            trace.policy,
        )._replace(never=tuple(names[record.distributions[t] == 0.0]) if drawn else ())
        for t in range(len(record.rewards))
    ]


def check_entry(one: LogEntry, index: Mapping[str, int]) -> LogEntry:
    """The entry, if it can be one of the experts in this index, with possible probabilities."""
    for field in ("draws", "available", "never"):
        for name in getattr(one, field) or ():
            if name not in index:
                remedy = suggest_known_name(name, tuple(index), "experts")
                raise InvalidLogEntry(
                    f"{field} names {shorten_repr(name)}, and no expert is called that",
                    f"{remedy}; an expert that has left the pool since: --gone NAME (gone=)",
                )
    if not one.draw_probabilities and len(set(one.draws)) < len(one.draws):
        raise InvalidLogEntry(
            "a subset names somebody twice", "name each member once, or give draw_probabilities"
        )
    if one.available is not None and not set(one.draws) <= set(one.available):
        absent = next(name for name in one.draws if name not in one.available)
        raise InvalidLogEntry(
            f"{shorten_repr(absent)} was drawn but is not available", "correct one of the two"
        )
    if set(one.draws) & set(one.never):
        raise InvalidLogEntry(
            "a member of the panel is among never", "never lists experts of probability 0"
        )
    q = one.draw_probabilities
    if q and len(q) != len(one.draws):
        raise InvalidLogEntry(
            f"{len(q)} draw_probabilities of {len(one.draws)} draws", "give one for each draw"
        )
    if not all(0 < p <= 1 + PROBABILITY_ROUNDING for p in q):
        raise InvalidLogEntry(f"draw_probabilities={list(q)}", "give probabilities in (0, 1]")
    if one.propensity is not None and not 0 < one.propensity <= 1 + PROBABILITY_ROUNDING:
        raise InvalidLogEntry(
            f"propensity={one.propensity}", "give a probability in (0, 1], or null if not known"
        )
    return check_entry_probabilities(one)


def check_entry_probabilities(one: LogEntry) -> LogEntry:
    """The entry, if its draw probabilities and its propensity, where both are given, agree."""
    if one.draw_probabilities:
        pairs = list(zip(one.draws, one.draw_probabilities, strict=True))
        by_name = dict(pairs)
        if any(by_name[name] != p for name, p in pairs):
            raise InvalidLogEntry(
                "an expert has two different draw_probabilities",
                "independent draws are all from one distribution",
            )
        if sum(by_name.values()) > 1 + PROBABILITY_ROUNDING:
            raise InvalidLogEntry(
                f"the draw_probabilities of the members add up to {sum(by_name.values()):.6g}",
                "if the draws were not independent, leave them out and give propensity",
            )
        exact = one.log_iid_propensity()
        if one.propensity is not None and abs(math.log(one.propensity) - exact) > PROPENSITY_RTOL:
            raise InvalidLogEntry(
                f"propensity={one.propensity:.6g}, but independent draws with these "
                f"draw_probabilities give this set with probability {math.exp(exact):.6g}",
                "if the draws were not independent, leave out draw_probabilities",
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
    "draw_probabilities",
    "propensity",
    "replaced",
    "spend",
    "available",
)
RENAMED_LOG_FIELDS = {"odds": "draw_probabilities", "chance": "propensity"}
LOG_FIELDS = (*REQUIRED_LOG_FIELDS, *OPTIONAL_LOG_FIELDS, "never", "note")


def parse_entry(fields: Any) -> LogEntry:
    """An entry from plain data."""
    if not isinstance(fields, Mapping):
        raise InvalidLogEntry(
            f"{shorten_repr(fields)} is no JSON object", 'write {"id": "d0", "t": 0, ...}'
        )
    for name in fields:
        if name in RENAMED_LOG_FIELDS:
            raise InvalidLogEntry(
                f"field {name!r} is of an earlier log format",
                f"rename it to {RENAMED_LOG_FIELDS[name]!r}",
            )
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
    q = parse_numbers_field(fields, "draw_probabilities")
    if q and not iid:
        raise InvalidLogEntry(
            "draw_probabilities are of independent draws, and a subset is given",
            "give draws, with those that came twice twice, or leave out draw_probabilities",
        )
    replaced = fields.get("replaced", False)
    if not isinstance(replaced, bool):
        raise InvalidLogEntry(
            f"replaced={shorten_repr(replaced)} is neither true nor false", "give one of these"
        )
    return LogEntry(
        id=parse_text_field(fields, "id"),
        t=parse_round_field(fields["t"]),
        draws=panel if (q and not replaced) or not iid else tuple(dict.fromkeys(panel)),
        reward=parse_number_field(fields, "reward"),
        context=None
        if fields.get("context") is None
        else parse_text_field(fields, "context", least=0),
        draw_probabilities=() if replaced else q,
        propensity=None if replaced else parse_number_field(fields, "propensity") or None,
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
