"""Promises: the limits of a problem file, with the line and the unit they are written in."""

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from bylot.problem import Limit, Share, share
from bylot.problem.limits import LOWER, UPPER
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.experts import ExpertList
from bylot.problem_files.nodes import FileLocation, Node, file_error, locate_errors, quote_value

LIMIT_SIDES = {"at_most": UPPER, "at_least": LOWER}


class WrittenLimit(NamedTuple):
    """One side of a limit, and how the file says it."""

    limit: Limit
    place: FileLocation
    per: str  # request or draw
    written: float  # the bound per that

    def at(self, written: float, draws: int) -> "WrittenLimit | None":
        """The same with another bound, None if the file could not have it: a share of all draws."""
        if self.per == "draw" and isinstance(self.limit.cost, Share) and written > 1:
            return None
        bound = per_request_bound(written, draws) if self.per == "draw" else written
        return self._replace(limit=self.limit.at(bound), written=written)

    def __str__(self) -> str:
        return f"{self.limit.name!r} {self.limit.side} {self.written!r} per {self.per}"

    @property
    def words(self) -> str:
        """The same for a sentence: "usd at most 2 per request"."""
        side = self.limit.side.replace("_", " ")
        return f"{self.limit.name} {side} {self.written:.4g} per {self.per}"


def read_limits(form: Node, roster: ExpertList) -> list[WrittenLimit]:
    """The limits of a checked form, each on something there is, and one a side."""
    given, draws = form.get("limits"), form.value["draws"].value
    check_name_clashes(roster)
    made = [
        promise
        for node in (() if given is None else given.value)
        for promise in limits_from_entry(node, roster, draws)
    ]
    check_limit_pairs(made)
    return made


def limits_from_entry(node: Node, roster: ExpertList, draws: int) -> Iterable[WrittenLimit]:
    """A limit has one side or two."""
    on, per = limited_quantity(node, roster), node.value["per"].value
    for side, sign in LIMIT_SIDES.items():
        bound = node.get(side)
        if bound is None:
            continue
        if per == "draw" and isinstance(on, Share) and bound.value > 1:
            what = f"{side} is {quote_value(bound.text)}, more than all draws"
            remedy = "write a share of the draws, such as 0.04 for 4%, or per: request"
            raise file_error(bound.place, what, remedy)
        with locate_errors(bound.place):
            limit = Limit(on, bound.value, sign)  # as it is written, for an error to say
            if per == "draw":
                limit = limit.at(per_request_bound(bound.value, draws))
        yield WrittenLimit(limit, bound.place, per, float(bound.value))


def limited_quantity(node: Node, roster: ExpertList) -> str | Share:
    """What is limited: a cost by its name, or the share of a group."""
    word = "cost" if "cost" in node.value else "group"
    name: Node = node.value[word]
    known = {"cost": list(roster.costs), "group": list(roster.groups)}
    if name.value not in known[word]:
        other = "group" if word == "cost" else "cost"
        remedy = suggest_known_name(name.value, known[word], f"{word}s")
        if name.value in known[other]:
            remedy = f"it is a {other}: write {other}: {name.value}"
        raise file_error(name.place, f"there is no {word} {quote_value(name.value)}", remedy)
    if word == "cost":
        return str(name.value)
    return share(name.value, roster.groups[name.value].members)


def per_request_bound(bound: float, M: int) -> float:
    """A bound per draw as one per request: the product of what is written, rounded once.

    >>> per_request_bound(0.1, 3), 0.1 * 3
    (0.3, 0.30000000000000004)
    """
    return float(Decimal(repr(bound)) * M)


def check_name_clashes(roster: ExpertList) -> None:
    """A cost and a group may have the same name only if they count the same."""
    for name in roster.groups.keys() & roster.costs.keys():
        members, place = roster.groups[name]
        if roster.costs[name] != [float(expert in members) for expert in roster.names]:
            what = f"{quote_value(name)} is a cost and a group"
            raise file_error(place, what, "call one of them otherwise")


def check_limit_pairs(made: Iterable[WrittenLimit]) -> None:
    """One limit a side, the lower one not above the upper one."""
    seen: dict[tuple[str, int], WrittenLimit] = {}
    for promise in made:
        before = seen.setdefault(promise.limit.key, promise)
        if before is not promise:
            what = f"{promise}, but line {before.place.line} says {before}"
            raise file_error(promise.place, what, "keep the tighter of the two")
    for (name, sign), lower in seen.items():
        upper = seen.get((name, UPPER))
        if sign == LOWER and upper is not None and lower.limit.bound > upper.limit.bound:
            what = f"{lower} is above line {upper.place.line}, {upper}"
            raise file_error(lower.place, what, "swap the two bounds, or lower this one")
