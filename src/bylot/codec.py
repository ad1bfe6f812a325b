"""Saved files: versioned, sealed JSON in which every number comes back to the last bit.

It knows arrays, problems and files; what a router puts into one is left to the router.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bylot.errors import SavedFileError, SavedFileMissing
from bylot.problem import Limit, Problem, Share
from bylot.whole import write_whole

Fields = TypeVar("Fields", bound=tuple[Any, ...])


def write_arrays(fields: tuple[Any, ...], without: Collection[str] = ()) -> dict[str, Any]:
    """A NamedTuple of arrays (or of such) as plain data; repr of a float loses nothing."""
    return {
        name: write_arrays(value, without) if isinstance(value, tuple) else value.tolist()
        for name, value in named(fields, without).items()
    }


def read_arrays(data: Mapping[str, Any], blank: Fields, without: Collection[str] = ()) -> Fields:
    """Fill a blank NamedTuple of arrays: same names, same shapes, same types, or an error."""
    wanted = named(blank, without)
    if set(data) != set(wanted):
        raise SavedFileError(f"fields {sorted(data)} found where {sorted(wanted)} were wanted")
    for name, empty in wanted.items():
        if isinstance(empty, tuple):
            read_arrays(data[name], empty, without)
        else:
            fill(name, data[name], empty)
    return blank


def named(fields: tuple[Any, ...], without: Collection[str]) -> dict[str, Any]:
    """The fields of a NamedTuple under their names, but for some."""
    names = type(fields)._fields  # type: ignore[attr-defined]
    return {n: one for n, one in zip(names, fields, strict=True) if n not in without}


def fill(name: str, given: Any, empty: Any) -> None:
    """Copy nested lists into an array, if they are numbers of its kind and shape."""
    array = np.array(given)  # ragged lists raise a ValueError
    numbers = {"f": "fi", "i": "i", "b": "b"}[empty.dtype.kind]
    shapes = array.shape == empty.shape or array.size == empty.size == 0
    if not shapes or (array.size and array.dtype.kind not in numbers):
        raise SavedFileError(f"{name!r} is not {empty.dtype} of shape {empty.shape}")
    if array.size and not np.isfinite(array).all():
        raise SavedFileError(f"{name!r} holds a number that is not finite")
    empty[...] = array.reshape(empty.shape)


def resized(old: Fields, blank: Fields) -> Fields:
    """A NamedTuple of arrays of more rows, or of fewer, with the leading ones of the old copied."""
    for before, after in zip(leaves(old), leaves(blank), strict=True):
        rows = min(len(before), len(after))
        after[:rows] = before[:rows]
    return blank


def leaves(fields: tuple[Any, ...], without: Collection[str] = ()) -> Iterator[Any]:
    """All arrays of nested NamedTuples but those of some names, in order."""
    for value in named(fields, without).values():
        if isinstance(value, tuple):
            yield from leaves(value, without)
        else:
            yield value


def write_problem(problem: Problem) -> dict[str, Any]:
    """A problem as plain data; a share keeps its members."""
    shares = {limit.name for limit in problem.limits if isinstance(limit.cost, Share)}
    costs = {n: row.tolist() for n, row in problem.costs.items() if n not in shares}
    return {
        "experts": list(problem.experts),
        "costs": costs,
        "limits": [write_limit(limit) for limit in problem.limits],
        "draws": problem.draws,
        "floor": problem.floor,
        "period": problem.period,
    }


def write_limit(limit: Limit) -> dict[str, Any]:
    """One limit as plain data."""
    side = "at_most" if limit.sign < 0 else "at_least"
    if isinstance(limit.cost, Share):
        return {"share": limit.name, "members": list(limit.cost.members), side: limit.bound}
    return {"cost": limit.name, side: limit.bound}


def read_problem(data: Mapping[str, Any]) -> Problem:
    """The inverse of `write_problem`; all checks of a new problem apply."""
    return Problem(
        experts=data["experts"],
        costs=data["costs"],
        limits=[read_limit(limit) for limit in data["limits"]],
        draws=data["draws"],
        floor=data["floor"],
        period=data.get("period"),  # which older files do not have
    )


def read_limit(data: Mapping[str, Any]) -> Limit:
    """The inverse of `write_limit`."""
    cost = Share(data["share"], tuple(data["members"])) if "share" in data else data["cost"]
    sign = -1 if "at_most" in data else +1
    return Limit(cost, data["at_most" if sign < 0 else "at_least"], sign)


def seal(data: Mapping[str, Any]) -> str:
    """A checksum of everything in a file but itself."""
    content = {key: value for key, value in data.items() if key != "seal"}
    text = json.dumps(content, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def save(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file whole or not at all: a crash leaves the old one as it was."""
    text = json.dumps({**data, "seal": seal(data)}, allow_nan=False, separators=(",", ":"))
    path = path.resolve()  # a link stays a link
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise SavedFileError(f"{path} cannot be written: {error.strerror}") from error


def load(path: Path, form: str, version: int) -> dict[str, Any]:
    """Read a file of this form and version; any other, or a damaged one, is refused by name."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SavedFileMissing(
            f"{path} does not exist; give a file written by save(), or begin with Router(problem)"
        ) from None
    except OSError as error:
        raise SavedFileError(
            f"{path} cannot be read: {error.strerror}; give a file written by save()"
        ) from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or absurdly nested
        raise SavedFileError(f"{path} is not JSON ({error}); was it cut short?") from None
    if not isinstance(data, dict) or data.get("form") != form:
        raise SavedFileError(f"{path} is not a {form} file; give one written by save()")
    if data.get("version") != version:
        raise SavedFileError(
            f"{path} has version {data.get('version')!r}; this bylot reads version {version}: "
            "use the bylot that wrote it, or a newer one"
        )
    if not sealed(data):
        raise SavedFileError(f"{path} was changed after it was saved; restore it from a copy")
    return data


def sealed(data: Mapping[str, Any]) -> bool:
    """Is the content what was sealed?"""
    try:
        return bool(data.get("seal") == seal(data))
    except ValueError:  # a number that no file of ours can hold
        return False
