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
from bylot.data.sheet import Sheet, number, sheet
from bylot.kernels.compile import Floats, Ints
from bylot.problem.reading import locked


@dataclass(frozen=True, eq=False)
class OutcomeTable:
    """Questions in the order of their ids, each of one dimension; experts as their file has them.

    `environments.Outcomes(table, dimension)` is the world in which they are asked.
    """

    experts: tuple[str, ...]
    questions: tuple[str, ...]  # sorted as numbers if all are whole numbers, else as text
    dimensions: tuple[str, ...]  # likewise
    dimension: Ints  # (Q,): of each question, an index into dimensions
    table: Floats  # (Q, K): outcomes in [0, 1]; NaN where an expert did not answer
    unasked: int  # questions that have a dimension but no outcomes, and were left out


def read_outcomes(
    outcomes_file: str | PathLike[str],
    questions_file: str | PathLike[str],
    dimension: str = "specialty",
) -> OutcomeTable:
    """A table from a file with a column for each expert and a file that says what is asked.

    Both begin with a header and have a line for each question, in any order, whose first field is
    the question's id. In the first file a field is a number from 0 to 1, or blank if the expert did
    not answer; in the second the column called `dimension` counts, and others may be there.
    """
    outcomes, questions = sheet(Path(outcomes_file)), sheet(Path(questions_file))
    labels = dict(zip(questions.names, labelled(questions, dimension), strict=True))
    known(outcomes, questions, labels)
    values = results(outcomes)
    row = {question: n for n, question in enumerate(outcomes.names)}
    ids = ordered(row)
    dimensions = ordered(labels[question] for question in ids)
    place = {label: n for n, label in enumerate(dimensions)}
    return OutcomeTable(
        experts=outcomes.columns[1:],
        questions=ids,
        dimensions=dimensions,
        dimension=locked(np.array([place[labels[question]] for question in ids], np.int64)),
        table=locked(values[[row[question] for question in ids]]),
        unasked=len(labels.keys() - row.keys()),
    )


def labelled(questions: Sheet, dimension: str) -> list[str]:
    """The dimension of each question, none of them blank."""
    labels = questions.column(dimension)
    if "" in labels:
        row = labels.index("")
        what = f"question {quoted(questions.names[row])} has no {quoted(dimension)}"
        raise fault(questions.path, what, "fill it in", questions.line(row))
    return labels


def known(outcomes: Sheet, questions: Sheet, labels: dict[str, str]) -> None:
    """Refuse an outcome of a question whose dimension is not known."""
    for row, question in enumerate(outcomes.names):
        if question not in labels:
            what = f"question {quoted(question)} is not in {questions.path.name!r}"
            remedy = "add it there or remove it here; ids must be written alike"
            raise fault(outcomes.path, what, remedy, outcomes.line(row))


def results(outcomes: Sheet) -> Floats:
    """Every line as its outcomes, NaN for a blank, in the order of the file."""
    experts = outcomes.columns[1:]
    if all(math.isfinite(outcome(name)) for name in experts):
        what = f"{quoted(','.join(experts))} are outcomes, not names of experts"
        raise fault(outcomes.path, what, "write a header above it, with names of their own", 1)
    meaning = {field: outcome(field) for fields in outcomes.fields for field in fields[1:]}
    values = np.array([[meaning[field] for field in fields[1:]] for fields in outcomes.fields])
    for row, i in np.argwhere(np.isinf(values)).tolist():
        field = outcomes.fields[row][1 + i]
        what = f"{quoted(field)} of expert {quoted(experts[i])} is not an outcome"
        remedy = "write a number from 0 to 1, or nothing if the expert did not answer"
        raise fault(outcomes.path, what, remedy, outcomes.line(row))
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
