"""Entries of a decision log: one decision with its probabilities and its reward."""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from bylot.errors import DataError
from bylot.numerics.iid_sets import log_iid_set_probability
from bylot.numerics.jit import Floats
from bylot.outcome_tables.sheets import shorten
from bylot.policies import Policy
from bylot.problem.validation import suggest_known_name
from bylot.router.decision import Decision
from bylot.trace import Trace

PROPENSITY_RTOL = 1e-6  # how well draw probabilities and propensity of one panel must agree
PROBABILITY_ROUNDING = 1e-9  # excess of a probability over 1 that is rounding


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
    spend: Mapping[str, float] = MappingProxyType({})
    available: tuple[str, ...] | None = None  # None: all experts
    excluded: tuple[str, ...] = ()  # available experts known to have had probability 0
    members: Mapping[str, float] | None = None  # scores; estimates, which are of panels, use none
    winner: str | None = None  # likewise
    substituted: bool = False  # a member failed, and another expert took its place

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

    def exchange_member(self, failed: str, added: str) -> "LogEntry":
        """The entry with one expert in place of another; how likely the panel was is not known."""
        available = self.available
        if available is not None and added not in available:
            available = (*available, added)
        return self._replace(
            draws=tuple(added if name == failed else name for name in self.subset),
            draw_probabilities=(),
            propensity=None,
            available=available,
            substituted=True,
        )

    def to_data(self) -> dict[str, Any]:
        """Plain data; unknown values are null, unknown scores are left out."""
        more = {
            "members": None if self.members is None else dict(self.members),
            "winner": self.winner,
            "substituted": self.substituted or None,
        }
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
            **{name: value for name, value in more.items() if value is not None},
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
        The entry. A panel that the guard put in place of another one has no propensity, nor has one
        of which a member failed and was replaced.
    """
    iid = policy.draws_iid and not (decision.replaced or decision.failed)
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
        substituted=bool(decision.failed),
    )


def entries_from_trace(trace: Trace) -> list[LogEntry]:
    """Make the log entries of a simulation; contexts are named by their numbers, if there are any.

    A refused request has no entry. Distributions that the trace has kept show which experts had
    probability 0.
    """
    record = trace.record
    names = np.array(trace.problem.experts, dtype=object)
    limits = [limit.name for limit in trace.problem.limits]
    known = len(record.distributions) > 0 and (trace.policy.draws_iid or trace.policy.draws_sets)
    several = bool(record.contexts.any())
    entries = []
    for t in np.flatnonzero(~trace.refused).tolist():
        propensity = float(record.propensities[t])
        decision = Decision(
            id=f"d{t}",
            t=t,
            context=str(record.contexts[t]) if several else None,
            draws=tuple(names[record.draws[t]]),
            draw_probabilities=tuple(record.draw_probabilities[t].tolist()),
            subset=tuple(dict.fromkeys(names[record.draws[t]])),
            spend=dict(zip(limits, record.spend[t].tolist(), strict=True)),
            expected={},
            feasible=bool(record.feasible[t]),
            propensity=None if math.isnan(propensity) else min(1.0, propensity),
            replaced=bool(record.replaced[t]),
        )
        entry = entry_from_decision(decision, float(record.rewards[t]), trace.policy)
        excluded = tuple(names[record.distributions[t] == 0.0]) if known else ()
        entries.append(entry._replace(excluded=excluded))
    return entries


Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Names = Annotated[tuple[str, ...], Meta(min_length=1)]
EXPECTED_NAMES = 'a list of at least one name, such as ["ann", "bob"]'

LOG_FIELDS: dict[str, tuple[Any, str]] = {
    "id": (Annotated[str, Meta(min_length=1)], "a non-empty string"),
    "t": (Annotated[int, Meta(ge=0, lt=2**62)], "a whole number of at least 0"),
    "reward": (Finite | bool | None, "a finite number, true, false, or null if there is none"),
    "context": (str | None, "a string, or null"),
    "draws": (Names | None, EXPECTED_NAMES),
    "subset": (Names | None, EXPECTED_NAMES),
    "draw_probabilities": (
        tuple[Finite, ...] | None,
        "a list of numbers such as [0.5, 0.25], or null",
    ),
    "propensity": (Finite | None, "a probability in (0, 1], or null if unknown"),
    "replaced": (bool, "true or false"),
    "substituted": (bool | None, "true or false"),
    "spend": (dict[str, Finite | None] | None, 'an object of numbers such as {"usd": 2.5}'),
    "available": (Names | None, EXPECTED_NAMES),
    "excluded": (tuple[str, ...] | None, "a list of names"),
    "members": (
        dict[str, Finite | bool | None] | None,
        'an object of scores such as {"ann": 1, "bob": 0.5}',
    ),
    "winner": (str | None, "the name of a member, or null"),
    "note": (Any, "anything"),
}
"""The fields of an entry: the type of each, and what is expected in words."""


def parse_entry(fields: Any) -> LogEntry:
    """An entry from plain data; unknown fields and missing required ones are errors."""
    if not isinstance(fields, Mapping):
        raise DataError(f"invalid entry {shorten(repr(fields))}", expected="a JSON object")
    given: dict[str, Any] = {name: parse_log_field(name, value) for name, value in fields.items()}
    for name in ("id", "t", "reward"):
        if name not in given:
            raise DataError(f"missing field {name!r}", remedy="a missing reward is null")
    draws, subset = given.get("draws", ()), given.get("subset", ())
    if bool(draws) == bool(subset):
        raise DataError(
            "expected either draws or subset",
            remedy="give independent draws in order as draws, any other panel as subset",
        )
    probabilities = given.get("draw_probabilities") or ()
    if probabilities and subset:
        raise DataError(
            "draw_probabilities are of independent draws, but a subset is given",
            remedy="give draws with repetitions, or leave out draw_probabilities",
        )
    if isinstance(given["reward"], bool):
        given["reward"] = float(given["reward"])
    spend = given.get("spend") or {}
    changed = given.get("replaced") or given.get("substituted")
    if changed or not probabilities:
        probabilities, draws = (), subset or tuple(dict.fromkeys(draws))
    given |= {
        "draws": draws,
        "draw_probabilities": probabilities,
        "propensity": None if changed else given.get("propensity") or None,
        "spend": {name: cost for name, cost in spend.items() if cost is not None},
    }
    if given.get("members") is not None:
        given["members"] = {
            name: float(score) for name, score in given["members"].items() if score is not None
        } or None
    known = {name: given[name] for name in LogEntry._fields if given.get(name) is not None}
    return LogEntry(**{"reward": None, **known})


def parse_log_field(name: str, given: Any) -> Any:
    if name not in LOG_FIELDS:
        remedy = suggest_known_name(name, tuple(LOG_FIELDS), "fields", can_add=False)
        raise DataError(
            f"unknown field {shorten(repr(name))}",
            remedy=f"{remedy}; your own data goes into note",
        )
    kind, expected = LOG_FIELDS[name]
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError:
        raise DataError(f"invalid {name} {shorten(repr(given))}", expected=expected) from None


def check_entry(entry: LogEntry, experts: Mapping[str, int] | None) -> None:
    """Check that an entry names known experts, or any if these are None, and that its probabilities
    are consistent.
    """
    for name in (*(entry.members or ()), *([] if entry.winner is None else [entry.winner])):
        if name not in entry.draws:
            raise DataError(
                f"{shorten(repr(name))} has a score or won, and is not of the panel",
                remedy="correct one of them",
            )
    for field in ("draws", "available", "excluded"):
        for name in getattr(entry, field) or ():
            if experts is not None and name not in experts:
                remedy = suggest_known_name(name, tuple(experts), "experts")
                raise DataError(
                    f"{field} contains the unknown expert {shorten(repr(name))}",
                    remedy=f"{remedy}; if it has left the pool, use --gone NAME (gone=)",
                )
    if not entry.draw_probabilities and len(set(entry.draws)) < len(entry.draws):
        raise DataError(
            "subset contains an expert twice",
            remedy="name each once, or give draw_probabilities",
        )
    for name in entry.draws:
        if entry.available is not None and name not in entry.available:
            raise DataError(
                f"{shorten(repr(name))} was drawn but is not available",
                remedy="correct one of them",
            )
    if set(entry.draws) & set(entry.excluded):
        raise DataError(
            "excluded contains a member of the panel",
            remedy="list experts of probability 0 only",
        )
    if entry.propensity is not None and not is_probability(entry.propensity):
        raise DataError("propensity", got=entry.propensity, expected=LOG_FIELDS["propensity"][1])
    if entry.draw_probabilities:
        check_draw_probabilities(entry)


def check_draw_probabilities(entry: LogEntry) -> None:
    """Check that draw probabilities are those of independent draws and match the propensity."""
    given = entry.draw_probabilities
    if len(given) != len(entry.draws):
        raise DataError(
            f"{len(given)} draw_probabilities for {len(entry.draws)} draws",
            remedy="give one each",
        )
    if not all(map(is_probability, given)):
        raise DataError("draw_probabilities", got=[*given], expected="probabilities in (0, 1]")
    q = dict(zip(entry.draws, given, strict=True))
    if tuple(q[name] for name in entry.draws) != given:
        raise DataError(
            "an expert has two different draw_probabilities",
            remedy="independent draws all have the same distribution",
        )
    remedy = "leave out draw_probabilities unless draws are independent, and give propensity"
    total = sum(q.values())
    if total > 1 + PROBABILITY_ROUNDING:
        raise DataError(f"draw_probabilities of the members sum to {total:.6g}", remedy=remedy)
    log_set = entry.log_iid_probability()
    if entry.propensity is not None and abs(math.log(entry.propensity) - log_set) > PROPENSITY_RTOL:
        raise DataError(
            f"propensity is {entry.propensity:.6g}, but independent draws with these "
            f"draw_probabilities give this set with probability {math.exp(log_set):.6g}",
            remedy=remedy,
        )


def is_probability(p: float) -> bool:
    """Whether 0 < p <= 1, up to rounding."""
    return 0 < p <= 1 + PROBABILITY_ROUNDING
