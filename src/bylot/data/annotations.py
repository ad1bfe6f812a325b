"""Reading a crowd: a file of answers and a file of truths, joined on the task."""

from os import PathLike
from pathlib import Path

from bylot.data.crowd import NUMBER, Annotation, Crowd, Unjudged, assemble
from bylot.data.lines import Rows, fault, quoted, rows
from bylot.errors import DataError


def read(
    crowd_file: str | PathLike[str], truth_file: str | PathLike[str], name: str | None = None
) -> Crowd:
    """A crowd from lines `task worker label` and lines `task label`.

    Ids and labels are compared as they are written; how files may be written is in `lines`.
    A task has one truth, and a worker one answer to a task: a second line for either is an error
    even if it says the same, as it would have to be dropped or be counted twice.
    Answers to tasks without a truth are left out, as in the paper, and counted in `unjudged`.
    """
    answers = rows(Path(crowd_file), ("task", "worker", "label"))
    truths = rows(Path(truth_file), ("task", "label"))
    not_an_odd_header(answers, truths)
    not_an_odd_header(truths, answers)
    once(answers, 2)
    once(truths, 1)
    truth = {row[0]: row[1] for row in truths.fields}
    judged = [(t, w, label) for t, w, label in answers.fields if t in truth]
    can_learn(answers, truths, judged, truth)
    return assemble(
        Path(crowd_file).stem if name is None else name,
        (Annotation(task, worker, label == truth[task]) for task, worker, label in judged),
        unjudged=left_out(answers, judged, truth),
    )


def left_out(answers: Rows, judged: list[tuple[str, str, str]], truth: dict[str, str]) -> Unjudged:
    """What the join leaves out on either side."""
    all_tasks, all_workers = ({row[column] for row in answers.fields} for column in (0, 1))
    return Unjudged(
        annotations=len(answers.fields) - len(judged),
        tasks=len(all_tasks - truth.keys()),
        workers=len(all_workers - {worker for _, worker, _ in judged}),
        unannotated=len(truth.keys() - all_tasks),
    )


def not_an_odd_header(file: Rows, other: Rows) -> None:
    """Refuse a line 1 that may be a header in words we do not know, or data: we cannot tell.

    It is data if a field of it is a number, if its label is used elsewhere, or its task is.
    """
    if not wordy(file):
        return
    first, *rest = file.fields
    beyond = rest + other.fields[wordy(other) :]
    if not any(row[0] == first[0] or row[-1] == first[-1] for row in beyond):
        columns = " ".join(("task", "worker", "label") if len(first) == 3 else ("task", "label"))
        what = f"{quoted(' '.join(first))} may be a header or data"
        raise fault(file.path, what, f"write the line '{columns}' instead of it or above it", 1)


def wordy(file: Rows) -> bool:
    """Is line 1 without a number, as headers are, and yet not known to be one?"""
    first = file.fields[:1]
    return bool(first) and not file.header and not any(map(NUMBER.fullmatch, first[0]))


def once(file: Rows, key: int) -> None:
    """Refuse a second line for the same first `key` fields."""
    seen: dict[tuple[str, ...], int] = {}
    for row, fields in enumerate(file.fields):
        before = seen.setdefault(fields[:key], row)
        if before != row:
            whose = " by worker ".join(map(quoted, fields[:key]))
            same = file.fields[before][-1] == fields[-1]
            what = (
                f"task {whose} has label {quoted(fields[-1])}, and the "
                f"{'same' if same else f'other label {quoted(file.fields[before][-1])}'} "
                f"already in line {file.line(before)}"
            )
            raise fault(file.path, what, "keep one of the two lines", file.line(row))


def can_learn(
    answers: Rows, truths: Rows, judged: list[tuple[str, str, str]], truth: dict[str, str]
) -> None:
    """Is there an answer with a truth, and do answers and truths differ among themselves?"""
    if not judged:
        raise nothing_joined(answers, truths)
    given = {label for _, _, label in judged}
    wanted = {truth[task] for task, _, _ in judged}
    for file, labels, nouns in ((answers, given, "answers"), (truths, wanted, "truths")):
        if len(labels) == 1:
            what = f"all {nouns} of the joined tasks are {quoted(*labels)}"
            raise fault(file.path, what, "nothing can be learned from one class: give two or more")
    if not given & wanted:
        what = f"no answer such as {quoted(min(given))} is a truth such as {quoted(min(wanted))}"
        raise fault(answers.path, what, f"use the same labels here and in {truths.path.name!r}")


def nothing_joined(answers: Rows, truths: Rows) -> DataError:
    """The error for files that have no task in common."""
    if not answers.fields or not truths.fields:
        bare = truths if answers.fields else answers
        return fault(bare.path, "holds a header and nothing else", "give a file with entries")
    a, b = answers.fields[0][0], truths.fields[0][0]
    what = (
        f"no worker has a task with a truth: no task such as {quoted(a)} is in "
        f"{truths.path.name!r}, which has tasks such as {quoted(b)}"
    )
    return fault(answers.path, what, "give files that belong together, with ids written alike")
