"""The limits of a problem file, with the line and the unit in which they are written."""

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from bylot.outcome_tables.text_lines import quote_field
from bylot.problem import Limit, Share, share
from bylot.problem.limits import LOWER, UPPER
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.document import Document, Keys
from bylot.problem_files.experts import Entry, ExpertList


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
    def entry(self) -> str:
        """What to write and where: "at_most: 2.0 in line 15"."""
        place = f"for {self.limit.name}" if self.line is None else f"in line {self.line}"
        return f"{self.limit.side}: {self.written!r} {place}"

    @property
    def words(self) -> str:
        """The limit in a sentence: "usd at most 2 per request"."""
        side = self.limit.side.replace("_", " ")
        return f"{self.limit.name} {side} {self.written:.4g} per {self.per}"


def read_limits(document: Document, problem: Entry, experts: ExpertList) -> Iterator[WrittenLimit]:
    """The limits of a problem, one per side."""
    for n, entry in enumerate(problem.get("limits", [])):
        limited, per = limited_quantity(document, ("limits", n), entry, experts), entry["per"]
        for side, sign in (("at_most", UPPER), ("at_least", LOWER)):
            if side not in entry:
                continue
            keys, bound = ("limits", n, side), float(entry[side])
            if per == "draw" and isinstance(limited, Share) and bound > 1:
                expected = "a share of the draws from 0 to 1"
                remedy = "write 0.04 for 4%, or per: request"
                raise document.error(keys, side, got=bound, expected=expected, remedy=remedy)
            with document.locate_errors(*keys):
                limit = Limit(limited, bound, sign)  # as written, for its error
                written = WrittenLimit(limit, document.line(keys), per, bound)
                limit = limit.at(written.per_request(bound, problem["draws"]))
            yield written._replace(limit=limit)


def limited_quantity(
    document: Document, keys: Keys, entry: Entry, experts: ExpertList
) -> str | Share:
    """What is limited: a cost by its name, or the share of a group."""
    kind, other = ("cost", "group") if "cost" in entry else ("group", "cost")
    name = entry[kind]
    known = {"cost": list(experts.costs), "group": list(experts.groups)}
    if name not in known[kind]:
        remedy = suggest_known_name(name, known[kind], f"{kind}s")
        if name in known[other]:
            remedy = f"it is a {other}: write {other}: {name}"
        raise document.error((*keys, kind), f"unknown {kind} {quote_field(name)}", remedy=remedy)
    return name if kind == "cost" else share(name, experts.groups[name].members)
