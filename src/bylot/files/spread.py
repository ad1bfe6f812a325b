"""Spreads: a CSV file of experts, as experts of the form."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bylot.data.sheet import Sheet, number, sheet
from bylot.errors import DataError, ProblemFileError
from bylot.files.form import COST
from bylot.files.node import Node, Place, fault, quoted, several
from bylot.files.shape import Name
from bylot.problem.reading import instead

LARGEST = 100_000_000  # bytes of a CSV file


def spreadsheet(path: Path, named_at: Place) -> Sheet:
    """A CSV file; whatever is wrong with it, the error is one of problem files."""
    try:
        path.stat()
    except (OSError, ValueError):
        what = f"there is no CSV file {quoted(str(path))}"
        raise fault(named_at, what, "put it there, or give its path with --experts") from None
    try:
        return sheet(path, LARGEST)
    except DataError as error:
        raise ProblemFileError(str(error)) from None


def columns(page: Sheet, given: Node | None) -> list[str]:
    """The columns that hold groups."""
    if given is None:
        return ["group"] if "group" in page.columns[1:] else []
    for column in several(given):
        if column.value not in page.columns[1:]:
            what = f"{page.path.name} has no column {quoted(column.value)}"
            raise fault(column.place, what, instead(column.value, page.columns[1:], "columns"))
    return [column.value for column in several(given)]


def from_sheet(page: Sheet, costs: Mapping[str, Place], groups: Sequence[str]) -> list[Node]:
    """The lines of a CSV file as experts of the form, checked like those of a problem file."""
    for cost, place in costs.items():
        if cost not in page.columns[1:]:
            what = f"{page.path.name} has no column for the cost {quoted(cost)}"
            raise fault(place, what, instead(cost, page.columns[1:], "columns"))
    apart(page, groups)
    at = {column: page.columns.index(column) for column in (*costs, *groups)}
    entries = []
    for row, fields in enumerate(page.fields):
        here = Place(page.path, page.line(row))
        member = [Node(fields[at[group]], here) for group in groups if fields[at[group]]]
        values = {"name": Node(fields[0], here), "group": Node(member, here)}
        Name().check(values["name"], "the name")
        for cost in costs:
            if (field := fields[at[cost]]) != "":
                value = number(field)
                values[cost] = Node(field if value is None else value, here, field)
                COST.check(values[cost], f"{cost} of {quoted(fields[0])}")
        for one in member:
            Name().check(one, "the group")
        entries.append(Node(values, here, keys=dict.fromkeys(values, here)))
    if len(entries) < 2:
        raise fault(page.path, "holds one expert, which leaves no choice", "add another")
    return entries


def apart(page: Sheet, groups: Sequence[str]) -> None:
    """Refuse a group that two columns name: its members might have nothing in common."""
    seen: dict[str, str] = {}
    for column in groups:
        for row, group in enumerate(page.column(column)):
            if group and seen.setdefault(group, column) != column:
                what = f"{quoted(group)} is in column {column!r} and in {seen[group]!r}"
                raise fault(Place(page.path, page.line(row)), what, "call one of them otherwise")
