"""Entries of a decision log: one decision with its probabilities and its reward.

Owns what an entry may contain and its form as plain data; `log` reads and writes files.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import BylotError
from bylot.numerics.iid_sets import log_iid_set_probability
from bylot.numerics.jit import Floats
from bylot.policies import Policy
from bylot.problem.limits import float_from_real
from bylot.problem.validation import suggest_known_name
from bylot.router.decision import Decision
from bylot.simulation import Trace

PROPENSITY_RTOL = 1e-6  # how well draw probabilities and propensity of one panel must agree
PROBABILITY_ROUNDING = 1e-9  # excess of a probability over 1 that is rounding
NO_SPEND: Mapping[str, float] = MappingProxyType({})


class InvalidLogEntry(BylotError):
    """An entry is invalid; the reader of the log adds the place."""


class LogEntry(NamedTuple):
    """A panel, its probability, and its reward.

    With draw probabilities, the draws were independent. With a propensity alone, the panel was
    drawn as one set. With neither, it is unknown how the panel was chosen.
    """

    id: str
    t: int  # the order of entries
    draws: tuple[str, ...]  # with repetitions if independent, else each member once
    reward: float | None  # None: missing
    context: str | None = None
    draw_probabilities: tuple[float, ...] = ()  # of each independent draw
    propensity: float | None = None  # of the panel as a set
    replaced: bool = False  # by the guard, so not drawn at random
    spend: Mapping[str, float] = NO_SPEND
    available: tuple[str, ...] | None = None  # None: all experts
    excluded: tuple[str, ...] = ()  # available experts known to have had probability 0

    @property
    def subset(self) -> tuple[str, ...]:
        """The different experts of the panel, in order."""
        return tuple(dict.fromkeys(self.draws))

    @property
    def has_probability(self) -> bool:
        """Whether the probability of the panel is known."""
        return bool(self.draw_probabilities) or self.propensity is not None

    @property
    def log_propensity(self) -> float:
        """log probability of the panel as a set."""
        if self.propensity is not None:
            return math.log(self.propensity)
        return self.log_iid_probability()

    def log_iid_probability(self) -> float:
        """log probability that independent draws with these probabilities give this set."""
        pairs = zip(self.draws, self.draw_probabilities, strict=True)
        masses: Floats = np.array(list(dict(pairs).values()))
        return float(log_iid_set_probability(masses, len(self.draws)))

    def to_data(self) -> dict[str, Any]:
        """Plain data; unknown values are null."""
        return {
            "id": self.id,
            "t": self.t,
            "context": self.context,
            "draws" if self.draw_probabilities else "subset": list(self.draws),
            "draw_probabilities": list(self.draw_probabilities) or None,
            "propensity": self.propensity,
            "replaced": self.replaced,
            "spend": dict(self.spend),
            "reward": self.reward,
            "available": None if self.available is None else list(self.available),
            "excluded": list(self.excluded),
        }

    def to_json(self) -> str:
        """One line of a log, without its line end."""
        return json.dumps(self.to_data(), allow_nan=False)


def entry_from_decision(
    decision: Decision,
    reward: float | None,
    policy: Policy,
    available: Iterable[str] | None = None,
) -> LogEntry:
    """Make the log entry of a router's decision.

    Parameters
    ----------
    decision
        The decision.
    reward
        Its reward; None if there is none.
    policy
        `router.policy`: whether it draws independently or whole sets.
    available
        The experts that were available, if not all of them.

    Returns
    -------
    LogEntry
        The entry. A panel that the guard put in place of another one has no propensity.
    """
    iid = policy.draws_iid and not decision.replaced
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
    """Make the log entries of a simulation; contexts are named by their numbers, if there are any.

    Distributions kept in the trace show which experts had probability 0.
    """
    record, names = trace.record, np.array(trace.problem.experts, dtype=object)
    known = len(record.distributions) > 0 and (trace.policy.draws_iid or trace.policy.draws_sets)
    several, unknown = bool(record.contexts.any()), np.isnan(record.propensities)
    entries = []
    for t, reward in enumerate(record.rewards.tolist()):
        costs = zip(trace.problem.limits, record.spend[t].tolist(), strict=True)
        decision = Decision(
            id=f"d{t}",
            t=t,
            context=str(record.contexts[t]) if several else None,
            draws=tuple(names[record.draws[t]]),
            draw_probabilities=tuple(record.draw_probabilities[t].tolist()),
            subset=tuple(dict.fromkeys(names[record.draws[t]])),
            spend={limit.name: cost for limit, cost in costs},
            expected={},
            feasible=bool(record.feasible[t]),
            propensity=None if unknown[t] else min(1.0, float(record.propensities[t])),
            replaced=bool(record.replaced[t]),
        )
        entry = entry_from_decision(decision, reward, trace.policy)
        excluded = tuple(names[record.distributions[t] == 0.0]) if known else ()
        entries.append(entry._replace(excluded=excluded))
    return entries


def _is_number(given: Any) -> bool:
    """Whether this is a finite number."""
    value = float_from_real(given)
    return value is not None and math.isfinite(value)


def _is_round(given: Any) -> bool:
    """Whether this is the number of a decision."""
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**62


def _is_names(given: Any) -> bool:
    """Whether this is a list of strings."""
    return isinstance(given, list) and all(isinstance(name, str) for name in given)


def _is_costs(given: Any) -> bool:
    """Whether this is an object of numbers; those unknown are null."""
    return isinstance(given, Mapping) and all(
        cost is None or _is_number(cost) for cost in given.values()
    )


EXPECTED_NAMES = 'a list of at least one name, such as ["ann", "bob"]'

LOG_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "id": ("a non-empty string", lambda given: isinstance(given, str) and bool(given)),
    "t": ("a whole number of at least 0", _is_round),
    "reward": ("a finite number, or null if there is none", _is_number),
    "context": ("a string, or null", lambda given: isinstance(given, str)),
    "draws": (EXPECTED_NAMES, lambda given: _is_names(given) and bool(given)),
    "subset": (EXPECTED_NAMES, lambda given: _is_names(given) and bool(given)),
    "draw_probabilities": (
        "a list of numbers such as [0.5, 0.25], or null",
        lambda given: isinstance(given, list) and all(map(_is_number, given)),
    ),
    "propensity": ("a probability in (0, 1], or null if unknown", _is_number),
    "replaced": ("true or false", lambda given: isinstance(given, bool)),
    "spend": ('an object of numbers such as {"usd": 2.5}', _is_costs),
    "available": (EXPECTED_NAMES, lambda given: _is_names(given) and bool(given)),
    "excluded": ("a list of names", _is_names),
    "note": ("anything", lambda given: True),
}
"""The fields of an entry: what is expected, and whether a value that is not null is that."""

RENAMED_LOG_FIELDS = {"odds": "draw_probabilities", "chance": "propensity", "never": "excluded"}


def parse_entry(fields: Any) -> LogEntry:
    """An entry from plain data; unknown fields and missing required ones are errors."""
    if not isinstance(fields, Mapping):
        raise InvalidLogEntry(f"invalid entry {shorten_repr(fields)}: expected a JSON object")
    for name, given in fields.items():
        if name not in LOG_FIELDS:
            remedy = suggest_known_name(name, tuple(LOG_FIELDS), "fields", can_add=False)
            if name in RENAMED_LOG_FIELDS:
                remedy = f"it is now {RENAMED_LOG_FIELDS[name]!r}"
            what = f"unknown field {shorten_repr(name)}"
            raise InvalidLogEntry(what, remedy=f"{remedy}; your own data goes into note")
        expected, is_valid = LOG_FIELDS[name]
        required = name in ("id", "t", "replaced")
        if not (is_valid(given) if given is not None else not required):
            raise InvalidLogEntry(f"invalid {name} {shorten_repr(given)}", expected=expected)
    for name in ("id", "t", "reward"):
        if name not in fields:
            raise InvalidLogEntry(f"missing field {name!r}", remedy="a missing reward is null")
    if (fields.get("draws") is None) == (fields.get("subset") is None):
        raise InvalidLogEntry(
            "expected either draws or subset",
            remedy="give independent draws in order as draws, any other panel as subset",
        )
    iid = fields.get("subset") is None
    panel = tuple(fields["draws"] if iid else fields["subset"])
    replaced = fields.get("replaced", False)
    probabilities = tuple(map(float, fields.get("draw_probabilities") or ()))
    if probabilities and not iid:
        raise InvalidLogEntry(
            "draw_probabilities are of independent draws, but a subset is given",
            remedy="give draws with repetitions, or leave out draw_probabilities",
        )
    if replaced or not probabilities:
        probabilities, panel = (), tuple(dict.fromkeys(panel)) if iid else panel
    propensity, available = fields.get("propensity"), fields.get("available")
    spend = fields.get("spend") or {}
    return LogEntry(
        id=fields["id"],
        t=fields["t"],
        draws=panel,
        reward=float_from_real(fields["reward"]),
        context=fields.get("context"),
        draw_probabilities=probabilities,
        propensity=float(propensity) if propensity and not replaced else None,
        replaced=replaced,
        spend={str(name): float(cost) for name, cost in spend.items() if cost is not None},
        available=None if available is None else tuple(available),
        excluded=tuple(fields.get("excluded") or ()),
    )


def check_entry(entry: LogEntry, experts: Mapping[str, int]) -> None:
    """Check that an entry names known experts and that its probabilities are consistent."""
    for field in ("draws", "available", "excluded"):
        for name in getattr(entry, field) or ():
            if name not in experts:
                remedy = suggest_known_name(name, tuple(experts), "experts")
                raise InvalidLogEntry(
                    f"{field} contains the unknown expert {shorten_repr(name)}",
                    remedy=f"{remedy}; if it has left the pool, use --gone NAME (gone=)",
                )
    if not entry.draw_probabilities and len(set(entry.draws)) < len(entry.draws):
        raise InvalidLogEntry(
            "subset contains an expert twice", remedy="name each once, or give draw_probabilities"
        )
    if entry.available is not None and not set(entry.draws) <= set(entry.available):
        absent = next(name for name in entry.draws if name not in entry.available)
        raise InvalidLogEntry(
            f"{shorten_repr(absent)} was drawn but is not available", remedy="correct one of them"
        )
    if set(entry.draws) & set(entry.excluded):
        raise InvalidLogEntry(
            "excluded contains a member of the panel", remedy="list experts of probability 0 only"
        )
    if entry.propensity is not None and not 0 < entry.propensity <= 1 + PROBABILITY_ROUNDING:
        expected = LOG_FIELDS["propensity"][0]
        raise InvalidLogEntry(f"invalid propensity {entry.propensity}", expected=expected)
    if entry.draw_probabilities:
        check_draw_probabilities(entry)


def check_draw_probabilities(entry: LogEntry) -> None:
    """Check that draw probabilities are those of independent draws and match the propensity."""
    given = entry.draw_probabilities
    if len(given) != len(entry.draws):
        raise InvalidLogEntry(
            f"{len(given)} draw_probabilities for {len(entry.draws)} draws", remedy="give one each"
        )
    if not all(0 < p <= 1 + PROBABILITY_ROUNDING for p in given):
        raise InvalidLogEntry(
            f"invalid draw_probabilities {list(given)}", expected="probabilities in (0, 1]"
        )
    q = dict(zip(entry.draws, given, strict=True))
    if any(q[name] != p for name, p in zip(entry.draws, given, strict=True)):
        raise InvalidLogEntry(
            "an expert has two different draw_probabilities",
            remedy="independent draws all have the same distribution",
        )
    remedy = "leave out draw_probabilities unless draws are independent, and give propensity"
    if sum(q.values()) > 1 + PROBABILITY_ROUNDING:
        total = f"{sum(q.values()):.6g}"
        raise InvalidLogEntry(f"draw_probabilities of the members sum to {total}", remedy=remedy)
    log_set = entry.log_iid_probability()
    if entry.propensity is not None and abs(math.log(entry.propensity) - log_set) > PROPENSITY_RTOL:
        raise InvalidLogEntry(
            f"propensity is {entry.propensity:.6g}, but independent draws with these "
            f"draw_probabilities give this set with probability {math.exp(log_set):.6g}",
            remedy=remedy,
        )


def shorten_repr(given: Any) -> str:
    """A repr of at most 60 characters."""
    shown = repr(given)
    return shown if len(shown) <= 60 else shown[:57] + "..."
