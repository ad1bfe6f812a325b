"""Groups: who belongs to them, as the experts, a list or a rule on a column says."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bylot.data.sheet import Sheet, number
from bylot.files.node import Node, Place, fault, quoted, several
from bylot.files.spread import columns
from bylot.problem.reading import instead


class Group(NamedTuple):
    """Members of a group, and where it is first spoken of."""

    members: tuple[str, ...]
    place: Place


def grouped(entries: Sequence[Node]) -> dict[str, Group]:
    """The groups that experts say they are in."""
    members: dict[str, list[str]] = {}
    places: dict[str, Place] = {}
    for entry in entries:
        given, name = entry.get("group"), entry.value["name"].value
        for group in [] if given is None else several(given):
            met = members.setdefault(group.value, [])
            if met[-1:] == [name]:
                what = f"{quoted(name)} is in group {quoted(group.value)} twice"
                raise fault(group.place, what, "name the group once")
            met.append(name)
            places.setdefault(group.value, group.place)
    return {group: Group(tuple(met), places[group]) for group, met in members.items()}


def further(
    form: Node, names: Mapping[str, Place], known: Mapping[str, Group], page: Sheet | None
) -> dict[str, Group]:
    """The known groups, and those that the form itself lists or has a rule for."""
    found, given = dict(known), form.get("groups")
    for group, here in ({} if given is None else given.keys).items():
        node = form.value["groups"].value[group]
        if group in known:
            what = f"group {quoted(group)} is in {known[group].place} already"
            raise fault(here, what, "call one of them otherwise, or keep one")
        listed = isinstance(node.value, list)
        members = enlisted(group, node, names) if listed else by_column(group, node, here, page)
        found[group] = Group(members, here)
    return found


def enlisted(group: str, node: Node, names: Mapping[str, Place]) -> tuple[str, ...]:
    """Members that are listed: experts, each once."""
    seen: dict[str, Place] = {}
    for member in node.value:
        if member.value not in names:
            what = f"group {quoted(group)} has the unknown member {quoted(member.value)}"
            raise fault(member.place, what, instead(member.value, list(names), "experts"))
        if member.value in seen:
            what = f"group {quoted(group)} names {quoted(member.value)} twice"
            raise fault(member.place, what, "name each member once")
        seen[member.value] = member.place
    return tuple(seen)


def by_column(group: str, rule: Node, here: Place, page: Sheet | None) -> tuple[str, ...]:
    """Members by a number that the CSV file has of them."""
    column = rule.value["column"]
    if page is None:
        what = f"group {quoted(group)} is by a column, but experts are not in a CSV file"
        raise fault(column.place, what, "list its members")
    columns(page, column)
    fields = page.column(column.value)
    members = [name for row, name in enumerate(page.names) if belongs(rule, page, row, fields[row])]
    if not members:
        raise fault(here, f"group {quoted(group)} has no members", "change its rule, or remove it")
    return tuple(members)


def belongs(rule: Node, page: Sheet, row: int, field: str) -> bool:
    """Is the expert of a line a member?"""
    here, column = Place(page.path, page.line(row)), rule.value["column"].value
    if not field:
        if (blank := rule.get("blank")) is None:
            remedy = f"fill it in, or add blank: in or blank: out to line {rule.place.line}"
            raise fault(here, f"{column} is blank", f"{remedy} of {rule.place.path.name}")
        return bool(blank.value == "in")
    value = number(field)
    if value is None:
        raise fault(here, f"{column} is {quoted(field)}", "write a number, or nothing")
    least, most = rule.get("at_least"), rule.get("at_most")
    enough = least is None or value >= least.value
    return bool(enough and (most is None or value <= most.value))
