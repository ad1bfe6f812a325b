"""Damaged files of outcomes and of experts: a table, or what is wrong in one line."""

from pathlib import Path

from hypothesis import given

from bylot.environments import Outcomes
from bylot.errors import DataError
from tables import OUTCOMES, QUESTIONS, anything, damaged, edits, experts, fuzz, one_line, written


def table_or_complaint(folder: Path, outcomes: bytes, questions: bytes) -> bool:
    """Nothing else may come of any files; was it a table?"""
    try:
        read = written(folder, outcomes, questions)
    except DataError as error:
        one_line(error)
        return False
    assert read.table.shape == (len(read.questions), len(read.experts))
    assert not ((read.table < 0) | (read.table > 1)).any()
    assert set(read.dimension.tolist()) == set(range(len(read.dimensions)))
    Outcomes(read.table, read.dimension)
    return True


@fuzz
@given(outcomes=edits, questions=edits)
def test_damaged_files_give_a_table_or_one_line(
    tmp_path: Path,
    outcomes: list[tuple[int, int, bytes]],
    questions: list[tuple[int, int, bytes]],
) -> None:
    good = table_or_complaint(tmp_path, damaged(OUTCOMES, outcomes), damaged(QUESTIONS, questions))
    assert good or outcomes or questions


@fuzz
@given(outcomes=anything, questions=anything)
def test_any_bytes_give_a_table_or_one_line(
    tmp_path: Path, outcomes: bytes, questions: bytes
) -> None:
    table_or_complaint(tmp_path, outcomes, questions)
    table_or_complaint(tmp_path, OUTCOMES.encode(), questions)


@fuzz
@given(content=anything | edits.map(lambda changes: damaged(QUESTIONS, changes)))
def test_any_bytes_give_experts_or_one_line(tmp_path: Path, content: bytes) -> None:
    try:
        columns = experts(tmp_path, content)
    except DataError as error:
        one_line(error)
    else:
        assert len({len(column) for column in columns.values()}) == 1
