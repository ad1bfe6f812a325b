"""Entry: one decision as a log tells it, by names, so that it can be read without the router.

Owns what an entry of a pool can be; how one is read from a file is left to `fields` and `log`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bylot.decision import Decision
from bylot.kernels.compile import Floats
from bylot.kernels.sets import log_set_probability
from bylot.policies import Policy
from bylot.problem.reading import instead
from bylot.simulation import Trace

CLOSE = 1e-6  # relative: how well odds and chance of one panel must agree
OVER = 1e-9  # of a chance above 1 that is rounding
NOTHING: Mapping[str, float] = MappingProxyType({})


class Fault(Exception):
    """What is wrong with an entry and what to do; where it is, the reader of the log knows."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")


class Entry(NamedTuple):
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
    spend: Mapping[str, float] = NOTHING
    available: tuple[str, ...] | None = None  # who was up; None: everybody
    never: tuple[str, ...] = ()  # who was up but had no chance at all, as far as that is known

    @property
    def subset(self) -> tuple[str, ...]:
        """The different experts of the panel, in the order in which they came."""
        return tuple(dict.fromkeys(self.draws))

    @property
    def log_chance(self) -> float:
        """log of the chance of the panel as a set, by its odds where it is not told."""
        return math.log(self.chance) if self.chance else self.by_odds()

    def by_odds(self) -> float:
        """log of the chance that independent draws of these odds make just this set."""
        masses: Floats = np.array(list(dict(zip(self.draws, self.odds, strict=True)).values()))
        return float(log_set_probability(masses, len(self.draws)))

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


def entry(
    decision: Decision,
    reward: float | None,
    policy: Policy,
    available: Iterable[str] | None = None,
) -> Entry:
    """A router's decision, with the reward it got (None: none) and who was up, if not all.

    The policy, `router.policy`, says what the odds are of: draws, or members of one set. A panel
    that was in no law's place is nobody's draw that was replaced: how it was chosen is not known.
    """
    iid = policy.multinomial and not decision.replaced
    return Entry(
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


def entries(trace: Trace) -> list[Entry]:
    """The rounds of a simulated play; contexts are called by their numbers, where there are any.

    A law that was kept tells exactly who had no chance, if panels were drawn from it.
    """
    record, names = trace.record, np.array(trace.problem.experts, dtype=object)
    lawful = len(record.law) > 0 and (trace.policy.multinomial or trace.policy.whole)
    several = bool(record.contexts.any())
    return [
        entry(
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


def check(one: Entry, index: Mapping[str, int]) -> Entry:
    """The entry, if it can be one of the experts in this index, with chances that can be."""
    for field in ("draws", "available", "never"):
        for name in getattr(one, field) or ():
            if name not in index:
                remedy = instead(name, tuple(index), "experts")
                raise Fault(
                    f"{field} names {brief(name)}, and no expert is called that",
                    f"{remedy}; an expert that has left the pool since: --gone NAME (gone=)",
                )
    if not one.odds and len(set(one.draws)) < len(one.draws):
        raise Fault("a subset names somebody twice", "name each member once, or give odds")
    if one.available is not None and not set(one.draws) <= set(one.available):
        absent = next(name for name in one.draws if name not in one.available)
        raise Fault(f"{brief(absent)} was drawn but is not available", "correct one of the two")
    if set(one.draws) & set(one.never):
        raise Fault("a member of the panel is among never", "never are those without any chance")
    if one.odds and len(one.odds) != len(one.draws):
        raise Fault(f"{len(one.odds)} odds of {len(one.draws)} draws", "give one for each draw")
    if not all(0 < odds <= 1 + OVER for odds in one.odds):
        raise Fault(f"odds={list(one.odds)}", "what was drawn had a probability in (0, 1]")
    if not 0 <= one.chance <= 1 + OVER:
        raise Fault(f"chance={one.chance}", "give a probability in (0, 1], or null if not known")
    return agreeing(one)


def agreeing(one: Entry) -> Entry:
    """The entry, if its odds and its chance, where both are told, are of the same law."""
    if one.odds:
        same = dict(zip(one.draws, one.odds, strict=True))
        if any(same[name] != odds for name, odds in zip(one.draws, one.odds, strict=True)):
            raise Fault("an expert has two different odds", "independent draws are all from one q")
        if sum(same.values()) > 1 + OVER:
            raise Fault(
                f"the odds of the members add up to {sum(same.values()):.6g}",
                "leave out odds that are not of independent draws, and give chance",
            )
        if one.chance and abs(math.log(one.chance) - one.by_odds()) > CLOSE:
            raise Fault(
                f"chance={one.chance:.6g}, but independent draws of these odds make this set with "
                f"{math.exp(one.by_odds()):.6g}",
                "leave out odds that are not of independent draws",
            )
    return one


def brief(given: Any) -> str:
    """Something for a message, not too long."""
    shown = repr(given)
    return shown if len(shown) <= 60 else shown[:57] + "..."
