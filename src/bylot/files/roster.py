"""The roster: experts, their costs and their groups, from the problem file or from a CSV file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bylot.files.form import EXPERT
from bylot.files.groups import Group, further, grouped
from bylot.files.node import Node, Place, blamed, fault, quoted
from bylot.files.spread import columns, from_sheet, spreadsheet
from bylot.problem import reading
from bylot.problem.reading import instead


class Roster(NamedTuple):
    """Who can be asked, in the order of the file."""

    names: tuple[str, ...]
    costs: dict[str, list[float]]
    groups: dict[str, Group]
    csv: Path | None  # where the experts were, if not in the problem file


def roster(form: Node, csv: Path | None) -> Roster:
    """The experts of a checked form; csv is a file to take instead of the one that it names."""
    experts, costs = form.value["experts"], declared(form)
    if isinstance(experts.value, list):
        if csv is not None:
            what = f"lists its experts, so that {csv} is of no use"
            raise fault(experts.place, what, "write experts: {csv: ...}, or give no CSV file")
        entries, page = experts.value, None
    else:
        path = csv or experts.place.path.parent / experts.value["csv"].value
        page = spreadsheet(path, experts.value["csv"].place)
        entries = from_sheet(page, costs, columns(page, experts.get("group")))
    names = named(entries)
    return Roster(
        names=tuple(names),
        costs=priced(entries, costs),
        groups=further(form, names, grouped(entries), page),
        csv=None if page is None else page.path,
    )


def declared(form: Node) -> dict[str, Place]:
    """The costs of a form, none of which is called like another key of an expert."""
    units = form.get("costs")
    costs = {} if units is None else units.keys
    for key in EXPERT.fields:
        if key in costs:
            raise fault(costs[key], f"a cost is called {key!r}", "call it otherwise")
    return costs


def named(entries: Sequence[Node]) -> dict[str, Place]:
    """Experts by name, each once."""
    seen: dict[str, Place] = {}
    for entry in entries:
        name = entry.value["name"]
        if name.value in seen:
            what = f"{quoted(name.value)} is an expert in line {seen[name.value].line} already"
            raise fault(name.place, what, "give each expert a name of its own")
        seen[name.value] = name.place
    return seen


def priced(entries: Sequence[Node], costs: Mapping[str, Place]) -> dict[str, list[float]]:
    """Each cost of each expert, neither more nor less."""
    keys = (*EXPERT.fields, *costs)
    for entry in entries:
        name = entry.value["name"].value
        for key in entry.value:
            if key not in keys:
                what = f"expert {quoted(name)} has a cost {quoted(key)} that is not under costs"
                raise fault(entry.keys[key], what, instead(key, keys, "keys"))
        for cost in costs:
            if cost not in entry.value:
                what = f"expert {quoted(name)} has no {cost}"
                raise fault(entry.place, what, "add what a consultation costs; 0 if nothing")
            value = entry.value[cost]
            with blamed(value.place):
                reading.costs((name,), {cost: [value.value]})
    return {cost: [float(entry.value[cost].value) for entry in entries] for cost in costs}
