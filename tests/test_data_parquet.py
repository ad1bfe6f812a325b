"""Tables in Parquet read as tables in text; errors have one line."""

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot.errors import DataError
from bylot.outcome_tables.outcomes import read_outcomes
from tables import (
    assert_one_line_error,
    fuzz_settings,
    tables_are_equal,
    write_and_read_single_file,
)

# Parquet


def write_parquet_table(folder: Path) -> Path:
    """Write a table with all columns, of mixed types."""
    path = folder / "whole.parquet"
    pl.DataFrame(
        {
            "qid": [9, 10, 7],
            "specialty": ["heart", "skin", "skin"],
            "ward": ["day", "night", "day"],
            "ann": [1.0, 0.25, float("nan")],
            "bob": [None, False, True],
            "note": [None, "hard", None],
        }
    ).write_parquet(path)
    return path


def test_a_table_in_parquet_reads_like_the_same_table_in_text(tmp_path: Path) -> None:
    options: dict[str, Any] = {"context": "ward", "experts": ("ann", "bob")}
    read, text = (
        read_outcomes(write_parquet_table(tmp_path), **options),
        write_and_read_single_file(tmp_path, context="ward"),
    )
    assert tables_are_equal(read, text)
    assert (read.contexts, read.context.tolist()) == (text.contexts, text.context.tolist())


def test_errors_in_parquet_name_the_row(tmp_path: Path) -> None:
    path = write_parquet_table(tmp_path)
    with pytest.raises(DataError, match=r"whole\.parquet, row 1: question '9' has no 'note'; fill"):
        read_outcomes(path, context="note")
    pl.DataFrame({"qid": [1, 2, 1], "ann": [1, 1, 0]}).write_parquet(path)
    with pytest.raises(DataError, match=r"row 3: 'qid' is '1', as in row 1; keep one"):
        read_outcomes(path, dimension=None)
    pl.DataFrame({"qid": [1, 2], "ann": [[1], [0]]}).write_parquet(path)
    with pytest.raises(DataError, match=r"row 1: invalid outcome of expert 'ann' '\[1\]'"):
        read_outcomes(path, dimension=None)
    pl.DataFrame({"qid": [], "ann": []}).write_parquet(path)
    with pytest.raises(DataError, match="no rows; give a table"):
        read_outcomes(path, dimension=None)


def test_parquet_without_polars_or_without_a_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_outcomes(tmp_path / "none.parquet")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(DataError, match=r"polars; pip install '\.\[reproduce\]' in .*, or save"):
        read_outcomes(tmp_path / "none.parquet")


@settings(fuzz_settings, max_examples=100)
@given(at=st.integers(0, 3_000), cut=st.integers(0, 40), insert=st.binary(max_size=8))
def test_damaged_parquet_gives_a_table_or_an_error_of_one_line(
    tmp_path: Path, at: int, cut: int, insert: bytes
) -> None:
    path = write_parquet_table(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: at % len(content)] + insert + content[at % len(content) + cut :])
    try:
        read_outcomes(path, experts=["ann", "bob"])
    except DataError as error:
        assert_one_line_error(error)
