"""Columns of a file of experts: numeric if possible, in the requested order."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bylot.errors import DataError
from bylot.outcome_tables.outcomes import read_experts
from tables import write_and_read_experts

# Experts


def test_columns_of_experts_are_numeric_if_possible(tmp_path: Path) -> None:
    content = 'name,lab,size,usd,note\n7,x,70,1e-4,\n8,,,.5,\n9,"x, y",7.,2,\n'
    columns = write_and_read_experts(tmp_path, content)
    assert columns.pop("size")[:1] == [70.0]
    assert columns == {
        "name": ["7", "8", "9"],
        "lab": ["x", "", "x, y"],
        "usd": [1e-4, 0.5, 2.0],
        "note": ["", "", ""],
    }
    size = read_experts(tmp_path / "experts.csv")["size"]
    assert_array_equal(size, [70, np.nan, 7])
    assert isinstance(write_and_read_experts(tmp_path, "name,size\na,7\nb,1e999\n")["size"][0], str)


def test_experts_are_returned_in_the_requested_order(tmp_path: Path) -> None:
    content = "name\tsize\nann\t1\nbob\t2\ncy\tlarge\n"
    assert write_and_read_experts(tmp_path, content, "bob", "ann") == {
        "name": ["bob", "ann"],
        "size": [2.0, 1.0],
    }
    with pytest.raises(DataError, match=r"experts\.csv: no line for expert 'eve'; add"):
        write_and_read_experts(tmp_path, content, "ann", "eve")
