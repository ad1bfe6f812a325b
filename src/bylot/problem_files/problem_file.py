"""A problem file: a pool, its limits and all that goes with them, as one person wrote them down."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from bylot._text import join_words
from bylot.errors import InfeasibleLimits, InfeasibleProblemFile, ProblemError, ProblemFileError
from bylot.problem import Limit, Problem, Remedy, validation
from bylot.problem.feasibility import REMEDY_DIGITS, round_outward
from bylot.problem.limits import MAX_COST
from bylot.problem_files import json_nodes, toml_nodes, yaml_nodes
from bylot.problem_files.experts import Group, read_expert_list
from bylot.problem_files.limits import WrittenLimit, read_limits
from bylot.problem_files.nodes import Node, file_error, format_path, locate_errors, read_source
from bylot.problem_files.schema import PROBLEM_SHAPE

FILE_PARSERS = {
    ".yaml": yaml_nodes.parse_yaml,
    ".yml": yaml_nodes.parse_yaml,
    ".toml": toml_nodes.parse_toml,
    ".json": json_nodes.parse_json,
}
MAX_LISTED_REMEDIES = 4  # remedies that a message spells out


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
    promises: Sequence[WrittenLimit]
    csv: Path | None

    def format_limit(self, limit: Limit) -> str:
        """Write a limit, which is per request, in the words and the unit of the file."""
        written = next(one for one in self.promises if one.limit.key == limit.key)
        bound = limit.bound / (self.problem.draws if written.per == "draw" else 1)
        return f'"{written._replace(written=bound).words}"'


def read(path: str | PathLike[str], experts: str | PathLike[str] | None = None) -> ProblemFile:
    """Read a problem from a YAML, TOML or JSON file; `experts` is a CSV file to take instead of the
    one that the file names.

    What is wrong raises ProblemFileError, which says where and what to do; limits that no policy
    can keep together raise InfeasibleFile, which is an InfeasibleLimits too.
    """
    where = Path(path)
    form = parse_file(where)
    PROBLEM_SHAPE.check(form, "a problem")
    pool = read_expert_list(form, None if experts is None else Path(experts))
    made = read_limits(form, pool)
    floor, period = (form.get(key) for key in ("floor", "period"))
    if floor is not None:
        with locate_errors(floor.place):
            validation.check_floor(floor.value, len(pool.names))
    with restate_conflict(where, made, form.value["draws"].value):
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
        contexts=context_shares(form.get("contexts")),
        rewards=reward_range(form.get("rewards")),
        units={} if (units := form.get("costs")) is None else plain_values(units),
        groups=pool.groups,
        promises=made,
        csv=pool.csv,
    )


def parse_file(path: Path) -> Node:
    """What is written in a file, by the format that its name says."""
    parse = FILE_PARSERS.get(path.suffix.lower())
    if parse is None:
        what = f"is called {path.suffix or 'without an ending'}"
        raise file_error(path, what, f"call it {', '.join(FILE_PARSERS)}, whichever it is")
    return parse(read_source(path))


def plain_values(node: Node) -> dict[str, str]:
    """A mapping of texts without their lines."""
    return {key: value.value for key, value in node.value.items()}


def context_shares(node: Node | None) -> dict[str, float]:
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
            raise file_error(name.place, what, "name each context once")
        names[name.value] = name
    return dict.fromkeys(names, 1 / len(names))


def reward_range(node: Node | None) -> tuple[float, float]:
    """The range of rewards."""
    if node is None:
        return 0.0, 1.0
    low, high = float(node.value["from"].value), float(node.value["to"].value)
    if not low < high:
        what = f"rewards from {low:g} to {high:g} are no range to learn from"
        raise file_error(node.value["from"].place, what, "write the lower end first")
    if max(-low, high) > MAX_COST:
        what = f"rewards from {low:g} to {high:g} are beyond {MAX_COST:g}"
        raise file_error(node.value["from"].place, what, "measure rewards in another unit")
    return low, high


@contextmanager
def restate_conflict(path: Path, made: Sequence[WrittenLimit], draws: int) -> Iterator[None]:
    """Limits in conflict, in the words and by the lines of the file."""
    try:
        yield
    except InfeasibleLimits as error:
        at = {promise.limit.key: promise for promise in made}
        conflict = [at[limit.key] for limit in error.conflict]
        lines = tuple(promise.place.line for promise in conflict)
        said = [f"{promise} (line {promise.place.line})" for promise in conflict]
        message = (
            f"{format_path(path)}, line {format_lines(lines)}: no policy can keep "
            f"{join_words(said, 'and')}{' together' if len(said) > 1 else ''}"
        )
        raise InfeasibleProblemFile(
            message,
            limits=error.limits,
            remedies=error.remedies,
            smallest=error.smallest,
            draws=error.draws,
            lines=lines,
            remedy=conflict_remedy(error, at, draws),
        ) from None
    except ProblemError as error:  # of the limits together: what is of one line was said of it
        lines = tuple(promise.place.line for promise in made)
        raise ProblemFileError(
            f"{format_path(path)}, line {format_lines(lines)}: {error}"
        ) from None


def format_lines(lines: Iterable[int]) -> str:
    """Numbers of lines, each once and in order.

    >>> format_lines([12, 3, 12])
    '3, 12'
    """
    return ", ".join(map(str, sorted(set(lines))))


def conflict_remedy(
    error: InfeasibleLimits, at: Mapping[tuple[str, int], WrittenLimit], draws: int
) -> str:
    """All that would help, in the words and by the lines of the file."""
    ways = [format_remedy(remedy, at, draws) for remedy in error.remedies]
    more = (
        [f"one of {len(ways) - MAX_LISTED_REMEDIES} changes of other lines"]
        if len(ways) > MAX_LISTED_REMEDIES
        else []
    )
    ways = ways[:MAX_LISTED_REMEDIES] + more
    ways += [f"draws: {error.draws}"] if error.draws else []
    if not ways:
        return "loosen several of the limits"
    return f"write {join_words(ways, 'or')}; leave some room beyond"  # these are the nearest


def format_remedy(remedy: Remedy, at: Mapping[tuple[str, int], WrittenLimit], draws: int) -> str:
    """What to write in which lines."""
    parts = []
    for limit in remedy.changes:
        promise = at[limit.key]
        bound = limit.bound
        if promise.per == "draw":
            bound = round_outward(bound / draws, limit.sign, REMEDY_DIGITS)
        parts.append(f"{limit.side}: {bound!r} in line {promise.place.line}")
    return join_words(parts, "and")
