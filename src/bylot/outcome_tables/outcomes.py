"""Reading outcomes: which expert answered which question how well, and who the experts are."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bylot.numerics.jit import Floats, Ints
from bylot.outcome_tables.sheets import Sheet, open_sheet, parse_decimal, read_sheet
from bylot.outcome_tables.text_lines import data_error, quote_field, sort_ids
from bylot.problem.validation import lock_array

MAX_LISTED_NAMES = 5  # names that a message spells out


class ColumnMatch(NamedTuple):
    """Where each expert of the problem stands in the table, and the columns nobody asked for."""

    places: list[int]
    unused: tuple[str, ...]


def match_columns(path: Path, columns: Sequence[str], experts: Sequence[str]) -> ColumnMatch:
    """Every expert's column; columns of others may be there, as who is left out of a problem for
    once need not be cut out of a table.

    >>> match_columns(Path("t.csv"), ["ann", "bob", "cat"], ["cat", "ann"])
    ColumnMatch(places=[2, 0], unused=('bob',))
    """
    place = {name: n for n, name in enumerate(columns)}
    missing = [name for name in experts if name not in place]
    unused = tuple(name for name in columns if name not in set(experts))
    if missing:
        what = f"no column for {len(missing)} of the {len(experts)} experts of the problem, "
        what += list_names([suggest_name(name, unused) for name in missing])
        if unused:
            what += f"; not in the problem: {list_names(list(map(quote_field, unused)))}"
        raise data_error(path, what, "write names alike in both files, or add columns", 1)
    return ColumnMatch([place[name] for name in experts], unused)


def suggest_name(name: str, others: Sequence[str]) -> str:
    """A name, and one that may have been meant.

    >>> suggest_name("gpt-4o", ["gpt4o", "yi"])
    "'gpt-4o' (is it 'gpt4o'?)"
    """
    fold = {other.casefold(): other for other in others}
    close = difflib.get_close_matches(name.casefold(), fold, n=1)
    return quote_field(name) + (f" (is it {quote_field(fold[close[0]])}?)" if close else "")


def list_names(names: Sequence[str]) -> str:
    """The first few.

    >>> list_names(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more


@dataclass(frozen=True, eq=False)
class OutcomeTable:
    """Questions in the order of their ids, each of one dimension; experts as their file has them.

    `environments.Outcomes(table, dimension, contexts=context)` is the world that asks them.
    """

    experts: tuple[str, ...]
    questions: tuple[str, ...]  # sorted as numbers if all are whole numbers, else as text
    dimensions: tuple[str, ...]  # likewise; none if no column was to say them
    dimension: Ints  # (Q,): of each question, an index into dimensions; all 0 if there are none
    contexts: tuple[str, ...]  # sorted likewise; none if no column was to say them
    context: Ints  # (Q,): likewise
    table: Floats  # (Q, K): outcomes in [0, 1]; NaN where an expert did not answer
    unasked: int  # questions that have a dimension but no outcomes, and were left out
    unused: tuple[str, ...]  # columns that belong to none of the experts who were asked for

    @property
    def blanks(self) -> Ints:
        """(K,): the questions that each expert did not answer."""
        blanks: Ints = np.isnan(self.table).sum(axis=0)
        return blanks


def read_outcomes(
    outcomes_file: str | PathLike[str],
    questions_file: str | PathLike[str] | None = None,
    dimension: str | None = "specialty",
    *,
    context: str | None = None,
    experts: Sequence[str] | None = None,
) -> OutcomeTable:
    """A table from a file with a column for each expert, which also says what is asked unless a
    second file does.

    Both begin with a header and have a line for each question, in any order, whose first field is
    the question's id; they may be in Parquet too (*.parquet), if polars is there.

    dimension: the column of the second file, if there is one, or else of the first, that holds the
               dimension of a question; None if a request is one question, whatever it is about
    context:   likewise the column that holds the context; None if there is but one
    experts:   whom to read of, in this order; then other columns may be there. If it is not given,
               every further column of the first file is an expert

    What an expert has in a line is a number from 0 to 1, or blank if there was no answer.
    """
    outcomes = open_sheet(Path(outcomes_file))
    about = outcomes if questions_file is None else open_sheet(Path(questions_file))
    columns = [column for column in (dimension, context) if column is not None]
    labels = {column: read_labels(about, column) for column in columns}
    if questions_file is not None:
        check_questions(outcomes, about)
    row = {question: n for n, question in enumerate(outcomes.names)}
    ids = sort_ids(row)
    at = {question: n for n, question in enumerate(about.names)}
    own = columns if questions_file is None else []
    chosen, unused = find_expert_columns(outcomes, experts, set(own))
    dimensions, of_dimension = index_labels(labels.get(dimension or ""), [at[q] for q in ids])
    contexts, of_context = index_labels(labels.get(context or ""), [at[q] for q in ids])
    return OutcomeTable(
        experts=tuple(outcomes.columns[i] for i in chosen),
        questions=ids,
        dimensions=dimensions,
        dimension=of_dimension,
        contexts=contexts,
        context=of_context,
        table=lock_array(parse_outcomes(outcomes, chosen)[[row[question] for question in ids]]),
        unasked=len(at) - len(ids),
        unused=unused,
    )


def read_labels(about: Sheet, column: str) -> list[str]:
    """The dimension or context of each question, none of them blank."""
    labels = about.column(column)
    if "" in labels:
        row = labels.index("")
        what = f"question {quote_field(about.names[row])} has no {quote_field(column)}"
        raise data_error(about.path, what, "fill it in", about.place(row))
    return labels


def index_labels(labels: list[str] | None, rows: list[int]) -> tuple[tuple[str, ...], Ints]:
    """The different labels of some rows in their order, and the number of each row's."""
    if labels is None:
        return (), lock_array(np.zeros(len(rows), np.int64))
    names = sort_ids(labels[n] for n in rows)
    number = {label: n for n, label in enumerate(names)}
    return names, lock_array(np.array([number[labels[n]] for n in rows], np.int64))


def check_questions(outcomes: Sheet, about: Sheet) -> None:
    """Refuse an outcome of a question of which nothing is said."""
    told = set(about.names)
    for row, question in enumerate(outcomes.names):
        if question not in told:
            what = f"question {quote_field(question)} is not in {about.path.name!r}"
            remedy = "add it there or remove it here; ids must be written alike"
            raise data_error(outcomes.path, what, remedy, outcomes.place(row))


def find_expert_columns(
    outcomes: Sheet, experts: Sequence[str] | None, other: set[str]
) -> ColumnMatch:
    """Where the column of each expert is, and whose columns are nobody's."""
    columns = [i for i, name in enumerate(outcomes.columns) if i > 0 and name not in other]
    names = [outcomes.columns[i] for i in columns]
    if not names:
        what = "there is no column with the outcomes of an expert"
        raise data_error(outcomes.path, what, "add one for each expert, under their names", 1)
    found = match_columns(outcomes.path, names, names if experts is None else experts)
    return found._replace(places=[columns[n] for n in found.places])


def parse_outcomes(outcomes: Sheet, columns: Sequence[int]) -> Floats:
    """Every line as the outcomes in these columns, NaN for a blank, in the order of the file."""
    experts = [outcomes.columns[i] for i in columns]
    if all(math.isfinite(parse_outcome(name)) for name in experts):
        what = f"{quote_field(','.join(experts))} are outcomes, not names of experts"
        raise data_error(outcomes.path, what, "write a header above it, with names of their own", 1)
    meaning = {fields[i]: parse_outcome(fields[i]) for fields in outcomes.fields for i in columns}
    values = np.array([[meaning[fields[i]] for i in columns] for fields in outcomes.fields])
    for row, n in np.argwhere(np.isinf(values)).tolist():
        field = outcomes.fields[row][columns[n]]
        what = f"{quote_field(field)} of expert {quote_field(experts[n])} is not an outcome"
        remedy = "write a number from 0 to 1, or nothing if the expert did not answer"
        raise data_error(outcomes.path, what, remedy, outcomes.place(row))
    return values


def parse_outcome(field: str) -> float:
    """A number from 0 to 1, NaN for a blank, and infinity for what is no outcome.

    >>> parse_outcome("1"), parse_outcome(""), parse_outcome("1.5"), parse_outcome("yes")
    (1.0, nan, inf, inf)
    """
    if not field:
        return math.nan
    value = parse_decimal(field)
    return value + 0.0 if value is not None and 0 <= value <= 1 else math.inf  # no -0.0


def read_experts(
    path: str | PathLike[str], experts: Sequence[str] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """The columns of a file with a line for each expert, whose name is its first field.

    experts: whom to read of, in this order; everybody in the order of the file if it is not given.
    A column is one of numbers, NaN where it is blank, if it holds numbers and blanks only and not
    blanks alone; or else of text. The first is of text.
    """
    read = read_sheet(Path(path))
    place = {name: row for row, name in enumerate(read.names)}
    chosen = read.names if experts is None else list(experts)
    for name in chosen:
        if name not in place:
            what = f"there is no line for expert {quote_field(name)}"
            raise data_error(read.path, what, "add one; names must be written alike")
    rows = [read.fields[place[name]] for name in chosen]
    return {
        column: np.array(fields, object) if i == 0 else column_from_fields(fields)
        for i, (column, *fields) in enumerate(zip(read.columns, *rows, strict=True))
    }


def column_from_fields(fields: list[str]) -> npt.NDArray[Any]:
    """A column of numbers if it can be one.

    >>> column_from_fields(["7", ""]), column_from_fields(["7B", ""])
    (array([ 7., nan]), array(['7B', ''], dtype=object))
    """
    values = [parse_decimal(field) if field else math.nan for field in fields]
    if None in values or not any(fields):
        return np.array(fields, object)
    return np.array(values, np.float64)


@dataclass(frozen=True, eq=False)
class SkillTable:
    """Mean values, dimension by expert; `environments.Noisy(table)` is noise around them."""

    experts: tuple[str, ...]
    dimensions: tuple[str, ...]
    table: Floats  # (N, K), in [0, 1]
    unused: tuple[str, ...]  # columns of the file that belong to no expert


def read_skills(path: str | PathLike[str], experts: Sequence[str]) -> SkillTable:
    """A table from a file with a line for each dimension and a column for each of the experts.

    Line 1 names the columns; the first field of every other line is the name of a dimension.
    """
    read = read_sheet(Path(path))
    match = match_columns(read.path, read.columns[1:], experts)
    table = np.empty((len(read.fields), len(experts)))
    for row, fields in enumerate(read.fields):
        for i, place in enumerate(match.places):
            value = parse_decimal(fields[1 + place])
            if value is None or not 0 <= value <= 1:
                what = f"{quote_field(fields[1 + place])} of expert {quote_field(experts[i])} is not a skill"
                remedy = "write the mean value of an answer, from 0 to 1"
                raise data_error(read.path, what, remedy, read.line(row))
            table[row, i] = value + 0.0  # no -0.0
    return SkillTable(tuple(experts), tuple(read.names), lock_array(table), match.unused)
