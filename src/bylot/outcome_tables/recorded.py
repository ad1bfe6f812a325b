"""Recorded answers: JSON lines of questions with what each model answered, and if it was right."""

import gzip
import json
import zlib
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bylot.outcome_tables.outcomes import OutcomeTable, index_labels
from bylot.outcome_tables.sheets import data_error, quote_field
from bylot.problem.validation import lock_array

LINE_FORM = (
    '{"id": ..., "category": "...", "answers": {"MODEL": {"correct": true}, ...}}; '
    "other fields are ignored"
)


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
