"""Read a crowd: a file of answers and a file of truths, joined on the task."""

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from bylot.outcome_tables.sheets import (
    WHOLE_NUMBER,
    data_error,
    describe_lines,
    quote_field,
    read_text_lines,
    split_at_commas,
    split_at_tabs,
)
from bylot_paper.crowd import Annotation, Crowd, UnjudgedCounts, assemble_crowd

COLUMN_WORDS = {
    "task": {"task", "item", "question", "object", "document", "example", "instance", "sample"},
    "worker": {"worker", "annotator", "user", "rater", "judge", "labeler", "labeller", "assessor"},
    "label": {"label", "answer", "response", "truth", "gold", "class", "category", "judgment"}
    | {"judgement", "vote", "truelabel", "goldlabel", "groundtruth", "workerlabel"},
}
"""The words of a header that name a column: lower case, letters only, without a final "id"."""


class FieldRows(NamedTuple):
    """The lines of a file, each with its fields in the order of the requested columns."""

    path: Path
    fields: list[tuple[str, ...]]
    header: bool  # was line 1 a header?

    def line(self, row: int) -> int:
        """The number, from 1, of a row's line in the file."""
        return row + 1 + self.header


def read_field_rows(path: Path, columns: Sequence[str]) -> FieldRows:
    """Read a file whose lines have one field for each of the columns. The separator is the one that
    gives most lines that many fields; tabs win a tie, then commas.
    """
    lines = read_text_lines(path)
    separators = (
        split_at_tabs,
        split_at_commas,
        lambda line: re.split("[ \t]+", line.strip(" \t")),
    )
    cut = max(
        ([split(line) for line in lines] for split in separators),
        key=lambda way: sum(len(fields) == len(columns) for fields in way),
    )
    bad = [n for n, fields in enumerate(cut, 1) if len(fields) != len(columns) or "" in fields]
    if bad:
        raise data_error(
            path,
            f"{describe_lines(bad, len(lines))} do not have the {len(columns)} fields "
            f"{', '.join(columns)}",
            "correct or remove them; fields are separated by tabs, commas or blanks",
        )
    order = find_header(path, cut, columns)
    if order is None:
        return FieldRows(path, [tuple(fields) for fields in cut], False)
    return FieldRows(path, [tuple(fields[i] for i in order) for fields in cut[1:]], True)


def find_header(path: Path, cut: list[list[str]], columns: Sequence[str]) -> list[int] | None:
    """The position of each column according to line 1; None if line 1 is data.

    Line 1 is a header if it names every column once by a known word, in any order. If its word for
    the task or the label occurs again in that column it may be data: that is an error, because a
    wrong guess would lose a line or invent one. (A worker may well be named "worker".)
    """
    meanings = [column_meaning(field) for field in cut[0]]
    if any(meanings.count(column) != 1 for column in columns):
        return None
    order = [meanings.index(column) for column in columns]
    for n, fields in enumerate(cut[1:], 2):
        for i in (order[0], order[-1]):
            if fields[i] == cut[0][i]:
                raise data_error(
                    path,
                    f"may be a header or data: line {n} has {quote_field(fields[i])} there too",
                    "rename that task or label",
                    1,
                )
    return order


def column_meaning(field: str) -> str | None:
    """The column that a word of a header stands for.

    >>> column_meaning("Worker ID"), column_meaning("true_label"), column_meaning("w17")
    ('worker', 'label', None)
    """
    word = re.sub("[^a-z]", "", field.lower()).removesuffix("id")
    return next((column for column, words in COLUMN_WORDS.items() if word in words), None)


def read_crowd(
    crowd_file: str | PathLike[str], truth_file: str | PathLike[str], name: str | None = None
) -> Crowd:
    """Read a crowd from lines `task worker label` and lines `task label`.

    Ids and labels are compared as text. A task has one truth, which may be repeated, and a worker
    one answer to a task: a second one is an error even if it is equal, because it would have to be
    dropped or counted twice. Answers to tasks without a truth are left out, as in the paper, and
    counted in `unjudged`.
    """
    answers = read_field_rows(Path(crowd_file), ("task", "worker", "label"))
    truths = read_field_rows(Path(truth_file), ("task", "label"))
    check_header(answers, truths)
    check_header(truths, answers)
    check_unique_answers(answers, 2)
    check_unique_answers(truths, 1, repeatable=True)
    truth = {row[0]: row[1] for row in truths.fields}
    judged = [(t, w, label) for t, w, label in answers.fields if t in truth]
    check_labels(answers, truths, judged, truth)
    all_tasks, all_workers = ({row[column] for row in answers.fields} for column in (0, 1))
    return assemble_crowd(
        Path(crowd_file).stem if name is None else name,
        (Annotation(task, worker, label == truth[task]) for task, worker, label in judged),
        unjudged=UnjudgedCounts(
            annotations=len(answers.fields) - len(judged),
            tasks=len(all_tasks - truth.keys()),
            workers=len(all_workers - {worker for _, worker, _ in judged}),
            unannotated=len(truth.keys() - all_tasks),
        ),
    )


def check_header(file: FieldRows, other: FieldRows) -> None:
    """Refuse a first line that may be a header with unknown names or data.

    It is data if one of its fields is a number, or if its label or task occurs elsewhere.
    """
    if not has_unknown_header(file):
        return
    first, *rest = file.fields
    beyond = rest + other.fields[has_unknown_header(other) :]
    if not any(row[0] == first[0] or row[-1] == first[-1] for row in beyond):
        columns = "task worker label" if len(first) == 3 else "task label"
        raise data_error(
            file.path,
            f"{quote_field(' '.join(first))} may be a header or data",
            f"write the line '{columns}' instead of it or above it",
            1,
        )


def has_unknown_header(file: FieldRows) -> bool:
    """Is the first line without a number, like a header, but not a known one?"""
    is_number = WHOLE_NUMBER.fullmatch
    return not file.header and any(not any(map(is_number, first)) for first in file.fields[:1])


def check_unique_answers(file: FieldRows, key: int, repeatable: bool = False) -> None:
    """Refuse a second line for the same first `key` fields; equal ones too, unless repeatable."""
    seen: dict[tuple[str, ...], int] = {}
    for row, fields in enumerate(file.fields):
        before = seen.setdefault(fields[:key], row)
        same = file.fields[before][-1] == fields[-1]
        if before != row and not (same and repeatable):
            whose = " by worker ".join(map(quote_field, fields[:key]))
            label, other = map(quote_field, (fields[-1], file.fields[before][-1]))
            earlier = "the same" if same else f"the other label {other}"
            raise data_error(
                file.path,
                f"task {whose} has label {label}, and {earlier} already in line "
                f"{file.line(before)}",
                "keep one of the two lines",
                file.line(row),
            )


def check_labels(
    answers: FieldRows, truths: FieldRows, judged: list[tuple[str, str, str]], truth: dict[str, str]
) -> None:
    """Check that some answer has a truth, and that there are at least two labels of each."""
    for file in (answers, truths):
        if not file.fields:
            raise data_error(file.path, "has a header and nothing else", "give a file with entries")
    if not judged:
        some, other = (quote_field(file.fields[0][0]) for file in (answers, truths))
        raise data_error(
            answers.path,
            f"no worker has a task with a truth: no task such as {some} is in "
            f"{truths.path.name!r}, which has tasks such as {other}",
            "give files that belong together, with the same ids",
        )
    given = {label for _, _, label in judged}
    wanted = {truth[task] for task, _, _ in judged}
    for file, labels, nouns in ((answers, given, "answers"), (truths, wanted, "truths")):
        if len(labels) == 1:
            raise data_error(
                file.path,
                f"all {nouns} of the joined tasks are {quote_field(*labels)}",
                "give two or more classes: one teaches nothing",
            )
    if not given & wanted:
        raise data_error(
            answers.path,
            f"no answer such as {quote_field(min(given))} is a truth such as "
            f"{quote_field(min(wanted))}",
            f"use the same labels as in {truths.path.name!r}",
        )
