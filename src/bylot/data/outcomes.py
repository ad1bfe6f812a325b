"""Reading outcomes: which expert answered which question how well, and who the experts are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bylot.data.crowd import ordered
from bylot.data.lines import fault, quoted
from bylot.data.match import Match, matched
from bylot.data.parquet import opened
from bylot.data.sheet import Sheet, number, sheet
from bylot.kernels.compile import Floats, Ints
from bylot.problem.reading import locked


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
    outcomes = opened(Path(outcomes_file))
    about = outcomes if questions_file is None else opened(Path(questions_file))
    columns = [column for column in (dimension, context) if column is not None]
    labels = {column: labelled(about, column) for column in columns}
    if questions_file is not None:
        known(outcomes, about)
    row = {question: n for n, question in enumerate(outcomes.names)}
    ids = ordered(row)
    at = {question: n for n, question in enumerate(about.names)}
    own = columns if questions_file is None else []
    chosen, unused = placed(outcomes, experts, set(own))
    dimensions, of_dimension = indexed(labels.get(dimension or ""), [at[q] for q in ids])
    contexts, of_context = indexed(labels.get(context or ""), [at[q] for q in ids])
    return OutcomeTable(
        experts=tuple(outcomes.columns[i] for i in chosen),
        questions=ids,
        dimensions=dimensions,
        dimension=of_dimension,
        contexts=contexts,
        context=of_context,
        table=locked(results(outcomes, chosen)[[row[question] for question in ids]]),
        unasked=len(at) - len(ids),
        unused=unused,
    )


def labelled(about: Sheet, column: str) -> list[str]:
    """The dimension or context of each question, none of them blank."""
    labels = about.column(column)
    if "" in labels:
        row = labels.index("")
        what = f"question {quoted(about.names[row])} has no {quoted(column)}"
        raise fault(about.path, what, "fill it in", about.place(row))
    return labels


def indexed(labels: list[str] | None, rows: list[int]) -> tuple[tuple[str, ...], Ints]:
    """The different labels of some rows in their order, and the number of each row's."""
    if labels is None:
        return (), locked(np.zeros(len(rows), np.int64))
    names = ordered(labels[n] for n in rows)
    number = {label: n for n, label in enumerate(names)}
    return names, locked(np.array([number[labels[n]] for n in rows], np.int64))


def known(outcomes: Sheet, about: Sheet) -> None:
    """Refuse an outcome of a question of which nothing is said."""
    told = set(about.names)
    for row, question in enumerate(outcomes.names):
        if question not in told:
            what = f"question {quoted(question)} is not in {about.path.name!r}"
            remedy = "add it there or remove it here; ids must be written alike"
            raise fault(outcomes.path, what, remedy, outcomes.place(row))


def placed(outcomes: Sheet, experts: Sequence[str] | None, other: set[str]) -> Match:
    """Where the column of each expert is, and whose columns are nobody's."""
    columns = [i for i, name in enumerate(outcomes.columns) if i > 0 and name not in other]
    names = [outcomes.columns[i] for i in columns]
    if not names:
        what = "there is no column with the outcomes of an expert"
        raise fault(outcomes.path, what, "add one for each expert, under their names", 1)
    found = matched(outcomes.path, names, names if experts is None else experts)
    return found._replace(places=[columns[n] for n in found.places])


def results(outcomes: Sheet, columns: Sequence[int]) -> Floats:
    """Every line as the outcomes in these columns, NaN for a blank, in the order of the file."""
    experts = [outcomes.columns[i] for i in columns]
    if all(math.isfinite(outcome(name)) for name in experts):
        what = f"{quoted(','.join(experts))} are outcomes, not names of experts"
        raise fault(outcomes.path, what, "write a header above it, with names of their own", 1)
    meaning = {fields[i]: outcome(fields[i]) for fields in outcomes.fields for i in columns}
    values = np.array([[meaning[fields[i]] for i in columns] for fields in outcomes.fields])
    for row, n in np.argwhere(np.isinf(values)).tolist():
        field = outcomes.fields[row][columns[n]]
        what = f"{quoted(field)} of expert {quoted(experts[n])} is not an outcome"
        remedy = "write a number from 0 to 1, or nothing if the expert did not answer"
        raise fault(outcomes.path, what, remedy, outcomes.place(row))
    return values


def outcome(field: str) -> float:
    """A number from 0 to 1, NaN for a blank, and infinity for what is no outcome.

    >>> outcome("1"), outcome(""), outcome("1.5"), outcome("yes")
    (1.0, nan, inf, inf)
    """
    if not field:
        return math.nan
    value = number(field)
    return value + 0.0 if value is not None and 0 <= value <= 1 else math.inf  # no -0.0


def read_experts(
    path: str | PathLike[str], experts: Sequence[str] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """The columns of a file with a line for each expert, whose name is its first field.

    experts: whom to read of, in this order; everybody in the order of the file if it is not given.
    A column is one of numbers, NaN where it is blank, if it holds numbers and blanks only and not
    blanks alone; or else of text. The first is of text.
    """
    read = sheet(Path(path))
    place = {name: row for row, name in enumerate(read.names)}
    chosen = read.names if experts is None else list(experts)
    for name in chosen:
        if name not in place:
            what = f"there is no line for expert {quoted(name)}"
            raise fault(read.path, what, "add one; names must be written alike")
    rows = [read.fields[place[name]] for name in chosen]
    return {
        column: np.array(fields, object) if i == 0 else numbers_or_text(fields)
        for i, (column, *fields) in enumerate(zip(read.columns, *rows, strict=True))
    }


def numbers_or_text(fields: list[str]) -> npt.NDArray[Any]:
    """A column of numbers if it can be one.

    >>> numbers_or_text(["7", ""]), numbers_or_text(["7B", ""])
    (array([ 7., nan]), array(['7B', ''], dtype=object))
    """
    values = [number(field) if field else math.nan for field in fields]
    if None in values or not any(fields):
        return np.array(fields, object)
    return np.array(values, np.float64)
