"""Groups: who belongs to them, as the experts, a list or a rule on a column says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bylot.errors import DataError, ProblemFileError
from bylot.outcome_tables.sheets import Sheet, parse_decimal, read_sheet
from bylot.problem import validation
from bylot.problem.validation import suggest_known_name
from bylot.problem_files.nodes import (
    FileLocation,
    Node,
    as_node_list,
    file_error,
    locate_errors,
    quote_value,
)
from bylot.problem_files.schema import COST_SHAPE, EXPERT_SHAPE, NameShape

MAX_CSV_BYTES = 100_000_000  # bytes of a CSV file


def read_experts_csv(path: Path, named_at: FileLocation) -> Sheet:
    """A CSV file; whatever is wrong with it, the error is one of problem files."""
    try:
        path.stat()
    except (OSError, ValueError):
        what = f"there is no CSV file {quote_value(str(path))}"
        raise file_error(named_at, what, "put it there, or give its path with --experts") from None
    try:
        return read_sheet(path, MAX_CSV_BYTES)
    except DataError as error:
        raise ProblemFileError(str(error)) from None


def group_columns(page: Sheet, given: Node | None) -> list[str]:
    """The columns that hold groups."""
    if given is None:
        return ["group"] if "group" in page.columns[1:] else []
    for column in as_node_list(given):
        if column.value not in page.columns[1:]:
            what = f"{page.path.name} has no column {quote_value(column.value)}"
            raise file_error(
                column.place, what, suggest_known_name(column.value, page.columns[1:], "columns")
            )
    return [column.value for column in as_node_list(given)]


def experts_from_sheet(
    page: Sheet, costs: Mapping[str, FileLocation], groups: Sequence[str]
) -> list[Node]:
    """The lines of a CSV file as experts of the form, checked like those of a problem file."""
    for cost, place in costs.items():
        if cost not in page.columns[1:]:
            what = f"{page.path.name} has no column for the cost {quote_value(cost)}"
            raise file_error(place, what, suggest_known_name(cost, page.columns[1:], "columns"))
    check_group_columns(page, groups)
    at = {column: page.columns.index(column) for column in (*costs, *groups)}
    entries = []
    for row, fields in enumerate(page.fields):
        here = FileLocation(page.path, page.line(row))
        member = [Node(fields[at[group]], here) for group in groups if fields[at[group]]]
        values = {"name": Node(fields[0], here), "group": Node(member, here)}
        NameShape().check(values["name"], "the name")
        for cost in costs:
            if (field := fields[at[cost]]) != "":
                value = parse_decimal(field)
                values[cost] = Node(field if value is None else value, here, field)
                COST_SHAPE.check(values[cost], f"{cost} of {quote_value(fields[0])}")
        for one in member:
            NameShape().check(one, "the group")
        entries.append(Node(values, here, keys=dict.fromkeys(values, here)))
    if len(entries) < 2:
        raise file_error(page.path, "holds one expert, which leaves no choice", "add another")
    return entries


def check_group_columns(page: Sheet, groups: Sequence[str]) -> None:
    """Refuse a group that two columns name: its members might have nothing in common."""
    seen: dict[str, str] = {}
    for column in groups:
        for row, group in enumerate(page.column(column)):
            if group and seen.setdefault(group, column) != column:
                what = f"{quote_value(group)} is in column {column!r} and in {seen[group]!r}"
                raise file_error(
                    FileLocation(page.path, page.line(row)), what, "call one of them otherwise"
                )


class Group(NamedTuple):
    """Members of a group, and where it is first spoken of."""

    members: tuple[str, ...]
    place: FileLocation


def groups_from_experts(entries: Sequence[Node]) -> dict[str, Group]:
    """The groups that experts say they are in."""
    members: dict[str, list[str]] = {}
    places: dict[str, FileLocation] = {}
    for entry in entries:
        given, name = entry.get("group"), entry.value["name"].value
        for group in [] if given is None else as_node_list(given):
            met = members.setdefault(group.value, [])
            if met[-1:] == [name]:
                what = f"{quote_value(name)} is in group {quote_value(group.value)} twice"
                raise file_error(group.place, what, "name the group once")
            met.append(name)
            places.setdefault(group.value, group.place)
    return {group: Group(tuple(met), places[group]) for group, met in members.items()}


def add_declared_groups(
    form: Node, names: Mapping[str, FileLocation], known: Mapping[str, Group], page: Sheet | None
) -> dict[str, Group]:
    """The known groups, and those that the form itself lists or has a rule for."""
    found, given = dict(known), form.get("groups")
    for group, here in ({} if given is None else given.keys).items():
        node = form.value["groups"].value[group]
        if group in known:
            what = f"group {quote_value(group)} is in {known[group].place} already"
            raise file_error(here, what, "call one of them otherwise, or keep one")
        listed = isinstance(node.value, list)
        members = (
            listed_members(group, node, names)
            if listed
            else members_by_column(group, node, here, page)
        )
        found[group] = Group(members, here)
    return found


def listed_members(group: str, node: Node, names: Mapping[str, FileLocation]) -> tuple[str, ...]:
    """Members that are listed: experts, each once."""
    seen: dict[str, FileLocation] = {}
    for member in node.value:
        if member.value not in names:
            what = f"group {quote_value(group)} has the unknown member {quote_value(member.value)}"
            raise file_error(
                member.place, what, suggest_known_name(member.value, list(names), "experts")
            )
        if member.value in seen:
            what = f"group {quote_value(group)} names {quote_value(member.value)} twice"
            raise file_error(member.place, what, "name each member once")
        seen[member.value] = member.place
    return tuple(seen)


def members_by_column(
    group: str, rule: Node, here: FileLocation, page: Sheet | None
) -> tuple[str, ...]:
    """Members by a number that the CSV file has of them."""
    column = rule.value["column"]
    if page is None:
        what = f"group {quote_value(group)} is by a column, but experts are not in a CSV file"
        raise file_error(column.place, what, "list its members")
    group_columns(page, column)
    fields = page.column(column.value)
    members = [
        name for row, name in enumerate(page.names) if is_member(rule, page, row, fields[row])
    ]
    if not members:
        raise file_error(
            here, f"group {quote_value(group)} has no members", "change its rule, or remove it"
        )
    return tuple(members)


def is_member(rule: Node, page: Sheet, row: int, field: str) -> bool:
    """Is the expert of a line a member?"""
    here, column = FileLocation(page.path, page.line(row)), rule.value["column"].value
    if not field:
        if (blank := rule.get("blank")) is None:
            remedy = f"fill it in, or add blank: in or blank: out to line {rule.place.line}"
            raise file_error(here, f"{column} is blank", f"{remedy} of {rule.place.path.name}")
        return bool(blank.value == "in")
    value = parse_decimal(field)
    if value is None:
        raise file_error(here, f"{column} is {quote_value(field)}", "write a number, or nothing")
    least, most = rule.get("at_least"), rule.get("at_most")
    enough = least is None or value >= least.value
    return bool(enough and (most is None or value <= most.value))


class ExpertList(NamedTuple):
    """Who can be asked, in the order of the file."""

    names: tuple[str, ...]
    costs: dict[str, list[float]]
    groups: dict[str, Group]
    csv: Path | None  # where the experts were, if not in the problem file


def read_expert_list(form: Node, csv: Path | None) -> ExpertList:
    """The experts of a checked form; csv is a file to take instead of the one that it names."""
    experts, costs = form.value["experts"], declared_costs(form)
    if isinstance(experts.value, list):
        if csv is not None:
            what = f"lists its experts, so that {csv} is of no use"
            raise file_error(experts.place, what, "write experts: {csv: ...}, or give no CSV file")
        entries, page = experts.value, None
    else:
        path = csv or experts.place.path.parent / experts.value["csv"].value
        page = read_experts_csv(path, experts.value["csv"].place)
        entries = experts_from_sheet(page, costs, group_columns(page, experts.get("group")))
    names = check_expert_names(entries)
    return ExpertList(
        names=tuple(names),
        costs=read_expert_costs(entries, costs),
        groups=add_declared_groups(form, names, groups_from_experts(entries), page),
        csv=None if page is None else page.path,
    )


def declared_costs(form: Node) -> dict[str, FileLocation]:
    """The costs of a form, none of which is called like another key of an expert."""
    units = form.get("costs")
    costs = {} if units is None else units.keys
    for key in EXPERT_SHAPE.fields:
        if key in costs:
            raise file_error(costs[key], f"a cost is called {key!r}", "call it otherwise")
    return costs


def check_expert_names(entries: Sequence[Node]) -> dict[str, FileLocation]:
    """Experts by name, each once."""
    seen: dict[str, FileLocation] = {}
    for entry in entries:
        name = entry.value["name"]
        if name.value in seen:
            what = f"{quote_value(name.value)} is an expert in line {seen[name.value].line} already"
            raise file_error(name.place, what, "give each expert a name of its own")
        seen[name.value] = name.place
    return seen


def read_expert_costs(
    entries: Sequence[Node], costs: Mapping[str, FileLocation]
) -> dict[str, list[float]]:
    """Each cost of each expert, neither more nor less."""
    keys = (*EXPERT_SHAPE.fields, *costs)
    for entry in entries:
        name = entry.value["name"].value
        for key in entry.value:
            if key not in keys:
                what = f"expert {quote_value(name)} has a cost {quote_value(key)} that is not under costs"
                raise file_error(entry.keys[key], what, suggest_known_name(key, keys, "keys"))
        for cost in costs:
            if cost not in entry.value:
                what = f"expert {quote_value(name)} has no {cost}"
                raise file_error(entry.place, what, "add what a consultation costs; 0 if nothing")
            value = entry.value[cost]
            with locate_errors(value.place):
                validation.check_costs((name,), {cost: [value.value]})
    return {cost: [float(entry.value[cost].value) for entry in entries] for cost in costs}
