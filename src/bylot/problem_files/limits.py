"""The limits of a problem file, with the line and the unit in which they are written."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET

from bylot.errors import ProblemFileError
from bylot.outcome_tables.text_lines import quote_field
from bylot.problem import Limit, Share, share
from bylot.problem.limits import LOWER, UPPER
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.document import Document, Keys
from bylot.problem_files.experts import ExpertList
from bylot.problem_files.schema import LimitEntry, ProblemEntry


class WrittenLimit(NamedTuple):
    """One side of a limit as the file writes it: the bound, and whether it is per draw."""

    limit: Limit
    line: int | None
    per: str  # request or draw
    written: float

    def at(self, written: float, draws: int) -> "WrittenLimit | None":
        """The same with another bound; None if it is more than all draws."""
        if self.per == "draw" and isinstance(self.limit.cost, Share) and written > 1:
            return None
        return self._replace(limit=self.limit.at(self.per_request(written, draws)), written=written)

    def per_request(self, written: float, draws: int) -> float:
        """A bound in the unit of the file as one per request: the decimal product, rounded once."""
        return float(Decimal(repr(written)) * self.unit(draws))

    def unit(self, draws: int) -> int:
        """What one of the unit of the bound is per request."""
        return draws if self.per == "draw" else 1

    def __str__(self) -> str:
        return f"{self.limit.name!r} {self.limit.side} {self.written!r} per {self.per}"

    @property
    def located(self) -> str:
        """The limit and its line."""
        return str(self) if self.line is None else f"{self} (line {self.line})"

    @property
    def words(self) -> str:
        """The limit in a sentence: "usd at most 2 per request"."""
        side = self.limit.side.replace("_", " ")
        return f"{self.limit.name} {side} {self.written:.4g} per {self.per}"


def read_limits(
    document: Document, problem: ProblemEntry, experts: ExpertList
) -> list[WrittenLimit]:
    """The limits of a problem, one per side."""
    check_name_clashes(experts)
    limits = [
        limit
        for n, entry in enumerate(problem.limits)
        for limit in limits_from_entry(document, ("limits", n), entry, experts, problem.draws)
    ]
    check_limit_pairs(document.path, limits)
    return limits


def limits_from_entry(
    document: Document, keys: Keys, entry: LimitEntry, experts: ExpertList, draws: int
) -> Iterator[WrittenLimit]:
    """The upper and the lower bound of an entry."""
    limited = limited_quantity(document, keys, entry, experts)
    for side, sign, bound in (
        ("at_most", UPPER, entry.at_most),
        ("at_least", LOWER, entry.at_least),
    ):
        if bound is UNSET:
            continue
        if entry.per == "draw" and isinstance(limited, Share) and bound > 1:
            expected = "a share of the draws from 0 to 1"
            remedy = "write 0.04 for 4%, or per: request"
            raise document.error((*keys, side), side, got=bound, expected=expected, remedy=remedy)
        with document.locate_errors(*keys, side):
            limit = Limit(limited, bound, sign)  # as written, for its error
            written = WrittenLimit(limit, document.line((*keys, side)), entry.per, bound)
            limit = limit.at(written.per_request(bound, draws))
        yield written._replace(limit=limit)


def limited_quantity(
    document: Document, keys: Keys, entry: LimitEntry, experts: ExpertList
) -> str | Share:
    """What is limited: a cost by its name, or the share of a group."""
    if entry.cost is not UNSET:
        kind, other, name = "cost", "group", entry.cost
    else:
        kind, other, name = "group", "cost", str(entry.group)
    known = {"cost": list(experts.costs), "group": list(experts.groups)}
    if name not in known[kind]:
        remedy = suggest_known_name(name, known[kind], f"{kind}s")
        if name in known[other]:
            remedy = f"it is a {other}: write {other}: {name}"
        raise document.error((*keys, kind), f"unknown {kind} {quote_field(name)}", remedy=remedy)
    return name if kind == "cost" else share(name, experts.groups[name].members)


def check_name_clashes(experts: ExpertList) -> None:
    """A cost and a group may have the same name only if they count the same."""
    for name in experts.groups.keys() & experts.costs.keys():
        group = experts.groups[name]
        if experts.costs[name] != [float(one in group.members) for one in experts.names]:
            what, remedy = f"{quote_field(name)} is a cost and a group", "rename one of them"
            raise ProblemFileError(what, remedy=remedy, path=group.path, line=group.line)


def check_limit_pairs(path: Path, limits: Iterable[WrittenLimit]) -> None:
    """Reject two limits on the same side, and a lower bound above the upper one."""
    seen: dict[tuple[str, int], WrittenLimit] = {}
    for limit in limits:
        if (before := seen.setdefault(limit.limit.key, limit)) is not limit:
            what, remedy = f"{limit} limits the same side as {before.located}", "keep the tighter"
            raise ProblemFileError(what, remedy=remedy, path=path, line=limit.line)
    for (name, sign), lower in seen.items():
        upper = seen.get((name, UPPER))
        if sign == LOWER and upper is not None and lower.limit.bound > upper.limit.bound:
            what, remedy = f"{lower} is above {upper.located}", "swap the bounds, or lower this one"
            raise ProblemFileError(what, remedy=remedy, path=path, line=lower.line)
