"""Log: the decisions of one pool in order, and the file they are kept in.

JSON Lines, or Parquet where polars is there; what an entry may hold is the entry's business.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
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

LOG_NEEDS_POLARS = (
    f"a log in Parquet needs polars: {install_command('reproduce')}, or use JSON Lines"
)


class Stratum(NamedTuple):
    """Where a target needs a law of its own: a context, and who is up and has a chance there."""

    context: str | None
    up: Bools  # (K,); empty: all
    chosen: Bools  # (K + gone,) those that the log could draw


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """Checked entries by t, where each was found, and the problem that they are of.

    gone: experts that were asked once and are no longer in the problem; they are numbered after
          its own. No target asks them, so that a panel with one of them has a weight of 0, which is
          exact: what it says is of other panels than the target's
    """

    problem: Problem
    entries: tuple[LogEntry, ...]
    where: tuple[str, ...]  # for errors: a file and a line
    gone: tuple[str, ...] = ()

    def since(self, t: int) -> "DecisionLog":
        """The decisions from number t on."""
        pairs = zip(self.entries, self.where, strict=True)
        later = [(place, one) for one, place in pairs if one.t >= t]
        if not later:
            last = self.entries[-1].t
            raise DataError(f"no decision of the log is from {t} on; the last one is number {last}")
        return collect_entries(
            self.problem, later, find_unknown_experts(self.problem, [one for _, one in later])
        )

    @property
    def size(self) -> int:
        """Experts, those that are gone too."""
        return self.problem.size + len(self.gone)

    @cached_property
    def index(self) -> dict[str, int]:
        """The numbers of the experts."""
        return number_experts((*self.problem.experts, *self.gone))

    @cached_property
    def members(self) -> list[Ints]:
        """The numbers of the different experts of each panel."""
        return [
            np.array([self.index[name] for name in one.subset], np.int64) for one in self.entries
        ]

    @cached_property
    def draws(self) -> list[Ints]:
        """The numbers of the experts of each panel as often as they came."""
        return [
            np.array([self.index[name] for name in one.draws], np.int64) for one in self.entries
        ]

    @cached_property
    def located(self) -> tuple[list[Stratum], Ints]:
        """The different places, and the number of the one that each entry is at."""
        seen: dict[Any, int] = {}
        at = np.empty(len(self.entries), np.int64)
        for n, one in enumerate(self.entries):
            up = None if one.available is None else frozenset(one.available)
            at[n] = seen.setdefault((one.context, up, frozenset(one.never)), len(seen))
        return [self.place(*key) for key in seen], at

    def place(
        self, context: str | None, up: frozenset[str] | None, never: frozenset[str]
    ) -> Stratum:
        """Names as masks; those that are gone are up only where that is said."""
        here = self.problem.experts if up is None else up
        mask = np.array([name in here for name in self.index], np.bool_)
        chosen = mask & np.array([name not in never for name in self.index], np.bool_)
        mine = mask[: self.problem.size]
        return Stratum(context, np.empty(0, np.bool_) if mine.all() else mine, chosen)


def number_experts(experts: Sequence[str]) -> dict[str, int]:
    """Experts and their numbers."""
    return {name: i for i, name in enumerate(experts)}


def log_from_entries(
    problem: Problem, entries: Iterable[LogEntry], gone: Iterable[str] = ()
) -> DecisionLog:
    """A log of entries that are at hand, and whoever of them is no longer in the problem."""
    return collect_entries(problem, ((f"entry {n}", one) for n, one in enumerate(entries)), gone)


def find_unknown_experts(problem: Problem, entries: Iterable[LogEntry]) -> tuple[str, ...]:
    """Whoever is named and is not in the problem, in the order in which they came."""
    named = (name for one in entries for name in (*one.draws, *(one.available or ()), *one.never))
    return tuple(dict.fromkeys(name for name in named if name not in problem.experts))


def collect_entries(
    problem: Problem, placed: Iterable[tuple[str, LogEntry]], gone: Iterable[str] = ()
) -> DecisionLog:
    """A log of entries, each with the place that an error about it names."""
    found: list[tuple[LogEntry, str]] = []
    seen: dict[tuple[str, str | int], str] = {}
    left = tuple(name for name in dict.fromkeys(gone) if name not in problem.experts)
    index = number_experts((*problem.experts, *left))
    for place, one in placed:
        try:
            found.append((check_entry(one, index), place))
        except InvalidLogEntry as error:
            raise DataError(f"{place}: {error}") from None
        for key in (("id", one.id), ("t", one.t)):
            if key in seen:
                raise DataError(
                    f"{place}: {key[0]} {key[1]!r} is that of {seen[key]} too; "
                    "keep one line for each decision, the one with its reward"
                )
            seen[key] = place
    if not found:
        raise DataError("the log has no entries; give one with a line for each decision")
    entries, where = zip(*sorted(found, key=lambda pair: pair[0].t), strict=True)
    return DecisionLog(problem, entries, where, left)


def read_log(path: str | Path, problem: Problem, gone: Iterable[str] = ()) -> DecisionLog:
    """The log in a file: JSON Lines, or Parquet if its name ends in .parquet.

    gone: experts that it names and that the problem no longer has
    """
    path = Path(path)
    rows = read_log_parquet(path) if path.suffix == ".parquet" else read_log_lines(path)
    return collect_entries(
        problem, ((place, parse_placed_entry(place, fields)) for place, fields in rows), gone
    )


def parse_placed_entry(place: str, fields: Any) -> LogEntry:
    """The entry of a line."""
    try:
        return parse_entry(fields)
    except InvalidLogEntry as error:
        raise DataError(f"{place}: {error}") from None


def read_log_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Every line of a file as JSON, with its place."""
    for n, line in enumerate(read_text_lines(path), 1):
        try:
            yield f"{path}, line {n}", json.loads(line, object_pairs_hook=refuse_duplicate_keys)
        except (ValueError, RecursionError) as error:
            what = f"is not JSON ({error})"
            raise data_error(path, what, "write one whole JSON object on each line", n) from None


def refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return made


def read_log_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    """Every row of a table, with its place."""
    pl = import_polars_for_log()
    if not path.is_file():
        raise data_error(path, "no such file", "give the path of a file that exists")
    try:
        rows = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise data_error(
            path, f"is no Parquet file ({reason})", "write it by polars, or as JSON"
        ) from None
    for n, fields in enumerate(rows.iter_rows(named=True), 1):
        yield f"{path}, row {n}", fields


def write_log(path: str | Path, entries: Iterable[LogEntry]) -> None:
    """Write a file whole or not at all: JSON Lines, or Parquet if its name ends in .parquet."""
    path, made = Path(path), list(entries)
    if path.suffix == ".parquet":
        save_file(path, encode_log_parquet(made))
    else:
        save_file(path, "".join(one.line() + "\n" for one in made).encode())


def encode_log_parquet(entries: list[LogEntry]) -> bytes:
    """A Parquet file with one row for each entry."""
    pl = import_polars_for_log()
    names = pl.List(pl.String)
    columns = {
        **dict.fromkeys(["id", "context"], pl.String),
        "t": pl.Int64,
        **dict.fromkeys(["draws", "subset", "available", "never"], names),
        "draw_probabilities": pl.List(pl.Float64),
        **dict.fromkeys(["propensity", "reward"], pl.Float64),
        "replaced": pl.Boolean,
    }
    costs = sorted({name for one in entries for name in one.spend})
    if costs:  # a struct of nothing cannot be written
        columns["spend"] = pl.Struct(dict.fromkeys(costs, pl.Float64))
    rows = [{name: one.fields().get(name) for name in columns} for one in entries]
    out = io.BytesIO()
    pl.DataFrame(rows, schema=columns).write_parquet(out)
    return out.getvalue()


def import_polars_for_log() -> Any:
    """The package, if it is there."""
    try:
        import polars
    except ModuleNotFoundError:
        raise BylotError(LOG_NEEDS_POLARS) from None
    return polars
