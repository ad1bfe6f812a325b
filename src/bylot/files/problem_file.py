"""A problem file: a pool, its limits and all that goes with them, as one person wrote them down."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from bylot.errors import InfeasibleFile, InfeasibleLimits, ProblemError, ProblemFileError
from bylot.files import jsons, tomls, yamls
from bylot.files.form import FORM
from bylot.files.groups import Group
from bylot.files.node import Node, blamed, fault, shown
from bylot.files.promises import Promise, promises
from bylot.files.roster import roster
from bylot.files.source import opened
from bylot.problem import Problem, Remedy, reading
from bylot.problem.limits import HUGE
from bylot.problem.remedy import DIGITS, outward

FORMATS = {
    ".yaml": yamls.parse,
    ".yml": yamls.parse,
    ".toml": tomls.parse,
    ".json": jsons.parse,
}
SHOWN = 4  # remedies that a message spells out


@dataclass(frozen=True)
class ProblemFile:
    """What a problem file says.

    contexts: how often each kind of request comes, as shares that sum to 1; empty if none are named
    rewards:  the range of rewards
    units:    of each cost
    groups:   all groups, whether limited or not
    promises: the limits of the problem, in its order, with their lines
    csv:      the file that the experts were in, if any
    """

    path: Path
    problem: Problem
    contexts: Mapping[str, float]
    rewards: tuple[float, float]
    units: Mapping[str, str]
    groups: Mapping[str, Group]
    promises: Sequence[Promise]
    csv: Path | None

    def worded(self, text: str, problem: Problem | None = None) -> str:
        """A text of the library with its limits, which are per request, in the words of the file;
        those of a problem that differs in bounds, if one is given.
        """
        limits = (self.problem if problem is None else problem).limits
        for promise, limit in zip(self.promises, limits, strict=True):
            bound = limit.bound / (self.problem.draws if promise.per == "draw" else 1)
            text = text.replace(str(limit), f'"{promise._replace(written=bound).words}"')
        return text


def read(path: str | PathLike[str], experts: str | PathLike[str] | None = None) -> ProblemFile:
    """Read a problem from a YAML, TOML or JSON file; `experts` is a CSV file to take instead of the
    one that the file names.

    What is wrong raises ProblemFileError, which says where and what to do; limits that no policy
    can keep together raise InfeasibleFile, which is an InfeasibleLimits too.
    """
    where = Path(path)
    form = parsed(where)
    FORM.check(form, "a problem")
    pool = roster(form, None if experts is None else Path(experts))
    made = promises(form, pool)
    floor, period = (form.get(key) for key in ("floor", "period"))
    if floor is not None:
        with blamed(floor.place):
            reading.floor(floor.value, len(pool.names))
    with restated(where, made, form.value["draws"].value):
        problem = Problem(
            experts=pool.names,
            costs=pool.costs,
            limits=[promise.limit for promise in made],
            draws=form.value["draws"].value,
            floor=None if floor is None else floor.value,
            period=None if period is None else period.value,
        )
    return ProblemFile(
        path=where,
        problem=problem,
        contexts=contexts(form.get("contexts")),
        rewards=rewards(form.get("rewards")),
        units={} if (units := form.get("costs")) is None else plain(units),
        groups=pool.groups,
        promises=made,
        csv=pool.csv,
    )


def parsed(path: Path) -> Node:
    """What is written in a file, by the format that its name says."""
    parse = FORMATS.get(path.suffix.lower())
    if parse is None:
        what = f"is called {path.suffix or 'without an ending'}"
        raise fault(path, what, f"call it {', '.join(FORMATS)}, whichever it is")
    return parse(opened(path))


def plain(node: Node) -> dict[str, str]:
    """A mapping of texts without their lines."""
    return {key: value.value for key, value in node.value.items()}


def contexts(node: Node | None) -> dict[str, float]:
    """Names with shares that sum to 1: by their weights, or all alike."""
    if node is None:
        return {}
    if isinstance(node.value, dict):
        weights = {name: float(weight.value) for name, weight in node.value.items()}
        top = max(weights.values())  # first, so that no sum can overflow
        total = sum(weight / top for weight in weights.values())
        return {name: weight / top / total for name, weight in weights.items()}
    names: dict[str, Node] = {}
    for name in node.value:
        if name.value in names:
            what = f"the context {name.value!r} is in line {names[name.value].place.line} already"
            raise fault(name.place, what, "name each context once")
        names[name.value] = name
    return dict.fromkeys(names, 1 / len(names))


def rewards(node: Node | None) -> tuple[float, float]:
    """The range of rewards."""
    if node is None:
        return 0.0, 1.0
    low, high = float(node.value["from"].value), float(node.value["to"].value)
    if not low < high:
        what = f"rewards from {low:g} to {high:g} are no range to learn from"
        raise fault(node.value["from"].place, what, "write the lower end first")
    if max(-low, high) > HUGE:
        what = f"rewards from {low:g} to {high:g} are beyond {HUGE:g}"
        raise fault(node.value["from"].place, what, "measure rewards in another unit")
    return low, high


@contextmanager
def restated(path: Path, made: Sequence[Promise], draws: int) -> Iterator[None]:
    """Limits in conflict, in the words and by the lines of the file."""
    try:
        yield
    except InfeasibleLimits as error:
        at = {promise.limit.key: promise for promise in made}
        conflict = [at[limit.key] for limit in error.conflict]
        lines = tuple(promise.place.line for promise in conflict)
        said = [f"{promise} (line {promise.place.line})" for promise in conflict]
        message = (
            f"{shown(path)}, line {numbered(lines)}: no policy can keep "
            f"{in_words(said, 'and')}{' together' if len(said) > 1 else ''}; "
            f"{advice(error, at, draws)}"
        )
        raise InfeasibleFile(
            message, error.conflict, error.remedies, error.smallest, error.draws, lines
        ) from None
    except ProblemError as error:  # of the limits together: what is of one line was said of it
        lines = tuple(promise.place.line for promise in made)
        raise ProblemFileError(f"{shown(path)}, line {numbered(lines)}: {error}") from None


def numbered(lines: Iterable[int]) -> str:
    """Numbers of lines, each once and in order.

    >>> numbered([12, 3, 12])
    '3, 12'
    """
    return ", ".join(map(str, sorted(set(lines))))


def advice(error: InfeasibleLimits, at: Mapping[tuple[str, int], Promise], draws: int) -> str:
    """All that would help, in the words and by the lines of the file."""
    ways = [changed(remedy, at, draws) for remedy in error.remedies]
    more = [f"one of {len(ways) - SHOWN} changes of other lines"] if len(ways) > SHOWN else []
    ways = ways[:SHOWN] + more
    ways += [f"draws: {error.draws}"] if error.draws else []
    if not ways:
        return "loosen several of the limits"
    return f"write {in_words(ways, 'or')}; leave some room beyond"  # these are the nearest


def changed(remedy: Remedy, at: Mapping[tuple[str, int], Promise], draws: int) -> str:
    """What to write in which lines."""
    parts = []
    for limit in remedy.changes:
        promise = at[limit.key]
        bound = limit.bound
        if promise.per == "draw":
            bound = outward(bound / draws, limit.sign, DIGITS)
        parts.append(f"{limit.side}: {bound!r} in line {promise.place.line}")
    return in_words(parts, "and")


def in_words(parts: Sequence[str], last: str) -> str:
    """A list in a sentence.

    >>> in_words(["a", "b", "c"], "or")
    'a, b or c'
    """
    return f" {last} ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
