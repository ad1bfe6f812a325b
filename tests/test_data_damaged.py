"""Damaged files of outcomes and of experts give a table or an error of one line."""

from pathlib import Path

from hypothesis import given

from bylot.environments import Outcomes
from bylot.errors import DataError
from tables import (
    OUTCOMES,
    QUESTIONS,
    any_bytes,
    assert_one_line_error,
    damage_content,
    edits,
    fuzz_settings,
    write_and_read_experts,
    write_and_read_outcomes,
)


def assert_reads_table_or_one_line_error(folder: Path, outcomes: bytes, questions: bytes) -> bool:
    """Reading these files gives a table (True) or an error of one line (False)."""
    try:
        read = write_and_read_outcomes(folder, outcomes, questions)
    except DataError as error:
        assert_one_line_error(error)
        return False
    assert read.table.shape == (len(read.questions), len(read.experts))
    assert not ((read.table < 0) | (read.table > 1)).any()
    assert set(read.dimension.tolist()) == set(range(len(read.dimensions)))
    Outcomes(read.table, read.dimension)
    return True


@fuzz_settings
@given(outcomes=edits, questions=edits)
def test_damaged_files_give_a_table_or_an_error_of_one_line(
    tmp_path: Path,
    outcomes: list[tuple[int, int, bytes]],
    questions: list[tuple[int, int, bytes]],
) -> None:
    is_table = assert_reads_table_or_one_line_error(
        tmp_path, damage_content(OUTCOMES, outcomes), damage_content(QUESTIONS, questions)
    )
    assert is_table or outcomes or questions


@fuzz_settings
@given(outcomes=any_bytes, questions=any_bytes)
def test_any_bytes_give_a_table_or_an_error_of_one_line(
    tmp_path: Path, outcomes: bytes, questions: bytes
) -> None:
    assert_reads_table_or_one_line_error(tmp_path, outcomes, questions)
    assert_reads_table_or_one_line_error(tmp_path, OUTCOMES.encode(), questions)


@fuzz_settings
@given(content=any_bytes | edits.map(lambda changes: damage_content(QUESTIONS, changes)))
def test_any_bytes_give_experts_or_an_error_of_one_line(tmp_path: Path, content: bytes) -> None:
    try:
        columns = write_and_read_experts(tmp_path, content)
    except DataError as error:
        assert_one_line_error(error)
    else:
        assert len({len(column) for column in columns.values()}) == 1
