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
from bylot.errors import BylotError, DataError, install_command
from bylot.evaluate.entries import InvalidLogEntry, LogEntry, check_entry, parse_entry
from bylot.numerics.jit import Bools, Ints
from bylot.outcome_tables.text_lines import data_error, read_text_lines
from bylot.problem import Problem


class Stratum(NamedTuple):
    """Rounds with the same context and the same experts that could be drawn."""

    context: str | None
    available: Bools  # (K,); empty: all
    drawable: Bools  # (K + gone,) the experts that the log could draw


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """Checked entries in the order of t, and the problem that they belong to.

    places: where each entry was found, for errors
    gone:   experts that have left the problem; they are numbered after its own. No target asks
            them, so a panel with one of them has weight 0
    """

    problem: Problem
    entries: tuple[LogEntry, ...]
    places: tuple[str, ...]
    gone: tuple[str, ...] = ()

    def since(self, t: int) -> "DecisionLog":
        """The decisions from number t on."""
        pairs = zip(self.places, self.entries, strict=True)
        later = [(place, entry) for place, entry in pairs if entry.t >= t]
        if not later:
            last = self.entries[-1].t
            raise DataError(f"the log has no decision from {t} on, the last one is number {last}")
        gone = find_unknown_experts(self.problem, [entry for _, entry in later])
        return collect_entries(self.problem, later, gone)

    @property
    def size(self) -> int:
        """Number of experts, with those that are gone."""
        return self.problem.size + len(self.gone)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each expert."""
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
            available = None if one.available is None else frozenset(one.available)
            at[n] = seen.setdefault((one.context, available, frozenset(one.excluded)), len(seen))
        return [self._make_stratum(*key) for key in seen], at

    def _make_stratum(
        self, context: str | None, available: frozenset[str] | None, excluded: frozenset[str]
    ) -> Stratum:
        """Names as masks; experts that are gone are available only if the log says so."""
        here = self.problem.experts if available is None else available
        mask = np.array([name in here for name in self.index], np.bool_)
        drawable = mask & np.array([name not in excluded for name in self.index], np.bool_)
        own = mask[: self.problem.size]
        return Stratum(context, np.empty(0, np.bool_) if own.all() else own, drawable)


def log_from_entries(
    problem: Problem, entries: Iterable[LogEntry], gone: Iterable[str] = ()
) -> DecisionLog:
    """A log of entries; `gone` are experts in it that have left the problem."""
    return collect_entries(problem, ((f"entry {n}", one) for n, one in enumerate(entries)), gone)


def find_unknown_experts(problem: Problem, entries: Iterable[LogEntry]) -> tuple[str, ...]:
    """Experts named in entries that are not in the problem, in order of appearance."""
    names = (i for one in entries for i in (*one.draws, *(one.available or ()), *one.excluded))
    return tuple(dict.fromkeys(name for name in names if name not in problem.experts))


def collect_entries(
    problem: Problem, placed: Iterable[tuple[str, LogEntry]], gone: Iterable[str] = ()
) -> DecisionLog:
    """A log of checked entries, each with its place for errors."""
    found: list[tuple[LogEntry, str]] = []
    seen: dict[tuple[str, str | int], str] = {}
    left = tuple(name for name in dict.fromkeys(gone) if name not in problem.experts)
    index = {name: i for i, name in enumerate((*problem.experts, *left))}
    for place, one in placed:
        try:
            check_entry(one, index)
        except InvalidLogEntry as error:
            raise DataError(f"{place}: {error}") from None
        for key in (("id", one.id), ("t", one.t)):
            if key in seen:
                raise DataError(
                    f"{place}: {key[0]} {key[1]!r} is also that of {seen[key]}",
                    remedy="keep one entry for each decision, the one with its reward",
                )
            seen[key] = place
        found.append((one, place))
    if not found:
        raise DataError("the log has no entries", remedy="give one line for each decision")
    entries, places = zip(*sorted(found, key=lambda pair: pair[0].t), strict=True)
    return DecisionLog(problem, entries, places, left)


def read_log(path: str | Path, problem: Problem, gone: Iterable[str] = ()) -> DecisionLog:
    """Read a log file.

    Parameters
    ----------
    path
        JSON Lines, or Parquet if the name ends in .parquet.
    problem
        The experts, costs and limits that the log belongs to.
    gone
        Experts named in the log that have left the problem.

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
    rows = read_log_parquet(path) if path.suffix == ".parquet" else read_log_lines(path)
    return collect_entries(problem, rows, gone)


def parse_placed_entry(place: str, fields: Any) -> tuple[str, LogEntry]:
    """The entry of a line, with its place."""
    try:
        return place, parse_entry(fields)
    except InvalidLogEntry as error:
        raise DataError(f"{place}: {error}") from None


def read_log_lines(path: Path) -> Iterator[tuple[str, LogEntry]]:
    """The entries of a file of JSON Lines, with their places."""
    for n, line in enumerate(read_text_lines(path), 1):
        try:
            fields = json.loads(line, object_pairs_hook=refuse_duplicate_keys)
        except (ValueError, RecursionError) as error:
            what = f"is not JSON ({error})"
            raise data_error(path, what, "write one JSON object per line", n) from None
        yield parse_placed_entry(f"{path}, line {n}", fields)


def refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different."""
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"duplicate key {name!r}")
        made[name] = value
    return made


def read_log_parquet(path: Path) -> Iterator[tuple[str, LogEntry]]:
    """The entries of a Parquet file, with their places."""
    pl = import_polars_for_log()
    if not path.is_file():
        raise data_error(path, "no such file", "give the path of an existing file")
    try:
        rows = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        what = f"is not a Parquet file ({str(error).splitlines()[0]})"
        raise data_error(path, what, "write it with polars, or as JSON Lines") from None
    for n, fields in enumerate(rows.iter_rows(named=True), 1):
        yield parse_placed_entry(f"{path}, row {n}", fields)


def write_log(path: str | Path, entries: Iterable[LogEntry]) -> None:
    """Write a log file atomically: JSON Lines, or Parquet if its name ends in .parquet."""
    path, rows = Path(path), list(entries)
    if path.suffix == ".parquet":
        save_file(path, encode_log_parquet(rows))
    else:
        save_file(path, "".join(one.to_json() + "\n" for one in rows).encode())


def encode_log_parquet(entries: list[LogEntry]) -> bytes:
    """A Parquet file with one row for each entry."""
    pl = import_polars_for_log()
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
    rows = [{name: one.to_data().get(name) for name in columns} for one in entries]
    out = io.BytesIO()
    pl.DataFrame(rows, schema=columns).write_parquet(out)
    return out.getvalue()


def import_polars_for_log() -> Any:
    """The package polars."""
    try:
        import polars
    except ModuleNotFoundError:
        remedy = f"{install_command('reproduce')}, or use JSON Lines"
        raise BylotError("a Parquet log needs polars", remedy=remedy) from None
    return polars
