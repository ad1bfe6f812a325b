"""A limit as a problem file writes it: its words, its unit and its line.

What limits mean together, and whether they can be kept, is left to `problem_file`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from bylot._text import find_similar, format_number
from bylot.outcome_tables.sheets import quote_field
from bylot.problem import Limit, Share, share
from bylot.problem.calendar import WINDOW_NAMES
from bylot.problem.instants import check_zone
from bylot.problem.limit_input import Where, check_where
from bylot.problem.limits import LOWER, UPPER, WINDOW_FIELDS
from bylot.problem.validation import suggest_known_name
from bylot.problem.window_bounds import count_window_requests
from bylot.problem_files.document import Document, Keys
from bylot.problem_files.experts import Entry, ExpertList, as_list, check_members
from bylot.problem_files.schema import SCHEMA, check_value

REQUESTS_TOLERANCE = 1e-9  # relative: 0.3 pays for three panels of 0.1


class WrittenLimit(NamedTuple):
    """One side of a limit as the file writes it: the bound, and what it is per."""

    limit: Limit
    line: int | None
    per: str  # request or draw, or the window of the calendar
    written: float
    requests: float | None = None  # of an average window, if it is a total; None: not known

    def at(self, written: float, draws: int) -> "WrittenLimit | None":
        """The same with another bound; None if it is more than all draws."""
        if self.per == "draw" and isinstance(self.limit.cost, Share) and written > 1:
            return None
        return self._replace(limit=self.limit.at(self.to_bound(written, draws)), written=written)

    def at_traffic(self, traffic: float | None, **changes: Any) -> "WrittenLimit":
        """Return the same at so many requests per day, which a limit with `changes` would count.

        None: they are not known.
        """
        return self._replace(
            requests=count_window_requests(replace(self.limit, **changes), traffic)
        )

    def to_bound(self, written: float, draws: int) -> float:
        """Return the bound of the limit for a bound in the unit of the file.

        Per draw, it is the decimal product, rounded once.
        """
        return float(Decimal(repr(written)) * (draws if self.per == "draw" else 1))

    def unit(self, draws: int) -> float:
        """What one of the unit of the bound is per request; NaN if the traffic is not known."""
        if self.counts_totals:
            return float("nan") if self.requests is None else 1.0 / self.requests
        return draws if self.per == "draw" else 1

    @property
    def counts_totals(self) -> bool:
        """Whether the bound is for what a window costs in all."""
        return self.limit.is_total

    def describe_per_request(self, bound: float) -> str:
        """Describe what a budget is per request; bound: the one that optima keep, per request."""
        assert self.requests is not None
        fair = self.limit.bound / self.requests
        text = f'"{self.words}" is {format_number(fair)} per request'
        text += ", if all are of one tenant" if self.limit.scope else ""
        if bound > fair * (1 + REQUESTS_TOLERANCE):
            text += (
                ", less than the cheapest panels cost, so requests are refused: optima are "
                f"at {format_number(bound)}"
            )
        return text

    @property
    def window_data(self) -> dict[str, Any] | None:
        """The window, and how many requests one has on average; None without a window."""
        if self.limit.per is None:
            return None
        return {
            "per": self.limit.per,
            "zone": self.limit.zone,
            "when_spent": self.limit.when_spent if self.limit.is_total else None,
            "requests": self.requests,
        }

    @property
    def per_words(self) -> str:
        """What the bound is per, and of which requests.

        So "per day", of a share "per request in every week", "per month for each tenant", "per
        request in icu".
        """
        requests = self.limit.counted_words
        if self.limit.per is not None and not self.limit.is_total:
            return f"per request in every {self.per}{requests}"
        return f"per {self.per}{requests}"

    def __str__(self) -> str:
        return f"{self.limit.name!r} {self.limit.side} {self.written!r} {self.per_words}"

    @property
    def located(self) -> str:
        return str(self) if self.line is None else f"{self} (line {self.line})"

    @property
    def words(self) -> str:
        """The limit in a sentence: "usd at most 2 per request"."""
        side = self.limit.side.replace("_", " ")
        bound = format_number(self.written) if self.limit.per else f"{self.written:.4g}"
        return f"{self.limit.name} {side} {bound} {self.per_words}"


def format_entry(name: str, side: str, bound: float, line: int | None) -> str:
    """Say what to write and where: "at_most: 2.0 in line 15"."""
    return f"{side}: {bound!r} {f'for {name}' if line is None else f'in line {line}'}"


def read_tenant_limits(given: Sequence[Entry]) -> tuple[Limit, ...]:
    """Read the own bounds of a tenant, as files write limits; scope tenant is implied."""
    entries = [{**entry, "scope": entry.get("scope", "tenant")} for entry in given]
    document = Document(data={"limits": entries, "draws": 1})
    check_value(document, ("limits",), entries, SCHEMA["properties"]["limits"])
    for n, entry in enumerate(entries):
        if "cost" not in entry:
            raise document.error(
                ("limits", n),
                "a tenant can have its own bounds of budgets only",
                remedy="name a cost",
            )
        if entry.get("per") not in WINDOW_NAMES:
            raise document.error(
                ("limits", n), f"limits[{n}].per", expected=" or ".join(WINDOW_NAMES)
            )
    costs = {entry["cost"]: np.empty(0) for entry in entries}  # the router knows which exist
    pool = ExpertList((), costs, {}, None)
    return tuple(written.limit for written in read_limits(document, document.data, pool))


def read_limits(document: Document, problem: Entry, experts: ExpertList) -> Iterator[WrittenLimit]:
    contexts = [*problem.get("contexts", ())]
    for n, entry in enumerate(problem.get("limits", [])):
        limited = limited_quantity(document, ("limits", n), entry, experts)
        per, window = entry.get("per", "request"), read_window(document, ("limits", n), entry)
        where = read_where(document, ("limits", n), entry, contexts)
        for side, sign in (("at_most", UPPER), ("at_least", LOWER)):
            if side not in entry:
                continue
            keys, bound = ("limits", n, side), float(entry[side])
            with document.locate_errors(*keys):
                limit = Limit(
                    limited,
                    bound,
                    sign,
                    **window,
                    where=check_where(where, ""),
                    per_draw=per == "draw",
                )
                limit = limit.at_draws(problem["draws"])
            yield WrittenLimit(limit, document.line(keys), per, bound)


def read_window(document: Document, keys: Keys, entry: Entry) -> dict[str, Any]:
    """The window of the calendar of a limit, and what depends on one; empty without a window."""
    per, is_share = entry.get("per", "request"), "cost" not in entry
    if per not in WINDOW_NAMES:
        for name in (name for name in ("zone", "when_spent", "scope") if name in entry):
            window = "month" if name == "scope" else "day"
            raise document.error(
                (*keys, name),
                f"{name} needs a window of the calendar, and the limit is per {per}",
                remedy=f"write per: {window}, or leave {name} out",
            )
        return {}
    if "zone" in entry:
        with document.locate_errors(*keys, "zone"):
            check_zone(entry["zone"])
    if is_share and "when_spent" in entry:
        raise document.error(
            (*keys, "when_spent"),
            "when_spent has no meaning here: a share of requests is never spent",
            remedy="leave it out, or limit a cost of 1 for each member",
        )
    if "at_least" in entry and not is_share:
        raise document.error(
            (*keys, "at_least"),
            f"a minimum of {quote_field(entry['cost'])} per {per} cannot be promised: nobody "
            "knows how many requests will come",
            remedy=f"ask for a share of them: {{share: ..., at_least: 0.1, per: {per}}}",
        )
    return {name: entry[name] for name in WINDOW_FIELDS if name in entry and name != "where"}


def read_where(document: Document, keys: Keys, entry: Entry, known: Sequence[str]) -> Where:
    """Which requests a limit counts; None: all. known: the contexts of the file; empty: any."""
    if "where" not in entry:
        return None
    names = as_list(entry["where"]["context"])
    for n, name in enumerate(names):
        place = (*keys, "where", "context")
        place = (*place, n) if isinstance(entry["where"]["context"], list) else place
        if name in names[:n]:
            raise document.error(
                place,
                f"context {quote_field(name)} is named twice",
                remedy="name each context once",
            )
        if known and name not in known:
            raise document.error(
                place,
                f"unknown context {quote_field(name)}",
                remedy=suggest_known_name(name, known, "contexts"),
            )
    return {"context": names}


def limited_quantity(
    document: Document, keys: Keys, entry: Entry, experts: ExpertList
) -> str | Share:
    """What is limited: a cost by its name, or the share of a group."""
    if "members" in entry:
        members = check_members(
            document,
            (*keys, "members"),
            f"share {quote_field(entry['share'])}",
            entry["members"],
            experts.names,
        )
        return share(entry["share"], members)
    key = next(key for key in ("cost", "share", "group") if key in entry)  # group: as of old
    kind, other = ("cost", "group") if key == "cost" else ("group", "cost")
    name = entry[key]
    known = {"cost": list(experts.costs), "group": list(experts.groups)}
    if name not in known[kind]:
        remedy = suggest_known_name(name, known[kind], f"{kind}s")
        if key == "share" and find_similar(name, known[kind]) is None:
            remedy = "add members: the experts of the share"
        if name in known[other]:
            remedy = f"it is a {other}: write {'share' if other == 'group' else other}: {name}"
        raise document.error((*keys, key), f"unknown {kind} {quote_field(name)}", remedy=remedy)
    return name if kind == "cost" else share(name, experts.groups[name].members)
