"""The experts of a problem file, their costs and their groups, listed there or in a CSV file."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bylot.errors import DataError, ProblemFileError
from bylot.numerics.jit import Floats
from bylot.outcome_tables.sheets import Sheet, parse_decimal, quote_field, read_sheet, shorten
from bylot.problem import share, validation
from bylot.problem_files.document import Document, Keys
from bylot.problem_files.schema import EXPERT_KEYS, SCHEMA, check_value

MAX_CSV_BYTES = 100_000_000

Entry = Mapping[str, Any]
"""A part of a document that follows the schema: the problem, an expert, a rule."""


class Group(NamedTuple):
    """The members of a group, and where the group is first mentioned."""

    members: tuple[str, ...]
    path: Path | None
    line: int | None


class ExpertList(NamedTuple):
    """The experts in the order of the file; `csv` is the file that lists them, if it is another."""

    names: tuple[str, ...]
    costs: Mapping[str, Floats]
    groups: dict[str, Group]
    csv: Path | None
    max_costs: Mapping[str, Floats] = MappingProxyType({})


def read_expert_list(document: Document, problem: Entry, csv: Path | None) -> ExpertList:
    """The experts of a problem; `csv` replaces the CSV file that the problem names."""
    declared, entries = problem.get("costs", {}), problem["experts"]
    rows = {cost: given for cost, given in declared.items() if isinstance(given, list)}
    by_expert = [cost for cost in declared if cost not in rows]
    for key in EXPERT_KEYS:
        if key in declared:
            raise document.error(
                ("costs", key), f"a cost cannot be called {key!r}", remedy="choose another name"
            )
    source = document
    sheet = None
    if isinstance(entries, dict):
        if document.path is None:
            raise document.error(
                ("experts", "csv"),
                "a request cannot name a CSV file",
                remedy="list the experts in the request, or create the router with "
                "`bylot router create`, which reads the file",
            )
        sheet = read_experts_csv(document, csv or document.path.parent / entries["csv"])
        source = document_from_sheet(
            document,
            by_expert,
            entries.get("group", []),
            sheet,
            {x: y for x, y in problem.get("max_costs", {}).items() if isinstance(y, str)},
        )
        entries = source.data["experts"]
        check_value(source, ("experts",), entries, SCHEMA["$defs"]["experts"])
    elif csv is not None:
        raise document.error(
            ("experts",),
            f"the experts are listed here, so {csv} cannot replace them",
            remedy="omit --experts",
        )
    entries = [{"name": one} if isinstance(one, str) else one for one in entries]
    names = check_expert_names(source, entries)
    for n, key in ((n, key) for n, entry in enumerate(entries) for key in entry if key in rows):
        raise document.error(
            ("experts", n, key),
            f"cost {quote_field(key)} is here and in a list under costs",
            remedy="keep one of them",
        )
    found = read_expert_costs(source, entries, by_expert)
    for cost, row in rows.items():
        with document.locate_errors("costs", cost):
            found |= validation.check_costs(names, {cost: row})
    costs = {cost: found[cost] for cost in declared}
    groups = read_groups(document, problem, source, entries, sheet)
    for name in groups.keys() & costs.keys():
        members, path, line = groups[name]
        if costs[name].tolist() != share(name, members).row(names).tolist():
            raise ProblemFileError(
                f"{quote_field(name)} is a cost and a group",
                path=path,
                line=line,
                remedy="rename one of them",
            )
    most = read_max_costs(source, entries, costs)
    for cost, row in problem.get("max_costs", {}).items():
        if isinstance(row, str) and sheet is None:
            raise document.error(
                ("max_costs", cost),
                "the experts are not in a CSV file",
                remedy="write a list with the number of each expert, or one beside each name",
            )
        if cost in most and not isinstance(row, str):
            raise document.error(
                ("max_costs", cost),
                f"the largest cost {quote_field(cost)} is here and beside the experts",
                remedy="keep one of them",
            )
        if not isinstance(row, str):
            with document.locate_errors("max_costs", cost):
                most |= validation.check_max_costs(names, {cost: row}, costs)
    return ExpertList(names, costs, groups, None if sheet is None else sheet.path, most)


def read_experts_csv(document: Document, path: Path) -> Sheet:
    """Read a CSV file; raise ProblemFileError if it is malformed."""
    try:
        path.stat()
        return read_sheet(path, MAX_CSV_BYTES)
    except DataError as error:
        raise ProblemFileError(**vars(error)) from None
    except (OSError, ValueError):
        raise document.error(
            ("experts", "csv"),
            f"no CSV file {quote_field(str(path))}",
            remedy="put it there, or give its path with --experts",
        ) from None


def document_from_sheet(
    document: Document,
    declared: Sequence[str],
    given: str | list[str],
    sheet: Sheet,
    most: Mapping[str, str],
) -> Document:
    """The lines of a CSV file as the experts of a problem file; `given` are columns of groups,
    `most` those of the largest costs.
    """
    for cost in declared:
        check_column(document, ("costs", cost), sheet, cost)
    for cost, column in most.items():
        check_column(document, ("max_costs", cost), sheet, column)
    for n, column in enumerate(as_list(given)):
        keys = ("experts", "group", n) if isinstance(given, list) else ("experts", "group")
        check_column(document, keys, sheet, column)
    groups = as_list(given) or [one for one in ("group",) if one in sheet.columns[1:]]
    lines: dict[Keys, int] = {("experts", n): sheet.line(n) for n in range(len(sheet.fields))}
    experts, source = [], Document(sheet.path, None, lines)
    columns: dict[str, str] = {}  # of the groups
    for n, fields in enumerate(sheet.fields):
        row = dict(zip(sheet.columns, fields, strict=True))
        named = {column: row[column] for column in groups if row[column]}
        for column, group in named.items():
            if (first := columns.setdefault(group, column)) != column:  # of different meaning
                raise source.error(
                    ("experts", n),
                    f"group {quote_field(group)} is in the columns {first!r} and {column!r}",
                    remedy="rename one of them",
                )
        expert: dict[str, Any] = {"name": fields[0], "group": list(named.values())}
        if most:
            expert["max_costs"] = {x: read_number(row[column]) for x, column in most.items()}
        experts.append(expert | {cost: read_number(row[cost]) for cost in declared if row[cost]})
    source.data = {"experts": experts}
    return source


def read_number(field: str) -> float | str:
    """Return the number that a field of a table is, else its text."""
    number = parse_decimal(field)
    return field if number is None else number


def as_list(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def check_column(document: Document, keys: Keys, sheet: Sheet, name: str) -> None:
    if name not in sheet.columns[1:]:
        raise document.error(
            keys,
            f"{sheet.path.name} has no column {quote_field(name)}",
            remedy=validation.suggest_known_name(name, sheet.columns[1:], "columns"),
        )


def check_expert_names(source: Document, entries: Sequence[Entry]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    for n, entry in enumerate(entries):
        if (first := seen.setdefault(entry["name"], n)) != n:
            line = source.line(("experts", first))
            place = f"experts[{first}]" if line is None else f"line {line}"
            raise source.error(
                ("experts", n, "name"),
                f"duplicate expert {quote_field(entry['name'])}, also in {place}",
                remedy="rename one of them",
            )
    return tuple(seen)


def read_expert_costs(
    source: Document, entries: Sequence[Entry], costs: Sequence[str], key_of_list: str = "experts"
) -> dict[str, Floats]:
    """Each declared cost of each expert, and no other."""
    known = {*EXPERT_KEYS, *costs}
    for n, entry in enumerate(entries):
        who = f"expert {quote_field(entry['name'])}"
        for key in (key for key in entry if key not in known):
            raise source.error(
                (key_of_list, n, key),
                f"{who} has the undeclared cost {quote_field(key)}",
                remedy=validation.suggest_known_name(key, [*EXPERT_KEYS, *costs], "keys"),
            )
        for cost in costs:
            if cost not in entry:
                raise source.error(
                    (key_of_list, n),
                    f"{who} has no cost {cost!r}",
                    remedy="add it; write 0 if it costs nothing",
                )
    rows = {cost: np.array([float(entry[cost]) for entry in entries]) for cost in costs}
    for cost, row in rows.items():
        for n in np.flatnonzero(~validation.are_costs(row)).tolist():
            with source.locate_errors(key_of_list, n, cost):
                validation.check_costs((entries[n]["name"],), {cost: [entries[n][cost]]})
    return rows


def read_max_costs(
    source: Document,
    entries: Sequence[Entry],
    costs: Mapping[str, Floats],
    key_of_list: str = "experts",
    wanted: Iterable[str] = (),
) -> dict[str, Floats]:
    """The largest cost of a call of each expert, of the costs that any of them names, or wanted."""
    names = tuple(entry["name"] for entry in entries)
    found: dict[str, Floats] = {}
    for cost in dict.fromkeys([*wanted, *(x for one in entries for x in one.get("max_costs", {}))]):
        for n, entry in enumerate(entries):
            given = entry.get("max_costs", {})
            keys, who = (key_of_list, n, "max_costs"), f"expert {quote_field(entry['name'])}"
            if cost not in costs and cost in given:
                raise source.error(
                    keys,
                    f"{who} has the largest cost of {quote_field(cost)}, which is no cost",
                    remedy=validation.suggest_known_name(cost, list(costs), "costs"),
                )
            if cost not in given:
                raise source.error(
                    (key_of_list, n),
                    f"{who} has no largest cost of {quote_field(cost)}, and others have",
                    remedy=f"add max_costs: {{{cost}: ...}}",
                )
            with source.locate_errors(*keys):
                one = {cost: costs[cost][n : n + 1]}
                validation.check_max_costs(names[n : n + 1], {cost: [given[cost]]}, one)
        found[cost] = np.array([float(entry["max_costs"][cost]) for entry in entries])
    return found


def read_groups(
    document: Document,
    problem: Entry,
    source: Document,
    entries: Sequence[Entry],
    sheet: Sheet | None,
) -> dict[str, Group]:
    """The groups that the experts name, and those under the key `groups`."""
    names = [entry["name"] for entry in entries]
    places: dict[str, list[int]] = {}  # of the members of each group
    for n, entry in enumerate(entries):
        for name in as_list(entry.get("group", [])):
            members = places.setdefault(name, [])
            if n in members[-1:]:
                raise source.error(
                    ("experts", n, "group"),
                    f"expert {quote_field(names[n])} names the group {quote_field(name)} twice",
                    remedy="name it once",
                )
            members.append(n)
    groups = {
        name: Group(
            tuple(names[n] for n in members),
            source.path,
            source.line(("experts", members[0], "group")),
        )
        for name, members in places.items()
    }
    for name, given in problem.get("groups", {}).items():
        keys = ("groups", name)
        if name in groups:
            _, path, line = groups[name]
            place = ", ".join([path.name, f"line {line}"] if path else ["experts"])
            raise document.error(
                keys,
                f"group {quote_field(name)} is already in {place}",
                remedy="rename one of them, or keep one",
            )
        if isinstance(given, dict):
            chosen = members_by_column(document, name, given, sheet)
        else:
            chosen = check_members(document, keys, f"group {quote_field(name)}", given, names)
        groups[name] = Group(chosen, document.path, document.line(keys))
    return groups


def check_members(
    document: Document, keys: Keys, what: str, members: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """The members that are listed under some keys, if they are different experts."""
    known, seen = set(names), set[str]()
    for n, member in enumerate(members):
        if member not in known:
            raise document.error(
                (*keys, n),
                f"{what} has the unknown member {quote_field(member)}",
                remedy=validation.suggest_known_name(member, names, "experts"),
            )
        if member in seen:
            raise document.error(
                (*keys, n),
                f"{what} names {quote_field(member)} twice",
                remedy="name each member once",
            )
        seen.add(member)
    return tuple(members)


def members_by_column(
    document: Document, group: str, rule: Entry, sheet: Sheet | None
) -> tuple[str, ...]:
    """Members whose number in a column of the CSV file is in the range of the rule."""
    keys = ("groups", group, "column")
    if sheet is None:
        raise document.error(
            keys,
            f"group {quote_field(group)} has a column, but the experts are not in a CSV file",
            remedy="list its members",
        )
    column, blank = rule["column"], rule.get("blank")
    check_column(document, keys, sheet, column)
    low, high = rule.get("at_least", -math.inf), rule.get("at_most", math.inf)
    members = []
    for row, (name, field) in enumerate(zip(sheet.names, sheet.column(column), strict=True)):
        value = parse_decimal(field)
        if value is None and (field or not blank):
            raise ProblemFileError(
                column,
                path=sheet.path,
                line=sheet.line(row),
                got=shorten(field),
                expected="a number",
                remedy=f"to allow blanks, add `blank: in` or `blank: out` to groups.{group}",
            )
        if blank == "in" if value is None else low <= value <= high:
            members.append(name)
    if not members:
        raise document.error(
            ("groups", group),
            f"group {quote_field(group)} has no members",
            remedy="change its rule, or remove it",
        )
    return tuple(members)
