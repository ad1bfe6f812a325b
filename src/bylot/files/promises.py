"""Promises: the limits of a problem file, with the line and the unit they are written in."""

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from bylot.files.node import Node, Place, blamed, fault, quoted
from bylot.files.roster import Roster
from bylot.problem import Limit, Share, share
from bylot.problem.limits import LOWER, UPPER
from bylot.problem.reading import instead

SIDES = {"at_most": UPPER, "at_least": LOWER}


class Promise(NamedTuple):
    """One side of a limit, and how the file says it."""

    limit: Limit
    place: Place
    per: str  # request or draw
    written: float  # the bound per that

    def at(self, written: float, draws: int) -> "Promise | None":
        """The same with another bound, None if the file could not have it: a share of all draws."""
        if self.per == "draw" and isinstance(self.limit.cost, Share) and written > 1:
            return None
        bound = times(written, draws) if self.per == "draw" else written
        return self._replace(limit=self.limit.at(bound), written=written)

    def __str__(self) -> str:
        return f"{self.limit.name!r} {self.limit.side} {self.written!r} per {self.per}"

    @property
    def words(self) -> str:
        """The same for a sentence: "usd at most 2 per request"."""
        side = self.limit.side.replace("_", " ")
        return f"{self.limit.name} {side} {self.written:.4g} per {self.per}"


def promises(form: Node, roster: Roster) -> list[Promise]:
    """The limits of a checked form, each on something there is, and one a side."""
    given, draws = form.get("limits"), form.value["draws"].value
    apart(roster)
    made = [
        promise
        for node in (() if given is None else given.value)
        for promise in sides(node, roster, draws)
    ]
    consistent(made)
    return made


def sides(node: Node, roster: Roster, draws: int) -> Iterable[Promise]:
    """A limit has one side or two."""
    on, per = subject(node, roster), node.value["per"].value
    for side, sign in SIDES.items():
        bound = node.get(side)
        if bound is None:
            continue
        if per == "draw" and isinstance(on, Share) and bound.value > 1:
            what = f"{side} is {quoted(bound.text)}, more than all draws"
            remedy = "write a share of the draws, such as 0.04 for 4%, or per: request"
            raise fault(bound.place, what, remedy)
        with blamed(bound.place):
            limit = Limit(on, bound.value, sign)  # as it is written, for an error to say
            if per == "draw":
                limit = limit.at(times(bound.value, draws))
        yield Promise(limit, bound.place, per, float(bound.value))


def subject(node: Node, roster: Roster) -> str | Share:
    """What is limited: a cost by its name, or the share of a group."""
    word = "cost" if "cost" in node.value else "group"
    name: Node = node.value[word]
    known = {"cost": list(roster.costs), "group": list(roster.groups)}
    if name.value not in known[word]:
        other = "group" if word == "cost" else "cost"
        remedy = instead(name.value, known[word], f"{word}s")
        if name.value in known[other]:
            remedy = f"it is a {other}: write {other}: {name.value}"
        raise fault(name.place, f"there is no {word} {quoted(name.value)}", remedy)
    if word == "cost":
        return str(name.value)
    return share(name.value, roster.groups[name.value].members)


def times(bound: float, M: int) -> float:
    """A bound per draw as one per request: the product of what is written, rounded once.

    >>> times(0.1, 3), 0.1 * 3
    (0.3, 0.30000000000000004)
    """
    return float(Decimal(repr(bound)) * M)


def apart(roster: Roster) -> None:
    """A cost and a group may have the same name only if they count the same."""
    for name in roster.groups.keys() & roster.costs.keys():
        members, place = roster.groups[name]
        if roster.costs[name] != [float(expert in members) for expert in roster.names]:
            what = f"{quoted(name)} is a cost and a group"
            raise fault(place, what, "call one of them otherwise")


def consistent(made: Iterable[Promise]) -> None:
    """One limit a side, the lower one not above the upper one."""
    seen: dict[tuple[str, int], Promise] = {}
    for promise in made:
        before = seen.setdefault(promise.limit.key, promise)
        if before is not promise:
            what = f"{promise}, but line {before.place.line} says {before}"
            raise fault(promise.place, what, "keep the tighter of the two")
    for (name, sign), lower in seen.items():
        upper = seen.get((name, UPPER))
        if sign == LOWER and upper is not None and lower.limit.bound > upper.limit.bound:
            what = f"{lower} is above line {upper.place.line}, {upper}"
            raise fault(lower.place, what, "swap the two bounds, or lower this one")
