"""Recorded answers: the reader and its refusals."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal

from bylot.errors import DataError
from bylot.outcome_tables.outcomes import read_recorded_answers

BLANK = float("nan")


def make_line(id: Any, category: str, text: str = "", **correct: bool | int) -> str:
    answers = {name: {"choice": "A", "correct": right} for name, right in correct.items()}
    return json.dumps({"id": id, "category": category, "question": text, "answers": answers})


LINES = [
    make_line("q2", "law", b=True, a=False),
    make_line(7, "art", "caf\u00e9", a=True),
    make_line("q1", "law", a=1, b=True),
]


@pytest.mark.parametrize("compressed", [False, True])
def test_answers_are_read_with_their_categories_as_contexts(
    compressed: bool, tmp_path: Path
) -> None:
    path, content = tmp_path / "answers.jsonl", ("\n".join(LINES) + "\n\n").encode()
    path.write_bytes(gzip.compress(content) if compressed else content)
    found = read_recorded_answers(path)
    assert (found.experts, found.questions) == (("a", "b"), ("q2", "7", "q1"))
    assert_array_equal(found.table, [[0, 1], [1, BLANK], [1, 1]])
    assert (found.contexts, found.context.tolist()) == (("art", "law"), [1, 0, 1])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 4: .* is no recorded question; a line is"),
        ("[]", "line 4: .* is no recorded question"),
        ('{"id": 1, "category": "law", "answers": {}}', "line 4"),
        ('{"id": 1, "category": "law", "answers": {"a": {"correct": 2}}}', "line 4"),
        ('{"id": 1, "answers": {"a": {"correct": true}}}', "line 4"),
        (make_line("q2", "law", a=True), "line 4: question 'q2', as in line 1; keep one"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join([*LINES, line]), encoding="utf-8")
    with pytest.raises(DataError, match=words):
        read_recorded_answers(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no questions"),
        (b"\xff\xfe", "cannot be read"),
        (gzip.compress(LINES[0].encode(), mtime=0)[:-9], "cannot be read"),
    ],
    ids=["empty", "no gzip", "truncated"],
)
def test_a_damaged_file_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_recorded_answers(path)
    with pytest.raises(DataError, match="no such file"):
        read_recorded_answers(tmp_path / "other")
