"""Saved files: versioned, sealed JSON in which every number comes back to the last bit.

It knows arrays, problems and files; what a router puts into one is left to the router.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bylot import policies
from bylot._atomic_write import replace_file
from bylot.errors import SavedFileError, SavedFileMissing
from bylot.policies.base import Ticket
from bylot.policies.validation import check_at_least_one
from bylot.problem import Limit, Problem

ArrayFields = TypeVar("ArrayFields", bound=tuple[Any, ...])


def arrays_to_data(fields: tuple[Any, ...], without: Collection[str] = ()) -> dict[str, Any]:
    """A NamedTuple of arrays (or of such) as plain data; repr of a float loses nothing."""
    return {
        name: arrays_to_data(value, without) if isinstance(value, tuple) else value.tolist()
        for name, value in fields_by_name(fields, without).items()
    }


def fill_arrays_from_data(
    data: Mapping[str, Any], blank: ArrayFields, without: Collection[str] = ()
) -> ArrayFields:
    """Fill a blank NamedTuple of arrays: same names, same shapes, same types, or an error."""
    wanted = fields_by_name(blank, without)
    if set(data) != set(wanted):
        raise SavedFileError(f"fields {sorted(data)} found where {sorted(wanted)} were wanted")
    for name, empty in wanted.items():
        if isinstance(empty, tuple):
            fill_arrays_from_data(data[name], empty, without)
        else:
            fill_array(name, data[name], empty)
    return blank


def fields_by_name(fields: tuple[Any, ...], without: Collection[str]) -> dict[str, Any]:
    """The fields of a NamedTuple under their names, but for some."""
    names = type(fields)._fields  # type: ignore[attr-defined]
    return {n: one for n, one in zip(names, fields, strict=True) if n not in without}


def fill_array(name: str, given: Any, empty: Any) -> None:
    """Copy nested lists into an array, if they are numbers of its kind and shape."""
    array = np.array(given)  # ragged lists raise a ValueError
    numbers = {"f": "fi", "i": "i", "b": "b"}[empty.dtype.kind]
    shapes = array.shape == empty.shape or array.size == empty.size == 0
    if not shapes or (array.size and array.dtype.kind not in numbers):
        raise SavedFileError(f"{name!r} is not {empty.dtype} of shape {empty.shape}")
    if array.size and not np.isfinite(array).all():
        raise SavedFileError(f"{name!r} holds a number that is not finite")
    empty[...] = array.reshape(empty.shape)


def resize_arrays(old: ArrayFields, blank: ArrayFields) -> ArrayFields:
    """A NamedTuple of arrays of more rows, or of fewer, with the leading ones of the old copied."""
    for before, after in zip(iterate_arrays(old), iterate_arrays(blank), strict=True):
        rows = min(len(before), len(after))
        after[:rows] = before[:rows]
    return blank


def iterate_arrays(fields: tuple[Any, ...], without: Collection[str] = ()) -> Iterator[Any]:
    """All arrays of nested NamedTuples but those of some names, in order."""
    for value in fields_by_name(fields, without).values():
        if isinstance(value, tuple):
            yield from iterate_arrays(value, without)
        else:
            yield value


def problem_to_data(problem: Problem) -> dict[str, Any]:
    """A problem as plain data; a share keeps its members."""
    derived = {limit.name for limit in problem.limits if limit.is_derived}
    costs = {n: row.tolist() for n, row in problem.costs.items() if n not in derived}
    return {
        "experts": list(problem.experts),
        "costs": costs,
        "limits": [limit.to_data() for limit in problem.limits],
        "draws": problem.draws,
        "floor": problem.floor,
        "period": problem.period,
    }


def problem_from_data(data: Mapping[str, Any]) -> Problem:
    """The inverse of `problem_to_data`; all checks of a new problem apply."""
    return Problem(
        experts=data["experts"],
        costs=data["costs"],
        limits=[Limit.from_data(limit) for limit in data["limits"]],
        draws=data["draws"],
        floor=data["floor"],
        period=data.get("period"),  # which older files do not have
    )


def compute_checksum(data: Mapping[str, Any]) -> str:
    """A checksum of everything in a file but itself."""
    content = {key: value for key, value in data.items() if key != "seal"}
    text = json.dumps(content, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_saved_file(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file whole or not at all: a crash leaves the old one as it was."""
    text = json.dumps(
        {**data, "seal": compute_checksum(data)}, allow_nan=False, separators=(",", ":")
    )
    path = path.resolve()  # a link stays a link
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise SavedFileError(f"{path} cannot be written: {error.strerror}") from error


def read_saved_file(path: Path, form: str, version: int) -> dict[str, Any]:
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
    if not has_valid_checksum(data):
        raise SavedFileError(f"{path} was changed after it was saved; restore it from a copy")
    return data


def has_valid_checksum(data: Mapping[str, Any]) -> bool:
    """Is the content what was sealed?"""
    try:
        return bool(data.get("seal") == compute_checksum(data))
    except ValueError:  # a number that no file of ours can hold
        return False


if TYPE_CHECKING:
    from bylot.router.router import Router

SAVED_FILE_FORMAT, SAVED_FILE_VERSION = "bylot-router", 2


def router_to_data(router: "Router") -> dict[str, Any]:
    """What a saved file holds."""
    return {
        "form": SAVED_FILE_FORMAT,
        "version": SAVED_FILE_VERSION,
        "problem": problem_to_data(router.problem),
        "policy": policies.policy_to_data(router.policy),
        "seed": router.seed,
        "horizon": router.horizon,
        "rewards": router.rewards,
        "max_contexts": router.max_contexts,
        "memory": router.memory,
        "contexts": list(router.contexts),
        "since": router.since,
        "unused": router.unused,
        "period": router.period,
        "skipped": router.skipped,
        "state": arrays_to_data(router.state, router.policy.derived),
        "ledger": arrays_to_data(router.ledger),
        "held": [open_decision_to_data(t, held) for t, held in router.held.items()],
    }


def router_from_data(make: type["Router"], data: dict[str, Any]) -> "Router":
    """A router from the content of a saved file."""
    router = make(
        problem_from_data(data["problem"]),
        policies.policy_from_data(data["policy"]),
        seed=data["seed"],
        horizon=data["horizon"],
        rewards=tuple(data["rewards"]),
        memory=data["memory"],
    )
    router.max_contexts = check_at_least_one("max_contexts", data["max_contexts"])
    router.contexts = {label: n for n, label in enumerate(data["contexts"])}
    lines = len(data["state"]["visits"])
    if not len(router.contexts) == len(data["contexts"]) <= lines:
        raise SavedFileError(f"{len(data['contexts'])} contexts, but {lines} lines of state")
    if not all(label is None or isinstance(label, str) for label in router.contexts):
        raise SavedFileError("a context is neither a string nor null")
    fill_arrays_from_data(data["ledger"], router.ledger)
    router.since = {name: int(n) for name, n in data.get("since", {}).items()}
    router.unused = {name: int(n) for name, n in data.get("unused", {}).items()}
    first, level = data.get("period", (0, 0))
    router.period = int(first), int(level)
    router.skipped = [int(n) for n in data.get("skipped", ())]
    if len(router.skipped) > len(router.contexts):
        raise SavedFileError(f"{len(router.skipped)} contexts were counted of fewer")
    blank_state = router.policy.start(router.rule, lines)
    state = fill_arrays_from_data(data["state"], blank_state, router.policy.derived)
    router.policy.derive(router.rule, state)
    if router.t < 0 or not router.policy.is_valid_state(router.rule, state):
        raise SavedFileError("its state is none that a router can be in")
    router.seat(state)
    router.held = dict(open_decision_from_data(one, router) for one in data["held"])
    return router


def open_decision_to_data(t: int, held: Ticket | float) -> dict[str, Any]:
    """A decision that waits for its reward, or the reward it got."""
    if not isinstance(held, Ticket):
        return {"t": t, "reward": held}
    data = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in held._asdict().items()
    }
    return {**data, "propensity": None if math.isnan(held.propensity) else held.propensity}


def open_decision_from_data(data: dict[str, Any], router: "Router") -> tuple[int, Ticket | float]:
    """The inverse of `open_decision_to_data`; a ticket must fit the router it belongs to."""
    t = data["t"]
    if type(t) is not int or not 0 <= t < router.t:
        raise SavedFileError(f"a held decision has number {t!r}, but {router.t} were made")
    if "reward" in data:
        return t, float(data["reward"])
    size, M, policy = router.problem.size, router.problem.draws, router.policy
    propensity = math.nan if data["propensity"] is None else float(data["propensity"])
    as_set = not policy.draws_iid and (policy.draws_sets or not math.isnan(propensity))
    draws, q = np.empty(M, np.int64), np.empty(M if policy.draws_iid else 0)
    inclusion = np.empty(size if as_set else 0)
    available = np.empty(size if data["available"] else 0, np.bool_)
    fill_array("draws", data["draws"], draws)
    fill_array("draw_probabilities", data["draw_probabilities"], q)
    fill_array("inclusion", data["inclusion"], inclusion)
    fill_array("available", data["available"], available)
    share, weight, most = float(data["share"]), float(data["weight"]), 1 + 1e-9
    fair = ((q > 0) & (q <= most)).all() and ((inclusion >= 0) & (inclusion <= most)).all()
    if not (draws.min() >= 0 and draws.max() < size and fair and 0 < share <= most):
        raise SavedFileError(f"decision {t} has draws or probabilities that this pool cannot have")
    context = data["context"]
    if type(context) is not int or not 0 <= context < len(router.contexts):
        raise SavedFileError(f"decision {t} has context {context!r}, which was never seen")
    if not (math.isnan(propensity) or 0 < propensity <= most) or not 0 <= weight < 1e6:
        raise SavedFileError(f"decision {t} has propensity {propensity} and weight {weight}")
    feasible, replaced = bool(data["feasible"]), bool(data["replaced"])
    return t, Ticket(
        t, context, draws, q, inclusion, available, share, feasible, propensity, weight, replaced
    )
