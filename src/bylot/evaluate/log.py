"""Decision logs: the entries of one pool of experts in order, and their files.

Files are JSON Lines, or Parquet if polars is installed.
"""

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bylot._atomic_write import save_file
from bylot.errors import DataError
from bylot.evaluate.entries import LogEntry, check_entry, parse_entry
from bylot.numerics.jit import Bools, Ints
from bylot.outcome_tables.sheets import data_error, import_polars, load_parquet, read_text_lines
from bylot.problem import Problem


class Stratum(NamedTuple):
    """Rounds with the same context and the same experts that could be drawn."""

    context: str | None
    available: Bools  # (K,); empty: all
    drawable: Bools  # (K + gone,) the experts that the log could draw


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """Checked entries in the order of t, and the problem that they belong to.

    Experts that are `gone` from the problem are numbered after its own. No target asks them, so a
    panel with one of them has weight 0.
    """

    problem: Problem
    entries: tuple[LogEntry, ...]
    places: tuple[str, ...]  # where each entry was found, for errors
    gone: tuple[str, ...] = ()
    earlier: tuple[LogEntry, ...] = ()  # those before, which are not used

    def since(self, t: int) -> "DecisionLog":
        first = sum(entry.t < t for entry in self.entries)
        later = self.entries[first:]
        if not later:
            last = self.entries[-1].t
            raise DataError(f"the log has no decision from {t} on, the last one is number {last}")
        return DecisionLog(
            self.problem,
            later,
            self.places[first:],
            find_unknown_experts(self.problem, later),
            (*self.earlier, *self.entries[:first]),
        )

    @property
    def size(self) -> int:
        """Number of experts, with those that are gone."""
        return self.problem.size + len(self.gone)

    @cached_property
    def index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate((*self.problem.experts, *self.gone))}

    @cached_property
    def members(self) -> list[Ints]:
        """The numbers of the different experts of each panel."""
        return [np.array([self.index[i] for i in one.subset], np.int64) for one in self.entries]

    @cached_property
    def draws(self) -> list[Ints]:
        """The numbers of the experts of each panel, with repetitions."""
        return [np.array([self.index[i] for i in one.draws], np.int64) for one in self.entries]

    @cached_property
    def strata(self) -> tuple[list[Stratum], Ints]:
        """The different strata, and the number of the stratum of each entry."""
        seen: dict[Any, int] = {}
        at = np.empty(len(self.entries), np.int64)
        for n, one in enumerate(self.entries):
            available = frozenset(one.available or self.problem.experts)  # gone only if logged so
            at[n] = seen.setdefault((one.context, available, frozenset(one.excluded)), len(seen))
        strata = []
        for context, available, excluded in seen:
            mask = np.array([name in available for name in self.index], np.bool_)
            drawable = mask & np.array([name not in excluded for name in self.index], np.bool_)
            own = mask[: self.problem.size]
            strata.append(Stratum(context, own[:0] if own.all() else own, drawable))
        return strata, at


def log_from_entries(
    problem: Problem, entries: Iterable[LogEntry], gone: Iterable[str] | None = ()
) -> DecisionLog:
    """A log of entries; `gone` are experts in it that have left the problem, None: all others."""
    return collect_entries(problem, ((f"entry {n}", one) for n, one in enumerate(entries)), gone)


def find_unknown_experts(problem: Problem, entries: Iterable[LogEntry]) -> tuple[str, ...]:
    """Experts named in entries that are not in the problem, in order of appearance."""
    names = (i for one in entries for i in (*one.draws, *(one.available or ()), *one.excluded))
    return tuple(dict.fromkeys(name for name in names if name not in problem.experts))


def collect_entries(
    problem: Problem, placed: Iterable[tuple[str, Any]], gone: Iterable[str] | None
) -> DecisionLog:
    """A log of entries, or of their fields as plain data, each with its place for errors.

    gone: None: all experts that are not in the problem
    """
    found: list[tuple[LogEntry, str]] = []
    seen: dict[tuple[str, str | int], str] = {}
    left = tuple(name for name in dict.fromkeys(gone or ()) if name not in problem.experts)
    index = {name: i for i, name in enumerate((*problem.experts, *left))}
    for place, given in placed:
        try:
            one = given if isinstance(given, LogEntry) else parse_entry(given)
            check_entry(one, None if gone is None else index)
        except DataError as error:
            error.line = place
            raise
        for key in (("id", one.id), ("t", one.t)):
            if seen.setdefault(key, place) != place:
                raise DataError(
                    f"{key[0]} {key[1]!r} is also that of {seen[key]}",
                    line=place,
                    remedy="keep one entry for each decision, the one with its reward",
                )
        found.append((one, place))
    if not found:
        raise DataError("the log has no entries", remedy="give one line for each decision")
    entries, places = zip(*sorted(found, key=lambda pair: pair[0].t), strict=True)
    left = find_unknown_experts(problem, entries) if gone is None else left
    return DecisionLog(problem, entries, places, left)


def read_log(path: str | Path, problem: Problem, gone: Iterable[str] | None = ()) -> DecisionLog:
    """Read a log file.

    Parameters
    ----------
    path
        JSON Lines, or Parquet if the name ends in .parquet.
    problem
        The experts, costs and limits that the log belongs to.
    gone
        Experts named in the log that have left the problem; None: all that it does not have.

    Returns
    -------
    DecisionLog
        The entries in the order of t.

    Raises
    ------
    DataError
        If the file or an entry is invalid; the message names file and line.
    """
    path = Path(path)
    if path.suffix != ".parquet":
        return collect_entries(problem, read_log_lines(path), gone)
    rows = load_parquet(path, "JSON Lines").iter_rows(named=True)
    placed = ((f"{path}, row {n}", fields) for n, fields in enumerate(rows, 1))
    return collect_entries(problem, placed, gone)


def read_log_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The fields of each line of a file of JSON Lines, with its place."""
    for n, line in enumerate(read_text_lines(path), 1):
        try:
            yield f"{path}, line {n}", json.loads(line, object_pairs_hook=refuse_duplicate_keys)
        except (ValueError, RecursionError) as error:
            raise data_error(
                path, f"is not JSON ({error})", "write one JSON object per line", n
            ) from None


def refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different."""
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"duplicate key {name!r}")
        made[name] = value
    return made


def write_log(path: str | Path, entries: Iterable[LogEntry]) -> None:
    """Write a log file atomically: JSON Lines, or Parquet if its name ends in .parquet."""
    path, rows = Path(path), list(entries)
    if path.suffix == ".parquet":
        save_file(path, encode_log_parquet(path, rows))
    else:
        save_file(path, "".join(one.to_json() + "\n" for one in rows).encode())


def encode_log_parquet(path: Path, entries: list[LogEntry]) -> bytes:
    pl = import_polars(path, "JSON Lines")
    columns = {
        **dict.fromkeys(["id", "context"], pl.String),
        "t": pl.Int64,
        **dict.fromkeys(["draws", "subset", "available", "excluded"], pl.List(pl.String)),
        "draw_probabilities": pl.List(pl.Float64),
        **dict.fromkeys(["propensity", "reward"], pl.Float64),
        "replaced": pl.Boolean,
    }
    costs = sorted({name for one in entries for name in one.spend})
    if costs:  # an empty struct cannot be written
        columns["spend"] = pl.Struct(dict.fromkeys(costs, pl.Float64))
    names = sorted({name for one in entries for name in one.members or ()})
    if names:
        columns["members"] = pl.Struct(dict.fromkeys(names, pl.Float64))
    if any(one.winner is not None for one in entries):
        columns["winner"] = pl.String
    if any(one.substituted for one in entries):
        columns["substituted"] = pl.Boolean
    rows = [{name: one.to_data().get(name) for name in columns} for one in entries]
    out = io.BytesIO()
    pl.DataFrame(rows, schema=columns).write_parquet(out)
    return out.getvalue()
