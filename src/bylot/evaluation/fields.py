"""An entry from the fields of a line: each is what it must be, or a Fault says which is not.

Nothing is guessed: a field that is not known, or one that must be there and is not, is an error.
"""

import math
from collections.abc import Mapping
from typing import Any

from bylot.evaluation.entry import Entry, Fault, brief
from bylot.problem.limits import real
from bylot.problem.reading import instead

REQUIRED = ("id", "t", "reward")
OPTIONAL = ("context", "draws", "subset", "odds", "chance", "replaced", "spend", "available")
FIELDS = (*REQUIRED, *OPTIONAL, "never", "note")


def parse(fields: Any) -> Entry:
    """An entry from plain data."""
    if not isinstance(fields, Mapping):
        raise Fault(f"{brief(fields)} is no JSON object", 'write {"id": "d0", "t": 0, ...}')
    for name in fields:
        if name not in FIELDS:
            remedy = instead(name, FIELDS, "fields").removesuffix(", or add it")
            raise Fault(f"there is no field {brief(name)}", f"{remedy}; what is yours goes in note")
    for name in REQUIRED:
        if name not in fields:
            raise Fault(f"{name!r} is missing", "a reward that never came is null, not left out")
    if ("draws" in fields and fields["draws"] is not None) == (fields.get("subset") is not None):
        raise Fault(
            "wanted either draws or subset",
            "draws: independent ones, in order; else the panel as subset",
        )
    iid = fields.get("subset") is None
    panel = strings(fields, "draws" if iid else "subset")
    odds = numbers(fields, "odds")
    if odds and not iid:
        raise Fault(
            "odds are of independent draws, and a subset is given",
            "give draws, with those that came twice twice, or leave out the odds",
        )
    replaced = fields.get("replaced", False)
    if not isinstance(replaced, bool):
        raise Fault(f"replaced={brief(replaced)} is neither true nor false", "give one of these")
    return Entry(
        id=text(fields, "id"),
        t=whole(fields["t"]),
        draws=panel if (odds and not replaced) or not iid else tuple(dict.fromkeys(panel)),
        reward=number(fields, "reward"),
        context=None if fields.get("context") is None else text(fields, "context", least=0),
        odds=() if replaced else odds,
        chance=0.0 if replaced else number(fields, "chance") or 0.0,
        replaced=replaced,
        spend=spent(fields.get("spend")),
        available=None if fields.get("available") is None else strings(fields, "available"),
        never=() if fields.get("never") is None else strings(fields, "never", least=0),
    )


def strings(fields: Mapping[str, Any], name: str, least: int = 1) -> tuple[str, ...]:
    """A list of names."""
    given = fields[name]
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise Fault(f"{name}={brief(given)} is no list of names", 'write ["ann", "bob"]')
    if len(given) < least:
        raise Fault(f"{name} is empty", "name at least one expert")
    return tuple(given)


def numbers(fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """A list of finite numbers; none if it is null or left out."""
    given = fields.get(name)
    if given is None:
        return ()
    values = [real(one) for one in given] if isinstance(given, list) else [None]
    if not all(value is not None and math.isfinite(value) for value in values):
        raise Fault(f"{name}={brief(given)} is no list of numbers", "write [0.5, 0.25], or null")
    return tuple(value for value in values if value is not None)


def number(fields: Mapping[str, Any], name: str) -> float | None:
    """A finite number, or None."""
    given = fields.get(name)
    value = real(given)
    if given is not None and (value is None or not math.isfinite(value)):
        raise Fault(f"{name}={brief(given)} is no finite number", "give one, or null if not known")
    return value


def text(fields: Mapping[str, Any], name: str, least: int = 1) -> str:
    """A string, of at least so many characters."""
    given = fields[name]
    if not isinstance(given, str) or len(given) < least:
        raise Fault(f"{name}={brief(given)} is no string", 'write it in quotes: "d17"')
    return given


def whole(given: Any) -> int:
    """The number of a decision."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**62:
        raise Fault(f"t={brief(given)} is no whole number of 0 or more", "number decisions from 0")
    return given


def spent(given: Any) -> dict[str, float]:
    """Costs by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise Fault(f"spend={brief(given)} is no object", 'write {"usd": 2.5}')
    values = {str(name): real(cost) for name, cost in given.items() if cost is not None}
    if not all(cost is not None and math.isfinite(cost) for cost in values.values()):
        raise Fault(f"spend={brief(given)} has a cost that is no number", 'write {"usd": 2.5}')
    return {name: cost for name, cost in values.items() if cost is not None}
