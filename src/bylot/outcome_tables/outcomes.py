"""Tables of outcomes (how well each expert answered each question) and of mean skills.

Recorded answers are JSON lines of questions with what each model answered, and if it was right.
"""

import gzip
import json
import math
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bylot._text import PASS_FAIL_WORDS, find_similar
from bylot.errors import DataError
from bylot.numerics.jit import Floats, Ints
from bylot.outcome_tables.sheets import (
    Sheet,
    data_error,
    open_sheet,
    parse_decimal,
    quote_field,
    read_sheet,
    shorten,
    sort_ids,
    suggest_decimal,
)
from bylot.problem.validation import lock_array

MAX_LISTED_NAMES = 5  # in a message
LINE_FORM = (
    '{"id": ..., "category": "...", "answers": {"MODEL": {"correct": true}, ...}}; '
    "other fields are ignored"
)


def match_columns(
    path: Path, columns: Sequence[str], experts: Sequence[str]
) -> tuple[list[int], tuple[str, ...]]:
    """Find the column of each expert of the problem, and the columns of nobody.

    >>> match_columns(Path("t.csv"), ["ann", "bob", "cat"], ["cat", "ann"])
    ([2, 0], ('bob',))
    """
    place = {name: n for n, name in enumerate(columns)}
    missing = [name for name in experts if name not in place]
    unused = tuple(name for name in columns if name not in set(experts))
    if missing:
        what = (
            f"no column for {len(missing)} of the {len(experts)} experts of the problem, "
            f"{list_names([suggest_name(name, unused) for name in missing])}"
        )
        if unused:
            what += f"; not in the problem: {list_names(list(map(quote_field, unused)))}"
        raise data_error(path, what, "use the same names in both files, or add the columns", 1)
    return [place[name] for name in experts], unused


def suggest_name(name: str, others: Sequence[str]) -> str:
    """A name, and the most similar of the others.

    >>> suggest_name("gpt-4o", ["gpt4o", "yi"])
    "'gpt-4o' (did you mean 'gpt4o'?)"
    """
    close = find_similar(name, others)
    return quote_field(name) + (f" (did you mean {quote_field(close)}?)" if close else "")


def list_names(names: Sequence[str]) -> str:
    """The first few names.

    >>> list_names(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more


@dataclass(frozen=True, eq=False)
class OutcomeTable:
    """Outcomes of questions, sorted by id; input of `environments.Outcomes`."""

    experts: tuple[str, ...]
    questions: tuple[str, ...]  # ids, sorted as numbers if all are whole numbers, else as text
    dimensions: tuple[str, ...]  # names, sorted likewise; empty if no column holds them
    dimension: Ints  # (Q,) index into dimensions; 0 if there are none
    contexts: tuple[str, ...]
    context: Ints
    table: Floats  # (Q, K) outcomes in [0, 1]; NaN where an expert did not answer
    unused: tuple[str, ...]  # columns that belong to none of the experts

    @property
    def blanks(self) -> Ints:
        """(K,) number of questions that each expert did not answer."""
        return np.asarray(np.isnan(self.table).sum(axis=0))


def read_outcomes(
    outcomes_file: str | PathLike[str],
    questions_file: str | PathLike[str] | None = None,
    dimension: str | None = "specialty",
    *,
    context: str | None = None,
    experts: Sequence[str] | None = None,
) -> OutcomeTable:
    """Read a table of outcomes from CSV, or from Parquet (*.parquet) if polars is installed.

    A file has a header and one line per question, in any order; the first field is the id of the
    question. An outcome is a number from 0 to 1, or a word for pass or fail in columns without
    numbers, or blank if there is no answer.

    outcomes_file:      one column per expert
    questions_file:     the columns `dimension` and `context`; by default the first file
    dimension, context: the column of each, None if there is none
    experts:            those to read, in this order; by default all further columns
    """
    outcomes = open_sheet(Path(outcomes_file))
    about = outcomes if questions_file is None else open_sheet(Path(questions_file))
    columns = [column for column in (dimension, context) if column is not None]
    labels = {column: read_labels(about, column) for column in columns}
    known = {question: n for n, question in enumerate(about.names)}
    for n, question in enumerate(outcomes.names):
        if question not in known:
            raise data_error(
                outcomes.path,
                f"question {quote_field(question)} is not in {about.path.name!r}",
                "add it there or remove it here; use the same ids in both files",
                outcomes.place(n),
            )
    row = {question: n for n, question in enumerate(outcomes.names)}
    ids = sort_ids(row)
    at = [known[question] for question in ids]
    dimensions, of_dimension = index_labels(labels.get(dimension or ""), at)
    contexts, of_context = index_labels(labels.get(context or ""), at)
    chosen, unused = find_expert_columns(outcomes, experts, columns if about is outcomes else ())
    return OutcomeTable(
        experts=tuple(outcomes.columns[i] for i in chosen),
        questions=ids,
        dimensions=dimensions,
        dimension=of_dimension,
        contexts=contexts,
        context=of_context,
        table=lock_array(parse_outcomes(outcomes, chosen)[[row[question] for question in ids]]),
        unused=unused,
    )


def count_questions_per_day(path: Path, column: str) -> float:
    """Questions of a table per day from its first to its last time; dates are whole days."""
    sheet, times = open_sheet(path), []
    for row, text in enumerate(sheet.column(column)):
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise data_error(
                path,
                f"{column} {quote_field(text)} is not a time",
                "write it as in 2026-05-31 or 2026-05-31T08:30",
                sheet.place(row),
            ) from None
        times.append(time if time.tzinfo else time.replace(tzinfo=UTC))
    days = (max(times) - min(times)) / timedelta(days=1)
    days += all(time.time() == datetime.min.time() for time in times)
    if not days:
        raise data_error(path, f"all times in {column} are equal", "use --per-day instead")
    return len(times) / days


def read_labels(about: Sheet, column: str) -> list[str]:
    """The dimension or context of each question; none is blank."""
    labels = about.column(column)
    if "" in labels:
        row = labels.index("")
        raise data_error(
            about.path,
            f"question {quote_field(about.names[row])} has no {quote_field(column)}",
            "fill it in",
            about.place(row),
        )
    return labels


def index_labels(labels: list[str] | None, rows: list[int]) -> tuple[tuple[str, ...], Ints]:
    """The sorted labels of some rows, and the index of each row's label."""
    if labels is None:
        return (), lock_array(np.zeros(len(rows), np.int64))
    names = sort_ids(labels[n] for n in rows)
    number = {label: n for n, label in enumerate(names)}
    return names, lock_array(np.array([number[labels[n]] for n in rows], np.int64))


def find_expert_columns(
    outcomes: Sheet, experts: Sequence[str] | None, labels: Collection[str]
) -> tuple[list[int], tuple[str, ...]]:
    columns = [i for i, name in enumerate(outcomes.columns) if i > 0 and name not in labels]
    names = [outcomes.columns[i] for i in columns]
    if not names:
        raise data_error(
            outcomes.path,
            "no column with the outcomes of an expert",
            "add one column per expert, with the name of the expert as header",
            1,
        )
    places, unused = match_columns(outcomes.path, names, names if experts is None else experts)
    return [columns[n] for n in places], unused


def parse_outcomes(outcomes: Sheet, columns: Sequence[int]) -> Floats:
    """(lines, columns) outcomes, NaN for a blank."""
    experts = [outcomes.columns[i] for i in columns]
    if all(math.isfinite(parse_outcome(name)) for name in experts):
        raise data_error(
            outcomes.path,
            f"{quote_field(','.join(experts))} are outcomes, not names of experts",
            "add a header with the names of the experts",
            1,
        )
    meaning = {fields[i]: parse_outcome(fields[i]) for fields in outcomes.fields for i in columns}
    for i, expert in zip(columns, experts, strict=True):
        check_one_kind(outcomes, i, expert)
    values = np.array([[meaning[fields[i]] for i in columns] for fields in outcomes.fields])
    for row, n in np.argwhere(np.isinf(values)).tolist():
        field = outcomes.fields[row][columns[n]]
        raise DataError(
            f"outcome of expert {quote_field(experts[n])}",
            got=shorten(field),
            expected="a number from 0 to 1, a word such as pass or fail, or nothing if the expert "
            "did not answer",
            path=outcomes.path,
            line=outcomes.place(row),
            remedy=suggest_decimal(field),
        )
    return values


def check_one_kind(outcomes: Sheet, column: int, expert: str) -> None:
    """Refuse a column with words and numbers: a scale from no to 10 is none from 0 to 1."""
    fields = list(dict.fromkeys(line[column] for line in outcomes.fields))
    words = [field for field in fields if field.lower() in PASS_FAIL_WORDS]
    numbers = [field for field in fields if parse_decimal(field) is not None]
    if words and numbers:
        raise data_error(
            outcomes.path,
            f"outcomes of expert {quote_field(expert)} are words and numbers, such as "
            f"{quote_field(words[0])} and {quote_field(numbers[0])}",
            "write only words or only numbers in one column",
        )


def parse_outcome(field: str) -> float:
    """A number from 0 to 1, 1 or 0 for a word that means pass or fail, NaN for a blank, and
    infinity for an invalid field.

    >>> parse_outcome("0.5"), parse_outcome(""), parse_outcome("1.5"), parse_outcome("yes")
    (0.5, nan, inf, 1.0)
    """
    if not field:
        return math.nan
    value = parse_decimal(field)
    if value is None:
        value = PASS_FAIL_WORDS.get(field.lower())
    return value + 0.0 if value is not None and 0 <= value <= 1 else math.inf  # no -0.0


def read_experts(
    path: str | PathLike[str], experts: Sequence[str] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Read the columns of a file with one line per expert, whose name is the first field.

    A column holds numbers, NaN where it is blank, if all its fields are numbers or blanks and not
    all are blank; else it holds text, as the first column does. `experts` selects and orders lines.
    """
    read = read_sheet(Path(path))
    place = {name: row for row, name in enumerate(read.names)}
    chosen = read.names if experts is None else experts
    for name in chosen:
        if name not in place:
            raise data_error(
                read.path,
                f"no line for expert {quote_field(name)}",
                "add one; use the same names in both files",
            )
    columns: dict[str, npt.NDArray[Any]] = {}
    rows = [read.fields[place[name]] for name in chosen]
    for column, *fields in zip(read.columns, *rows, strict=True):
        values = [parse_decimal(field) if field else math.nan for field in fields]
        is_text = not columns or None in values or not any(fields)
        columns[column] = np.array(fields, object) if is_text else np.array(values, np.float64)
    return columns


class SkillTable(NamedTuple):
    """Mean values in [0, 1], (dimension, expert); input of `environments.Noisy`."""

    dimensions: tuple[str, ...]
    table: Floats
    unused: tuple[str, ...]  # columns of the file that belong to no expert


def read_skills(path: str | PathLike[str], experts: Sequence[str]) -> SkillTable:
    """Read a file with one line per dimension, its name first, and one column per expert."""
    read = read_sheet(Path(path))
    places, unused = match_columns(read.path, read.columns[1:], experts)
    table = np.empty((len(read.fields), len(experts)))
    for row, fields in enumerate(read.fields):
        for i, place in enumerate(places):
            value = parse_decimal(fields[1 + place])
            if value is None or not 0 <= value <= 1:
                got = shorten(fields[1 + place])
                raise DataError(
                    f"skill of expert {quote_field(experts[i])}",
                    got=got,
                    expected="the mean value of an answer, from 0 to 1",
                    path=read.path,
                    line=read.place(row),
                    remedy=suggest_decimal(got),
                )
            table[row, i] = value + 0.0  # no -0.0
    return SkillTable(tuple(read.names), lock_array(table), unused)


def read_recorded_answers(path: str | PathLike[str]) -> OutcomeTable:
    """Read a file of JSON lines, or one compressed by gzip; the category is the context.

    The outcome of a model is 1 if its answer is correct; NaN if it did not answer.
    """
    file = Path(path)
    lines = [
        (number, parse_recorded_line(file, number, line))
        for number, line in enumerate(read_json_lines(file), 1)
        if line.strip()
    ]
    if not lines:
        raise data_error(file, "no questions", f"write a line for each: {LINE_FORM}")
    seen: dict[str, int] = {}
    for number, entry in lines:
        before = seen.setdefault(str(entry["id"]), number)
        if before != number:
            raise data_error(
                file,
                f"question {quote_field(str(entry['id']))}, as in line {before}",
                "keep one of them",
                number,
            )
    experts = tuple(sorted({name for _, entry in lines for name in entry["answers"]}))
    table = np.array(
        [
            [float(answers[name]["correct"]) if name in answers else np.nan for name in experts]
            for answers in (entry["answers"] for _, entry in lines)
        ]
    )
    labels = [str(entry["category"]) for _, entry in lines]
    contexts, context = index_labels(labels, list(range(len(lines))))
    none = lock_array(np.zeros(len(lines), np.int64))
    return OutcomeTable(experts, tuple(seen), (), none, contexts, context, lock_array(table), ())


def read_json_lines(path: Path) -> list[str]:
    """The lines of a text file, compressed or not."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        return content.decode("utf-8").splitlines()
    except FileNotFoundError:
        raise data_error(path, "no such file", "give the path of an existing file") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise data_error(path, f"cannot be read ({error})", "give JSON lines in UTF-8") from None


def parse_recorded_line(path: Path, number: int, line: str) -> dict[str, Any]:
    """A question, if it has all that is needed."""
    try:
        entry = json.loads(line)
        answers = entry["answers"].values()
        right = all(one["correct"] in (0, 1) for one in answers)  # True is 1, False is 0
        known = isinstance(entry["category"], str) and isinstance(entry["id"], str | int)
    except (ValueError, KeyError, TypeError, AttributeError):
        entry, right, known = {}, False, False
    if not (right and known and entry["answers"]):
        raise data_error(
            path, f"{quote_field(line)} is no recorded question", f"a line is {LINE_FORM}", number
        )
    return dict(entry)
