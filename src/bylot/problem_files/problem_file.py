"""A problem file: a pool, its limits and what belongs to them, read from YAML, TOML or JSON."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from bylot._text import format_number, join_words
from bylot.errors import InfeasibleLimits, InfeasibleProblemFile, ProblemError, ProblemFileError
from bylot.problem import Limit, Problem, Share, validation
from bylot.problem.calendar import Calendar
from bylot.problem.feasibility import REMEDY_DIGITS, round_outward
from bylot.problem.limits import MAX_COST, list_contexts
from bylot.problem.window_bounds import compute_request_bounds
from bylot.problem_files.document import Document, format_yaml, read_document
from bylot.problem_files.experts import Group, read_expert_list
from bylot.problem_files.schema import EXPERT_KEYS, NAME_RULE, SCHEMA, check_value, is_readable_name
from bylot.problem_files.written_limit import WrittenLimit, format_entry, read_limits

MAX_LISTED_REMEDIES = 4


@dataclass(frozen=True)
class ProblemFile:
    """What a problem file says.

    Attributes
    ----------
    path : Path
        The file.
    problem : Problem
        Experts, costs, limits and draws.
    contexts : mapping of str to float
        The share of requests in each context; empty if the file names none.
    rewards : (float, float)
        The range of rewards.
    units : mapping of str to str
        The unit of each cost.
    groups : mapping of str to Group
        All groups, limited or not.
    limits : sequence of WrittenLimit
        The limits of the problem, in its order, as the file writes them.
    csv : Path, optional
        The CSV file that lists the experts.
    document : Document
        Where each entry is in the file.
    """

    path: Path
    problem: Problem
    contexts: Mapping[str, float]
    rewards: tuple[float, float]
    units: Mapping[str, str]
    groups: Mapping[str, Group]
    limits: Sequence[WrittenLimit]
    csv: Path | None
    document: Document

    @property
    def span(self) -> float:
        """The width of the range of rewards."""
        return self.rewards[1] - self.rewards[0]

    def to_reward(self, value: float) -> float:
        """Map a value from 0 to 1 to the range of rewards."""
        return self.rewards[0] + self.span * value

    def name_unit(self, name: str) -> str:
        """What amounts of a cost, or of the members of a group, are counted in.

        A cost with the unit "US dollars per call" is counted in US dollars.
        """
        unit = self.units.get(name)
        return f"experts of group {name}" if unit is None else unit.partition(" per ")[0] or name

    def format_spend(self, spend: Mapping[str, float]) -> str:
        """Costs by name: "2.5 US dollars and 3 minutes"; empty without costs."""
        parts = (f"{format_number(x)} {self.name_unit(name)}" for name, x in spend.items())
        return join_words(parts, "and")

    def format_limit(self, limit: Limit) -> str:
        """Write a limit in the words and the unit of the file."""
        for written in self.limits:
            if written.limit.key == limit.key:
                bound = limit.bound / (self.problem.draws if written.per == "draw" else 1)
                return f'"{written._replace(written=bound).words}"'
        restated = {(one.limit.words, one.limit.sign): one for one in self.limits}
        return f'"{restated[limit.name, limit.sign].words}"'  # its bound is per request

    @property
    def window(self) -> Calendar | None:
        """The window of the first limit that has one."""
        return next(iter(self.problem.calendars), None)

    def describe_request_bounds(self) -> list[str]:
        """What budgets of the calendar are per request at the traffic, for optima."""
        bounds = compute_request_bounds(self.problem, one_tenant=True).tolist()
        parts = [
            written.describe_per_request(bound)
            for written, bound in zip(self.limits, bounds, strict=True)
            if written.requests is not None
        ]
        if not parts:
            return []
        return [f"At {format_number(self.problem.traffic)} requests per day, {'; '.join(parts)}."]

    def at_traffic(self, traffic: float | None) -> "ProblemFile":
        """The same at so many requests per day; None: they are not known."""
        limits = [one.at_traffic(traffic) for one in self.limits]
        return replace(self, problem=self.problem.replace(traffic=traffic), limits=limits)

    def as_one_tenant(self) -> "ProblemFile":
        """The same if all requests are of one tenant: limits for each count all of them."""
        traffic = self.problem.traffic
        return replace(self, limits=[one.at_traffic(traffic, scope=None) for one in self.limits])


def read(path: str | PathLike[str], experts: str | PathLike[str] | None = None) -> ProblemFile:
    """Read a problem from a YAML, TOML or JSON file.

    Parameters
    ----------
    path : path-like
        The file; its suffix names the format.
    experts : path-like, optional
        A CSV file to use instead of the one that the file names.

    Returns
    -------
    ProblemFile

    Raises
    ------
    ProblemFileError
        If the file is invalid; the error has the line and the remedy.
    InfeasibleProblemFile
        If no policy can keep all limits; also an InfeasibleLimits.
    """
    return read_problem(read_document(Path(path)), None if experts is None else Path(experts))


def read_problem(document: Document, csv: Path | None = None) -> ProblemFile:
    """The problem of a document; `csv` replaces the CSV file that it names."""
    entry = document.data
    check_value(document, (), entry, SCHEMA)
    pool = read_expert_list(document, entry, csv)
    limits = list(read_limits(document, entry, pool))
    with document.locate_errors("floor"):
        validation.check_floor(entry.get("floor"), len(pool.names))
    with document.locate_errors("min_draws"):
        validation.check_min_draws(entry.get("min_draws"), entry["draws"])
    with locate_limits(document.path, limits, entry["draws"]):
        problem = Problem(
            pool.names,
            pool.costs,
            [one.limit for one in limits],
            max_costs=pool.max_costs,
            **{x: entry.get(x) for x in ("draws", "min_draws", "floor", "period", "traffic")},
        )
    return ProblemFile(
        path=document.path or Path(),
        problem=problem,
        contexts=read_contexts(document, entry.get("contexts", [])),
        rewards=read_reward_range(document, entry.get("rewards", [0, 1])),
        units={
            name: "" if isinstance(x, list) else x for name, x in entry.get("costs", {}).items()
        },
        groups=pool.groups,
        limits=[one.at_traffic(problem.traffic) for one in limits],
        csv=pool.csv,
        document=document,
    )


def read_contexts(document: Document, given: dict[str, float] | list[str]) -> dict[str, float]:
    """Contexts with shares that sum to 1: by their weights, or all equal."""
    if isinstance(given, dict):
        top = max(given.values())  # first, so that no sum overflows
        total = sum(weight / top for weight in given.values())
        return {name: weight / top / total for name, weight in given.items()}
    seen: set[str] = set()
    for n, name in enumerate(given):
        if name in seen:
            raise document.error(
                ("contexts", n), f"duplicate context {name!r}", remedy="name each context once"
            )
        seen.add(name)
    return {name: 1 / len(given) for name in given}


def read_reward_range(document: Document, given: Any) -> tuple[float, float]:
    """The two ends of {from: 0, to: 1} or [0, 1]."""
    ends = [given["from"], given["to"]] if isinstance(given, dict) else given
    low = float(ends[0])
    high = float(ends[1])
    if len(ends) > 2 or not low < high:
        raise document.error(
            ("rewards",),
            "rewards",
            got=ends,
            expected="a lower and a higher end",
            remedy="write the lower end first",
        )
    if max(-low, high) > MAX_COST:
        raise document.error(
            ("rewards",),
            "rewards",
            got=ends,
            expected=f"at most {MAX_COST:g}",
            remedy="measure rewards in another unit",
        )
    return low, high


@contextmanager
def locate_limits(path: Path | None, limits: Sequence[WrittenLimit], draws: int) -> Iterator[None]:
    """Raise an error about the limits with the words and the lines of the file."""
    try:
        yield
    except ProblemError as error:
        named = [one for limit in error.limits for one in limits if one.limit is limit]
        names = join_words([one.located for one in named], "and")
        infeasible = error if isinstance(error, InfeasibleLimits) else None
        shown = named if infeasible else named[-1:] or limits  # the second of two on the same side
        lines = sorted({one.line for one in shown if one.line is not None})
        parts = {**vars(error), "path": path}
        parts["line"] = f"line {', '.join(map(str, lines))}" if lines else None
        if infeasible is None:
            parts["what"] = error.what.replace("{limits}", names)
            raise ProblemFileError(**parts) from None
        parts["what"] = f"no policy can keep {names}{' together' if len(named) > 1 else ''}"
        parts["lines"] = [one.line for one in named]
        parts["remedy"] = error.remedy or describe_remedies(infeasible, limits, draws)
        raise InfeasibleProblemFile(**parts) from None


def describe_remedies(error: InfeasibleLimits, limits: Sequence[WrittenLimit], draws: int) -> str:
    """The changes that resolve a conflict, in the words and by the lines of the file."""
    known, ways = {one.limit.key: one for one in limits}, []
    for remedy in error.remedies:
        changes = []
        for limit in remedy:
            written, bound = known[limit.key], limit.bound
            if written.per == "draw":
                bound = round_outward(bound / draws, limit.sign, REMEDY_DIGITS)
            changes.append(format_entry(limit.name, limit.side, bound, written.line))
        ways.append(join_words(changes, "and"))
    if (more := len(ways) - MAX_LISTED_REMEDIES) > 0:
        ways[MAX_LISTED_REMEDIES:] = [f"one of {more} changes of other lines"]
    ways += [f"draws: {error.draws}"] if error.draws else []
    ways += [f"min_draws: {error.min_draws}"] if error.min_draws else []
    if not ways:
        return "loosen several of the limits"
    return f"write {join_words(ways, 'or')}; these bounds are the nearest, so leave a margin"


def write(problem: Problem) -> str:
    """Write a problem as YAML that reads back as an equal problem; no bound is per draw.

    Parameters
    ----------
    problem : Problem
        The problem.

    Returns
    -------
    str
        The text of a YAML file.

    Examples
    --------
    >>> from bylot.problem import at_least, share
    >>> quota = at_least(share("junior", ["bob"]), 0.3)
    >>> print(write(Problem(["ann", "bob"], {"usd": [2.0, 1.0]}, [quota], draws=1)), end="")
    draws: 1
    costs:
      usd: ""
    experts:
    - {name: ann, usd: 2.0}
    - {name: bob, usd: 1.0}
    limits:
    - share: junior
      members: [bob]
      at_least: 0.3
    """
    shares = {limit.name for limit in problem.limits if isinstance(limit.cost, Share)}
    limited = {limit.name for limit in problem.limits if isinstance(limit.cost, str)}
    for limit in problem.limits:
        if not isinstance(limit.cost, str | Share):
            raise ProblemError(
                f"a problem file cannot hold the limit on {limit.name!r}, a {limit.cost.key}",
                remedy="limit a cost with these numbers instead",
            )
    costs = [name for name in problem.costs if name not in shares or name in limited]
    for name in (*problem.experts, *problem.costs, *list_contexts(problem.limits)):
        if not is_readable_name(name):
            raise ProblemError("name", got=name, expected=NAME_RULE)
        if name in EXPERT_KEYS and name in costs:
            raise ProblemError(f"no cost can be called {name!r} in a file", remedy="rename it")
    default_floor, most = validation.check_floor(None, problem.size), problem.max_costs
    data = {
        "draws": problem.draws,
        "min_draws": problem.min_draws,
        "floor": None if problem.floor == default_floor else problem.floor,
        "period": problem.period,
        "traffic": problem.traffic,
        "costs": dict.fromkeys(costs, ""),
        "experts": [
            {
                "name": name,
                **{cost: float(problem.costs[cost][i]) for cost in costs},
                **({"max_costs": {x: float(most[x][i]) for x in most}} if most else {}),
            }
            for i, name in enumerate(problem.experts)
        ],
        "limits": [limit.to_data() for limit in problem.limits],
    }
    return format_yaml({key: value for key, value in data.items() if value not in (None, {}, [])})
