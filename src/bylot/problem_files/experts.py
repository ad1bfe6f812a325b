"""The experts of a problem file, their costs and their groups, listed there or in a CSV file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET

from bylot.errors import DataError, ProblemFileError
from bylot.outcome_tables.sheets import Sheet, parse_decimal, read_sheet
from bylot.outcome_tables.text_lines import quote_field, shorten
from bylot.problem import validation
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.document import Document, Keys
from bylot.problem_files.schema import (
    EXPERT_KEYS,
    ColumnRule,
    ExpertEntry,
    ExpertsFile,
    ProblemEntry,
    as_list,
    decode_experts,
)

MAX_CSV_BYTES = 100_000_000


class Group(NamedTuple):
    """The members of a group, and where the group is first mentioned."""

    members: tuple[str, ...]
    path: Path
    line: int | None


class ExpertList(NamedTuple):
    """The experts in the order of the file; `csv` is the file that lists them, if it is another."""

    names: tuple[str, ...]
    costs: dict[str, list[float]]
    groups: dict[str, Group]
    csv: Path | None


def read_expert_list(document: Document, problem: ProblemEntry, csv: Path | None) -> ExpertList:
    """The experts of a problem; `csv` replaces the CSV file that the problem names."""
    for key in EXPERT_KEYS:
        if key in problem.costs:
            what = f"a cost cannot be called {key!r}"
            raise document.error(("costs", key), what, remedy="choose another name")
    source, sheet = document, None
    if isinstance(problem.experts, ExpertsFile):
        path = csv or document.path.parent / problem.experts.csv
        sheet = read_experts_csv(document, path)
        source = document_from_sheet(document, problem, problem.experts, sheet)
        entries = decode_experts(source)
    elif csv is not None:
        what, remedy = (
            f"the experts are listed here, so {csv} cannot replace them",
            "omit --experts",
        )
        raise document.error(("experts",), what, remedy=remedy)
    else:
        entries = problem.experts
    check_expert_names(source, entries)
    groups = groups_from_experts(source, entries)
    return ExpertList(
        names=tuple(entry.name for entry in entries),
        costs=read_expert_costs(source, entries, list(problem.costs)),
        groups=add_declared_groups(document, problem, entries, groups, sheet),
        csv=None if sheet is None else sheet.path,
    )


def read_experts_csv(document: Document, path: Path) -> Sheet:
    """Read a CSV file; raise ProblemFileError if it is malformed."""
    try:
        path.stat()
        return read_sheet(path, MAX_CSV_BYTES)
    except DataError as error:
        raise ProblemFileError(
            error.what, path=error.path, line=error.line, remedy=error.remedy
        ) from None
    except (OSError, ValueError):
        what = f"no CSV file {quote_field(str(path))}"
        remedy = "put it there, or give its path with --experts"
        raise document.error(("experts", "csv"), what, remedy=remedy) from None


def document_from_sheet(
    document: Document, problem: ProblemEntry, given: ExpertsFile, sheet: Sheet
) -> Document:
    """The lines of a CSV file as the experts of a problem file."""
    for cost in problem.costs:
        check_column(document, ("costs", cost), sheet, cost)
    groups = as_list(given.group) or [one for one in ("group",) if one in sheet.columns[1:]]
    for n, column in enumerate(as_list(given.group)):
        keys = ("experts", "group", n) if isinstance(given.group, list) else ("experts", "group")
        check_column(document, keys, sheet, column)
    check_group_columns(sheet, groups)
    experts = []
    for fields in sheet.fields:
        row = dict(zip(sheet.columns, fields, strict=True))
        costs = {cost: row[cost] for cost in problem.costs if row[cost]}
        numbers = {cost: parse_decimal(field) for cost, field in costs.items()}
        experts.append(
            {
                "name": fields[0],
                "group": [row[column] for column in groups if row[column]],
                **{cost: costs[cost] if n is None else n for cost, n in numbers.items()},
            }
        )
    lines: dict[Keys, int] = {("experts", n): sheet.line(n) for n in range(len(experts))}
    return Document(sheet.path, {"experts": experts}, lines)


def check_column(document: Document, keys: Keys, sheet: Sheet, name: str) -> None:
    """Reject a column that the CSV file does not have."""
    if name not in sheet.columns[1:]:
        what = f"{sheet.path.name} has no column {quote_field(name)}"
        remedy = suggest_known_name(name, sheet.columns[1:], "columns")
        raise document.error(keys, what, remedy=remedy)


def check_group_columns(sheet: Sheet, groups: Sequence[str]) -> None:
    """Reject a group that occurs in two columns: its members may have nothing in common."""
    seen: dict[str, str] = {}
    for column in groups:
        for row, group in enumerate(sheet.column(column)):
            if group and seen.setdefault(group, column) != column:
                raise ProblemFileError(
                    f"group {quote_field(group)} is in the columns {seen[group]!r} and {column!r}",
                    remedy="rename one of them",
                    path=sheet.path,
                    line=sheet.line(row),
                )


def check_expert_names(source: Document, entries: Sequence[ExpertEntry]) -> None:
    """Reject a name that two experts have."""
    seen: dict[str, int] = {}
    for n, entry in enumerate(entries):
        first = seen.setdefault(entry.name, n)
        if first != n:
            line = source.line(("experts", first))
            place = f"experts[{first}]" if line is None else f"line {line}"
            what = f"duplicate expert {quote_field(entry.name)}, also in {place}"
            raise source.error(("experts", n, "name"), what, remedy="rename one of them")


def read_expert_costs(
    source: Document, entries: Sequence[ExpertEntry], costs: Sequence[str]
) -> dict[str, list[float]]:
    """Each declared cost of each expert, and no other."""
    for n, entry in enumerate(entries):
        who = f"expert {quote_field(entry.name)}"
        for key, value in entry.costs.items():
            if key not in costs:
                what = f"{who} has the undeclared cost {quote_field(key)}"
                remedy = suggest_known_name(key, [*EXPERT_KEYS, *costs], "keys")
                raise source.error(("experts", n, key), what, remedy=remedy)
            with source.locate_errors("experts", n, key):
                validation.check_costs((entry.name,), {key: [value]})
        for cost in costs:
            if cost not in entry.costs:
                what, remedy = f"{who} has no cost {cost!r}", "add it; write 0 if it costs nothing"
                raise source.error(("experts", n), what, remedy=remedy)
    return {cost: [float(entry.costs[cost]) for entry in entries] for cost in costs}


def groups_from_experts(source: Document, entries: Sequence[ExpertEntry]) -> dict[str, Group]:
    """The groups that the experts name."""
    groups: dict[str, Group] = {}
    for n, entry in enumerate(entries):
        keys = ("experts", n, "group")
        for name in as_list(entry.group):
            group = groups.setdefault(name, Group((), source.path, source.line(keys)))
            if entry.name in group.members[-1:]:
                what = f"expert {quote_field(entry.name)} names the group {quote_field(name)} twice"
                raise source.error(keys, what, remedy="name it once")
            groups[name] = group._replace(members=(*group.members, entry.name))
    return groups


def add_declared_groups(
    document: Document,
    problem: ProblemEntry,
    entries: Sequence[ExpertEntry],
    known: Mapping[str, Group],
    sheet: Sheet | None,
) -> dict[str, Group]:
    """The groups of the experts and those under the key `groups`."""
    groups, names = dict(known), [entry.name for entry in entries]
    for name, given in problem.groups.items():
        line = document.line(("groups", name))
        if name in known:
            first = known[name]
            what = f"group {quote_field(name)} is already in {first.path.name}, line {first.line}"
            raise document.error(("groups", name), what, remedy="rename one of them, or keep one")
        if isinstance(given, ColumnRule):
            members = members_by_column(document, name, given, sheet)
        else:
            members = listed_members(document, name, given, names)
        groups[name] = Group(members, document.path, line)
    return groups


def listed_members(
    document: Document, group: str, members: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """Members that are listed, each once."""
    for n, member in enumerate(members):
        keys = ("groups", group, n)
        if member not in names:
            what = f"group {quote_field(group)} has the unknown member {quote_field(member)}"
            raise document.error(keys, what, remedy=suggest_known_name(member, names, "experts"))
        if member in members[:n]:
            what = f"group {quote_field(group)} names {quote_field(member)} twice"
            raise document.error(keys, what, remedy="name each member once")
    return tuple(members)


def members_by_column(
    document: Document, group: str, rule: ColumnRule, sheet: Sheet | None
) -> tuple[str, ...]:
    """Members whose number in a column of the CSV file is in the range of the rule."""
    keys = ("groups", group, "column")
    if sheet is None:
        what = f"group {quote_field(group)} has a column, but the experts are not in a CSV file"
        raise document.error(keys, what, remedy="list its members")
    check_column(document, keys, sheet, rule.column)
    low = float("-inf") if rule.at_least is UNSET else rule.at_least
    high = float("inf") if rule.at_most is UNSET else rule.at_most
    members = []
    for row, (name, field) in enumerate(zip(sheet.names, sheet.column(rule.column), strict=True)):
        value = parse_decimal(field)
        if (field and value is None) or (not field and rule.blank is UNSET):
            raise ProblemFileError(
                rule.column,
                got=shorten(field),
                expected="a number",
                remedy=f"to allow blanks, add `blank: in` or `blank: out` to groups.{group}",
                path=sheet.path,
                line=sheet.line(row),
            )
        if rule.blank == "in" if value is None else low <= value <= high:
            members.append(name)
    if not members:
        what, remedy = f"group {quote_field(group)} has no members", "change its rule, or remove it"
        raise document.error(("groups", group), what, remedy=remedy)
    return tuple(members)
